"""Calls written as calls: `[f(a=1), g()]`, one a line, with semicolons, and Gemma's `call:f{a:1}`."""

import re
from typing import Any

from toolwire.wire.lenient.arguments import twice
from toolwire.wire.lenient.strings import CutShort, Unreadable
from toolwire.wire.lenient.values import ValueReader
from toolwire.wire.replies.offered import Offer
from toolwire.wire.text.marks import Markers
from toolwire.wire.text.scan import MAX_CALLS, Found, Scan, Step, not_offered

CALL_HEAD = re.compile(r"(?P<name>[^\W\d][\w.-]{0,127})\s{0,8}\(")
_KEYWORD = re.compile(r"\s*+([^\W\d]\w{0,127})\s*+[=:](?!=)")
_BETWEEN = re.compile(r"[\s,;]*+")
_GEMMA_HEAD = re.compile(r"\s*+call\s*+:\s*+(?P<name>[^\s{]{1,128})\s*+(?=\{)")
_UNDECIDED = re.compile(r"\[?\s*+[\w.-]*+\s*+\Z")


def read_call_syntax(scan: Scan, pos: int, envelope: Markers | None) -> Step | None:
    """A list or a sequence of calls. Outside an envelope every name must be offered and every argument fit."""
    listed = scan.at(pos, "[")
    at = scan.space(pos + 1) if listed else pos
    step = Step(pos)
    while True:
        head = CALL_HEAD.match(scan.text, at, scan.end)
        if head is None:
            break
        if head["name"] == "print" and scan.offered.get("print") is None:
            at = scan.space(head.end())
            continue
        if not _read_one(scan, head, step, envelope, begin=at, listed=listed):
            return None
        if step.cut or len(step.found) > MAX_CALLS:
            return step
        at = _BETWEEN.match(scan.text, step.end, scan.end).end()  # type: ignore[union-attr]
        if at < scan.end and scan.text[at] == ")":
            step.end = at + 1
            at = _BETWEEN.match(scan.text, step.end, scan.end).end()  # type: ignore[union-attr]
    return _closed(scan, at, step, envelope, listed=listed)


def _closed(scan: Scan, at: int, step: Step, envelope: Markers | None, *, listed: bool) -> Step | None:
    if listed and scan.at(at, "]"):
        step.end = at + 1
        return step if step.found or (step.problems and envelope is not None) else None
    if (
        envelope is not None
        and (at >= scan.end or _UNDECIDED.match(scan.text, at, scan.end))
        and (listed or not step.found)
    ):
        if step.found:
            return step if at >= scan.end else _cut_off(scan, step)
        return _cut_off(scan, step)
    if listed and envelope is None:
        return step if step.found and at >= scan.end else None
    return step if step.found or step.problems else None


def _cut_off(scan: Scan, step: Step) -> Step:
    return scan.cut_inside("the text ends before a call is complete", step)


def _read_one(
    scan: Scan, head: re.Match[str], step: Step, envelope: Markers | None, *, begin: int, listed: bool
) -> bool:
    """Read one call into the step. False when this is no call at all."""
    offer = _offer(scan, head["name"])
    if offer is None and envelope is None and not listed:
        return False
    reader = ValueReader(scan.text, head.end(), scan.end)
    try:
        arguments = _arguments(reader, offer)
        if reader.repeated is not None:
            raise Unreadable("a key given twice")
    except CutShort:
        scan.spend(2 * reader.steps)
        _cut_off(scan, step)
        return envelope is not None or offer is not None
    except Unreadable:
        scan.spend(2 * reader.steps)
        return False
    step.end = reader.pos
    if offer is None:
        step.problems.append(not_offered(head["name"]))
        step.content += f"{scan.text[begin : reader.pos]}\n"
        return True
    if envelope is None and (reader.repairs or not arguments.keys() <= offer.properties.keys()):
        return False
    slug = envelope.slug if envelope else "pythonic"
    step.found.append(Found(offer, arguments, slug, (begin, reader.pos), weak=envelope is None))
    return True


def _offer(scan: Scan, name: str) -> Offer | None:
    return scan.offered.get(name) or scan.offered.get(name.removesuffix(".call").removesuffix(".run"))


def _arguments(reader: ValueReader, offer: Offer | None) -> dict[str, Any]:
    """Everything up to the closing parenthesis; positional values take the schema's order."""
    found: dict[str, Any] = {}
    names = list(offer.properties) if offer is not None else []
    position = 0
    while True:
        char = reader.peek()
        if not char:
            raise CutShort("the text ends inside a call")
        if char == ")":
            reader.pos += 1
            return found
        if char == ",":
            reader.pos += 1
            continue
        key = _KEYWORD.match(reader.text, reader.pos, reader.end)
        if key is not None:
            reader.pos = key.end()
            name = key[1]
        elif position < len(names):
            name = names[position]
        else:
            raise Unreadable("more values than parameters")
        if name in found:
            raise Unreadable("an argument given twice")
        found[name] = reader.value(1, ")")
        position += 1


def read_gemma(scan: Scan, pos: int, envelope: Markers) -> Step | None:
    """`call:f{key:value,…}` with unquoted keys and the dialect's own string delimiter."""
    head = _GEMMA_HEAD.match(scan.text, pos, scan.end)
    if head is None:
        return None
    offer = scan.offered.get(head["name"])
    reader = ValueReader(scan.text, head.end(), scan.end, fence=envelope.fence)
    try:
        arguments = reader.value()
    except CutShort:
        scan.spend(2 * reader.steps + (scan.end - head.end()) // 1000)
        return scan.cut_inside(f"a call of {head['name']!r} was cut off")
    except Unreadable:
        scan.spend(2 * reader.steps)
        return _gemma_repaired(scan, head, envelope, offer)
    return _gemma_step(head, envelope, offer, arguments, reader)


def _gemma_repaired(scan: Scan, head: re.Match[str], envelope: Markers, offer: Offer | None) -> Step | None:
    close = scan.find(envelope.closes[0], head.end())
    if close < 0:
        return None
    reader = ValueReader(scan.text, head.end(), close, fence=envelope.fence, close_at_end=True)
    try:
        return _gemma_step(head, envelope, offer, reader.value(), reader)
    except Unreadable:
        return Step(close, problems=[("malformed", f"the arguments of {head['name']!r} could not be read")])


def _gemma_step(
    head: re.Match[str], envelope: Markers, offer: Offer | None, arguments: Any, reader: ValueReader
) -> Step:
    end, fault = reader.pos, twice(reader.repeated) if reader.repeated is not None else ""
    if offer is None:
        return Step(end, problems=[not_offered(head["name"])])
    return Step(end, [Found(offer, arguments, envelope.slug, (head.start(), end), fault=fault)])
