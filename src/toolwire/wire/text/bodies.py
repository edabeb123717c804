"""What stands behind an opening marker: JSON, call syntax, tags, a name before arguments, told by how it begins."""

import re
from collections.abc import Callable
from typing import Any

from toolwire.wire.encode.outbound import to_json
from toolwire.wire.lenient.arguments import NotRead, read_arguments
from toolwire.wire.lenient.coerce import coerced
from toolwire.wire.lenient.values import PartList, PartObject
from toolwire.wire.replies.offered import Offer
from toolwire.wire.text.elements import read_children, read_pairs
from toolwire.wire.text.json_calls import Entries, begins_call, entries_in, plain_call
from toolwire.wire.text.json_values import Value, read_exact, read_value
from toolwire.wire.text.marks import CLOSING, FENCE, OPENING, Markers
from toolwire.wire.text.scan import MAX_CALLS, Found, Scan, Step, not_offered, unclosed_call
from toolwire.wire.text.syntax import CALL_HEAD, read_call_syntax, read_gemma
from toolwire.wire.text.tags import read_tag_call

_BETWEEN = re.compile(r"[\s,;]*+")
_TOO_MANY = re.compile(r"[\s}\]]*+")
_NAME_THEN_JSON = re.compile(r"(?P<name>[^\W\d][\w.-]{0,127})\s*+(?:```(?:json)?\s*+)?(?=\{)")
_LIST_OF_CALLS = re.compile(r"\[\s*+(?:print\()?[^\W\d][\w.-]{0,127}\s{0,8}\(")
_WRAPPER = re.compile(r"""\{\s*+["'](?:tool_calls?|function_calls?|calls|actions)["']\s*+:\s*+(?=\{)""")
_HEAD_SO_FAR = re.compile(r"\s*+(?:[\w<\[`:][^\s{]{0,219}+(?:[ \t]<[^\s{]{0,160}+)?(?:\n\s*+`{0,3}+\w{0,8}+\s*+)?)?\Z")
_LONGEST_HEAD = 400
_NESTING = 4
_PER_VALUE = 4

Opener = Callable[[Scan, int, int], Step | None]


def read_body(scan: Scan, pos: int, envelope: Markers, opened: Opener, depth: int = _NESTING) -> Step | None:
    """Read what an envelope holds. `opened` reads a further opening marker that may stand inside."""
    if envelope.noise is not None and (noise := envelope.noise.match(scan.text, pos, scan.end)) is not None:
        pos = noise.end()
    if envelope.head is not None:
        headed = read_headed(scan, pos, envelope)
        if headed is not None:
            return headed
    at = scan.space(pos)
    if at >= scan.end:
        return scan.cut_inside("the text ends behind an opening marker")
    char = scan.text[at]
    if char in "{[\"'“":
        return _bracketed(scan, at, envelope)
    if char == "<" or char == "]":
        return _tagged(scan, at, envelope, opened, depth)
    if char == "`":
        return _fenced(scan, at, envelope, opened, depth)
    return _worded(scan, at, envelope)


def _bracketed(scan: Scan, at: int, envelope: Markers) -> Step | None:
    if scan.text[at] == "[" and _LIST_OF_CALLS.match(scan.text, at, scan.end):
        return read_call_syntax(scan, at, envelope)
    step = read_json(scan, at, envelope.slug, envelope.closes)
    if step is None and scan.at(at, "[") and scan.end - at < 200 and "]" not in scan.text[at : scan.end]:
        return scan.cut_inside("the text ends inside a list of calls")
    return step


def _tagged(scan: Scan, at: int, envelope: Markers, opened: Opener, depth: int) -> Step | None:
    tagged = read_tag_call(scan, at, envelope)
    if tagged is not None:
        return tagged
    if depth > 0 and (inner := opened(scan, at, depth - 1)) is not None:
        return inner
    if OPENING.match(scan.text, at, scan.end):
        return None
    close = next((close for close in envelope.closes if close.startswith("</")), "")
    children = read_children(scan, at, envelope, close) if close and not scan.at(at, "</") else None
    if children is None and scan.end - at < 120 and scan.find(">", at) < 0:
        return scan.cut_inside("the text ends inside a tag")
    return children


def _fenced(scan: Scan, at: int, envelope: Markers, opened: Opener, depth: int) -> Step | None:
    match = FENCE.match(scan.text, at, scan.end)
    if match is None or depth <= 0:
        return None
    step = read_body(scan, match.end(), envelope, opened, depth - 1)
    if step is not None and not step.cut:
        step.end = scan.past(step.end, "```")
    return step


def _worded(scan: Scan, at: int, envelope: Markers) -> Step | None:
    if envelope.fence:
        gemma = read_gemma(scan, at, envelope)
        if gemma is not None:
            return gemma
        if scan.end - at < 160 and "call:".startswith(scan.text[at : at + 5]) and "{" not in scan.text[at : scan.end]:
            return scan.cut_inside("the text ends before a call's arguments")
    if CALL_HEAD.match(scan.text, at, scan.end):
        return read_call_syntax(scan, at, envelope)
    named = _NAME_THEN_JSON.match(scan.text, at, scan.end)
    if named is not None:
        return read_named(scan, named.start(), named["name"], named.end(), envelope)
    return read_pairs(scan, at, envelope)


def read_headed(scan: Scan, pos: int, envelope: Markers) -> Step | None:
    """A name (and perhaps an id) in the dialect's own header, then JSON arguments."""
    assert envelope.head is not None
    head = envelope.head.match(scan.text, pos, scan.end)
    if head is not None:
        groups = head.groupdict()
        return read_named(scan, pos, groups.get("name") or "", head.end(), envelope, groups.get("id"))
    if scan.end - pos < _LONGEST_HEAD and _HEAD_SO_FAR.match(scan.text, pos, scan.end):
        return scan.cut_inside("the text ends before a call's arguments")
    return None


def read_named(scan: Scan, begin: int, name: str, at: int, envelope: Markers, alias: str | None = None) -> Step | None:
    """JSON arguments behind a name. A name that is only a counter is inferred from the arguments."""
    value = read_value(scan, at, envelope.closes)
    if value is None:
        scan.note("malformed", f"the arguments of {name[:80]!r} could not be read")
        return None
    if isinstance(value.value, PartObject | PartList):
        return scan.cut_inside(f"a call of {name[:80]!r} was cut off")
    if value.supplied and (not value.value or not _is_closed(scan, value.end)):
        return unclosed_call(name, value.end)
    end = scan.past(_past_brackets(scan, value.end), "```")
    offer = scan.offered.get(name) if name else None
    if offer is None and (not name or name.isdigit()) and isinstance(value.value, dict):
        offer = scan.offered.by_arguments(value.value)
    if offer is None:
        return Step(end, problems=[not_offered(name)])
    found = Found(offer, value.value, envelope.slug, (begin, end), alias or None, value.note, fault=value.fault)
    return Step(end, [found])


def _past_brackets(scan: Scan, end: int) -> int:
    """Closing brackets too many are the writer's slip, not text."""
    match = _TOO_MANY.match(scan.text, end, scan.end)
    return match.end() if match and match.group().strip() else end


def read_json(scan: Scan, pos: int, slug: str, closes: tuple[str, ...], *, weak: bool = False) -> Step | None:
    """One or more JSON values that stand for calls. `weak` ones must name offered tools and fit them."""
    exact = _exact(scan, pos, closes)
    if exact is not None and not weak:
        entry = plain_call(exact.value, scan.offered)
        if entry is not None and entry.offer is not None:
            found = Found(entry.offer, entry.arguments, slug, (pos, exact.end), entry.alias)
            return Step(exact.end, [found])
    step = Step(pos)
    at = pos
    while (
        at < scan.end
        and _opens_value(scan, at, first=at == pos)
        and scan.spend(_PER_VALUE)
        and len(step.found) < MAX_CALLS
    ):
        if exact is None and (glued := _read_glued(scan, at, slug, closes, weak=weak)) is not None:
            return glued
        value = exact or read_value(scan, at, closes)
        exact = None
        entries = entries_in(_unwrapped(value.value), scan.offered) if value is not None else None
        if value is None or entries is None or (weak and not _fits(entries, value)):
            if value is not None and _cut_off(value, behind_call=bool(step.found), weak=weak):
                return scan.cut_inside("the text ends inside a call", step)
            if value is None and not weak and not step.found and closes and scan.text[at] in "{[":
                scan.note("malformed", "a block that opens like a call could not be read")
            break
        if value.supplied and not _is_closed(scan, value.end) and entries.calls:
            return _unclosed_behind(step, entries, value.end)
        _take(scan, step, entries, value, (at, value.end), slug, weak=weak)
        if step.cut:
            return step
        step.end = value.end if weak else _past_brackets(scan, value.end)
        between = _BETWEEN.match(scan.text, step.end, scan.end)
        at = between.end() if between else step.end
    return step if step.end > pos else None


def _opens_value(scan: Scan, at: int, *, first: bool) -> bool:
    """Whether a value begins here. Behind the first one, a quotation mark without a bracket closes a quotation."""
    if scan.text[at] in "{[":
        return True
    return scan.text[at] in "\"'“" and (first or scan.at(at + 1, "{") or scan.at(at + 1, "["))


def _read_glued(scan: Scan, at: int, slug: str, closes: tuple[str, ...], *, weak: bool) -> Step | None:
    """`{"tool_call": {…}{…}}`: several calls one after the other where one value should stand."""
    wrapper = _WRAPPER.match(scan.text, at, scan.end)
    first = read_value(scan, wrapper.end()) if wrapper is not None else None
    if first is None or isinstance(first.value, PartObject) or not scan.at(scan.space(first.end), "{"):
        return None
    step = read_json(scan, wrapper.end(), slug, closes, weak=weak) if wrapper is not None else None
    if step is None or step.cut or not scan.at(scan.space(step.end), "}"):
        return step if step is not None and not weak and not step.cut else None
    step.end = scan.space(step.end) + 1
    return step


def _is_closed(scan: Scan, at: int) -> bool:
    """Whether an end follows, of the call or of the turn; another call's beginning is none."""
    return scan.space(at) >= scan.end or CLOSING.match(scan.text, at, scan.end) is not None


def _unclosed_behind(step: Step, entries: Entries, end: int) -> Step:
    """What was found before counts; of calls in a value that nothing closes, none does."""
    half = unclosed_call(entries.calls[0].name, end)
    return Step(end, step.found, step.content, problems=[*step.problems, *half.problems])


def _exact(scan: Scan, at: int, closes: tuple[str, ...]) -> Value | None:
    """Strict JSON up to the first closing marker, which is the common case; the last one is nearer in most texts."""
    if closes:
        close = scan.last(closes[0])
        exact = read_exact(scan.text[at:close]) if close > at else None
        if exact is None:
            close = scan.find(closes[0], at)
            exact = read_exact(scan.text[at:close]) if close > 0 else None
        if isinstance(exact, dict | list):
            return Value(exact, close)
    return None


def _unwrapped(value: Any) -> Any:
    """The object inside a JSON string, if that is what was written."""
    if isinstance(value, str):
        read = read_arguments(value, finished=False)
        return value if isinstance(read, NotRead) else list(read.objects)
    return value


def _take(
    scan: Scan, step: Step, entries: Entries, value: Value, span: tuple[int, int], slug: str, *, weak: bool
) -> None:
    step.content += entries.content
    for entry in entries.calls:
        if entry.offer is None:
            step.problems.append(not_offered(entry.name))
            step.content += f"{to_json({'name': entry.name, 'arguments': entry.arguments}).decode()}\n"
        elif entry.half and scan.cut:
            entries.cut = True
        else:
            found = Found(
                entry.offer, entry.arguments, slug, span, entry.alias, value.note, weak, value.fault, entry.options
            )  # fmt: skip
            step.found.append(found)
    if entries.cut:
        scan.cut_inside("the text ends inside a call", step)


def _cut_off(value: Value, *, behind_call: bool, weak: bool) -> bool:
    """Whether a value is half a call: behind an opening marker, or behind another call and so far like one."""
    if weak:
        return behind_call and begins_call(value.value)
    return isinstance(value.value, PartObject | PartList)


def _fits(entries: Entries, value: Value) -> bool:
    """Whether weakly marked JSON counts: some call fits its tool and none misfits; unknown names beside it are told."""
    known = [(entry.offer, entry.arguments) for entry in entries.calls if entry.offer is not None]
    if not all(fits(offer, arguments) for offer, arguments in known):
        return False
    if value.note and not all(_valid(offer, arguments) for offer, arguments in known):
        return False
    if entries.calls and not known:
        return entries.explicit
    return bool(known) or (entries.cut and entries.known) or bool(entries.content) or not entries.cut


def fits(offer: Offer, arguments: Any) -> bool:
    """Whether arguments of a weakly marked call are meant for this tool: all that it needs, or nothing it lacks."""
    if isinstance(arguments, str):
        read = read_arguments(arguments, finished=False)
        if isinstance(read, NotRead):
            return len(offer.properties) == 1 or len(offer.required) == 1
        arguments = read.objects[0]
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return False
    # Models add a parameter that the same tool has elsewhere, such as the description of a command.
    return offer.knows(arguments) or (bool(offer.required) and offer.required <= arguments.keys())


def _valid(offer: Offer, arguments: Any) -> bool:
    return isinstance(arguments, dict) and (offer.accepts(arguments) or offer.accepts(coerced(arguments, offer.schema)))
