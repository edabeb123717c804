"""Events of turns as JSON-ready objects, and back: for a stream over HTTP, a file, or another process.

The names are a contract with everything that was ever written, like those in `stored.py`: they may be added to, never
changed. A reader ignores fields that it does not know.
"""

from collections.abc import Mapping
from typing import Any

from toolwire.protocol.chat import CallDelta, ProviderWait, ReasoningDelta, TextDelta
from toolwire.protocol.events import (
    ApprovalAsked,
    CallFinished,
    CallProgress,
    CallStarted,
    Event,
    EventEnvelope,
    ModelAsked,
    ModelReplied,
    Noted,
    OutputDelta,
    TurnEnded,
    TurnStarted,
    TurnWaiting,
)
from toolwire.protocol.turns import EndReason
from toolwire.wire.codecs.stored import (
    Json,
    read_call,
    read_ending,
    read_reply,
    read_result,
    read_wait,
    write_call,
    write_ending,
    write_reply,
    write_result,
    write_wait,
)

_NAMES: dict[type[Event], str] = {
    TurnStarted: "turn_started",
    ModelAsked: "model_asked",
    TextDelta: "text",
    ReasoningDelta: "reasoning",
    CallDelta: "call_written",
    ProviderWait: "model_waited_for",
    ModelReplied: "model_replied",
    ApprovalAsked: "approval_asked",
    CallStarted: "call_started",
    CallProgress: "call_progress",
    OutputDelta: "call_output",
    CallFinished: "call_finished",
    Noted: "noted",
    TurnWaiting: "turn_waiting",
    TurnEnded: "turn_ended",
}


def name_of(event: Event) -> str:
    """The name of an event's kind."""
    return _NAMES[type(event)]


def write_envelope(envelope: EventEnvelope) -> Json:
    """An event with its place, flat: the envelope's own fields first."""
    return {
        "project": envelope.project,
        "turn": envelope.turn_id,
        "epoch": envelope.epoch,
        "seq": envelope.seq,
        "at": envelope.at,
        **write_event(envelope.event),
    }


def read_envelope(data: Mapping[str, Any]) -> EventEnvelope:
    """Read what `write_envelope` wrote. Raises ValueError for a kind that this version does not know."""
    return EventEnvelope(
        data.get("project", "default"), data["turn"], data["epoch"], data["seq"], data["at"], read_event(data)
    )


def write_event(event: Event) -> Json:
    """An event under the name of its kind."""
    return {"event": name_of(event), **_fields(event)}


def _fields(event: Event) -> Json:
    match event:
        case TurnStarted(turn_id, question, model, tools, resumed, lost):
            return {
                "turn": turn_id, "question": question, "model": model, "tools": list(tools), "resumed": resumed,
                "lost": list(lost),
            }  # fmt: skip
        case ModelAsked(iteration, closing):
            return {"iteration": iteration, "closing": closing.value if closing else None}
        case TextDelta(text) | ReasoningDelta(text) | Noted(text):
            return {"text": text}
        case CallDelta(position, name, arguments):
            return {"position": position, "name": name, "arguments": arguments}
        case ProviderWait(wait_s, reason):
            return {"wait_s": wait_s, "reason": reason}
        case ModelReplied(iteration, reply, elapsed_ms):
            return {"iteration": iteration, "reply": write_reply(reply), "elapsed_ms": elapsed_ms}
        case ApprovalAsked(call_id, tool, arguments, reason, digest, quorum):
            return {
                "call_id": call_id, "tool": tool, "arguments": dict(arguments), "reason": reason, "digest": digest,
                "quorum": quorum,
            }  # fmt: skip
        case CallStarted(call):
            return {"call": write_call(call)}
        case CallProgress(call_id, message, fraction):
            return {"call_id": call_id, "message": message, "fraction": fraction}
        case OutputDelta(call_id, text, stream, offset):
            return {"call_id": call_id, "text": text, "stream": stream, "offset": offset}
        case CallFinished(call, result, replayed):
            return {"call": write_call(call), "result": write_result(result), "replayed": replayed}
        case TurnWaiting(turn_id, waits):
            return {"turn": turn_id, "waits": [write_wait(wait) for wait in waits]}
        case TurnEnded(turn_id, ending, elapsed_ms):
            return {"turn": turn_id, **write_ending(ending), "elapsed_ms": elapsed_ms}


def read_event(data: Mapping[str, Any]) -> Event:
    """Read what `write_event` wrote. Raises ValueError for a kind that this version does not know."""
    match data["event"]:
        case "text":
            return TextDelta(data["text"])
        case "reasoning":
            return ReasoningDelta(data["text"])
        case "call_written":
            return CallDelta(data["position"], data.get("name", ""), data.get("arguments", ""))
        case "model_waited_for":
            return ProviderWait(data["wait_s"], data["reason"])
        case "noted":
            return Noted(data["text"])
        case "turn_started" | "turn_waiting" | "turn_ended" as kind:
            return _read_of_turn(kind, data)
        case "model_asked" | "model_replied" as kind:
            return _read_of_model(kind, data)
        case "approval_asked" | "call_started" | "call_progress" | "call_output" | "call_finished" as kind:
            return _read_of_call(kind, data)
        case other:
            raise ValueError(f"unknown event {other!r}; it may come from a newer toolwire")


def _read_of_turn(kind: str, data: Mapping[str, Any]) -> Event:
    if kind == "turn_waiting":
        return TurnWaiting(data["turn"], tuple(map(read_wait, data["waits"])))
    if kind == "turn_ended":
        return TurnEnded(data["turn"], read_ending(data), data["elapsed_ms"])
    return TurnStarted(
        data["turn"], data["question"], data["model"], tuple(data["tools"]), data.get("resumed", False),
        tuple(data.get("lost", ())),
    )  # fmt: skip


def _read_of_model(kind: str, data: Mapping[str, Any]) -> Event:
    if kind == "model_replied":
        return ModelReplied(data["iteration"], read_reply(data["reply"]), data["elapsed_ms"])
    closing = data.get("closing")
    return ModelAsked(data["iteration"], EndReason(closing) if closing else None)


def _read_of_call(kind: str, data: Mapping[str, Any]) -> Event:
    if kind == "approval_asked":
        return ApprovalAsked(
            data["call_id"], data["tool"], data["arguments"], data["reason"], data["digest"], data.get("quorum", 1)
        )
    if kind == "call_progress":
        return CallProgress(data["call_id"], data["message"], data.get("fraction"))
    if kind == "call_output":
        return OutputDelta(data["call_id"], data["text"], data.get("stream", "stdout"), data.get("offset", 0))
    if kind == "call_started":
        return CallStarted(read_call(data["call"]))
    return CallFinished(read_call(data["call"]), read_result(data["result"]), data.get("replayed", False))
