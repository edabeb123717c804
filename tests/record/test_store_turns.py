"""Turns in every store: how they began, what was said, who may go on, and what the next turn remembers."""

import pytest
from msgspec.structs import replace

from toolwire.errors import Fenced, NotFound, StoreError
from toolwire.protocol.agents import AgentSpec, FormatSpec, GrantedByUser, ModelSpec, SkillSpec, ToolsSpec
from toolwire.protocol.budgets import Budget
from toolwire.protocol.chat import Message, Note, Reply, ResultsMessage, Usage, UserMessage
from toolwire.protocol.tools import Grant, Tier
from toolwire.protocol.turns import Ending, EndReason, Limits, Turn
from toolwire.record.contract import Store, TurnStats

from .samples import a_call, a_card, a_turn, failure, success


def ended(turn: Turn, answer: str = "21 degrees", reason: EndReason = EndReason.ANSWERED) -> Turn:
    return replace(turn, ending=Ending(reason, answer))


async def talk(store: Store, turn: Turn, answer: str) -> tuple[Message, ...]:
    """A whole turn with one call; gives back what was said in it."""
    call = a_call(f"{turn.id}-call")
    asking, telling = Reply(calls=(call,)), Reply(answer)
    await store.begin(turn)
    await store.append_reply(turn, asking, [a_card(call, turn)], [])
    await store.close(a_card(call, turn), success(call), [])
    await store.append_reply(turn, telling, [], [])
    await store.end(ended(turn, answer), TurnStats())
    return (turn.messages[-1], asking, ResultsMessage((success(call),)), telling)


async def test_a_turn_is_read_as_it_began(store: Store) -> None:
    turn = a_turn(
        project="house",
        agent="warden",
        thread="",
        model="scripted:one",
        system="Be brief.",
        grant=Grant(Tier.RUN, frozenset({"net"}), ("/srv",), ("example.org",), "linux", frozenset({"*"}), 7),
        limits=Limits(iterations=3, tokens=1000, deadline_s=2.5, tools_enabled=False),
    )
    await store.begin(turn)

    kept = await store.turn(turn.id)

    assert (kept.opening, kept.events, kept.state) == (turn, (), "running")


async def test_a_turn_carries_how_to_build_its_agent(store: Store) -> None:
    spec = AgentSpec(
        "warden",
        ModelSpec(
            "ollama:qwen3", "house", "http://127.0.0.1:1", "KEY", "a.jsonl", 0.5, 9, FormatSpec("xml", coach=False)
        ),
        ToolsSpec(("coding",), ("own.tools:all",), (SkillSpec("resize", "1.2", "sha256:aa"),), ("read", "write")),
        GrantedByUser("run", ("files.write",), ("/srv",), ("coding",), confirms_all=True),
        Budget(calls=3, cost_usd=0.5),
    )
    for turn in (a_turn("full", spec=spec), a_turn("plain", spec=AgentSpec()), a_turn("old")):
        await store.begin(turn)
        assert (await store.turn(turn.id)).opening == turn


async def test_a_turn_that_has_ended_says_how(store: Store) -> None:
    turn = a_turn()
    await store.begin(turn)
    assert (await store.turn(turn.id)).ending is None
    await store.end(ended(turn, "too late", EndReason.DEADLINE), TurnStats())
    assert (await store.turn(turn.id)).ending == Ending(EndReason.DEADLINE, "too late")


async def test_a_turn_cannot_begin_twice(store: Store) -> None:
    await store.begin(a_turn())

    with pytest.raises(StoreError, match="already kept"):
        await store.begin(a_turn(question="Again?"))

    assert (await store.turn("turn-1")).opening.question == "How warm is it?"


async def test_events_come_in_order_with_complete_results_after_the_reply_that_asked(store: Store) -> None:
    turn, first, second = a_turn(), a_call("a"), a_call("b")
    reply = Reply(
        "Let me look.", "two rooms", (first, second), usage=Usage(10, 5, 2, 0.01), model="m", carry={"sig": "x"}
    )
    await store.begin(turn)
    await store.append_reply(turn, reply, [a_card(first, turn), a_card(second, turn)], [])
    await store.close(a_card(second, turn), success(second), [])

    assert (await store.turn(turn.id)).events == (reply,)

    await store.close(a_card(first, turn), failure(first), [])
    await store.append_note(turn, Note("One step left."))
    await store.append_reply(turn, Reply("It is warm."), [], [])

    results = ResultsMessage((failure(first), success(second)))
    assert (await store.turn(turn.id)).events == (reply, results, Note("One step left."), Reply("It is warm."))


async def test_calls_refused_with_their_reply_are_answered_at_once(store: Store) -> None:
    turn, call = a_turn(), a_call()
    refused = failure(call)
    await store.begin(turn)
    await store.append_reply(turn, Reply(calls=(call,)), [a_card(call, turn, result=refused)], [])

    assert (await store.turn(turn.id)).events == (Reply(calls=(call,)), ResultsMessage((refused,)))


async def test_an_unknown_turn_is_not_kept(store: Store) -> None:
    for ask in (store.turn("nobody"), store.resume("nobody"), store.release(a_turn("nobody"))):
        with pytest.raises(NotFound, match="nobody"):
            await ask


@pytest.mark.requirement("record.resume")
async def test_a_released_turn_goes_on_in_a_new_epoch_with_all_that_happened(store: Store) -> None:
    turn, call = a_turn(), a_call()
    await store.begin(turn)
    await store.append_reply(turn, Reply(calls=(call,)), [a_card(call, turn)], [])
    await store.release(turn)
    assert [(one.id, one.state) for one in await store.turns()] == [(turn.id, "interrupted")]

    taken = await store.resume(turn.id)

    assert taken.opening == replace(turn, epoch=2)
    assert taken.events == (Reply(calls=(call,)),)
    assert (await store.turn(turn.id)).state == "running"


@pytest.mark.requirement("record.fenced")
async def test_whoever_lost_the_turn_can_say_nothing_in_it(store: Store) -> None:
    turn = a_turn()
    await store.begin(turn)
    await store.release(turn)
    taken = await store.resume(turn.id)

    for change in (
        store.append_reply(turn, Reply("mine"), [a_card(turn=turn)], []),
        store.append_note(turn, Note("mine")),
        store.end(ended(turn), TurnStats(iterations=1)),
        store.release(turn),
    ):
        with pytest.raises(Fenced, match="taken over"):
            await change

    assert await store.turn(turn.id) == taken
    assert (await store.metrics())[1].turns == 0


async def test_a_turn_with_a_living_owner_cannot_be_taken_over(store: Store) -> None:
    await store.begin(a_turn())

    with pytest.raises(Fenced, match="living process"):
        await store.resume("turn-1")

    await store.append_note(a_turn(), Note("still mine"))


async def test_an_ended_turn_stays_as_it_is(store: Store) -> None:
    turn = a_turn()
    await store.begin(turn)
    await store.end(ended(turn), TurnStats())

    for change in (
        store.resume(turn.id),
        store.end(ended(turn, "other"), TurnStats()),
        store.append_note(turn, Note("late")),
        store.release(turn),
    ):
        with pytest.raises(Fenced, match="has ended"):
            await change

    (summary,) = await store.turns()
    assert (summary.state, summary.reason, summary.answer) == ("ended", "answered", "21 degrees")


async def test_a_turn_without_an_ending_cannot_be_ended(store: Store) -> None:
    await store.begin(a_turn())

    with pytest.raises(StoreError, match="no ending"):
        await store.end(a_turn(), TurnStats())


async def test_turns_are_listed_newest_first_and_by_state(store: Store) -> None:
    for name in ("a", "b", "c", "d"):
        await store.begin(a_turn(name, f"Question {name}?"))
    await store.open(a_card(turn=a_turn("a")), [])
    await store.end(ended(a_turn("b")), TurnStats())
    await store.release(a_turn("c"))

    async def ids(limit: int = 20, state: str | None = None) -> list[str]:
        return [turn.id for turn in await store.turns(limit=limit, state=state)]

    assert await ids() == ["d", "c", "b", "a"]
    assert await ids(limit=2) == ["d", "c"]
    assert await ids(state="running") == ["d", "a"]
    assert await ids(state="interrupted") == ["c"]
    assert await ids(state="ended") == ["b"]
    newest, *_, oldest = await store.turns()
    assert (newest.question, newest.calls, oldest.calls) == ("Question d?", 0, 1)


@pytest.mark.feature("F196")
async def test_a_thread_remembers_what_its_ended_turns_said_in_order(store: Store) -> None:
    first = await talk(store, a_turn("one", thread="t"), "21 degrees")
    await talk(store, a_turn("elsewhere", thread="other"), "no")
    await store.begin(a_turn("unfinished", thread="t"))
    history = await store.thread("t")
    assert history == first

    next_turn = a_turn("two", "And outside?", *history, thread="t")
    second = await talk(store, next_turn, "4 degrees")

    assert await store.thread("t") == (*first, *second)
    assert (await store.turn("two")).opening == next_turn
    assert await store.thread("nobody") == ()


async def test_turns_without_a_thread_share_no_history(store: Store) -> None:
    await talk(store, a_turn("one"), "21 degrees")

    assert await store.thread("") == ()


async def test_a_history_that_is_not_the_threads_own_is_kept_as_it_was_given(store: Store) -> None:
    """A gateway's client sends its whole conversation each time, and may have edited it."""
    await talk(store, a_turn("one", thread="t"), "21 degrees")
    edited = (UserMessage("Be a pirate."), Reply("Arr."), ResultsMessage((success(),)), Note("hush"))
    turn = a_turn("two", "How warm?", *edited, thread="t")
    await store.begin(turn)

    assert (await store.turn("two")).opening == turn


async def test_a_reply_whose_calls_never_got_results_stays_out_of_the_history(store: Store) -> None:
    """No model accepts a call without a result."""
    turn, call = a_turn(thread="t"), a_call()
    await store.begin(turn)
    await store.append_reply(turn, Reply("Let me look.", calls=(call,)), [a_card(call, turn)], [])
    await store.end(ended(turn, "", EndReason.CANCELED), TurnStats())

    assert await store.thread("t") == (UserMessage("How warm is it?"),)


async def test_odd_text_in_questions_and_answers_comes_back(store: Store) -> None:
    odd = "half \ud83d a pair, a \0 and $text"
    turn = replace(a_turn(question=odd), system=odd)
    await store.begin(turn)
    await store.append_reply(turn, Reply(odd, odd), [], [])
    await store.end(ended(turn, odd), TurnStats())

    kept = await store.turn(turn.id)
    assert (kept.opening, kept.events) == (turn, (Reply(odd, odd),))
    (summary,) = await store.turns()
    assert (summary.question, summary.answer) == (odd, odd)


async def test_A3_an_interrupted_turn_stays_in_its_thread_with_what_it_did(store: Store) -> None:
    """Two of its three calls have no result: it was cut off in the middle of a step."""
    first = await talk(store, a_turn("one", thread="house"), "21 degrees")
    left, calls = a_turn("two", thread="house", question="And now?"), [a_call("a"), a_call("b"), a_call("c")]
    left = replace(left, messages=(*first, UserMessage("And now?")))
    await store.begin(left)
    await store.append_reply(left, Reply("I look.", calls=tuple(calls)), [a_card(call, left) for call in calls], [])
    await store.close(a_card(calls[0], left), success(calls[0]), [])
    assert await store.thread("house") == first
    await store.release(left)

    told = await store.thread("house")
    assert told[: len(first)] == first
    question, reply, results, note = told[len(first) :]
    assert question == UserMessage("And now?")
    assert isinstance(reply, Reply)
    assert isinstance(results, ResultsMessage)
    assert results.results[0] == success(calls[0])
    assert [result.error.code for result in results.results[1:] if result.error] == ["outcome_unknown"] * 2
    assert note == Note("This question was interrupted before it was answered. What is told above has happened.")

    third = a_turn("three", thread="house", question="Then?")
    third = replace(third, messages=(*told, UserMessage("Then?")))
    said = await talk(store, third, "22 degrees")
    assert await store.thread("house") == (*told, *said)

    again = (await store.resume("two")).opening
    await store.append_reply(again, Reply("It was cold."), [], [])
    await store.end(ended(again, "It was cold."), TurnStats())
    assert (await store.turn("three")).opening.messages == third.messages
    assert [one for one in await store.thread("house") if isinstance(one, Note)] == []


async def test_A3_a_turn_that_was_left_alone_in_its_thread_is_told_to_the_next(store: Store) -> None:
    left = a_turn("one", thread="house")
    await store.begin(left)
    await store.release(left)
    told = await store.thread("house")
    assert told[:-1] == left.messages
    following = replace(a_turn("two", thread="house"), messages=(*told, UserMessage("So?")))
    await store.begin(following)
    assert (await store.turn("two")).opening.messages == following.messages
    assert await store.thread("house", project="other") == ()


async def test_a_turn_that_runs_keeps_running_when_its_id_is_used_again(store: Store) -> None:
    turn = a_turn()
    await store.begin(turn)
    with pytest.raises(StoreError):
        await store.begin(turn)

    await store.append_reply(turn, Reply("21 degrees"), [], [])

    assert (await store.turn(turn.id)).state == "running"
    with pytest.raises(Fenced):
        await store.resume(turn.id)
