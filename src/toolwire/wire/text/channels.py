"""Formats that send messages to recipients: Harmony, Muse, Kimi K3."""

import re
from typing import Any

from toolwire.wire.lenient.arguments import twice
from toolwire.wire.replies.offered import Offered
from toolwire.wire.text.bodies import Opener, read_body, read_named
from toolwire.wire.text.json_values import Value, read_exact, read_value
from toolwire.wire.text.marks import Markers, any_of
from toolwire.wire.text.scan import Found, Scan, Step, TextFlow, unclosed_call, without_half
from toolwire.wire.text.tags import called, literal_or_text

_HEADER = re.compile(
    r"(?:<\|start\|>)?\s*+(?:assistant\b)?\s*+(?:to=(?P<to>[^\s<]{1,160}))?\s*+"
    r"(?:<\|channel\|>\s*+(?P<channel>\w{1,32})\s*+(?:to=(?P<late>[^\s<]{1,160}))?)?"
    r"\s*+(?:<\|channel\|>\s*+\w{1,32})?"
    r"\s*+(?:code|json)?\s*+(?:<\|constrain\|>\s*+\w{0,16})?\s*+(?:json)?\s*+<\|message\|>"
)
_TOOL_SPEAKS = re.compile(r"<\|start\|>\s*+(?:functions\.|tool\b)")
_END_MARKERS = ("<|end|>", "<|call|>", "<|return|>", "<|eom|>", "<|eot|>", "<|start|>")
_ENDS = re.compile(any_of(_END_MARKERS))
_HARMONY = Markers("gptoss_harmony", (), ("<|call|>", "<|end|>", "<|eom|>", "<|eot|>", "<|start|>"))
_MUSE = Markers("muse_glimmer", (), ("<|eom|>", "<|eot|>", "<|start|>"))
STAYS = ("<|start|>", "<|eom|>")  # the next message is read from here on
ADDRESS = re.compile(r"\s*+(?:assistant\b)?\s*+to=[^\s<]{1,160}[^<\n]{0,40}<\|")
ADDRESS_SO_FAR = re.compile(
    r"\s*+(?:a(?:s(?:s(?:i(?:s(?:t(?:a(?:n(?:t\s*+)?)?)?)?)?)?)?)?)?(?:t(?:o(?:=(?:(?!<\|message\|>)[^\n]){0,240})?)?)?\Z"
)
_LONGEST_ADDRESS = 256
_THINKING = frozenset({"analysis", "thought", "self", "thinking"})


def read_message(scan: Scan, pos: int, opened: Opener) -> Step | None:
    """One message with a header: to a tool it is a call, to oneself it is reasoning, else it is text."""
    if _TOOL_SPEAKS.match(scan.text, pos, scan.end):
        return Step(scan.end)  # the model goes on in a tool's voice: nothing of that is its own to say
    header = _HEADER.match(scan.text, pos, scan.end)
    if header is None:
        return _cut_header(scan, pos)
    recipient = header["to"] or header["late"] or ""
    channel = header["channel"] or ""
    if recipient and recipient not in ("self", "user", "all"):
        return _read_sent(scan, header, recipient, channel, opened)
    ends = _ENDS.search(scan.text, header.end(), scan.end)
    stop = ends.start() if ends else scan.end
    end = stop if ends is None or ends.group() in STAYS else ends.end()
    said = scan.text[header.end() : stop] if ends else without_half(scan.text[header.end() : stop], *_END_MARKERS)
    if channel in _THINKING or recipient in _THINKING:
        return Step(end, reasoning=said, flow=TextFlow(header.end(), _END_MARKERS, reasoning=True))
    return Step(end, content=said, flow=TextFlow(header.end(), _END_MARKERS))


def read_next_message(scan: Scan, after: int, opened: Opener) -> Step:
    """What follows the end of a message: the next one may begin with its address, without an opening marker."""
    if scan.end - after < _LONGEST_ADDRESS and ADDRESS_SO_FAR.match(scan.text, after, scan.end):
        if scan.growing:
            return Step(scan.end, cut=True)
        if "to=" in scan.text[after : scan.end]:
            return scan.cut_inside("the text ends inside the header of a call")
    addressed = ADDRESS.match(scan.text, after, scan.end) is not None
    return (read_message(scan, after, opened) if addressed else None) or Step(after)


def _cut_header(scan: Scan, pos: int) -> Step | None:
    rest = scan.text[pos : pos + 200]
    if scan.end - pos < 200 and "<|message|>" not in rest and rest.startswith("<|"):
        if "to=" in rest:
            return scan.cut_inside("the text ends inside the header of a call")
        return Step(scan.end, cut=True)
    return None


def _read_sent(scan: Scan, header: re.Match[str], recipient: str, channel: str, opened: Opener) -> Step | None:
    at = scan.space(header.end())
    envelope = _HARMONY if channel else _MUSE
    if at >= scan.end:
        return scan.cut_inside(f"a call of {recipient!r} was cut off")
    empty = _ENDS.match(scan.text, at, scan.end)
    if empty is not None and empty.group() == "<|start|>":
        return unclosed_call(recipient, empty.start())
    if empty is not None and (offer := scan.offered.get(recipient)) is not None:
        end = empty.start() if empty.group() in STAYS else empty.end()
        return Step(end, [Found(offer, {}, envelope.slug, (header.start(), end))])
    if scan.at(at, "{"):
        step = read_named(scan, header.start(), recipient, at, envelope)
    else:
        step = read_body(scan, at, envelope, opened)
    if step is None or step.cut:
        return step
    ends = _ENDS.match(scan.text, scan.space(step.end), scan.end)
    if ends is not None and ends.group() not in STAYS:
        step.end = ends.end()
    return step


_OPEN = re.compile(r"<\|open\|>\s*+(?P<tag>\w{1,32})(?P<attributes>[^<]{0,600})<\|sep\|>")
_PAIR = re.compile(r"""(\w{1,32})\s*+=\s*+"([^"]{0,300})\"""")
_K3 = Markers("kimi_k3", ())


def read_element(scan: Scan, pos: int) -> Step | None:
    """One element of Kimi K3: `think`, `response`, `tools` or `call`."""
    opened = _OPEN.match(scan.text, pos, scan.end)
    if opened is None:
        short = scan.end - pos < 300 and scan.find("<|sep|>", pos) < 0
        return Step(scan.end, cut=True, problems=[("truncated", "the text ends inside a tag")]) if short else None
    tag = opened["tag"]
    if tag == "call":
        return _read_k3_call(scan, opened)
    if tag not in ("think", "response"):
        return Step(opened.end())
    close = f"<|close|>{tag}<|sep|>"
    stop = scan.find(close, opened.end())
    said = scan.text[opened.end() : stop] if stop >= 0 else without_half(scan.text[opened.end() : scan.end], close)
    end = stop + len(close) if stop >= 0 else scan.end
    flow = TextFlow(opened.end(), (close,), reasoning=tag == "think")
    return Step(end, reasoning=said, flow=flow) if flow.reasoning else Step(end, content=said, flow=flow)


def _attributes(text: str) -> dict[str, str]:
    return {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in _PAIR.findall(text)}


def _read_k3_call(scan: Scan, opened: re.Match[str]) -> Step:
    name = _attributes(opened["attributes"]).get("tool", "")
    arguments: dict[str, Any] = {}
    fault = ""
    at = scan.space(opened.end())
    while (part := _OPEN.match(scan.text, at, scan.end)) is not None and part["tag"] in ("argument", "json"):
        close = f"<|close|>{part['tag']}<|sep|>"
        stop = scan.find(close, part.end())
        if stop < 0 or scan.spent:
            return scan.cut_inside(f"a call of {name!r} was cut off")
        more, wrong = _k3_arguments(part, scan.text[part.end() : stop], scan.offered)
        repeated = next(iter(more.keys() & arguments.keys()), None)
        fault = wrong or (twice(repeated) if repeated is not None else fault)
        arguments |= more
        at = scan.space(stop + len(close))
    offer = scan.offered.get(name)
    closed = scan.at(at, "<|close|>call<|sep|>")
    whole = offer is not None and bool(arguments) and offer.required <= arguments.keys()
    if not closed and (not whole or scan.cut or at < scan.end):
        return scan.cut_inside(f"a call of {name!r} was cut off")
    end = at + len("<|close|>call<|sep|>") if closed else at
    return called(name, offer, arguments, _K3, (opened.start(), end), fault=fault)


def _k3_arguments(part: re.Match[str], text: str, offered: Offered) -> tuple[dict[str, Any], str]:
    """The arguments in one element, and what is wrong with them."""
    if part["tag"] == "json":
        value = _read_object(text, offered)
        return (value.value, value.fault) if value is not None and isinstance(value.value, dict) else ({}, "")
    told = _attributes(part["attributes"])
    return {told.get("key", ""): text if told.get("type") == "string" else literal_or_text(text)}, ""


def _read_object(text: str, offered: Offered) -> Value | None:
    exact = read_exact(text)
    if exact is not None:
        return Value(exact, len(text))
    inner = Scan(text, offered, finished=True)
    return read_value(inner, inner.space(0)) if text.strip() else None
