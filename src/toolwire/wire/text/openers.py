"""Everything that opens something in a text: one handler for each marker."""

import re
from collections.abc import Callable

from msgspec import Struct

from toolwire.wire.text.bodies import read_body, read_json, read_named
from toolwire.wire.text.channels import read_element, read_message, read_next_message
from toolwire.wire.text.elements import read_children, read_tool_tag
from toolwire.wire.text.fences import read_fence
from toolwire.wire.text.labels import read_qwen_agent, read_recipient
from toolwire.wire.text.marks import (
    AFTER_CALL,
    ANSWER_TAGS,
    CLOSER_PREFIXES,
    CLOSERS,
    ENVELOPES,
    LONE_ENDS,
    OPENING,
    SILENT,
    THOUGHTS,
    Markers,
    any_of,
)
from toolwire.wire.text.minimax import M3, read_m3
from toolwire.wire.text.scan import Scan, Step, TextFlow
from toolwire.wire.text.tags import read_tag_call

_TAG_CALL = Markers("tags", (), ("</invoke>",))
_CLINE = Markers("cline_xml", ())
_LANGCHAIN = Markers("langchain_xml", (), ("</tool_input>",))
_NESTING = 3
_IN_VAIN = 6
LONGEST_CLOSER = max(map(len, CLOSERS))


class Mark(Struct):
    """A marker in the text: where it begins, where what follows it begins, and how deep markers may still nest."""

    text: str
    at: int
    after: int
    depth: int = _NESTING


Handler = Callable[[Scan, Mark], Step | None]


def _envelope(envelope: Markers) -> Handler:
    def read(scan: Scan, mark: Mark) -> Step | None:
        body = mark.after - 1 if mark.text.endswith("s[") else mark.after
        return past_closers(scan, read_body(scan, body, envelope, read_opener, mark.depth))

    return read


def past_closers(scan: Scan, step: Step | None) -> Step | None:
    """The step with the end markers behind its call."""
    if step is not None and not step.cut:
        while (closer := AFTER_CALL.match(scan.text, step.end, scan.end)) is not None:
            step.end = closer.end()
        rest = scan.space(step.end)
        half = scan.text[rest : scan.end] if scan.end - rest < LONGEST_CLOSER else ""
        if half in CLOSER_PREFIXES and not (scan.cut and half in PREFIXES):
            step.end = scan.end
    return step


def _tag_call(scan: Scan, mark: Mark) -> Step | None:
    step = read_tag_call(scan, mark.at, _TAG_CALL)
    if step is None and mark.text.endswith(">"):
        step = read_children(scan, scan.space(mark.after), _TAG_CALL, "</" + mark.text[1:])
    elif step is None and scan.end - mark.after < 300 and scan.find(">", mark.after) < 0:
        step = scan.cut_inside("the text ends inside the tag of a call")
    return past_closers(scan, step)


_LONGEST_TAG = 300
_ATTRIBUTES = re.compile(r"[^<>]{0,300}>")
_NAMED = re.compile(r"""\b(?:name|tool|function)\s*+=\s*+["']?([^"'<>\s]{1,128})""")


def _attributed(opener: str) -> Handler:
    """A tag that carries attributes: the name may be one of them, and the arguments alone stand inside."""
    plain = _OPENERS[opener + ">"]

    def read(scan: Scan, mark: Mark) -> Step | None:
        rest = _ATTRIBUTES.match(scan.text, mark.after, scan.end)
        if rest is None:
            half = scan.cut and scan.end - mark.after < _LONGEST_TAG and scan.find(">", mark.after) < 0
            return scan.cut_inside("the text ends inside the tag of a call") if half else None
        named = _NAMED.search(rest.group())
        at = scan.space(rest.end())
        if named is not None and scan.offered.get(named[1]) is not None and scan.at(at, "{"):
            return past_closers(scan, read_named(scan, mark.at, named[1], at, plain))
        return past_closers(scan, read_body(scan, rest.end(), plain, read_opener, mark.depth))

    return read


def _silent(_: Scan, mark: Mark) -> Step | None:
    return Step(mark.after)


def _element_end(scan: Scan, mark: Mark) -> Step | None:
    end = scan.find("<|sep|>", mark.after)
    if 0 <= end - mark.after < 64:
        return Step(end + len("<|sep|>"))
    return Step(scan.end, cut=True) if scan.end - mark.after < 64 else Step(mark.after)


def tool_tag(scan: Scan, mark: Mark) -> Step | None:
    """A tag that is a tool's name."""
    offer = scan.offered.get(mark.text[1:-1].removesuffix("/"))
    return read_tool_tag(scan, mark.at, offer, _CLINE) if offer is not None else None


def _langchain(scan: Scan, mark: Mark) -> Step | None:
    if scan.cut and scan.end - mark.after < _LONGEST_TAG and scan.find("<", mark.after) < 0:
        return scan.cut_inside("the text ends inside the name of a tool")
    return past_closers(scan, read_children(scan, mark.at, _LANGCHAIN))


def _element(close: str, *, line_start: bool = False) -> Handler:
    """What is for reading by its markup: a comment, code, a quotation. Without an end it goes on to the end."""

    def read(scan: Scan, mark: Mark) -> Step | None:
        offer = scan.offered.get(mark.text.strip("<> "))
        if offer is not None:
            return tool_tag(scan, mark)
        if line_start and not _begins_line(scan, mark.at):
            return None
        stop = scan.find(close, mark.after)
        end = stop + len(close) if stop >= 0 else scan.end
        flow = TextFlow(mark.at, (close,), keeps_end=True)
        step = Step(end, content=scan.text[mark.at : end], flow=flow)
        if stop < 0 and not scan.growing and OPENING.search(scan.text, mark.after, scan.end):
            step.problems.append(
                ("unclear", f"a call behind {mark.text.strip()} was not run; to make it, send the call alone")
            )
        return step

    return read


def _begins_line(scan: Scan, at: int) -> bool:
    before = (scan.before + scan.text[:at])[-4:] if at < 4 else scan.text[at - 4 : at]
    return not before[before.rfind("\n") + 1 :].strip(" ")


_SHOWN_TAGS = ("pre", "code", "blockquote", "samp", "xmp", "example", "kbd")
_OPENERS = {opener: envelope for envelope in ENVELOPES for opener in envelope.opens}
_PLAIN_TAGS = ("<tool_call", "<tool_use", "<function_call", "<tools", "<tool_calls")
_BARE_KEYS = (
    "name", "tool", "tool_name", "function", "function_call", "tool_calls", "action", "type", "message", "command",
    "recipient_name", "tool_uses",
)  # fmt: skip


def _inline(scan: Scan, mark: Mark) -> Step | None:
    """JSON in the middle of a line."""
    return read_json(scan, mark.at, "bare_json", (), weak=True)


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(SILENT, _silent),
    **dict.fromkeys(("<function=", "<function name=", "<functionname="), _tag_call),
    **{f"<{space}invoke{end}": _tag_call for space in ("", "antml" + ":", "atem:", "steptml:") for end in (" ", ">")},
    "<｜DSML｜invoke": _tag_call,
    **{opener: _envelope(envelope) for opener, envelope in _OPENERS.items()},
    **{f"{tag} ": _attributed(tag) for tag in _PLAIN_TAGS},
    **dict.fromkeys((f'{{{space}"{key}"' for key in _BARE_KEYS for space in ("", " ")), _inline),
    "<|start|>": lambda scan, mark: read_message(scan, mark.at, read_opener),
    "<|channel|>": lambda scan, mark: read_message(scan, mark.at, read_opener),
    "<|eom|>": lambda scan, mark: read_next_message(scan, mark.after, read_opener),
    "<|open|>": lambda scan, mark: read_element(scan, mark.at),
    "<|close|>": _element_end,
    M3: lambda scan, mark: read_m3(scan, mark.at),
    "```": lambda scan, mark: read_fence(scan, mark.at, read_opener),
    "✿FUNCTION✿": lambda scan, mark: read_qwen_agent(scan, mark.at),
    "✿RETURN✿": _silent,
    "<|recipient|>": lambda scan, mark: read_recipient(scan, mark.at, marked=True),
    ">>>": lambda scan, mark: read_recipient(scan, mark.at, marked=True),
    "<!--": _element("-->"),
    '"""': _element('\n"""', line_start=True),
    "<![CDATA[": _element("]]>"),
    "~~~": _element("\n~~~", line_start=True),
    "````": _element("\n````", line_start=True),
    **{f"<{tag}{end}": _element(f"</{tag}>") for tag in _SHOWN_TAGS for end in (">", " ")},
    "<tool>": _langchain,
}
_ELEMENTS = {"<!--", "<![CDATA[", '"""', "~~~", "````", *(f"<{tag}{end}" for tag in _SHOWN_TAGS for end in (">", " "))}
_NOT_INSIDE = {
    "```",
    ">>>",
    "<|channel|>",
    "<|start|>",
    *_ELEMENTS,
    *(marker for marker in HANDLERS if marker[0] == "{"),
}
CALL_OPENERS = frozenset(HANDLERS) - frozenset(SILENT) - _NOT_INSIDE
THOUGHT_ENDS = dict(THOUGHTS)
ANSWERS = {f"<{slash}{tag}>": tag for tag in ANSWER_TAGS for slash in ("", "/")}
MARKERS = tuple(dict.fromkeys([*HANDLERS, *THOUGHT_ENDS, *LONE_ENDS, *ANSWERS]))
PREFIXES = frozenset(word[:size] for word in MARKERS for size in range(1, len(word)))
LONGEST = max(map(len, MARKERS))
STRONG = re.compile(any_of(MARKERS))


def read_opener(scan: Scan, at: int, depth: int) -> Step | None:
    """Read whatever call opener stands exactly at a position."""
    match = STRONG.match(scan.text, at, scan.end)
    if match is None or match.group() not in CALL_OPENERS:
        return None
    step = HANDLERS[match.group()](scan, Mark(match.group(), at, match.end(), depth))
    if step is None:
        scan.spend(_IN_VAIN)
    return step
