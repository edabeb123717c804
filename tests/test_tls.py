"""Whom connections trust."""

import ssl
from pathlib import Path

import pytest
import trustme

from toolwire.tls import trust_for


def known(context: ssl.SSLContext) -> int:
    return context.cert_store_stats()["x509_ca"]


def test_the_certificates_of_the_system_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    trusted = trust_for("https://a.example")

    assert trusted is trust_for("HTTPS://b.example/v1")
    assert (trusted.verify_mode, trusted.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_an_address_without_tls_needs_none_and_would_refuse_all() -> None:
    nothing = trust_for("http://127.0.0.1:1")

    assert (known(nothing), nothing.verify_mode, nothing.check_hostname) == (0, ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("trust_env", [True, False])
def test_a_file_of_the_environment_is_obeyed_where_it_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trust_env: bool
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    before = trust_for("https://a.example", trust_env=trust_env)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    now = trust_for("https://a.example", trust_env=trust_env)

    assert (now is before, known(now) == 1) == ((False, True) if trust_env else (True, False))
