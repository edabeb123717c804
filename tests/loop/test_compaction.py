"""Conversations that outgrow the model's window are told by a summary that is on record."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Limits, MemoryStore, tool
from toolwire.errors import ModelError
from toolwire.loop.compaction import QUESTION, messages_to_send, summary_note
from toolwire.protocol.chat import Message, Note, Reply, Request, ResultsMessage, UserMessage
from toolwire.record.contract import Store
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import Line, ScriptedModel, call

WINDOW = Limits(window_tokens=1_000)
LONG = "I was told a long story about the harbour. " * 30


@tool(untrusted=True)
async def page() -> str:
    """Read a page."""
    return "the page says 42"


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    async with await SqliteStore.at(tmp_path / "home") as opened:
        yield opened


def is_summary_request(request: Request) -> bool:
    [message, *rest] = request.messages
    return not rest and isinstance(message, UserMessage) and message.text.startswith("Summarise this conversation.")


class Talker(ScriptedModel):
    """Answers each question with a long text, and each request for a summary with a short one."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.summaries = 0
        self._fails = fails

    async def ask(self, request: Request, on_delta: Any = None) -> Reply:
        self.requests.append(request)
        if is_summary_request(request):
            if self._fails:
                raise ModelError("too busy")
            self.summaries += 1
            return Reply(f"Summary {self.summaries}: a story about the harbour.")
        last = request.messages[-1]
        if isinstance(last, UserMessage) and last.text == "Read the page.":
            return Reply(calls=(call("page"),), finish_reason="tool_calls")
        return Reply(LONG)


def sizes(model: ScriptedModel) -> list[int]:
    """How many characters were sent with each question."""
    asked = [request.messages for request in model.requests if not is_summary_request(request)]
    return [sum(len(getattr(one, "text", "") or getattr(one, "content", "")) for one in sent) for sent in asked]


async def test_what_outgrows_the_window_is_told_by_a_summary_on_record(store: Store) -> None:
    model = Talker()
    agent = Agent(model, store=store, limits=WINDOW)
    for number in range(8):
        await agent.ask(f"Question {number}?", thread="chat")

    assert model.summaries >= 1
    assert max(sizes(model)) < 4_000, "what is sent stays within the window"
    assert model.requests[-1].messages[0] == UserMessage(QUESTION)
    assert "Summary" in getattr(model.requests[-1].messages[1], "content", "")
    summaries = [turn for turn in await agent.store.turns() if turn.question == QUESTION]
    assert summaries
    assert all(turn.answer.startswith("Summary") for turn in summaries)
    assert "compacted" in [row.event for row in await agent.store.audit_log()]
    questions = [one.text for one in await agent.store.thread("chat") if isinstance(one, UserMessage)]
    assert [text for text in questions if text != QUESTION] == [f"Question {number}?" for number in range(8)]


async def test_without_a_known_window_nothing_changes(store: Store) -> None:
    model = Talker()
    agent = Agent(model, store=store)
    for number in range(8):
        await agent.ask(f"Question {number}?", thread="chat")

    assert model.summaries == 0
    assert len(model.requests[-1].messages) == 15


async def test_a_model_says_its_window_itself(store: Store) -> None:
    model = Talker()
    model.window_tokens = 1_000  # type: ignore[attr-defined]
    agent = Agent(model, store=store)
    for number in range(8):
        await agent.ask(f"Question {number}?", thread="chat")

    assert model.summaries >= 1


async def test_what_one_request_cannot_hold_is_summarised_piece_by_piece_with_the_summary_so_far() -> None:
    model, facts = Talker(), [f"House {number} of the harbour is sold." for number in range(40)]
    model.window_tokens, model.longest_question = 1_000, 1_500  # type: ignore[attr-defined]
    store = MemoryStore()
    await Agent(ScriptedModel(" ".join(facts)), store=store).ask("Which houses are sold?", thread="chat")
    await Agent(ScriptedModel(LONG * 2), store=store).ask("And the story?", thread="chat")

    await Agent(model, store=store, limits=Limits(compact_at=0.3)).ask("Go on.", thread="chat")

    asked = [one.messages[0].text for one in model.requests if is_summary_request(one)]  # type: ignore[union-attr]
    assert len(asked) > 2
    assert all(len(text) <= 1_500 for text in asked)
    told = [text.partition("\n\n")[2] for text in asked]
    so_far = [f"Summary so far: Summary {number}: a story about the harbour.\n\n" for number in range(1, len(told))]
    assert [text.startswith(before) for text, before in zip(told[1:], so_far, strict=True)] == [True] * len(so_far)
    whole = told[0] + "".join(text.removeprefix(before) for text, before in zip(told[1:], so_far, strict=True))
    assert [fact for fact in [*facts, LONG.strip()] if fact not in whole] == []
    [summary] = [turn for turn in await store.turns() if turn.question == QUESTION]
    assert summary.answer == f"Summary {len(asked)}: a story about the harbour."


async def test_calls_stay_with_their_results_and_taint_outlives_the_summary(store: Store) -> None:
    model = Talker()
    agent = Agent(model, [page], store=store, limits=WINDOW)
    last = None
    for number in range(8):
        last = await agent.ask("Read the page." if number % 2 == 0 else "Go on.", thread="chat")

    assert model.summaries >= 1
    for request in model.requests:
        assert_paired(request.messages)
    assert last is not None
    assert last.turn.tainted, "a summary of untrusted content is as untrusted"


def assert_paired(messages: tuple[Message, ...]) -> None:
    for place, message in enumerate(messages):
        calls = message.calls if isinstance(message, Reply) else ()
        if calls:
            answer = messages[place + 1]
            assert isinstance(answer, ResultsMessage)
            assert [result.call_id for result in answer.results] == [one.id for one in calls]
        if isinstance(message, ResultsMessage):
            assert isinstance(messages[place - 1], Reply)


async def test_a_model_that_cannot_summarise_is_asked_with_everything(store: Store) -> None:
    model = Talker(fails=True)
    agent = Agent(model, store=store, limits=WINDOW)
    for number in range(6):
        await agent.ask(f"Question {number}?", thread="chat")

    assert len(model.requests[-1].messages) == 11
    assert all(turn.question != QUESTION for turn in await agent.store.turns())


async def test_a_resumed_turn_is_told_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with await SqliteStore.at(home) as store:
        model = Talker()
        agent = Agent(model, store=store, limits=WINDOW)
        for number in range(6):
            await agent.ask(f"Question {number}?", thread="chat")
        failing: list[Line] = [ModelError("gone")]
        broken = ScriptedModel(*failing)
        agent.model = broken
        with pytest.raises(ModelError):
            await agent.ask("And now?", thread="chat")
    async with await SqliteStore.at(home) as store:
        [left] = await store.turns(state="interrupted")
        again = ScriptedModel("Here.")
        await Agent(again, store=store, limits=WINDOW).resume(left.id)

    assert again.requests[0].messages == broken.requests[-1].messages


def test_a_note_alone_is_no_summary() -> None:
    messages = (UserMessage("Hi"), Reply("Hello"), Note("Go on."), UserMessage("What?"))

    assert messages_to_send(messages) == messages


def test_a_later_summary_keeps_what_an_earlier_one_left_out() -> None:
    def summary(name: str, kept: int) -> tuple[Message, ...]:
        return (UserMessage(QUESTION), Reply(name), summary_note(kept))

    first = (UserMessage("1"), Reply("one"), UserMessage("2"), Reply("two"), *summary("first", 2))
    later = (*first, UserMessage("3"), Reply("three"), *summary("second", 4), UserMessage("4"))

    assert messages_to_send(first) == (UserMessage(QUESTION), Reply("first"), UserMessage("2"), Reply("two"))
    assert messages_to_send(later)[1:] == (
        Reply("second"), UserMessage("2"), Reply("two"), UserMessage("3"), Reply("three"), UserMessage("4")
    )  # fmt: skip
