"""Ed25519 keys of orchestrators and devices, in files and in messages.

A key is known by its id, the first 16 hexadecimal digits of the SHA-256 of its public half. A public key is written as
one line, `ed25519 BASE64`; a private key is PEM (PKCS 8, RFC 8410), which is a fixed head and the 32 bytes of the key:
a library for all kinds of keys would take more memory than the rest of this module.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_KIND = "ed25519"
_BEGIN, _END = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
_HEAD = bytes.fromhex("302e020100300506032b657004220420")
_KEY_BYTES = 32


class PrivateKey:
    """Signs messages."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key())
        self.key_id = self.public.key_id

    @classmethod
    def generate(cls) -> "PrivateKey":
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes) -> "PrivateKey":
        """Raises ValueError."""
        begin, _, rest = pem.decode("ascii", "replace").strip().partition("\n")
        body, _, end = rest.rpartition("\n")
        if begin.strip() != _BEGIN or end.strip() != _END:
            raise ValueError("it is not an Ed25519 key in PEM that is not encrypted")
        der = base64.b64decode("".join(body.split()), validate=True)
        if not der.startswith(_HEAD) or len(der) != len(_HEAD) + _KEY_BYTES:
            raise ValueError("it is not an Ed25519 key")
        return cls(Ed25519PrivateKey.from_private_bytes(der[len(_HEAD) :]))

    @property
    def pem(self) -> bytes:
        body = base64.b64encode(_HEAD + self._key.private_bytes_raw()).decode()
        return f"{_BEGIN}\n{body}\n{_END}\n".encode()

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)


class PublicKey:
    """Checks signatures."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.raw = key.public_bytes_raw()
        self.key_id = hashlib.sha256(self.raw).hexdigest()[:16]

    @classmethod
    def parse(cls, line: str) -> "PublicKey":
        """Raises ValueError."""
        kind, _, text = line.strip().partition(" ")
        try:
            if kind == _KIND:
                return cls(Ed25519PublicKey.from_public_bytes(base64.b64decode(text.split()[0], validate=True)))
        except (binascii.Error, ValueError, IndexError):
            pass
        raise ValueError(f"a public key is written '{_KIND} BASE64'")

    def __str__(self) -> str:
        return f"{_KIND} {base64.b64encode(self.raw).decode()}"

    def verifies(self, data: bytes, signature: bytes) -> bool:
        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


class PublicKeys:
    """The keys whose messages are accepted: a `Verifier`."""

    def __init__(self, keys: Iterable[PublicKey]) -> None:
        self.by_id: Mapping[str, PublicKey] = {key.key_id: key for key in keys}

    def verify(self, key_id: str, data: bytes, signature: bytes) -> bool | None:
        key = self.by_id.get(key_id)
        return None if key is None else key.verifies(data, signature)
