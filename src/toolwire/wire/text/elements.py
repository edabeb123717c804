"""Calls written as elements without attributes: key and value tags, a tag for each argument, the tool as a tag."""

import re
from typing import Any

from toolwire.wire.lenient.arguments import twice
from toolwire.wire.replies.offered import Offer
from toolwire.wire.text.marks import AFTER_CALL, CLOSER_PREFIXES, Markers
from toolwire.wire.text.scan import Found, Scan, Step, unclosed_call
from toolwire.wire.text.tags import HALF_END, called, closing, strip_line_breaks, typed_text

NAME_TAGS = ("name", "tool_name", "function", "tool", "function_name")
ARGUMENT_TAGS = ("arguments", "parameters", "input", "args", "tool_input", "parameter", "params")
_CHILD = re.compile(r"<(?P<name>[^\W\d][\w.-]{0,127})(?P<empty>\s*/)?>")
_PAIR = re.compile(r"(?>\s|\\n)*+<(?P<pre>longcat_)?arg_key(?P<post>:opensource)?>")
_KV_NAME = re.compile(r"\s*+(?P<name>\w[\w.-]{0,127})\s*+(?:<tool_sep(?::opensource)?>)?(?>\s|\\n)*+")


def read_pairs(scan: Scan, pos: int, envelope: Markers) -> Step | None:
    """A name, then pairs of `<arg_key>` and `<arg_value>`; no pairs for a call without arguments."""
    head = _KV_NAME.match(scan.text, pos, scan.end)
    if head is None:
        return None
    offer = scan.offered.get(head["name"])
    raw: dict[str, Any] = {}
    fault = ""
    at = head.end()
    while (pair := _PAIR.match(scan.text, at, scan.end)) is not None:
        tags = tuple(f"{pair['pre'] or ''}arg_{kind}{pair['post'] or ''}" for kind in ("key", "value"))
        read = _read_pair(scan, pair.end(), tags)
        if read is None or scan.spent:
            return scan.cut_inside(f"a call of {head['name']!r} was cut off")
        key, text, at = read
        fault = twice(key) if key in raw else fault
        raw[key] = typed_text(text, key, offer)
    if scan.at(at, "\\n"):
        at += 2
    step = _pairs_end(scan, head, offer, raw, envelope, at)
    for found in step.found if step is not None else ():
        found.fault = fault
    return step


def _read_pair(scan: Scan, at: int, tags: tuple[str, ...]) -> tuple[str, str, int] | None:
    key_tag, value_tag = tags
    close = scan.find(f"</{key_tag}>", at)
    if close < 0 or close - at > 300:
        return None
    key = scan.text[at:close].strip()
    opened = scan.find(f"<{value_tag}>", close)
    if opened < 0:
        return None
    begin = opened + len(value_tag) + 2
    end = closing(scan, begin, f"</{value_tag}>")
    following = scan.find(f"<{key_tag}>", begin)
    if following >= 0 and (end < 0 or following < end):
        return key, scan.text[begin:following].rstrip("\n"), following
    if end < 0:
        return None
    return key, scan.text[begin:end], end + len(value_tag) + 3


def _pairs_end(
    scan: Scan, head: re.Match[str], offer: Offer | None, raw: dict[str, Any], envelope: Markers, at: int
) -> Step | None:
    rest = scan.space(at)
    closed = any(scan.at(rest, close) for close in envelope.closes)
    if closed and not raw and any(scan.at(rest, opener) for opener in envelope.opens):
        return unclosed_call(head["name"], at)
    closed = closed or (_half_closed(scan, rest) and not scan.cut)
    if not raw and not closed:
        at_end = scan.space(at) >= scan.end
        partial = scan.end - at < 40 and scan.at(at, "<") and scan.find(">", at) < 0
        if (offer is None and not at_end) or not (at_end or partial):
            return None
        if not at_end or offer is None or offer.required or head.end() == scan.end:
            return scan.cut_inside("a call was cut off after its name")
    if not closed and scan.space(at) < scan.end and scan.find(">", at) < 0:
        return scan.cut_inside(f"a call of {head['name']!r} was cut off")
    if offer is not None and not closed and (scan.cut or not offer.required <= raw.keys()):
        return scan.cut_inside(f"a call of {head['name']!r} was cut off")
    return called(head["name"], offer, raw, envelope, (head.start(), at))


def _half_closed(scan: Scan, at: int) -> bool:
    """Whether the text ends inside an end tag; `<tool_` may as well open what separates a name from its arguments."""
    half = HALF_END.match(scan.text, at, scan.end) is not None
    return half and scan.end - at < 40 and scan.text[at : scan.end] in CLOSER_PREFIXES


def read_children(scan: Scan, pos: int, envelope: Markers, close: str = "") -> Step | None:
    """`<name>f</name><arguments>…</arguments>`: name and arguments as elements, or each argument as one."""
    children = _children(scan, pos)
    if children is None:
        return scan.cut_inside("a call was cut off") if close or _names_tool(scan, pos) else None
    fields, at, fault = children
    name = next((fields[tag].strip() for tag in NAME_TAGS if tag in fields), "")
    if not name:
        return None
    offer = scan.offered.get(name)
    found = next(
        (fields[tag] for tag in ARGUMENT_TAGS if tag in fields and not (offer and tag in offer.properties)), None
    )
    if found is None:
        arguments: Any = {key: typed_text(text, key, offer) for key, text in fields.items() if key not in NAME_TAGS}
    else:
        arguments, inner_fault = _inner_arguments(scan, found, offer)
        fault = fault or inner_fault
    end = scan.past(at, close) if close else at
    if end == at and offer is not None and _incomplete(scan, at, offer, arguments):
        return scan.cut_inside(f"a call of {name[:80]!r} was cut off")
    if end == at and offer is not None and found is None and not arguments and not _is_closed(scan, at):
        return unclosed_call(name, at)
    return called(name, offer, arguments, envelope, (pos, end), fault=fault)


def _incomplete(scan: Scan, at: int, offer: Offer, arguments: Any) -> bool:
    """Whether a call at the end of the text, without its end tag, may lack something."""
    at_end = scan.space(at) >= scan.end or (scan.at(at, "<") and scan.find(">", at) < 0)
    known = arguments.keys() if isinstance(arguments, dict) else offer.required
    return at_end and (scan.cut or not offer.required <= known)


def _is_closed(scan: Scan, at: int) -> bool:
    return AFTER_CALL.match(scan.text, at, scan.end) is not None


def _names_tool(scan: Scan, pos: int) -> bool:
    """Whether the element here is a finished name of an offered tool."""
    child = _CHILD.match(scan.text, pos, scan.end)
    end = scan.find("</", child.end()) if child is not None and child["name"] in NAME_TAGS else -1
    return child is not None and end >= 0 and scan.offered.get(scan.text[child.end() : end].strip()) is not None


def _inner_arguments(scan: Scan, text: str, offer: Offer | None) -> tuple[Any, str]:
    stripped = text.strip()
    if not stripped.startswith("<"):
        return stripped, ""
    inner = Scan(text, scan.offered)
    children = _children(inner, inner.space(0))
    if children is None:
        return stripped, ""
    return {key: typed_text(value, key, offer) for key, value in children[0].items()}, children[2]


def _children(scan: Scan, pos: int) -> tuple[dict[str, str], int, str] | None:
    """Elements one after the other as raw text, where they end, and what is wrong; None when the text ends in one."""
    found: dict[str, str] = {}
    fault = ""
    at = pos
    while (child := _CHILD.match(scan.text, at, scan.end)) is not None:
        name, begin = child["name"], child.end()
        close = "" if child["empty"] else f"</{name}>"
        end = closing(scan, begin, close) if close else begin
        if end < 0 or scan.spent:
            return None
        fault = twice(name) if name in found else fault
        found[name] = scan.text[begin:end]
        at = scan.space(end + len(close))
    return found, at, fault


def read_tool_tag(scan: Scan, pos: int, offer: Offer, envelope: Markers) -> Step | None:
    """`<tool_name><argument>v</argument></tool_name>`: the tag is the tool."""
    name = offer.misspelled or offer.name
    if scan.text.startswith("/", pos + 1 + len(name)):
        return _empty_tag(pos, offer, envelope)
    close = f"</{name}>"
    begin = pos + len(name) + 2
    children = _children(scan, scan.space(begin))
    if children is None:
        return scan.cut_inside(f"a call of {offer.name!r} was cut off")
    fields, at, fault = children
    if not fields.keys() <= offer.properties.keys() or (offer.misspelled and not fields):
        return None
    if not scan.at(at, close):
        if at >= scan.end and not fields and (scan.cut or not offer.required):
            return scan.cut_inside(f"a call of {offer.name!r} has neither arguments nor an end")
        if at < scan.end or scan.cut or not offer.required <= fields.keys():
            partial = at >= scan.end or (scan.at(at, "<") and scan.end - at < 60 and scan.find(">", at) < 0)
            return (
                scan.cut_inside(f"a call of {offer.name!r} was cut off") if partial and (fields or scan.cut) else None
            )
        close = ""
    arguments = {
        key: typed_text(strip_line_breaks(text) if text.startswith("\n") else text, key, offer)
        for key, text in fields.items()
    }
    end = at + len(close)
    return Step(end, [Found(offer, arguments, envelope.slug, (pos, end), weak=True, fault=fault)])


def _empty_tag(pos: int, offer: Offer, envelope: Markers) -> Step | None:
    end = pos + len(offer.name) + 3
    if offer.required or offer.misspelled:
        return None
    return Step(end, [Found(offer, {}, envelope.slug, (pos, end), weak=True)])
