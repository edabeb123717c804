"""Formats that send messages to recipients: Harmony, Muse, Kimi K3, Functionary, MiniMax M3."""

import re
from typing import Any

from toolwire.wire.coerce import coerced
from toolwire.wire.offered import Offered
from toolwire.wire.text.bodies import Opener, read_body, read_named
from toolwire.wire.text.json_values import read_exact, read_value
from toolwire.wire.text.marks import Envelope, any_of
from toolwire.wire.text.scan import Flow, Found, Scan, Step, without_half
from toolwire.wire.text.tags import untyped

_HEADER = re.compile(
    r"(?:<\|start\|>)?\s*+(?:assistant\b)?\s*+(?:to=(?P<to>[^\s<]{1,160}))?\s*+"
    r"(?:<\|channel\|>\s*+(?P<channel>\w{1,32})\s*+(?:to=(?P<late>[^\s<]{1,160}))?)?"
    r"\s*+(?:<\|channel\|>\s*+\w{1,32})?"
    r"\s*+(?:code|json)?\s*+(?:<\|constrain\|>\s*+\w{0,16})?\s*+(?:json)?\s*+<\|message\|>"
)
_TOOL_SPEAKS = re.compile(r"<\|start\|>\s*+(?:functions\.|tool\b)")
_END_MARKERS = ("<|end|>", "<|call|>", "<|return|>", "<|eom|>", "<|eot|>", "<|start|>")
_ENDS = re.compile(any_of(_END_MARKERS))
_HARMONY = Envelope("gptoss_harmony", (), ("<|call|>", "<|end|>", "<|eom|>", "<|eot|>", "<|start|>"))
_MUSE = Envelope("muse_glimmer", (), ("<|eom|>", "<|eot|>", "<|start|>"))
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
    end = stop if ends is None or ends.group() == "<|start|>" else ends.end()
    said = scan.text[header.end() : stop] if ends else without_half(scan.text[header.end() : stop], *_END_MARKERS)
    if channel in _THINKING or recipient in _THINKING:
        return Step(end, reasoning=said, flow=Flow(header.end(), _END_MARKERS, reasoning=True))
    return Step(end, content=said, flow=Flow(header.end(), _END_MARKERS))


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
    if empty is not None and (offer := scan.offered.get(recipient)) is not None:
        return Step(empty.end(), [Found(offer, {}, envelope.slug, (header.start(), empty.end()))])
    if scan.at(at, "{"):
        step = read_named(scan, header.start(), recipient, at, envelope)
    else:
        step = read_body(scan, at, envelope, opened)
    if step is None or step.cut:
        return step
    ends = _ENDS.match(scan.text, scan.space(step.end), scan.end)
    if ends is not None and ends.group() != "<|start|>":
        step.end = ends.end()
    return step


_OPEN = re.compile(r"<\|open\|>\s*+(?P<tag>\w{1,32})(?P<attributes>[^<]{0,600})<\|sep\|>")
_PAIR = re.compile(r"""(\w{1,32})\s*+=\s*+"([^"]{0,300})\"""")
_K3 = Envelope("kimi_k3", ())


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
    flow = Flow(opened.end(), (close,), reasoning=tag == "think")
    return Step(end, reasoning=said, flow=flow) if flow.reasoning else Step(end, content=said, flow=flow)


def _attributes(text: str) -> dict[str, str]:
    return {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in _PAIR.findall(text)}


def _read_k3_call(scan: Scan, opened: re.Match[str]) -> Step:
    name = _attributes(opened["attributes"]).get("tool", "")
    arguments: dict[str, Any] = {}
    at = scan.space(opened.end())
    while (part := _OPEN.match(scan.text, at, scan.end)) is not None and part["tag"] in ("argument", "json"):
        close = f"<|close|>{part['tag']}<|sep|>"
        stop = scan.find(close, part.end())
        if stop < 0 or scan.spent:
            return scan.cut_inside(f"a call of {name!r} was cut off")
        told = _attributes(part["attributes"])
        text = scan.text[part.end() : stop]
        if part["tag"] == "json":
            value = read_exact(text) or _read_object(text, scan.offered)
            arguments.update(value if isinstance(value, dict) else {})
        else:
            arguments[told.get("key", "")] = text if told.get("type") == "string" else untyped(text)
        at = scan.space(stop + len(close))
    offer = scan.offered.get(name)
    closed = scan.at(at, "<|close|>call<|sep|>")
    if not closed and (offer is None or scan.cut or not offer.required <= arguments.keys() or at < scan.end):
        return scan.cut_inside(f"a call of {name!r} was cut off")
    end = at + len("<|close|>call<|sep|>") if closed else at
    if offer is None:
        return Step(end, problems=[("unknown_tool", f"no tool named {name[:80]!r} was offered")])
    return Step(end, [Found(offer, arguments, "kimi_k3", (opened.start(), end))])


def _read_object(text: str, offered: Offered) -> Any:
    inner = Scan(text, offered, finished=True)
    value = read_value(inner, inner.space(0)) if text.strip() else None
    return value.value if value is not None else {}


M3 = "]<]minimax[>["
_M3_TAG = re.compile(
    r"]<]minimax\[>\[\s*+<(?P<close>/)?(?P<tag>[\w:.-]{1,128})(?:\s++name\s*+=\s*+[\"']?(?P<name>[^\"'<>]{1,200})[\"']?)?\s*+>"
)
_M3_DEPTH = 24


def read_m3(scan: Scan, pos: int) -> Step | None:
    """MiniMax M3: every tag follows a token, so values may hold any markup; nested values are nested tags."""
    tag = _M3_TAG.match(scan.text, pos, scan.end)
    if tag is None:
        return scan.cut_inside("the text ends inside a tag") if scan.end - pos < 160 else None
    if tag["tag"] == "mm:think" or tag["tag"] == "think":
        return None
    if tag["tag"] != "invoke" or tag["close"]:
        return Step(tag.end())
    name = tag["name"] or ""
    read = _m3_children(scan, tag.end(), _M3_DEPTH)
    if read is None:
        return scan.cut_inside(f"a call of {name!r} was cut off")
    fields, at = read
    offer = scan.offered.get(name)
    if offer is None:
        return Step(at, problems=[("unknown_tool", f"no tool named {name[:80]!r} was offered")])
    arguments = coerced(fields if isinstance(fields, dict) else {}, offer.schema)
    return Step(at, [Found(offer, arguments, "minimax_m3", (pos, at))])


def _m3_children(scan: Scan, pos: int, depth: int) -> tuple[Any, int] | None:
    """The fields or items up to the closing tag, and the position behind it; None when the text ends first."""
    fields: dict[str, Any] = {}
    items: list[Any] = []
    at = pos
    while depth > 0:
        tag = _M3_TAG.match(scan.text, scan.space(at), scan.end)
        if tag is None:
            return None
        if tag["close"]:
            return (items or fields), tag.end()
        read = _m3_value(scan, tag, depth)
        if read is None or scan.spent:
            return None
        value, at = read
        if tag["tag"] == "item":
            items.append(value)
        else:
            fields[tag["tag"]] = value
    return None


def _m3_value(scan: Scan, opened: re.Match[str], depth: int) -> tuple[Any, int] | None:
    following = _M3_TAG.match(scan.text, scan.space(opened.end()), scan.end)
    if following is not None and not following["close"]:
        return _m3_children(scan, opened.end(), depth - 1)
    stop = scan.find(M3, opened.end())
    closing = _M3_TAG.match(scan.text, stop, scan.end) if stop >= 0 else None
    if closing is None or not closing["close"]:
        return None
    return scan.text[opened.end() : stop], closing.end()
