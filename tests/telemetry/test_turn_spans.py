"""Turns of an agent as spans, in one process: what is told, what is not, and what other code sees meanwhile."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from toolwire import Agent, Context, tool
from toolwire.errors import ModelError
from toolwire.hub.event_hub import EventHub
from toolwire.protocol.chat import Reply, Usage
from toolwire.protocol.tracing import NO_TRACE, TraceContext, read_trace
from toolwire.protocol.turns import Limits
from toolwire.telemetry.traces import TurnTracer
from toolwire.testing import ScriptedModel, call, says

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
USAGE = Usage(10, 5, 2, 0.25)


class Exported(InMemorySpanExporter):
    """The spans that were made, by operation."""

    def of(self, operation: str) -> list[ReadableSpan]:
        return [span for span in self.get_finished_spans() if told(span)["gen_ai.operation.name"] == operation]

    def one(self, operation: str) -> ReadableSpan:
        [span] = self.of(operation)
        return span


def told(span: ReadableSpan) -> Mapping[str, Any]:
    return span.attributes or {}


def parent(span: ReadableSpan) -> int:
    return span.parent.span_id if span.parent else 0


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


@pytest.fixture
def exported() -> Iterator[Exported]:
    exporter = Exported()
    yield exporter
    exporter.shutdown()


def traced(exported: Exported, **more: Any) -> EventHub:
    return EventHub(telemetry=TurnTracer([SimpleSpanProcessor(exported)], **more))


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"a mouse in {where}"


async def test_a_turn_its_model_calls_and_its_tool_calls_are_spans_of_one_trace(exported: Exported) -> None:
    model = ScriptedModel(says("", call("look", where="bed"), usage=USAGE), says("A mouse.", usage=USAGE))
    answer = await Agent(model, [look], name="scout", events=traced(exported)).ask("What is there?", thread="t")

    turn, chats, looked = exported.one("invoke_agent"), exported.of("chat"), exported.one("execute_tool")
    assert (turn.name, looked.name) == ("invoke_agent scout", "execute_tool look")
    assert {parent(span) for span in (*chats, looked)} == {own(turn)}
    assert turn.parent is None
    assert {format(span.context.trace_id, "032x") for span in exported.get_finished_spans() if span.context} == {
        answer.turn_id.replace("-", "")
    }
    assert told(turn)["toolwire.turn.end_reason"] == "answered"
    assert (told(turn)["gen_ai.usage.input_tokens"], told(turn)["toolwire.cost_usd"]) == (20, 0.5)
    assert told(chats[0])["gen_ai.usage.cache_read.input_tokens"] == 2
    assert told(chats[1])["gen_ai.response.finish_reasons"] == ("stop",)
    assert told(chats[0])["toolwire.turn.id"] == told(looked)["toolwire.turn.id"] == answer.turn_id
    assert told(looked)["gen_ai.tool.call.id"].startswith("call_")
    assert told(looked)["toolwire.call.status"] == "success"
    assert {told(span)["gen_ai.conversation.id"] for span in (turn, looked)} == {"t"}
    assert [span.kind for span in (turn, chats[0], looked)] == [SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL]


async def test_no_text_is_in_a_span_unless_it_is_wanted_and_then_without_secrets(exported: Exported) -> None:
    for clean in (None, lambda text: text.replace("hunter2", "[secret]")):
        exported.clear()
        model = ScriptedModel(call("look", where="hunter2's bed"), "hunter2 has a mouse.")
        await Agent(model, [look], events=traced(exported, clean=clean)).ask("hunter2?")
        whole = json.dumps([dict(told(span)) for span in exported.get_finished_spans()])

        assert "hunter2" not in whole
        assert ("mouse" in whole) is (clean is not None)
    looked = told(exported.one("execute_tool"))
    assert json.loads(looked["gen_ai.tool.call.arguments"]) == {"where": "[secret]'s bed"}
    assert looked["gen_ai.tool.call.result"] == "a mouse in [secret]'s bed"
    [answer] = json.loads(told(exported.one("invoke_agent"))["gen_ai.output.messages"])
    assert answer["parts"] == [{"type": "text", "content": "[secret] has a mouse."}]


async def test_failures_are_marked_with_their_kind(exported: Exported) -> None:
    model = ScriptedModel(call("look"), call("nothing_here"), "Sorry.")
    await Agent(model, [look], events=traced(exported)).ask("?")
    limited = ScriptedModel(call("look", where="a"), call("look", where="b"))
    await Agent(limited, [look], events=traced(exported), limits=Limits(iterations=1)).ask("?")

    first, second, *_ = exported.of("execute_tool")
    assert [told(span)["error.type"] for span in (first, second)] == ["invalid_params", "not_found"]
    assert first.status.status_code is StatusCode.ERROR
    ended = exported.of("invoke_agent")
    assert [told(span).get("error.type") for span in ended] == [None, "iteration_limit"]


class Broken(ScriptedModel):
    async def ask(self, *_: Any) -> Reply:
        raise ModelError("the model is gone")


async def test_a_model_that_fails_is_a_failed_span_and_leaves_the_context_as_it_was(exported: Exported) -> None:
    before = trace.get_current_span()
    with pytest.raises(ModelError):
        await Agent(Broken(), [look], events=traced(exported)).ask("?")

    [chat] = exported.get_finished_spans()
    assert (told(chat)["error.type"], chat.status.status_code) == ("ModelError", StatusCode.ERROR)
    assert trace.get_current_span() is before


async def test_a_tool_runs_within_its_span_and_knows_what_to_send_on(exported: Exported) -> None:
    seen: dict[str, Any] = {}

    @tool
    async def send(context: Context) -> str:
        """Send something."""
        seen["async"] = (trace.get_current_span().get_span_context().span_id, context.trace)
        return "sent"

    @tool
    def send_from_thread(context: Context) -> str:
        """Send something."""
        seen["thread"] = (trace.get_current_span().get_span_context().span_id, context.trace)
        return "sent"

    model = ScriptedModel([call("send"), call("send_from_thread")], "Done.")
    await Agent(model, [send, send_from_thread], events=traced(exported)).ask("?")

    by_name = {told(span)["gen_ai.tool.name"]: own(span) for span in exported.of("execute_tool")}
    for where, name in (("async", "send"), ("thread", "send_from_thread")):
        current, sent = seen[where]
        assert current == by_name[name]
        assert sent.traceparent.split("-")[2] == format(by_name[name], "016x")
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_turn_is_below_the_span_of_the_code_that_asks(exported: Exported) -> None:
    provider = TracerProvider()
    with provider.get_tracer("mine").start_as_current_span("mine") as mine:
        answer = await Agent(ScriptedModel("Hello."), events=traced(exported)).ask("?")
        assert trace.get_current_span() is mine
    provider.shutdown()

    turn = exported.one("invoke_agent")
    assert parent(turn) == mine.get_span_context().span_id
    assert answer.turn.trace.traceparent.split("-")[1] == format(mine.get_span_context().trace_id, "032x")


async def test_turns_that_run_at_the_same_time_do_not_mix(exported: Exported) -> None:
    agent = Agent(ScriptedModel(*["Hello."] * 20), events=traced(exported))
    answers = await asyncio.gather(*(agent.ask(str(number)) for number in range(20)))

    traces = {format(span.context.trace_id, "032x"): span for span in exported.of("chat") if span.context}
    assert traces.keys() == {answer.turn_id.replace("-", "") for answer in answers}


@pytest.mark.parametrize(
    ("sampler", "asked", "made"),
    [
        (ALWAYS_OFF, "", False),
        (ParentBased(TraceIdRatioBased(0)), PARENT, True),
        (ParentBased(TraceIdRatioBased(1)), PARENT[:-1] + "0", False),
    ],
)
async def test_sampling_follows_what_asked_and_is_passed_on(
    exported: Exported, sampler: Any, asked: str, made: bool
) -> None:
    seen: list[TraceContext] = []

    @tool
    def send(context: Context) -> str:
        """Send something."""
        seen.append(context.trace)
        return "sent"

    agent = Agent(ScriptedModel(call("send"), "Done."), [send], events=traced(exported, sampler=sampler))
    turn = await agent.begin("?", trace=TraceContext(asked))
    await agent.resume(turn.id)

    assert bool(exported.get_finished_spans()) is made
    assert seen[0].traceparent.endswith("-01" if made else "-00")


@pytest.mark.parametrize(
    "parent",
    ["", "00", PARENT[:-3], "ff" + PARENT[2:], PARENT + "-00", PARENT.upper(), PARENT.replace("4bf9", "zzzz"),
     "00-" + "0" * 32 + PARENT[35:], PARENT[:36] + "0" * 16 + "-01", 7],
)  # fmt: skip
def test_a_malformed_trace_context_is_none(parent: Any) -> None:
    assert read_trace({"traceparent": parent, "tracestate": "a=b"}) == NO_TRACE


def test_a_trace_context_of_a_later_version_is_understood_and_bad_state_is_dropped() -> None:
    assert read_trace({"traceparent": "01" + PARENT[2:] + "-more", "tracestate": "a=b"}) == TraceContext(PARENT, "a=b")
    assert read_trace({"traceparent": PARENT, "tracestate": "ä" * 10}) == TraceContext(PARENT)
    assert read_trace({"traceparent": PARENT, "tracestate": "a" * 600}) == TraceContext(PARENT)
