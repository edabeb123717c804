"""A certificate authority of one's own, for servers that only one's own processes talk to."""

import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

AUTHORITY_DAYS = 3_650
SERVER_DAYS = 825
_CLOCKS_DIFFER = timedelta(hours=1)


class Certificate(Struct, frozen=True):
    """A certificate and its private key, as PEM."""

    cert: bytes
    key: bytes


class SigningRequest(Struct, frozen=True):
    """A request for a certificate (PKCS 10), and the private key that stays where it was made, as PEM."""

    request: bytes
    key: bytes


def new_authority(name: str, now: datetime | None = None) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    draft = _draft(subject, subject, key.public_key(), AUTHORITY_DAYS, now)
    draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    draft = draft.add_extension(_usage(signs_certificates=True), critical=True)
    draft = draft.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return _pem(draft.sign(key, hashes.SHA256()), key)


def sign_server(authority: Certificate, hosts: Iterable[str], now: datetime | None = None) -> Certificate:
    """A certificate for a server at these hosts, which it also shows to other servers of its cluster."""
    names = list(dict.fromkeys(hosts))
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _sign(authority, names[0], [_host(name) for name in names], uses, now)


def sign_client(authority: Certificate, name: str, now: datetime | None = None) -> Certificate:
    """A certificate that a client shows; its name is the common name of its subject and stands nowhere else."""
    return _sign(authority, name, [], [ExtendedKeyUsageOID.CLIENT_AUTH], now)


def new_request(name: str) -> SigningRequest:
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(_named(name)).sign(key, hashes.SHA256())
    return SigningRequest(made.public_bytes(serialization.Encoding.PEM), _private_pem(key))


def sign_request(authority: Certificate, request: bytes, name: str, now: datetime | None = None) -> bytes:
    """The certificate of a client whose key is elsewhere, as PEM. Raises ValueError for a request that proves no key.

    Only the key counts of what the request says: name, validity and uses are those of the one who signs.
    """
    asked = x509.load_pem_x509_csr(request)
    try:
        key = asked.public_key()
    except UnsupportedAlgorithm:
        raise ValueError("its key is of an unknown kind") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("its key is not on the curve P-256")
    if not asked.is_signature_valid:
        raise ValueError("its signature does not fit its key")
    made = _certify(authority, name, key, [], [ExtendedKeyUsageOID.CLIENT_AUTH], now)
    return made.public_bytes(serialization.Encoding.PEM)


def client_name(cert: bytes, key: bytes, authority: bytes) -> str:
    """The name in a client's certificate. Raises ValueError where it is not for this key, or of another authority."""
    found, signer = x509.load_pem_x509_certificate(cert), x509.load_pem_x509_certificate(authority)
    own = serialization.load_pem_private_key(key, None)
    if found.public_key() != own.public_key():
        raise ValueError("the certificate is for another key")
    try:
        found.verify_directly_issued_by(signer)
    except (InvalidSignature, TypeError):
        raise ValueError("the certificate is not of the authority that comes with it") from None
    names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _sign(
    authority: Certificate, name: str, hosts: list[x509.GeneralName], uses: list[x509.ObjectIdentifier],
    now: datetime | None,
) -> Certificate:  # fmt: skip
    key = ec.generate_private_key(ec.SECP256R1())
    return _pem(_certify(authority, name, key.public_key(), hosts, uses, now), key)


def _certify(
    authority: Certificate, name: str, key: ec.EllipticCurvePublicKey, hosts: list[x509.GeneralName],
    uses: list[x509.ObjectIdentifier], now: datetime | None,
) -> x509.Certificate:  # fmt: skip
    signer = x509.load_pem_x509_certificate(authority.cert)
    signing = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    draft = _draft(_named(name), signer.subject, key, SERVER_DAYS, now)
    if hosts:
        draft = draft.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    draft = draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    draft = draft.add_extension(_usage(signs_certificates=False), critical=True)
    draft = draft.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    return draft.add_extension(issuer, critical=False).sign(signing, hashes.SHA256())


def certified_hosts(cert: bytes) -> list[str]:
    """The hosts that a certificate is for. Raises ValueError for what is no certificate."""
    try:
        names = x509.load_pem_x509_certificate(cert).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    found: list[object] = [*names.value.get_values_for_type(x509.DNSName)]
    return [str(name) for name in (*found, *names.value.get_values_for_type(x509.IPAddress))]


def is_certified(host: str, hosts: Iterable[str]) -> bool:
    """Whether a certificate for these hosts is good for that one, as clients see it."""
    name = host.strip("[]").lower()
    with suppress(ValueError):
        name = str(ipaddress.ip_address(name))
    rest = name.partition(".")[2]
    return any(each.lower() in {name, f"*.{rest}"} for each in hosts)


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: datetime | None
) -> x509.CertificateBuilder:
    start = now or datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCKS_DIFFER)
        .not_valid_after(start + timedelta(days=days))
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(made: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certificate:
    return Certificate(made.public_bytes(serialization.Encoding.PEM), _private_pem(key))


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
