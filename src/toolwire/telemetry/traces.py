"""Turns as traces: `invoke_agent` for a turn, below it `chat` for a model call and `execute_tool` for a tool call.

A span is made when it is over, from the events that told of its beginning and its end; until then there are a name and
a time. The span of a turn is made by the process that ends the turn, with ids that all processes compute alike
(`identifiers`): whichever of them runs a part of it names the same span as its parent.

While a turn, a model call or a tool call runs, it is the current OpenTelemetry context of its task, so that spans of
other instrumentations (an HTTP client in a tool) come below it, and a sub-agent's turn below the call that began it.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct, field
from opentelemetry import context as contexts
from opentelemetry import trace as spans
from opentelemetry.context.context import Context as SpanScope
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from toolwire.errors import Suspended
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import ProviderWait, Usage
from toolwire.protocol.context import Context
from toolwire.protocol.events import (
    ApprovalAsked,
    CallFinished,
    CallStarted,
    Event,
    ModelAsked,
    ModelReplied,
    TurnEnded,
    TurnStarted,
    TurnWaiting,
)
from toolwire.protocol.tracing import NO_TRACE, TraceContext
from toolwire.protocol.turns import Ending, Turn
from toolwire.telemetry import conventions, identifiers
from toolwire.telemetry.conventions import Attributes, Clean

MOST_TURNS = 10_000
"""Of so many turns that run at the same time the beginnings are remembered."""

_SCOPE = "toolwire"
_LOCAL = "local"
_NOTHING_ABOVE = SpanScope()
_propagator = TraceContextTextMapPropagator()
_log = logging.getLogger(__name__)


class _ChosenIds(RandomIdGenerator):
    """Gives the next span of this thread the ids that were chosen for it."""

    def __init__(self) -> None:
        self._chosen = threading.local()

    def choose(self, trace_id: int, span_id: int) -> None:
        self._chosen.trace, self._chosen.span = trace_id, span_id

    def forget(self) -> None:
        self._chosen.trace = self._chosen.span = 0

    def generate_trace_id(self) -> int:
        return getattr(self._chosen, "trace", 0) or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return getattr(self._chosen, "span", 0) or super().generate_span_id()


class _OpenSpan(Struct):
    """A span that has begun: what it will be, below which one, and what has happened in it."""

    name: str
    place: SpanContext
    parent: SpanScope
    began: int
    attributes: Attributes
    kind: SpanKind = SpanKind.INTERNAL
    moments: list[tuple[str, int, Attributes]] = field(default_factory=list)

    @property
    def scope(self) -> SpanScope:
        return _scope(self.place)


class _RunningTurn(Struct):
    """A turn that this process runs. `outside` is the context of the code that runs it."""

    whole: _OpenSpan
    outside: SpanScope
    usage: Usage
    chat: _OpenSpan | None = None
    calls: dict[str, _OpenSpan] = field(default_factory=dict)


class TurnTracer:
    """Makes spans of turns and hands them to span processors of the SDK.

    With `clean`, spans have questions, arguments, results and answers in them, each cleaned by it.
    """

    def __init__(
        self,
        processors: Iterable[SpanProcessor],
        *,
        sampler: Sampler | None = None,
        resource: Resource | None = None,
        clean: Clean | None = None,
    ) -> None:
        self._ids = _ChosenIds()
        self.provider = TracerProvider(sampler, resource, shutdown_on_exit=False, id_generator=self._ids)
        for processor in processors:
            self.provider.add_span_processor(processor)
        self._tracer = self.provider.get_tracer(_SCOPE)
        self._clean = clean
        self._running: OrderedDict[tuple[str, str, int], _RunningTurn] = OrderedDict()

    # Events of turns

    def observe(self, turn: Turn, event: Event, at: float) -> None:
        """Take note of an event. What goes wrong here is logged, and harms no turn."""
        try:
            self._observe(turn, event, int(at * 1e9))
        except Exception:
            _log.exception("turn %s cannot be traced", turn.id)

    def _observe(self, turn: Turn, event: Event, at: int) -> None:
        match event:
            case TurnStarted():
                running = self._of(turn, at)
                contexts.attach(running.whole.scope)
            case ModelAsked(iteration):
                running = self._of(turn, at)
                running.chat = self._chat(turn, running, iteration, at)
                contexts.attach(running.chat.scope)
            case ProviderWait(wait_s, reason):
                chat = self._of(turn, at).chat
                if chat is not None:
                    chat.moments.append(("toolwire.provider.wait", at, {"wait_s": wait_s, "reason": reason[:200]}))
            case ModelReplied():
                self._replied(turn, event, at)
            case ApprovalAsked(call_id, tool):
                said: Attributes = {"gen_ai.tool.call.id": call_id, "gen_ai.tool.name": tool}
                self._of(turn, at).whole.moments.append(("toolwire.approval.requested", at, said))
            case CallStarted(call):
                running = self._of(turn, at)
                opened = running.calls[call.id] = self._call(turn, running, call.id, call.name, at)
                contexts.attach(opened.scope)
            case CallFinished() if not event.replayed:
                self._called(turn, event, at)
            case TurnWaiting():
                self._leave(turn, at, "")
            case TurnEnded(_, ending):
                self._end(turn, ending, at)

    def interrupted(self, turn: Turn, error: BaseException) -> None:
        try:
            at = time.time_ns()
            self._leave(turn, at, type(error).__name__)
            if turn.ending is not None:
                self._end(turn, turn.ending, at)
        except Exception:
            _log.exception("turn %s cannot be traced", turn.id)

    def _replied(self, turn: Turn, event: ModelReplied, at: int) -> None:
        running = self._of(turn, at)
        running.usage += event.reply.usage
        chat, running.chat = running.chat, None
        contexts.attach(running.whole.scope)
        if chat is not None:
            said = conventions.reply_attributes(event.reply)
            if self._clean is not None:
                said |= conventions.reply_text(event.reply, self._clean)
            self._make(chat, said, at)

    def _called(self, turn: Turn, event: CallFinished, at: int) -> None:
        """A call that was refused never began: its span is a moment."""
        running, call, result = self._of(turn, at), event.call, event.result
        opened = running.calls.pop(call.id, None)
        if opened is None:
            opened = self._call(turn, running, call.id, call.name, at)
        else:
            contexts.attach(running.whole.scope)
        said = conventions.ended_call(result)
        if self._clean is not None:
            said |= conventions.call_text(call, result, self._clean)
        self._make(opened, said, at, _fault(result))

    def _leave(self, turn: Turn, at: int, error: str) -> None:
        """This process goes no further with a turn: what is open in it ends, and the turn's own span is left."""
        running = self._running.pop(_key(turn), None)
        if running is not None:
            contexts.attach(running.outside)
            for opened in (*running.calls.values(), *([running.chat] if running.chat else ())):
                self._make(opened, {"error.type": error} if error else {}, at, error)

    def _end(self, turn: Turn, ending: Ending, at: int) -> None:
        running = self._of(turn, at)
        fault = conventions.fault_of(ending.reason)
        self._leave(turn, at, fault or ending.reason.value)
        said: Attributes = {
            "toolwire.turn.end_reason": ending.reason.value,
            **conventions.usage_attributes(running.usage),
        }
        if fault:
            said["error.type"] = fault
        if self._clean is not None:
            said |= conventions.question_text(turn, self._clean)
            said |= conventions.answer_text(ending.answer, ending.reason.value, self._clean)
        self._make(running.whole, said, at, fault)

    # The parts of a trace

    def current_trace(self) -> TraceContext:
        """The span in which the code that asks runs."""
        return _written(spans.get_current_span().get_span_context())

    def trace_of(self, turn: Turn, call_id: str = "") -> TraceContext:
        """The span of a turn or of one of its calls."""
        running = self._running.get(_key(turn))
        whole = running.whole if running is not None else self._whole(turn, 0)
        if not call_id:
            return _written(whole.place)
        return _written(_beside(whole.place, identifiers.call_span_id(turn.id, turn.epoch, call_id)))

    def _of(self, turn: Turn, at: int) -> _RunningTurn:
        running = self._running.get(_key(turn))
        if running is None:
            running = _RunningTurn(self._whole(turn, at), contexts.get_current(), turn.usage)
            self._running[_key(turn)] = running
            while len(self._running) > MOST_TURNS:
                self._running.popitem(last=False)
        return running

    def _whole(self, turn: Turn, at: int) -> _OpenSpan:
        """The span of a turn, in whichever process: below what asked for the turn, or the first of its trace."""
        parent = _read(turn.trace)
        above = spans.get_current_span(parent).get_span_context()
        trace_id = above.trace_id if above.is_valid else identifiers.trace_id(turn.id)
        name, attributes = f"invoke_agent {conventions.short_name(turn.agent)}", conventions.invoked_agent(turn)
        sampled = self.provider.sampler.should_sample(parent, trace_id, name, SpanKind.INTERNAL, attributes)
        flags = TraceFlags(sampled.decision is Decision.RECORD_AND_SAMPLE and TraceFlags.SAMPLED)
        state = sampled.trace_state or TraceState()
        place = SpanContext(trace_id, identifiers.turn_span_id(turn.id), True, flags, state)
        return _OpenSpan(name, place, parent, int(turn.started_at * 1e9) or at, attributes)

    def _chat(self, turn: Turn, running: _RunningTurn, iteration: int, at: int) -> _OpenSpan:
        attributes = conventions.asked_model(turn, iteration)
        place = _beside(running.whole.place, identifiers.chat_span_id(turn.id, turn.epoch, iteration))
        kind = SpanKind.INTERNAL if attributes["gen_ai.provider.name"] == _LOCAL else SpanKind.CLIENT
        name = f"chat {attributes['gen_ai.request.model']}"
        return _OpenSpan(name, place, running.whole.scope, at, attributes, kind)

    def _call(self, turn: Turn, running: _RunningTurn, call_id: str, tool: str, at: int) -> _OpenSpan:
        attributes = conventions.of_turn(turn) | conventions.executed_tool(tool, call_id)
        place = _beside(running.whole.place, identifiers.call_span_id(turn.id, turn.epoch, call_id))
        return _OpenSpan(f"execute_tool {conventions.short_name(tool)}", place, running.whole.scope, at, attributes)

    def _make(self, opened: _OpenSpan, said: Attributes, at: int, fault: str = "") -> None:
        """Make the span of something that is over."""
        if not opened.place.trace_flags.sampled:
            return
        self._ids.choose(opened.place.trace_id, opened.place.span_id)
        try:
            span = self._tracer.start_span(
                opened.name, opened.parent, opened.kind, {**opened.attributes, **said}, start_time=opened.began
            )
        finally:
            self._ids.forget()
        for name, moment, attributes in opened.moments:
            span.add_event(name, attributes, moment)
        if fault:
            span.set_status(Status(StatusCode.ERROR, fault))
        span.end(max(at, opened.began))

    # Spans of this process alone

    @contextmanager
    def execute_tool(self, tool: str, context: Context) -> Iterator["CallSpan"]:
        """The span of a call that another process asked for: below `context.trace`, which came with it."""
        parent = _read(context.trace)
        if not context.trace:
            self._ids.choose(identifiers.trace_id(context.turn_id), 0)
        attributes: Attributes = {"toolwire.project": context.project, "toolwire.turn.id": context.turn_id}
        attributes |= conventions.executed_tool(tool, context.call_id)
        name = f"execute_tool {conventions.short_name(tool)}"
        try:
            span = self._tracer.start_span(name, parent, SpanKind.SERVER, attributes)
        finally:
            self._ids.forget()
        with _current(span):
            yield CallSpan(span, _written(span.get_span_context()))

    @contextmanager
    def serve_request(self, method: str, path: str, trace: TraceContext) -> Iterator["RequestSpan"]:
        """The span of a request over HTTP that belongs to a trace; what is done for it is below that span."""
        attributes: Attributes = {"http.request.method": method, "url.path": path}
        span = self._tracer.start_span(f"{method} {path}", _read(trace), SpanKind.SERVER, attributes)
        with _current(span):
            yield RequestSpan(span, method, _written(span.get_span_context()))


class CallSpan(Struct, frozen=True):
    """A call that runs here for another process."""

    span: Span
    trace: TraceContext

    def end(self, result: ToolResult) -> None:
        """Say how the call ended."""
        self.span.set_attributes(conventions.ended_call(result))
        if fault := _fault(result):
            self.span.set_status(Status(StatusCode.ERROR, fault))


class RequestSpan(Struct, frozen=True):
    """A request that is being answered."""

    span: Span
    method: str
    trace: TraceContext

    def end(self, status: int, route: str, code: str, more: Mapping[str, str | int]) -> None:
        """Say how the request ended, and by what name of the gateway's it goes."""
        self.span.update_name(f"{self.method} {route}")
        self.span.set_attributes({"http.response.status_code": status, "http.route": route, **more})
        if status >= 500:
            self.span.set_attribute("error.type", code or str(status))
            self.span.set_status(Status(StatusCode.ERROR, code))


@contextmanager
def _current(span: Span) -> Iterator[None]:
    """Run the block in a span, which ends with it."""
    before = contexts.get_current()
    contexts.attach(spans.set_span_in_context(span))
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Suspended):
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        raise
    finally:
        contexts.attach(before)
        span.end()


def _key(turn: Turn) -> tuple[str, str, int]:
    return turn.project, turn.id, turn.epoch


def _fault(result: ToolResult) -> str:
    return str(result.error.code if result.error is not None else result.status.value) if result.is_failure else ""


def _scope(place: SpanContext) -> SpanScope:
    return spans.set_span_in_context(NonRecordingSpan(place), _NOTHING_ABOVE)


def _beside(place: SpanContext, span_id: int) -> SpanContext:
    return SpanContext(place.trace_id, span_id, True, place.trace_flags, place.trace_state)


def _read(trace: TraceContext) -> SpanScope:
    return _propagator.extract(trace.headers, _NOTHING_ABOVE) if trace else _NOTHING_ABOVE


def _written(place: SpanContext) -> TraceContext:
    if not place.is_valid:
        return NO_TRACE
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, _scope(place))
    return TraceContext(carrier.get("traceparent", ""), carrier.get("tracestate", ""))
