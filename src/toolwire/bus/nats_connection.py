"""A connection to NATS servers: how to log in, when TLS is demanded, and what went wrong in plain words.

The client library sends its password to a server that offers no TLS even where the address begins with tls://, so that
is refused here. It also needs another library for nkeys; what signs them here is the one that signs the audit log.
"""

import logging
import re
import socket
import ssl
from contextlib import suppress
from typing import Any

from msgspec import Struct
from nats.aio.client import Client
from nats.aio.transport import TcpTransport, Transport
from nats.errors import AuthorizationError, NoRespondersError
from nats.errors import Error as NatsError
from nats.js.errors import APIError, ServiceUnavailableError

from toolwire.bus.nkeys import UserKey

_IN_INBOX = re.compile(r"[A-Za-z0-9_-]+")
_PREFIX = "nats: "
_TLS_NOISE = "eof_received() has no effect"

# Said by asyncio whenever a connection with TLS ends that the client library has made; nothing is wrong then.
logging.getLogger("asyncio").addFilter(lambda record: _TLS_NOISE not in record.getMessage())


class NatsServers(Struct, frozen=True):
    """Where the broker is and how to log in: `NatsServers(("nats://127.0.0.1:4222",))`."""

    urls: tuple[str, ...]
    user: str = ""
    password: str = ""
    token: str = ""
    key: UserKey | None = None
    tls: ssl.SSLContext | None = None

    @property
    def demands_tls(self) -> bool:
        return self.tls is not None or any(url.startswith("tls:") for url in self.urls)

    @property
    def inbox(self) -> str:
        """Where answers come in. A user may be allowed no other place, so that none reads the answers to another."""
        name = self.key.public if self.key else self.user
        return f"_INBOX.{name}" if _IN_INBOX.fullmatch(name) else "_INBOX"

    @property
    def shown(self) -> str:
        """The addresses without passwords."""
        return ", ".join(url.rpartition("@")[2].rpartition("://")[2] for url in self.urls)

    def options(self) -> dict[str, Any]:
        given: dict[str, Any] = {
            "user": self.user, "password": self.password, "token": self.token, "tls": self.tls,
        }  # fmt: skip
        if self.key is not None:
            jwt = self.key.jwt.encode()
            given |= {"signature_cb": self.key.sign, "user_jwt_cb": (lambda: bytearray(jwt)) if jwt else None}
        return {name: value for name, value in given.items() if value} | {"inbox_prefix": self.inbox}


class _Transport(TcpTransport):
    """Drops what is written to a connection that has ended, as asyncio's loop does. On uvloop that is a RuntimeError,
    which the client library does not expect.
    """

    def write(self, payload: bytes) -> None:
        with suppress(RuntimeError):
            super().write(payload)  # type: ignore[no-untyped-call]

    def writelines(self, payload: list[bytes]) -> None:
        with suppress(RuntimeError):
            super().writelines(payload)  # type: ignore[no-untyped-call]


class SecureClient(Client):
    """A client that can log in by a key, and sends nothing about itself where TLS is demanded and missing."""

    def __init__(self, servers: NatsServers) -> None:
        super().__init__()
        self._demands_tls = servers.demands_tls
        self._public_nkey = servers.key.public if servers.key else None

    @property
    def _transport(self) -> Transport | None:
        return self._own_transport

    @_transport.setter
    def _transport(self, made: Transport | None) -> None:
        """The library makes one, and connects it then."""
        self._own_transport = _Transport() if type(made) is TcpTransport else made  # type: ignore[no-untyped-call]

    @property
    def uses_tls(self) -> bool:
        return bool(self._server_info.get("tls_required"))

    async def flush_all(self) -> None:
        """Wait until the server has read what was sent before.

        The library's ping goes past what is on its way to the socket. The second one comes behind.
        """
        await self.flush()
        await self.flush()

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except BaseException:
            # A transport whose TLS failed never says that it is closed, and the library would wait for that for ever.
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]
                self._transport = None
            raise

    def _connect_command(self) -> bytes:
        if self._demands_tls and not self._server_info.get("tls_required"):
            raise TlsMissing
        return super()._connect_command()


class TlsMissing(NatsError):
    """The server offers no TLS, and it is demanded here."""


HOPELESS = (AuthorizationError, TlsMissing, ssl.SSLError, ssl.CertificateError)
"""What another attempt within seconds does not help against."""


def is_hopeless(error: BaseException) -> bool:
    return isinstance(error, HOPELESS) or _REFUSED in str(error).lower()


def is_denied(error: BaseException) -> bool:
    """Whether a server says that this user may not do something. It does not answer the request itself then."""
    return "permissions violation" in str(error).lower()


def reason_of(error: BaseException) -> str:
    """What went wrong, in plain words and without secrets."""
    match error:
        case TlsMissing():
            return "it offers no TLS, which tls:// and bus.ca demand"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
        case ServiceUnavailableError() | NoRespondersError():
            return "JetStream is not enabled there, or has no leader"
        case APIError():
            return error.description or f"code {error.err_code}"
        case ConnectionRefusedError():
            return "connection refused"
        case socket.gaierror():
            return "host name not found"
    if _REFUSED in str(error).lower():
        return "it refused the credentials"
    return str(error).removeprefix(_PREFIX) or _BY_NAME.get(type(error).__name__, type(error).__name__)


_REFUSED = "authorization violation"
_BY_NAME = {"TimeoutError": "no answer in time"}
