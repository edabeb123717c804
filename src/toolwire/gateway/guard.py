"""Who is let in: the named host, no foreign web page, a token where one is wanted, a body of bearable size."""

import asyncio
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from toolwire.gateway.faults import Fault, Rejected
from toolwire.gateway.settings import EVERYWHERE, LOOPBACK, Access, ServiceToken, TransferLimits

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_CARD_PATH = re.compile(r"/v1/projects/[^/]+/cards/[^/]+")
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class ClientGone(Exception):
    """The client went away before it had sent everything."""


def check_origin(access: Access, headers: Mapping[str, str]) -> None:
    """Refuse what a web page of another site could send. Raises Rejected.

    A page can make a browser call this machine, under any name that its owner lets point here (DNS rebinding);
    the browser then says so in `Host` or `Origin`.
    """
    host = hostname(headers.get("host", ""))
    if not _is_ours(access, host):
        raise Rejected(Fault(403, "foreign_host", "the Host header names neither this machine nor the configured host"))
    origin = headers.get("origin")
    if origin is not None and not _is_ours(access, hostname(origin.partition("://")[2])):
        raise Rejected(Fault(403, "foreign_origin", "requests from web pages of other sites are refused"))


def check_token(access: Access, headers: Mapping[str, str]) -> str:
    """Whose token a client shows; empty where the gateway has none. Raises Rejected for a client without one."""
    if not access.tokens:
        return ""
    place = _place_of_token(access.tokens, headers)
    return access.callers[place] if place < len(access.callers) else f"token {place + 1}"


def check_service(access: Access, headers: Mapping[str, str]) -> ServiceToken:
    """The service whose token is shown. Raises Rejected for any other client."""
    return access.services[_place_of_token([service.token for service in access.services], headers)]


def is_about_cards(path: str) -> bool:
    """Whether a request is for a card, which services alone may ask for."""
    return _CARD_PATH.fullmatch(path) is not None


def _place_of_token(tokens: Sequence[str], headers: Mapping[str, str]) -> int:
    """Which of the tokens a client shows. Raises Rejected."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    shown = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    # Digests of equal length, and every token compared: the time taken tells nothing.
    fitting = [hmac.compare_digest(_digest(shown), _digest(token)) for token in tokens]
    if not any(fitting):
        raise Rejected(Fault(401, "invalid_token", "this gateway wants its token as a bearer token or x-api-key"))
    return fitting.index(True)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def request_id(headers: Mapping[str, str], mint: Callable[[], str]) -> str:
    """The id that the client gave its request if it is a plain one, else a new one."""
    given = headers.get("x-request-id", "")
    return given if 0 < len(given) <= 128 and _ID_CHARACTERS.issuperset(given) else mint()


async def read_body(receive: Receive, headers: Mapping[str, str], bounds: TransferLimits) -> bytes:
    """The whole body, if it is not too large and comes in time. Raises Rejected and ClientGone."""
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Rejected(Fault(415, "encoded_body", "send the body without a content-encoding"))
    length = headers.get("content-length", "")
    if length.isdecimal() and length.isascii() and (len(length) > 18 or int(length) > bounds.body_bytes):
        raise Rejected(_too_large(bounds))
    try:
        async with asyncio.timeout(min(bounds.body_s, bounds.body_grace_s)) as deadline:
            return await _collected(receive, bounds, deadline)
    except TimeoutError:
        raise Rejected(Fault(408, "slow_body", "the body did not arrive in time")) from None


async def _collected(receive: Receive, bounds: TransferLimits, deadline: asyncio.Timeout) -> bytes:
    """The body. Each piece earns it more time, so that one that drips is not waited for."""
    pieces: list[bytes] = []
    size = 0
    begun = asyncio.get_running_loop().time()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > bounds.body_bytes:
            raise Rejected(_too_large(bounds))
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)
        deadline.reschedule(begun + min(bounds.body_s, bounds.body_grace_s + size / bounds.body_rate))


def _too_large(bounds: TransferLimits) -> Fault:
    return Fault(413, "body_too_large", f"the body may have at most {bounds.body_bytes} bytes")


def hostname(authority: str) -> str:
    """The host of a `host:port`, without brackets, in lower case."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower().removesuffix(".")


def _is_ours(access: Access, host: str) -> bool:
    if host in LOOPBACK or host == access.host.lower() or host in access.names:
        return True
    return access.host in EVERYWHERE and _is_address(host)


def _is_address(host: str) -> bool:
    """Whether a host is written as a number, which no web page can make point elsewhere."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
