"""Reading the name in the first words of a TLS connection, without taking part in it."""

from msgspec import Struct

LONGEST_HELLO = 32 * 1024
_HANDSHAKE = 22
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_HOST_NAME = 0


class Incomplete(Exception):
    """More bytes are needed."""


class NotTls(Exception):
    """This is not a ClientHello as it should be."""


class _HelloReader(Struct):
    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise NotTls("a length in the ClientHello is wrong")
        self.at, start = end, self.at
        return self.data[start:end]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width))

    def block(self, width: int) -> bytes:
        """A field that starts with its own length."""
        return self.take(self.number(width))

    @property
    def left(self) -> int:
        return len(self.data) - self.at


def server_name(data: bytes) -> str | None:
    """The host name in a ClientHello; None if it has none. Raises Incomplete or NotTls."""
    hello = _HelloReader(_client_hello(data))
    hello.take(2 + 32)  # version and random
    hello.block(1)  # session id
    hello.block(2)  # cipher suites
    hello.block(1)  # compression
    if not hello.left:
        return None
    extensions = _HelloReader(hello.block(2))
    names: list[bytes] = []
    while extensions.left:
        kind, body = extensions.number(2), extensions.block(2)
        if kind == _SERVER_NAME:
            names.append(body)
    if len(names) > 1:
        raise NotTls("the ClientHello names its server twice")
    return _name(names[0]) if names else None


def _client_hello(data: bytes) -> bytes:
    """The body of the first handshake message, put together from its records."""
    if data[:1] and data[0] != _HANDSHAKE:
        raise NotTls("the connection does not begin with TLS")
    message, at = b"", 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4]):
        if len(data) < at + 5:
            raise Incomplete
        length = int.from_bytes(data[at + 3 : at + 5])
        if data[at] != _HANDSHAKE or data[at + 1] != 3 or not 0 < length <= 2**14:
            raise NotTls("the connection does not begin with TLS")
        if len(data) < at + 5 + length:
            raise Incomplete
        message += data[at + 5 : at + 5 + length]
        at += 5 + length
        if message[0] != _CLIENT_HELLO:
            raise NotTls("the connection does not begin with a ClientHello")
    return message[4 : 4 + int.from_bytes(message[1:4])]


def _name(body: bytes) -> str:
    names = _HelloReader(_HelloReader(body).block(2))
    kind, name = names.number(1), names.block(2)
    if kind != _HOST_NAME or names.left:
        raise NotTls("the ClientHello names its server in an unknown way")
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise NotTls("the server name in the ClientHello is not ASCII") from None
