"""Reading a message: its subject, its headers and its payload, which must not contradict each other."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import BadSubject, Subject, WrongVersion
from toolwire.wire.lenient.arguments import read_json
from toolwire.wire.utp.fields import ADDRESS, BANNED, TYPE_HEADER, VERSION_HEADER, Json, WireField, by_header
from toolwire.wire.utp.violations import Refusal, Violation, ViolationCode, conflicting, invalid, missing

MAX_MESSAGE_BYTES = 64 * 1024
"""A message is a pointer and some names. What is larger carries something that belongs into a card."""

MAX_HEADERS = 64
MAX_HEADER_BYTES = 16 * 1024
_VERSION_LOWER, _TYPE_LOWER = VERSION_HEADER.lower(), TYPE_HEADER.lower()
_ADDRESSES = frozenset(name for name, _ in ADDRESS)
_TABLES: dict[int, tuple[tuple[WireField, ...], dict[str, WireField], dict[str, str]]] = {}
_MOST_TABLES = 16


class ReadMessage(Struct, frozen=True):
    """A message whose parts agree: the values of its fields, and what it says beside them."""

    subject: Subject
    values: Mapping[str, Any]
    extra: Mapping[str, Any]
    extra_headers: Mapping[str, str]


def read_object(data: bytes, most: int, what: str) -> Json | Violation:
    """The JSON object that bytes are: strict, with every key once, and no larger than `most`."""
    if len(data) > most:
        return Violation(ViolationCode.TOO_LARGE, f"{what} has {len(data)} bytes; at most {most} are allowed")
    try:
        value = read_json(bytes(data).decode())
    except UnicodeDecodeError:
        return Violation(ViolationCode.NOT_JSON, f"{what} is not UTF-8 text")
    except ValueError as wrong:
        return Violation(ViolationCode.NOT_JSON, f"{what} is not JSON ({str(wrong)[:200]})")
    if not isinstance(value, dict):
        return Violation(ViolationCode.NOT_JSON, f"{what} must be a JSON object, not {type(value).__name__}")
    return value


def read_subject(text: object, versions: frozenset[str]) -> Subject | Violation:
    try:
        return Subject.parse(text, versions=versions)
    except WrongVersion as wrong:
        return Violation(ViolationCode.WRONG_VERSION, str(wrong))
    except BadSubject as wrong:
        return Violation(ViolationCode.BAD_SUBJECT, str(wrong))


def read_message(
    message: BusMessage, subject: Subject, fields: tuple[WireField, ...], required: Iterable[str]
) -> ReadMessage | Refusal:
    """The values of a message at a subject that was read already. Every broken rule is in the refusal."""
    address = {"project_id": subject.project, "channel_id": subject.channel}
    if (problem := _oversized_headers(message.headers)) is not None:
        return Refusal((problem,), address)
    payload = read_object(message.data, MAX_MESSAGE_BYTES, "the payload")
    if isinstance(payload, Violation):
        return Refusal((payload,), address)
    found = _Findings(fields)
    found.take_headers(message.headers, subject.version)
    found.take_payload(payload)
    found.compare_address(address)
    for name in required:
        found.require(name)
    if found.violations:
        return Refusal(tuple(found.violations), {**found.values, **address})
    return ReadMessage(subject, found.values, found.extra, found.extra_headers)


def _tables_of(fields: tuple[WireField, ...]) -> tuple[dict[str, WireField], dict[str, str]]:
    """Fields by their names, and their names by their headers. There are as many kinds of messages as such tuples."""
    known = _TABLES.get(id(fields))
    if known is None or known[0] is not fields:
        known = fields, {one.name: one for one in fields}, by_header(fields)
        if len(_TABLES) < _MOST_TABLES:
            _TABLES[id(fields)] = known
    return known[1], known[2]


class _Findings:
    """What has been read of one message so far."""

    def __init__(self, fields: tuple[WireField, ...]) -> None:
        self.values: dict[str, Any] = {}
        self.extra: Json = {}
        self.extra_headers: dict[str, str] = {}
        self.violations: list[Violation] = []
        self._fields, self._headers = _tables_of(fields)
        self._address: list[tuple[str, str, Any]] = []
        self._doubtful: set[str] = set()

    def take_headers(self, headers: Mapping[str, str], version: str) -> None:
        for header, text in headers.items():
            lower = header.lower()
            name = self._headers.get(lower, "")
            if lower == _VERSION_LOWER:
                if text != version:
                    self.violations.append(conflicting(VERSION_HEADER, "the header", "the subject"))
            elif lower == _TYPE_LOWER:
                continue  # a name of a class in whatever language; the subject says what a message is
            elif not name:
                self.extra_headers[header] = text
            elif name in self._fields:
                self._take(self._fields[name], self._fields[name].kind.from_text(text), "a header")
            else:
                self._address.append((name, "a header", text))

    def take_payload(self, payload: Json) -> None:
        for name, value in payload.items():
            if name.lower() in BANNED:
                text = f"{name[:40]!r} may not be in a message; put it into the card and send the id of the card"
                self.violations.append(Violation(ViolationCode.INLINE_CONTENT, text, name[:40]))
            elif name in self._fields:
                if value is not None:
                    self._take(self._fields[name], value, "the payload")
            elif name in _ADDRESSES:
                self._address.append((name, "the payload", value))
            else:
                self.extra[name] = value

    def compare_address(self, address: Mapping[str, str]) -> None:
        for name, where, value in self._address:
            if value is not None and value != address[name]:
                self.violations.append(conflicting(name, where, "the subject"))

    def require(self, name: str) -> None:
        if name not in self.values and name not in self._doubtful:
            self.violations.append(missing(name, "this message"))

    def _take(self, field: WireField, value: Any, where: str) -> None:
        try:
            read = field.kind.read(value)
        except ValueError as wrong:
            if not field.traced:
                self._doubt(field.name, invalid(field.name, f"in {where} {wrong}"))
            return
        if field.name in self._doubtful:
            return
        if self.values.setdefault(field.name, read) != read and not field.traced:
            self._doubt(field.name, conflicting(field.name, "one place", where))

    def _doubt(self, name: str, violation: Violation) -> None:
        """Nothing is known about a field of which one place says something else than another, or something wrong."""
        self.values.pop(name, None)
        self._doubtful.add(name)
        self.violations.append(violation)


def _oversized_headers(headers: Mapping[Any, Any]) -> Violation | None:
    for header, text in headers.items():
        if not isinstance(header, str) or not isinstance(text, str):
            return invalid("headers", "must have one text for each name")
    size = sum(len(header) + len(text) for header, text in headers.items())
    if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        allowed = f"at most {MAX_HEADERS} with {MAX_HEADER_BYTES} bytes are allowed"
        return Violation(ViolationCode.TOO_LARGE, f"the message has {len(headers)} headers of {size} bytes; {allowed}")
    return None
