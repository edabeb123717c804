"""What a client is told when there is no answer: a status and a sentence, in the error format of its own API."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from typing import Any

from msgspec import Struct, field

from toolwire.errors import (
    Conflict,
    ModelError,
    ModelUnavailable,
    NotFound,
    StoreError,
    StoreUnavailable,
    VersionConflict,
)
from toolwire.models.failures import LONGEST_QUOTE, ProviderSite
from toolwire.models.payloads import read_json
from toolwire.wire.encode.outbound import Json

_LATER = (429, 503, 529)
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Fault(Struct, frozen=True):
    """No answer: an HTTP status, a code for programs, a sentence for people. `body` is what the upstream said."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Json | None = None

    @property
    def kind(self) -> str:
        return _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")


class Rejected(Exception):
    """Carries a fault from where it was noticed to the door."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@contextmanager
def told_to_client(what: str) -> Iterator[None]:
    """Errors of a store in HTTP's words; `what` is what was looked for or written."""
    try:
        yield
    except StoreError as error:
        status, code = next(
            ((status, code) for kind, status, code in _STORE_ERRORS if isinstance(error, kind)), (500, "{}_unreadable")
        )
        raise Rejected(Fault(status, code.format(what), str(error))) from None


_STORE_ERRORS: tuple[tuple[type[StoreError], int, str], ...] = (
    (NotFound, 404, "{}_not_found"),
    (VersionConflict, 412, "version_conflict"),
    (Conflict, 409, "{}_conflict"),
    (StoreUnavailable, 503, "store_unavailable"),
)


def error_body(fault: Fault, dialect: str) -> Json:
    """The fault as the client's API writes errors."""
    if fault.body is not None:
        return fault.body
    if dialect == "anthropic":
        return {"type": "error", "error": {"type": fault.kind, "message": fault.message}}
    return {"error": {"message": fault.message, "type": fault.kind, "param": None, "code": fault.code}}


def of_model_error(error: ModelError) -> Fault:
    """A model that could not be asked, in HTTP's words: when to ask again is passed on as the provider said it."""
    if isinstance(error, ModelUnavailable):
        status = error.status if error.status in _LATER else 502
        wait = {} if error.retry_after_s is None else {"retry-after": str(ceil(error.retry_after_s))}
        return Fault(status, "upstream_unavailable", str(error), wait)
    return Fault(400, "upstream_refused", str(error))


def of_answer(place: ProviderSite, status: int, headers: Mapping[str, str], body: bytes, dialect: str) -> Fault:
    """An answer of the upstream that is an error: its status is kept, and its body where a client can read it."""
    data = _object(body)
    kept = {name: headers[name] for name in ("retry-after", "retry-after-ms", "x-should-retry") if name in headers}
    if 300 <= status < 400:
        return Fault(502, "upstream_moved", f"{place.url} sends us elsewhere ({status}); check the upstream's address")
    if data is not None and _speaks(data, dialect):
        return Fault(status, "upstream_error", _said(data, place), kept, _without_secret(data, place))
    said = _said(data, place) if data is not None else _excerpt(body, place)
    return Fault(status, "upstream_error", said or f"{place.url} answered with status {status}", kept)


def of_error_in_answer(place: ProviderSite, data: Json, dialect: str) -> Fault:
    """An error that came with status 200, or in the middle of a stream."""
    error = data.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600 else 502
    if _speaks(data, dialect):
        return Fault(status, "upstream_error", _said(data, place), body=_without_secret(data, place))
    return Fault(status, "upstream_error", _said(data, place) or "the upstream reported an error without a reason")


def not_an_answer(place: ProviderSite, body: bytes) -> Fault:
    """A body with status 200 that is no reply at all."""
    if not body.strip():
        return Fault(502, "upstream_empty", f"{place.url} answered with nothing")
    if body.lstrip()[:1] == b"<":
        return Fault(502, "upstream_html", f"{place.url} answered with a web page; check the upstream's address")
    return Fault(502, "upstream_unreadable", f"{place.url} answered with something that is no chat reply")


def cut_off(place: ProviderSite) -> Fault:
    return Fault(502, "upstream_cut_off", f"{place.url} closed the connection before its answer was complete")


def too_large(place: ProviderSite, limit: int) -> Fault:
    return Fault(502, "upstream_too_large", f"{place.url} sent more than {limit} bytes; reading stopped")


def too_late(place: ProviderSite) -> Fault:
    return Fault(504, "upstream_timeout", f"{place.url} did not answer in time")


def _object(body: bytes) -> Json | None:
    try:
        data = read_json(body)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _speaks(data: Json, dialect: str) -> bool:
    """Whether an error body is one that a client of this dialect can read."""
    match data:
        case {"type": "error", "error": {"message": str(), "type": str()}}:
            return dialect == "anthropic"
        case {"error": {"message": str()}}:
            return dialect != "anthropic"
        case _:
            return False


def _said(data: Json, place: ProviderSite) -> str:
    match data:
        case {"error": {"message": str(text)}} | {"error": str(text)} | {"message": str(text)} | {"detail": str(text)}:
            return place.quote(text)
        case {"detail": detail}:
            return place.quote(str(detail)[: LONGEST_QUOTE * 2])
        case _:
            return ""


def _excerpt(body: bytes, place: ProviderSite) -> str:
    if body.lstrip()[:1] == b"<":
        return f"{place.url} answered with a web page; check the upstream's address"
    return place.quote(body[: LONGEST_QUOTE * 4].decode(errors="replace"))


def _without_secret(value: Any, place: ProviderSite, depth: int = 8) -> Any:
    """The same value with the gateway's own key blotted out: some servers quote the key that they refuse."""
    if not place.secret:
        return value
    match value:
        case str():
            return place.without_secret(value)
        case dict() if depth:
            return {place.without_secret(name): _without_secret(item, place, depth - 1) for name, item in value.items()}
        case list() if depth:
            return [_without_secret(item, place, depth - 1) for item in value]
        case int() | float() | None:
            return value
        case _:
            return None
