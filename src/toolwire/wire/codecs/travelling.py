"""A call on its way to another process: tools, calls and what comes back as JSON, in frames with their length in front.

What a tool can do stays where it lives (its function, its checks); what it is can be told to anybody. Unknown fields
are ignored on reading, so that two versions can talk to each other. Everything here is pure.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import CallInfo
from toolwire.protocol.provenance import Touched, UntrustedMark
from toolwire.protocol.tools import Delivery, Effect, Service, Target, Tier, Tool
from toolwire.protocol.tracing import read_trace
from toolwire.protocol.traffic import ReachedHost, RefusedHost, Traffic
from toolwire.wire.codecs.faithful import dump, load
from toolwire.wire.codecs.stored import read_call, read_grant, read_result, write_call, write_grant, write_result

Json = dict[str, Any]
Told = tuple[str, str] | str | Traffic | Touched

MOST_BYTES = 1 << 30
"""A frame that claims to be longer is not read."""

LENGTH = struct.Struct(">Q")

PROTOCOL = 1
"""Both sides say which version they speak before anything else. One that differs is refused."""

_TEXTS = ("name", "description", "category", "sandbox", "version", "skill")
_FLAGS = (
    "journaled", "requires_confirmation", "polling", "untrusted", "reading_box", "trial_box", "controls_turn",
    "shows_output",
)  # fmt: skip
_NUMBERS = ("timeout_s", "max_timeout_s", "in_flight")
_LISTS = ("reads", "writes", "examples")
_SETS = ("needs", "platforms")
_INFO = ("call_id", "turn_id", "project", "agent", "timeout_s", "attempt", "thread", "approved", "is_trial",
         "record_id", "epoch", "step_id")  # fmt: skip


class BadFrame(ValueError):
    """What came over the wire is not what was agreed on."""


class LateNote(Struct, frozen=True):
    """What a tool told after its call had ended."""

    info: CallInfo
    tool: str
    told: tuple[Told, ...]


def pack(message: Json) -> bytes:
    """A message as a frame."""
    body = dump(message).encode()
    return LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """How many bytes follow the head of a frame. Raises BadFrame."""
    (length,) = LENGTH.unpack(head)
    if length > MOST_BYTES:
        raise BadFrame(f"a frame of {length} bytes is too long")
    return int(length)


def unpack(body: bytes) -> Json:
    """The message of a frame. Raises BadFrame."""
    try:
        message = load(body)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"it is not JSON ({error})") from None
    if not isinstance(message, dict):
        raise BadFrame("it is not a JSON object")
    return message


def write_hello(token: str = "") -> Json:
    """The first message of a caller; its token is left out where it has none."""
    return {"kind": "hello", "protocol": PROTOCOL, **({"token": token} if token else {})}


def hello_fault(message: Mapping[str, Any]) -> str:
    """What is wrong with the first message of the other side, or its refusal; empty if it may go on."""
    match message:
        case {"kind": "hello", "protocol": int(version)} if version == PROTOCOL:
            return ""
        case {"kind": "hello", "protocol": version}:
            return f"it speaks version {version!r:.20} of the protocol, and this side version {PROTOCOL}"
        case {"kind": "refused", "message": str(words)}:
            return words
    return f"a message of the kind {message.get('kind')!r:.40} came in place of a hello"


def write_late(note: LateNote) -> Json:
    """What a tool told after its call had ended, for the process that has the record."""
    return {
        "kind": "late", "info": write_info(note.info), "tool": note.tool, "told": list(map(_write_told, note.told))
    }  # fmt: skip


def read_late(data: Mapping[str, Any]) -> LateNote:
    """Raises BadFrame."""
    try:
        return LateNote(read_info(data["info"]), str(data["tool"]), tuple(map(_read_told, data["told"])))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFrame(f"it is not a late note ({type(error).__name__}: {error})") from None


def write_marks(marks: Sequence[UntrustedMark]) -> Json:
    """What untrusted turns wrote."""
    listed = [[one.resource, list(one.origins), one.inode, one.version, one.at] for one in marks]
    return {"kind": "marks", "marks": listed}


def read_marks(data: Mapping[str, Any]) -> list[UntrustedMark]:
    """Raises BadFrame."""
    try:
        return [
            UntrustedMark(resource, tuple(origins), inode, version, at)
            for resource, origins, inode, version, at in data["marks"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise BadFrame(f"it is not a list of marks ({type(error).__name__}: {error})") from None


def write_tool(tool: Tool) -> Json:
    """What a tool is, for a caller in another process. Its function, its checks and its target stay behind."""
    out: Json = {name: getattr(tool, name) for name in (*_TEXTS, *_FLAGS, *_NUMBERS)}
    out |= {name: list(getattr(tool, name)) for name in _LISTS}
    out |= {name: sorted(getattr(tool, name)) for name in _SETS}
    out |= {"tier": tool.tier.name, "effect": tool.effect.value, "delivery": tool.delivery.value}
    out["after_execution"] = tool.after_execution.value
    out["input_schema"] = dict(tool.input_schema)
    if tool.output_schema is not None:
        out["output_schema"] = dict(tool.output_schema)
    return out


def read_tool(data: Mapping[str, Any], target: Target) -> Tool:
    """A tool that lives at `target`. Raises BadFrame."""
    named = {name: data[name] for name in (*_TEXTS, *_FLAGS, *_NUMBERS) if name in data}
    named |= {name: tuple(data[name]) for name in _LISTS if name in data}
    named |= {name: frozenset(data[name]) for name in _SETS if name in data}
    try:
        return Tool(
            **named,
            tier=Tier[data["tier"]],
            effect=Effect(data["effect"]),
            delivery=Delivery(data["delivery"]),
            after_execution=AfterExecution(data.get("after_execution", AfterExecution.SUSPEND)),
            input_schema=data["input_schema"],
            output_schema=data.get("output_schema"),
            target=target,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadFrame(f"it is not a tool ({error})") from None


def write_info(info: CallInfo) -> Json:
    plain = {name: getattr(info, name) for name in _INFO}
    out = {**plain, "grant": write_grant(info.grant), "tainted_by": list(info.tainted_by)}
    return out | {"trace": info.trace.headers} if info.trace else out


def read_info(data: Mapping[str, Any]) -> CallInfo:
    plain = {name: data[name] for name in _INFO if name in data}
    return CallInfo(
        **plain, grant=read_grant(data.get("grant", {})), tainted_by=tuple(data.get("tainted_by", ())),
        trace=read_trace(data.get("trace", {})),
    )  # fmt: skip


def write_allowed(allowed: Allowed, info: CallInfo, caller: str = "") -> Json:
    """An allowed call. Its secrets are still placeholders: they are put in place where the tool lives.

    The `caller` is a name under which the calling process listens for what comes after the call.
    """
    return {
        "kind": "call",
        "caller": caller,
        "call": write_call(allowed.call),
        "version": allowed.tool.version,
        "arguments": dict(allowed.arguments),
        "timeout_s": allowed.timeout_s,
        "notes": list(allowed.notes),
        "info": write_info(info),
    }


def read_allowed(data: Mapping[str, Any], tools: Mapping[str, Tool]) -> tuple[Allowed, CallInfo]:
    """An allowed call of one of these tools, and what is to be known about it. Raises BadFrame."""
    try:
        call = read_call(data["call"])
        tool = tools.get(call.name)
        if tool is None:
            raise BadFrame(f"there is no tool named {call.name!r} here")
        if tool.version != data["version"]:
            raise BadFrame(f"{call.name!r} has version {tool.version} here, not {data['version']}")
        allowed = Allowed(call, tool, data["arguments"], float(data["timeout_s"]), tuple(data.get("notes", ())))
        return allowed, read_info(data["info"])
    except BadFrame:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFrame(f"it is not a call ({type(error).__name__}: {error})") from None


def write_ended(result: ToolResult, told: list[Told], wanted: str | None) -> Json:
    """How a call ended, what its tool has told on the way, and what a trial would have needed."""
    return {"kind": "result", "result": write_result(result), "told": list(map(_write_told, told)), "wanted": wanted}


def read_ended(data: Mapping[str, Any]) -> tuple[ToolResult, list[Told], str | None]:
    """Raises BadFrame."""
    try:
        return read_result(data["result"]), [_read_told(one) for one in data.get("told", ())], data.get("wanted")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFrame(f"it is not a result ({type(error).__name__}: {error})") from None


def _write_told(one: Told) -> Json:
    match one:
        case str():
            return {"read": one}
        case Traffic():
            return {
                "reached": [[host.place, host.connections, host.up, host.down] for host in one.reached],
                "refused": [[host.place, host.reason, host.count] for host in one.refused],
                "more": [one.more_reached, one.more_refused],
            }
        case Touched():
            return {"touched": [one.resource, one.writes, one.since_ns, one.inode, one.version]}
        case (engine, profile):
            return {"engine": engine, "profile": profile}


def _read_told(data: Mapping[str, Any]) -> Told:
    if "read" in data:
        return str(data["read"])
    if "touched" in data:
        return Touched(*data["touched"])
    if "engine" in data:
        return str(data["engine"]), str(data["profile"])
    reached = tuple(ReachedHost(*host) for host in data["reached"])
    refused = tuple(RefusedHost(*host) for host in data["refused"])
    return Traffic(reached, refused, *data["more"])


def read_tools(data: Mapping[str, Any], address: str) -> tuple[Tool, ...]:
    """The tools of a service. Raises BadFrame."""
    listed = data.get("tools")
    if not isinstance(listed, list):
        raise BadFrame("it is not a list of tools")
    return tuple(read_tool(one, Service(address)) for one in listed)
