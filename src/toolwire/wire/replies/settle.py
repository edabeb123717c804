"""From a name and arguments as written to calls that the runtime can judge, and words about what was wrong."""

import re
from collections.abc import Mapping
from typing import Any

from toolwire.protocol.calls import CallOptions, Problem, ToolCall
from toolwire.wire.lenient.arguments import NotRead, Read, read_arguments
from toolwire.wire.lenient.coerce import coerced, without_nulls
from toolwire.wire.replies.offered import Offer, Offered
from toolwire.wire.text.json_calls import PARALLEL
from toolwire.wire.text.scan import Found

_MARKED, _WEAK = 0.95, 0.7
_WRAPPERS = ("arguments", "parameters", "input", "args", "kwargs", "params", "properties")


class CallCollector:
    """The calls of one reply so far, and its problems."""

    __slots__ = ("_by_look", "_looked_at", "calls", "offered", "problems")

    def __init__(self, offered: Offered) -> None:
        self.offered = offered
        self.calls: list[ToolCall] = []
        self.problems: list[Problem] = []
        self._by_look: dict[tuple[str | None, str, int], list[ToolCall]] = {}
        self._looked_at = 0

    def report(self, code: str, message: str, call: int | None = None) -> None:
        self.problems.append(Problem(code, message, call))

    def native(self, name: str, written: Any, alias: str | None, raw: Any, *, finished: bool, cut: bool) -> None:
        """Settle a call from a provider's own field: it is always answered, unless it was cut off."""
        offer = self._resolve(name)
        read = read_arguments(written, finished=finished)
        if isinstance(read, NotRead):
            self._unread(offer.name if offer else name, read, alias, raw, cut=cut or (read.cut and not finished))
            return
        if cut and offer is not None and not any(read.objects) and (offer.required or _is_blank(written)):
            self.report("truncated", f"a call of {name!r} was cut off before its arguments")
            return
        if offer is None and name in PARALLEL and self._unfolded(read, raw):
            return
        if offer is None:
            self.report("unknown_tool", f"no tool named {name!r} was offered", len(self.calls))
        before = len(self.calls)
        for position, arguments in enumerate(read.objects):
            self.accept(offer, name, arguments, alias if position == 0 else None, raw, note=read.repaired)
        if alias and len(self.calls) == before + 1 and self._is_repeat(self.calls[before]):
            self.problems = [problem for problem in self.problems if problem.call != before]
            self.report("repaired", f"the call {alias[:80]!r} of {name[:80]!r} was written twice and counts once")
            self.calls.pop()

    def _is_repeat(self, call: ToolCall) -> bool:
        """Whether the last call was made before in this reply under its id: the same thing under two ids is two.

        Thousands of calls may stand in a reply, so each is compared only with those that look the same.
        """
        for one in self.calls[self._looked_at : -1]:
            self._by_look.setdefault(_look(one), []).append(one)
        self._looked_at = len(self.calls) - 1
        return self._looked_at > 0 and any(
            (one.alias, one.name, one.arguments, one.fault) == (call.alias, call.name, call.arguments, call.fault)
            for one in self._by_look.get(_look(call), ())
        )

    def texts(self, found: list[Found], text: str) -> None:
        """Settle the calls found in text. One that repeats a native call, or echoes a marked one, is the same call."""
        if not found:
            return
        _doubt_cut_values(found, text)
        known = [(call.name, call.arguments) for call in self.calls]
        marked: list[tuple[str, Any]] = []
        for item in found:
            if item.fault:
                self._refuse(item.offer.name, item.fault, item.alias, text[item.span[0] : item.span[1]])
                continue
            objects = _objects_of(item)
            if not objects:
                self._refuse(item.offer.name, "they are not an object", item.alias, text[item.span[0] : item.span[1]])
            for arguments in objects:
                same = (item.offer.name, arguments)
                if known and _among(known, item.offer, arguments):
                    continue
                if item.weak and same in marked:
                    continue
                if not item.weak:
                    marked.append(same)
                if item.offer.misspelled:
                    self._report_name(item.offer.misspelled, item.offer)
                self.accept(
                    item.offer, item.offer.name, arguments, item.alias, text[item.span[0] : item.span[1]],
                    note=item.note, dialect=item.dialect, confidence=_WEAK if item.weak else _MARKED,
                    options=item.options,
                )  # fmt: skip

    def _resolve(self, name: str) -> Offer | None:
        offer = self.offered.get(name)
        if offer is not None and offer.name != name:
            self._report_name(name, offer)
        return offer

    def _report_name(self, written: str, offer: Offer) -> None:
        self.report("repaired", f"read the name {written[:80]!r} as {offer.name!r}", len(self.calls))

    def _unread(self, name: str, read: NotRead, alias: str | None, raw: Any, *, cut: bool) -> None:
        if cut or read.cut:
            self.report("truncated", f"a call of {name!r} was cut off: {read.why}")
            return
        self._refuse(name, read.why, alias, raw)

    def _refuse(self, name: str, why: str, alias: str | None, raw: Any) -> None:
        """Add a call that is answered with what is wrong with it, and never run."""
        why = f"the arguments of {name!r} could not be read: {why}"
        self.report("malformed", why, len(self.calls))
        self.calls.append(ToolCall(name, {}, alias=alias, position=len(self.calls), raw=raw, fault=why))

    def _unfolded(self, read: Read, raw: Any) -> bool:
        """Take the calls out of an invented `multi_tool_use.parallel`."""
        uses = read.objects[0].get("tool_uses")
        if not isinstance(uses, list):
            return False
        for use in uses:
            if isinstance(use, Mapping):
                name = use.get("recipient_name") or use.get("name") or ""
                written = use.get("parameters", use.get("arguments"))
                self.native(str(name), written, None, raw, finished=True, cut=False)
        return True

    def accept(
        self, offer: Offer | None, name: str, arguments: dict[str, Any], alias: str | None, raw: Any,
        *, note: str = "", dialect: str = "native", confidence: float = 1.0, options: CallOptions | None = None,
    ) -> None:  # fmt: skip
        """Add a call, its arguments brought to the schema where nothing is lost by it."""
        at = len(self.calls)
        if offer is not None and not offer.accepts(arguments):
            arguments, note = self._fit(offer, arguments, note)
        if note:
            self.report("repaired", note, at)
        called = offer.name if offer is not None else name
        self.calls.append(ToolCall(called, arguments, "", alias, dialect, confidence, at, raw, "", options))

    def _fit(self, offer: Offer, arguments: dict[str, Any], note: str) -> tuple[dict[str, Any], str]:
        fitted = coerced(arguments, offer.schema)
        for candidate in (fitted, without_nulls(fitted, offer.schema), _inner(arguments, offer)):
            if candidate is not None and offer.accepts(candidate):
                return candidate, note or f"brought the arguments of {offer.name} to its schema"
        self.report("invalid_arguments", offer.complaint(arguments), len(self.calls))
        return arguments, note


_STRAY_END = re.compile(
    r"<(?:[a-z]{1,12}:)?(?:parameter|function|invoke)[ =]"
    r"|(?P<end></(?:[a-z]{1,12}:)?parameter>\s{0,20}</(?:[a-z]{1,12}:)?(?:function|invoke)>)"
)
_BEHIND = 2_000
_CUT_VALUE = "a value seems to hold the end tags of its own format; make the call again and write these tags otherwise"


def _doubt_cut_values(found: list[Found], text: str) -> None:
    """Refuse a call in tags behind which the same end tags stand once more: its value may have ended too early."""
    for at, item in enumerate(found):
        end = item.span[1]
        if item.fault or "</" not in text[max(item.span[0], end - 80) : end]:
            continue
        stop = found[at + 1].span[0] if at + 1 < len(found) else len(text)
        stray = _STRAY_END.search(text, end, min(max(end, stop), end + _BEHIND))
        if stray is not None and stray["end"]:
            item.fault = _CUT_VALUE


def _look(call: ToolCall) -> tuple[str | None, str, int]:
    """The same for calls that are equal, and seldom for others."""
    return call.alias, call.name, _spread(call.arguments)


def _spread(value: Any, depth: int = 4) -> int:
    """The same number for equal values; what lies too deep counts as equal."""
    if depth and isinstance(value, dict):
        return hash(frozenset((name, _spread(inner, depth - 1)) for name, inner in value.items()))
    if depth and isinstance(value, list):
        return hash(tuple(_spread(inner, depth - 1) for inner in value))
    return hash(value) if isinstance(value, str | int | float) else 0


def _is_blank(written: Any) -> bool:
    """Whether no arguments were written at all, not even an empty object."""
    return written is None or (isinstance(written, str) and not written.strip())


def _among(known: list[tuple[str, Any]], offer: Offer, arguments: dict[str, Any]) -> bool:
    """Whether one of the known calls is this one, as the schema types it; that call is then taken off the list."""
    for same in ((offer.name, arguments), (offer.name, coerced(arguments, offer.schema))):
        if same in known:
            known.remove(same)
            return True
    return False


def _objects_of(found: Found) -> tuple[dict[str, Any], ...]:
    """The arguments of a call in text, none if unreadable; a bare text is the value of a tool's only parameter."""
    if type(found.arguments) is dict:
        return (found.arguments,)
    offer = found.offer
    read = read_arguments(found.arguments, finished=True)
    if isinstance(read, Read):
        return read.objects
    if not isinstance(found.arguments, str):
        return ()
    only = list(offer.required) if len(offer.required) == 1 else list(offer.properties)
    return ({only[0]: found.arguments},) if len(only) == 1 else ()


def _inner(arguments: dict[str, Any], offer: Offer) -> dict[str, Any] | None:
    """The arguments inside a wrapper that the tool knows nothing of."""
    if len(arguments) != 1:
        return None
    [(key, value)] = arguments.items()
    if key not in _WRAPPERS or key in offer.properties:
        return None
    read = read_arguments(value, finished=True)
    return coerced(read.objects[0], offer.schema) if isinstance(read, Read) else None
