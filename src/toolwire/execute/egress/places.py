"""Reading a URL into the place it names. Strict: what two readers could understand differently is refused."""

from urllib.parse import quote

from msgspec import Struct

from toolwire.execute.egress.hosts import BadHost, Host, read_host
from toolwire.execute.egress.rules import USUAL_PORTS, RequestedAddress

LONGEST_URL = 8192
_ENDS_AUTHORITY = "/?#"
# Characters that stand for themselves in a path or query; "%" is kept, since what is encoded stays encoded.
_SAFE = "!$&'()*+,;=:@/?-._~%"


class BadUrl(ValueError):
    """Text that is no http(s) URL, or one that different programs read differently. The text says what is wrong."""


class WebAddress(Struct, frozen=True):
    """Where a request goes: scheme, canonical host, port, and the path with its query."""

    scheme: str
    host: Host
    port: int
    target: str = "/"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host.name, self.port

    @property
    def authority(self) -> str:
        """The value of the Host header: the port only where it is not the usual one."""
        return str(self.host) if self.port == USUAL_PORTS[self.scheme] else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    def asked(self, method: str) -> RequestedAddress:
        return RequestedAddress(self.host, self.port, self.scheme, method)


def read_url(text: str, base: WebAddress | None = None) -> WebAddress:
    """The place that a URL names; a relative one is read from `base`. Raises BadUrl."""
    if len(text) > LONGEST_URL:
        raise BadUrl(f"a URL has at most {LONGEST_URL} characters")
    if any(char <= " " or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in text.strip(" ")):
        raise BadUrl("a URL cannot contain spaces, control characters or broken Unicode; encode them, as in %20")
    text = text.strip(" ")
    scheme, colon, rest = text.partition("://")
    if base is not None and (not colon or any(char in _ENDS_AUTHORITY for char in scheme)):
        return _relative(text, base)
    if scheme.lower() not in USUAL_PORTS or not colon:
        raise BadUrl("a URL starts with http:// or https://")
    return _absolute(scheme.lower(), rest)


def _absolute(scheme: str, rest: str) -> WebAddress:
    end = min((at for at in (rest.find(char) for char in _ENDS_AUTHORITY) if at >= 0), default=len(rest))
    host, port = read_authority(rest[:end], USUAL_PORTS[scheme])
    return WebAddress(scheme, host, port, _target(rest[end:]))


def read_authority(text: str, usual_port: int | None) -> tuple[Host, int]:
    """`host` or `host:port`, and nothing else. Raises BadUrl."""
    for char, what in (("\\", "a backslash"), ("@", "a user name or password"), ("%", "an encoded character")):
        if char in text:
            raise BadUrl(f"the host part of a URL cannot contain {what}")
    name, colon, digits = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, digits = text, str(usual_port or "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65536):
        raise BadUrl("a port is a number from 1 to 65535")
    try:
        return read_host(name), int(digits)
    except BadHost as wrong:
        raise BadUrl(str(wrong)) from None


def _target(rest: str) -> str:
    """The path and query in ASCII, without the fragment."""
    visible = quote(rest.partition("#")[0], safe=_SAFE)
    return visible if visible.startswith("/") else f"/{visible}"


def _relative(text: str, base: WebAddress) -> WebAddress:
    if text.startswith(("//", "\\", "/\\")):
        if not text.startswith("//"):
            raise BadUrl("the address contains a backslash")
        return _absolute(base.scheme, text[2:])
    if ":" in text.partition("/")[0].partition("?")[0].partition("#")[0]:
        raise BadUrl("a URL starts with http:// or https://")
    path = base.target.partition("?")[0]
    if text.startswith("/"):
        return WebAddress(base.scheme, base.host, base.port, _target(text))
    if text.startswith("?"):
        return WebAddress(base.scheme, base.host, base.port, _target(path + text))
    if not text.partition("#")[0]:
        return WebAddress(base.scheme, base.host, base.port, base.target)
    return WebAddress(base.scheme, base.host, base.port, _target(path.rpartition("/")[0] + "/" + text))
