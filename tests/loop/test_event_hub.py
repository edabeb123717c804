"""One hook sees the events of all turns; its watchers harm nobody, and every event can be written and read again."""

import asyncio
import logging
from typing import Any, get_args

import pytest
from msgspec.structs import fields

from toolwire import Agent, Approval, ToolCall, ToolResult, tool
from toolwire.hub.event_hub import EventHub
from toolwire.protocol.calls import Allowed, NeedsApproval, Text
from toolwire.protocol.chat import CallDelta, ProviderWait, ReasoningDelta, Reply, TextDelta, Usage
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
from toolwire.protocol.outcomes import Status
from toolwire.protocol.tools import Tool
from toolwire.protocol.tracing import NO_TRACE, TraceContext
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.protocol.waits import ForApproval, ForResult, ForTurn, Until
from toolwire.testing import ScriptedModel, call
from toolwire.wire.codecs.events import name_of, read_envelope, write_envelope
from toolwire.wire.codecs.faithful import dump, load

CALL = ToolCall("look", {"where": "under the bed"}, id="c1", raw="<raw>")
RESULT = ToolResult("c1", "look", Status.SUCCESS, (Text("nothing"),), elapsed_ms=1.5)
EVENTS: list[Event] = [
    TurnStarted("t1", "What is there?", "scripted", ("look",), resumed=True, lost=("an enum",)),
    ModelAsked(1),
    ModelAsked(2, EndReason.STUCK),
    TextDelta("half a \ud83d pair"),
    ReasoningDelta("hm"),
    CallDelta(0, "look", '{"where"'),
    ProviderWait(1.5, "overloaded"),
    ModelReplied(1, Reply("Let me look.", calls=(CALL,), usage=Usage(3, 4)), 2.5),
    ApprovalAsked("c1", "look", {"where": float("inf")}, "It is dark there.", "sha256:aa", 2),
    CallStarted(CALL),
    CallProgress("c1", "looking", 0.5),
    OutputDelta("c1", "a line\n", "stderr", 7),
    CallFinished(CALL, RESULT, replayed=True),
    Noted("One step left."),
    TurnWaiting("t1", (ForApproval("q1"), ForResult("c1", 5.0), ForTurn("t2"), Until(9.0, "later"))),
    TurnEnded("t1", Ending(EndReason.ANSWERED, "Nothing."), 12.0),
]


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing {where}"


def agent_with(hub: EventHub, name: str = "agent", **more: Any) -> Agent:
    return Agent(ScriptedModel(call("look", where="here"), "Nothing."), [look], events=hub, name=name, **more)


@pytest.mark.parametrize("event", EVENTS, ids=name_of)
def test_every_event_can_be_written_as_json_and_read_again(event: Event) -> None:
    envelope = EventEnvelope("house", "t1", 2, 7, 5.25, event)

    assert read_envelope(load(dump(write_envelope(envelope)))) == envelope


def test_no_kind_of_event_is_forgotten() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))


@pytest.mark.parametrize("event", EVENTS, ids=name_of)
def test_fields_of_a_newer_version_are_ignored(event: Event) -> None:
    envelope = EventEnvelope("house", "t1", 1, 1, 5.0, event)

    assert read_envelope({"since_next_year": 1, **write_envelope(envelope)}) == envelope


def test_an_unknown_kind_of_event_is_told() -> None:
    with pytest.raises(ValueError, match="unknown event 'levitated'"):
        read_envelope({"turn": "t", "epoch": 1, "seq": 1, "at": 0.0, "event": "levitated"})


def test_events_hold_only_values() -> None:
    """Nothing that only this process can use, such as a tool with its function."""
    assert all(part.type is not Tool and part.type is not Allowed for event in EVENTS for part in fields(event))


async def test_one_hook_sees_all_turns_of_all_agents_that_share_it_in_order_and_with_their_place() -> None:
    hub, seen = EventHub(clock=lambda: 5.0), list[EventEnvelope]()
    hub.watch(seen.append)

    first = await agent_with(hub, project="house").ask("What is there?")
    async with agent_with(hub, "other") as other:
        await other.call("look", {"where": "there"})

    ours = [one for one in seen if one.turn_id == first.turn_id]
    assert [one.seq for one in ours] == list(range(1, len(ours) + 1))
    assert {(one.project, one.epoch, one.at) for one in ours} == {("house", 1, 5.0)}
    assert [type(one.event) for one in ours] == [
        TurnStarted, ModelAsked, ModelReplied, CallStarted, CallFinished, ModelAsked, ModelReplied, TurnEnded
    ]  # fmt: skip
    theirs = [one for one in seen if one.turn_id != first.turn_id]
    assert [type(one.event) for one in theirs] == [TurnStarted, CallStarted, CallFinished, TurnEnded]
    assert [one.id for one in theirs] == ["1.1", "1.2", "1.3", "1.4"]


async def test_a_resumed_turn_goes_on_counting_in_a_later_epoch() -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, CallFinished):
            raise EOFError

    hub, seen = EventHub(), list[EventEnvelope]()
    hub.watch(seen.append)
    agent = agent_with(hub)
    with pytest.raises(EOFError):
        await agent.ask("What is there?", on_event=interrupt)

    await agent.resume(seen[0].turn_id)

    places = [(one.epoch, one.seq) for one in seen]
    assert places == sorted(set(places))
    assert {one.epoch for one in seen} == {1, 2}


async def test_a_watcher_that_raises_harms_neither_the_turn_nor_other_watchers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hub, seen = EventHub(), list[EventEnvelope]()

    def broken(envelope: EventEnvelope) -> None:
        raise (asyncio.CancelledError if isinstance(envelope.event, CallStarted) else RuntimeError)("no disk")

    hub.watch(broken)
    hub.watch(seen.append)
    with caplog.at_level(logging.WARNING):
        answer = await agent_with(hub).ask("What is there?")

    assert answer.text == "Nothing."
    assert isinstance(seen[-1].event, TurnEnded)
    assert [record.message for record in caplog.records] == ["a watcher of events failed: RuntimeError: no disk"]


async def test_a_watcher_that_never_reads_costs_a_bounded_number_of_events() -> None:
    hub = EventHub()
    with hub.stream(most=3) as unread, hub.stream() as read:
        answer = await agent_with(hub).ask("What is there?")
        assert answer.text == "Nothing."

    assert unread.lost == 5
    assert [type(one.event) async for one in unread] == [ModelAsked, ModelReplied, TurnEnded]
    assert len([one async for one in read]) == 8


async def test_a_stream_can_be_about_one_turn() -> None:
    hub = EventHub()
    agent = agent_with(hub)
    with hub.stream(turn_id="another") as stream:
        await agent.ask("What is there?")

    assert [one async for one in stream] == []


async def test_a_watcher_is_told_nothing_after_it_has_left() -> None:
    hub, seen = EventHub(), list[EventEnvelope]()
    stop = hub.watch(seen.append)
    stop()
    stop()

    await agent_with(hub).ask("What is there?")

    assert seen == []


class Streaming(ScriptedModel):
    """Remembers whether it was asked for deltas."""

    streamed: bool = False

    async def ask(self, request: Any, on_delta: Any = None) -> Reply:
        self.streamed = self.streamed or on_delta is not None
        return await super().ask(request, on_delta)


@pytest.mark.parametrize("deltas", [False, True])
async def test_models_stream_only_for_a_watcher_that_wants_deltas(deltas: bool) -> None:
    hub, model = EventHub(), Streaming("Nothing.")
    hub.watch(lambda _: None, deltas=deltas)

    await Agent(model, [], events=hub).ask("What is there?")

    assert model.streamed is deltas


async def test_an_approval_request_is_an_event_without_anything_of_this_process() -> None:
    @tool(requires_confirmation=True)
    def oven(on: bool) -> str:
        """Switch the oven."""
        return f"on: {on}"

    async def approve(request: NeedsApproval) -> Approval:
        return Approval(granted=True)

    hub, seen = EventHub(), list[EventEnvelope]()
    hub.watch(seen.append)
    async with Agent(ScriptedModel(), [oven], events=hub, approve=approve) as agent:
        result = await agent.call("oven", {"on": "true"})

    [asked] = [one for one in seen if isinstance(one.event, ApprovalAsked)]
    assert isinstance(asked.event, ApprovalAsked)
    assert (asked.event.tool, asked.event.arguments) == ("oven", {"on": True})
    assert asked.event.call_id == result.call_id
    assert read_envelope(load(dump(write_envelope(asked)))) == asked


def test_what_is_sent_for_a_turn_is_below_its_span_or_below_the_one_that_was_above_the_turn() -> None:
    class Spans:
        def __init__(self) -> None:
            self.told: list[Any] = []

        def observe(self, turn: Turn, event: Event, at: float) -> None:
            self.told.append(event)

        def interrupted(self, turn: Turn, error: BaseException) -> None:
            self.told.append(error)

        def current_trace(self) -> TraceContext:
            return TraceContext("now")

        def trace_of(self, turn: Turn, call_id: str = "") -> TraceContext:
            return TraceContext(f"{turn.id} {call_id}")

    turn, error = Turn("t", trace=TraceContext("above")), ValueError("gone")
    alone, traced = EventHub(), EventHub(telemetry=(spans := Spans()))
    assert (alone.current_trace(), traced.current_trace()) == (NO_TRACE, TraceContext("now"))
    assert (alone.trace_of(turn, "c"), traced.trace_of(turn, "c")) == (TraceContext("above"), TraceContext("t c"))
    alone.interrupt(turn, error)
    traced.interrupt(turn, error)
    assert spans.told == [error]
