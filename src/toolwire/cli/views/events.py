"""Events of a turn as one line for people, and as one JSON object for programs."""

from time import perf_counter
from typing import Any

from toolwire.cli.terminal.json_output import call_object, plain, reply_object, result_object
from toolwire.cli.terminal.screen import Screen, write_json
from toolwire.cli.terminal.text import arguments_line, duration, on_one_line, one_line
from toolwire.protocol.chat import CallDelta, ProviderWait, ReasoningDelta, TextDelta
from toolwire.protocol.events import (
    ApprovalAsked,
    CallFinished,
    CallProgress,
    CallStarted,
    Event,
    ModelAsked,
    ModelReplied,
    Noted,
    OutputDelta,
    TurnEnded,
    TurnStarted,
    TurnWaiting,
)
from toolwire.wire.codecs.events import name_of
from toolwire.wire.codecs.stored import write_wait


class Trace:
    """Shows every event on standard error as it happens."""

    def __init__(self, screen: Screen, *, as_json: bool) -> None:
        self._screen = screen
        self._as_json = as_json
        self._began = perf_counter()

    def __call__(self, event: Event) -> None:
        at_ms = (perf_counter() - self._began) * 1000
        if self._as_json:
            write_json({"event": name_of(event), "at_ms": round(at_ms, 3), **event_object(event)}, err=True)
        else:
            line = on_one_line(event_line(event))
            self._screen.tell(f"{at_ms:9.1f} ms  {name_of(event):<14} {line}", "dim")


def event_object(event: Event) -> dict[str, Any]:
    """The event's own fields, without what only this process can use."""
    match event:
        case ModelReplied(iteration, reply, elapsed_ms):
            return {"iteration": iteration, "reply": reply_object(reply), "elapsed_ms": elapsed_ms}
        case ApprovalAsked(_, tool, arguments, reason, digest):
            request = {"tool": tool, "arguments": plain(arguments), "reason": reason, "digest": digest}
            return {"request": request}
        case TurnWaiting(turn_id, waits):
            return {"turn_id": turn_id, "waits": [write_wait(wait) for wait in waits]}
        case CallStarted(call):
            return {"call": call_object(call)}
        case CallFinished(call, result, replayed):
            return {"call": call_object(call), "result": result_object(result), "replayed": replayed}
        case _:
            body: dict[str, Any] = plain(event)
            return body


def event_line(event: Event, most: int = 160) -> str:
    match event:
        case TurnStarted(turn_id, question, model, tools, resumed):
            again = " (resumed)" if resumed else ""
            return one_line(f"{turn_id}{again} {model}, {len(tools)} tools: {question}", most)
        case ModelAsked(iteration, closing):
            return f"step {iteration}" + (f", the last one ({closing.value})" if closing else "")
        case ModelReplied(iteration, reply, elapsed_ms):
            said = f"{len(reply.calls)} calls" if reply.calls else one_line(reply.content, 60)
            return f"step {iteration} after {duration(elapsed_ms)}: {said}"
        case ProviderWait(wait_s, reason):
            return one_line(f"{duration(wait_s * 1000)}: {reason}", most)
        case ApprovalAsked(reason=reason):
            return one_line(reason, most)
        case CallStarted(call):
            return f"{call.name}({arguments_line(call.arguments, 100)}) {call.id}"
        case CallProgress(call_id, message, fraction):
            return one_line(f"{call_id} {message} {'' if fraction is None else f'{fraction:.0%}'}", most)
        case OutputDelta(call_id, text, stream):
            return one_line(f"{call_id} {stream}: {text}", most)
        case CallFinished(call, result):
            return one_line(f"{call.name} {result.status} after {duration(result.elapsed_ms)}: {result.text}", most)
        case TextDelta(text) | ReasoningDelta(text) | Noted(text):
            return one_line(text, most)
        case CallDelta(position, name, arguments):
            return one_line(f"#{position} {name} {arguments}", most)
        case TurnWaiting(turn_id, waits):
            return one_line(f"{turn_id} waits for {' or '.join(map(str, waits))}", most)
        case TurnEnded(turn_id, ending, elapsed_ms):
            return f"{turn_id} {ending.reason.value} after {duration(elapsed_ms)}"
