"""What went wrong between us and a provider, said once in words that tell what to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

import httpx2

from toolwire.errors import ModelError, ModelRefused, ModelUnavailable
from toolwire.models.payloads import read_json
from toolwire.protocol.redaction import Redaction
from toolwire.wire.encode.outbound import to_json

# httpx2 has no single root: these, with the operating system's own, are everything it raises.
FOREIGN = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, httpx2.CookieConflict, OSError)

LONGEST_QUOTE = 300
LARGEST_ERROR = 64 * 1024
_LATER = "; try again later"
_DATED_S = 366 * 24 * 3600.0
_PASSING_STATUSES = frozenset({408, 425, 429})
_PASSING_TYPES = frozenset({"overloaded_error", "api_error", "rate_limit_error", "server_error", "timeout_error"})
_MISSING_MODEL = ("not found", "not exist", "not a valid model", "unknown model", "model:", "invalid model")


class ProviderFailure(Exception):
    """One try that failed: the error to raise when it was the last one, and whether another try may help."""

    def __init__(
        self, error: ModelError, *, again: bool = False, wait_s: float | None = None, missing_model: bool = False
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.again = again
        self.wait_s = wait_s
        self.missing_model = missing_model


@dataclass(frozen=True, slots=True)
class ProviderSite:
    """Where a provider is asked, as far as people may read it, and the secret that they may not."""

    provider: str
    url: str
    key_variable: str = ""
    start_hint: str = ""
    secret: str = field(default="", repr=False)

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, where a refused connection means that nothing runs."""
        return httpx2.URL(self.url).host in ("localhost", "127.0.0.1", "::1")

    def quote(self, text: str) -> str:
        """A provider's words: short, on one line, without our key (which is looked for before anything is cut)."""
        text = self.without_secret(text)
        printable = "".join(char if char.isprintable() else " " for char in text[: LONGEST_QUOTE * 4])
        line = " ".join(printable.split())
        return line if len(line) <= LONGEST_QUOTE else f"{line[:LONGEST_QUOTE]}…"

    def without_secret(self, text: str) -> str:
        """The text without our key, however it is spelled: some servers quote the key that they refuse."""
        return _redaction_of(self.secret).clean(text).replace(self.secret, "***") if self.secret else text


@lru_cache(maxsize=32)
def _redaction_of(secret: str) -> Redaction:
    return Redaction({"key": secret}, "***")


def of_exception(place: ProviderSite, lost: BaseException) -> ProviderFailure:
    """Translate what the HTTP client raised."""
    at = f"{place.provider} at {place.url}"
    match lost:
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return _passing(f"no connection to {at} in time; check the network and the address")
        case httpx2.ConnectError():
            hint = place.start_hint or "check the network and the address"
            return ProviderFailure(ModelUnavailable(f"no connection to {at}: {hint}"), again=not place.is_here)
        case httpx2.TimeoutException() | TimeoutError():
            # The provider may still be at work on it, and bill it: asking again is the caller's choice.
            return ProviderFailure(ModelUnavailable(f"{at} went silent; try again, or allow more time"))
        case httpx2.UnsupportedProtocol() | httpx2.InvalidURL() | httpx2.LocalProtocolError():
            return ProviderFailure(
                ModelRefused(f"{at} cannot be asked: {place.quote(str(lost))}; check the address and the key")
            )
        case httpx2.ProxyError():
            return _passing(f"the proxy before {at} failed: {place.quote(str(lost))}; check HTTPS_PROXY")
        case httpx2.DecodingError():
            return _passing(f"{at} sent a body whose compression is broken")
        case httpx2.StreamError() | httpx2.CookieConflict() | httpx2.TooManyRedirects() | httpx2.HTTPStatusError():
            return ProviderFailure(ModelUnavailable(f"the answer of {at} could not be read: {place.quote(str(lost))}"))
        case _:
            return cut_off(place)


def of_status(place: ProviderSite, status: int, headers: Mapping[str, str], body: bytes, now: float) -> ProviderFailure:
    """Translate an HTTP status that is not 200, with what the provider said about it."""
    said = place.quote(_said(body))
    because = f": {said}" if said else ""
    if status in (401, 403):
        return ProviderFailure(ModelRefused(_about_key(place, status, because)))
    if status == 429 and "insufficient_quota" in said + _error_type(body):
        return ProviderFailure(ModelRefused(f"{place.provider} says that the account has no quota left{because}"))
    if status in _PASSING_STATUSES or status >= 500:
        state = "is over its rate limit" if status == 429 else "is failing or overloaded"
        wait_s = retry_after(headers, now)
        sentence = f"{place.provider} {state} ({status}){because}{_LATER}"
        return ProviderFailure(
            ModelUnavailable(sentence, status=status, retry_after_s=wait_s), again=True, wait_s=wait_s
        )
    if 300 <= status < 400:
        return ProviderFailure(ModelRefused(f"{place.url} sends us elsewhere ({status}); check the base URL"))
    if _is_missing_model(status, said, body):
        return ProviderFailure(ModelRefused(said), missing_model=True)
    if status == 404:
        return ProviderFailure(ModelRefused(f"nothing is served at {place.url} (404){because}; check the base URL"))
    return ProviderFailure(ModelRefused(f"{place.provider} refused the request ({status}){because}"))


def of_error_body(place: ProviderSite, data: Mapping[str, Any]) -> ProviderFailure:
    """Translate an error that came with status 200, or in the middle of a stream."""
    body = to_json(data)
    said = place.quote(_said(body)) or "no reason given"
    error = data.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and code >= 400:
        return of_status(place, code, {}, body, 0.0)
    if _error_type(body) in _PASSING_TYPES:
        return _passing(f"{place.provider} is failing or overloaded: {said}; try again later")
    if _is_missing_model(404, said, body):
        return ProviderFailure(ModelRefused(said), missing_model=True)
    return ProviderFailure(ModelRefused(f"{place.provider} refused the request: {said}"))


def not_a_reply(place: ProviderSite, body: bytes) -> ProviderFailure:
    """The body is something else than a chat reply in JSON."""
    start = body[:LARGEST_ERROR].lstrip()
    if not start:
        return _passing(f"{place.provider} at {place.url} answered with nothing; try again later")
    if start.startswith(b"<"):
        said = f"{place.url} answered with a web page instead of JSON; check the base URL"
        return ProviderFailure(ModelUnavailable(said))
    said = place.quote(start.decode(errors="replace"))[:80]
    return ProviderFailure(ModelUnavailable(f"{place.url} answered with something that is no chat reply: {said}"))


def too_large(place: ProviderSite, limit: int) -> ProviderFailure:
    return ProviderFailure(
        ModelUnavailable(f"{place.provider} at {place.url} sent more than {limit} bytes; reading stopped")
    )


def cut_off(place: ProviderSite) -> ProviderFailure:
    return _passing(f"{place.provider} at {place.url} closed the connection half-way; try again")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that a provider asks us to wait: given in seconds, milliseconds or as a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")[:64].strip()
        if text.replace(".", "", 1).isdecimal() and text.isascii():
            return float(text) * unit
        if text:
            return _until(text, now)
    return None


def wait_too_long(trouble: ProviderFailure, asked_s: float, left_s: float | None, now: float) -> ProviderFailure:
    """The trouble of a provider that wants to be asked again only when it is too late to wait for it."""
    reason = str(trouble.error).removesuffix(_LATER)
    soon = asked_s < _DATED_S
    after = f"{datetime.fromtimestamp(now + asked_s, UTC):%Y-%m-%d %H:%M:%S} UTC" if soon else "that"
    limit = "longer than is waited without a deadline" if left_s is None else f"and the deadline leaves {left_s:.0f} s"
    sentence = f"{reason}; it asks to wait {asked_s:.0f} s, {limit}. Try again after {after}."
    status = trouble.error.status if isinstance(trouble.error, ModelUnavailable) else None
    return ProviderFailure(ModelUnavailable(sentence, status=status, retry_after_s=asked_s))


def _until(text: str, now: float) -> float | None:
    try:
        date = parsedate_to_datetime(text)
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _passing(sentence: str) -> ProviderFailure:
    return ProviderFailure(ModelUnavailable(sentence), again=True)


_NAME_THE_KEY = "name the variable that holds it with --key-env NAME, or with api_key_env in a profile"


def _about_key(place: ProviderSite, status: int, because: str) -> str:
    if not place.secret:
        advice = f"set {place.key_variable}" if place.key_variable else _NAME_THE_KEY
        return f"{place.provider} wants a key and none was given: {advice}"
    return f"{place.provider} refused the key ({status}){because}; check {place.key_variable or 'the key'}"


def _is_missing_model(status: int, said: str, body: bytes) -> bool:
    words = said.lower()
    if status not in (400, 404):
        return False
    return _error_type(body) == "model_not_found" or (
        "model" in words and any(sign in words for sign in _MISSING_MODEL)
    )


def _error(body: bytes) -> Any:
    try:
        data = read_json(body)
    except ValueError:
        return None
    return (data.get("error") or data) if isinstance(data, dict) else None


def _error_type(body: bytes) -> str:
    match _error(body):
        case {"code": str(code)} if code:
            return code
        case {"type": str(kind)}:
            return kind
        case _:
            return ""


def _said(body: bytes) -> str:
    match _error(body):
        case str(text) | {"message": str(text)} | {"detail": str(text)}:
            return text
        case {"detail": detail}:
            return str(detail)
        case None if not body.lstrip().startswith(b"<"):
            return body[:LARGEST_ERROR].decode(errors="replace")
        case _:
            return ""
