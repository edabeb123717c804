"""Whom connections trust, made once in a process: to read the certificates of the system takes 20 ms."""

import functools
import os
import ssl

import httpx2

_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def trust_for(url: str, *, trust_env: bool = True) -> ssl.SSLContext:
    """What a client of this address verifies servers with. Where it never speaks TLS, no certificate is read.

    With `trust_env` the variables of OpenSSL are obeyed, as the client does with it.
    """
    if url.lower().startswith("http://"):
        return _trusting_nobody()
    return _system_trust(*(map(os.environ.get, _VARIABLES) if trust_env else (None, None)), trust_env=trust_env)


@functools.cache
def _trusting_nobody() -> ssl.SSLContext:
    """Should it be asked against all expectation, it refuses every certificate."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@functools.cache
def _system_trust(_file: str | None, _folder: str | None, *, trust_env: bool) -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=trust_env)
