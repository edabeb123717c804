"""`loop.step` at its edges, as pure questions: replies with too many calls, last words, words sent back."""

from typing import Any

import pytest

from tests.loop.test_step import NOW, begun, results, stepped, wants
from toolwire import Code, Delivery, Problem, Reply, Status, Text, ToolCall, ToolResult, Turn
from toolwire.loop.step import (
    Finished,
    append_reply,
    append_results,
    calls_of,
    last_words,
    next_step,
    was_tainted,
    with_own_ids,
    within_step,
)
from toolwire.protocol.chat import Note, ResultsMessage, UserMessage


def reply_of(count: int, **more: Any) -> Reply:
    return Reply("", calls=tuple(ToolCall("read", {"at": at}) for at in range(count)), **more)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_reply_within_its_step_stays_as_it_is(count: int) -> None:
    reply = reply_of(count)
    kept, left_out = within_step(begun(calls_per_step=2), reply)
    assert kept is reply
    assert left_out == 0


@pytest.mark.parametrize(("count", "before", "left_out"), [(4, 0, 1), (9, 0, 6), (3, 5, 5), (4, 5, 6)])
def test_of_a_reply_with_more_calls_one_beyond_the_step_is_kept_and_the_others_are_counted(
    count: int, before: int, left_out: int
) -> None:
    kept, told = within_step(begun(calls_per_step=2), reply_of(count, left_out=before))
    assert [call.arguments["at"] for call in kept.calls] == [0, 1, 2]
    assert told == left_out
    assert kept.problems == (Problem("too_many_calls", f"{left_out} more calls of this reply were left out"),)


def test_problems_and_carried_items_of_calls_that_are_left_out_go_with_them() -> None:
    problems = tuple(Problem("repaired", "mended", call=at) for at in (None, 0, 2, 3))
    items = [{"call": 0}, {"text": "x"}, {"call": 2}, {"call": 3}, {"call": "3"}]
    kept, _ = within_step(begun(calls_per_step=2), reply_of(5, problems=problems, carry={"items": items, "id": "r"}))
    assert [problem.call for problem in kept.problems] == [None, 0, 2, None]
    assert kept.carry == {"items": [{"call": 0}, {"text": "x"}, {"call": 2}, {"call": "3"}], "id": "r"}
    assert within_step(begun(calls_per_step=2), reply_of(5))[0].carry is None


def test_ids_tell_the_turn_the_step_and_the_place() -> None:
    turn = begun()
    first = with_own_ids(turn, wants("read", "read"))
    assert [call.id for call in first.calls] == ["call_000000000001_1_1", "call_000000000001_1_2"]
    assert [call.id for call in with_own_ids(append_reply(turn, first), wants("read")).calls] == [
        "call_000000000001_2_1"
    ]
    silent = Reply("Done.")
    assert with_own_ids(turn, silent) is silent


def test_calls_in_a_closing_reply_are_dropped_and_its_words_kept() -> None:
    turn = append_reply(begun(tools_enabled=False), Reply("Done.", calls=(ToolCall("read", {}),)))
    said = turn.messages[-1]
    assert isinstance(said, Reply)
    assert (said.content, said.calls) == ("Done.", ())


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ((UserMessage("q"),), ""),
        ((UserMessage("q"), Reply(" One. ")), "One."),
        ((UserMessage("q"), Reply("One."), Reply(" ")), "One."),
        ((UserMessage("q"), Reply("One."), Note("go on"), ResultsMessage(())), "One."),
        ((Reply("Before."), UserMessage("q"), Note("go on")), ""),
        ((UserMessage("q"), Reply("One."), Reply("x", problems=(Problem("unknown_tool", "no"),))), "One."),
        ((UserMessage("q"), Reply("One."), Reply("Two.", problems=(Problem("repaired", "no"),))), "Two."),
        (
            (UserMessage("q"), Reply("Two.", calls=(ToolCall("a", {}),), problems=(Problem("unknown_tool", "no"),))),
            "Two.",
        ),
    ],
)
def test_the_last_words_are_the_models_own_of_this_turn(messages: tuple[Any, ...], words: str) -> None:
    assert last_words(Turn("turn-1", messages=messages)) == words


def test_the_calls_of_a_conversation_are_those_of_its_replies() -> None:
    one, two, three = (ToolCall(name, {}) for name in "abc")
    said = (UserMessage("q"), Reply("", calls=(one, two)), ResultsMessage(()), Reply("", calls=(three,)), Reply("x"))
    assert calls_of(said) == (one, two, three)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(""), "Your reply was empty. Answer the user, or call a tool."),
        (Reply("", problems=(Problem("quoted", "A call was quoted."),)), "A call was quoted. Answer the user, or call"),
        (Reply("", problems=(Problem("repaired", "It was mended."),)), "Your reply was empty. Answer the user, or"),
        (Reply("x", problems=(Problem("truncated", "It breaks off"),)), "It breaks off. If you meant to call"),
        (Reply("x", problems=(Problem("truncated", "It breaks off!"),)), "It breaks off! If you meant to call"),
        (Reply("x", problems=(Problem("truncated", "Why?"),)), "Why? If you meant to call a tool, repeat the"),
    ],
)
def test_the_word_that_is_sent_back_says_what_was_wrong_and_what_to_do(reply: Reply, told: str) -> None:
    turn = append_reply(begun(), reply)
    note = turn.messages[-1]
    assert isinstance(note, Note)
    assert note.text.startswith(told)


def test_what_others_wrote_makes_the_turn_wary_and_it_stays_so() -> None:
    turn = append_reply(begun(), with_own_ids(begun(), wants("read")))
    foreign = [ToolResult(call.id, call.name, Status.SUCCESS, (Text("x"),), untrusted=True) for call in turn.pending]
    wary = append_results(turn, foreign, [("read", "x")])
    assert wary.tainted is True
    assert was_tainted(wary.messages) is True
    assert stepped(wary, wants("look")).tainted is True
    trusted = append_results(turn, results(turn), [("read", "x")])
    assert trusted.tainted is False
    assert was_tainted(trusted.messages) is False


def test_a_repetition_is_counted_over_steps_and_for_the_call_that_repeats() -> None:
    turn = append_reply(begun(), with_own_ids(begun(), wants("read", "look")))
    several = append_results(turn, results(turn), [("look", "2"), ("read", "1")])
    assert several.repeats == 1
    again = append_reply(several, with_own_ids(several, wants("read")))
    assert append_results(again, results(again), [("read", "1")]).repeats == 2
    assert append_results(again, results(again), [("read", "other")]).repeats == 1
    assert append_results(again, results(again), []).repeats == 0
    assert append_results(again, results(again), [("look", "new"), ("read", "1")]).repeats == 2
    assert append_results(again, results(again), [("look", "new"), ("look", "new")]).repeats == 1


@pytest.mark.parametrize("goes_to_user", [(True, True), (True, False), (False, True)])
def test_a_turn_is_delivered_only_where_every_result_goes_to_the_user(goes_to_user: tuple[bool, bool]) -> None:
    turn = append_reply(begun(), with_own_ids(begun(), wants("read", "look")))
    given = [
        ToolResult(call.id, call.name, Status.SUCCESS, (Text(call.name),), delivery=Delivery.USER if goes else None)
        for call, goes in zip(turn.pending, goes_to_user, strict=True)
    ]
    step = next_step(append_results(turn, given, []), NOW)
    assert isinstance(step, Finished) == all(goes_to_user)
    if isinstance(step, Finished):
        assert step.ending.answer == "read\nlook"


def test_a_failure_is_never_delivered_to_the_user_alone() -> None:
    turn = append_reply(begun(), with_own_ids(begun(), wants("read")))
    failed = ToolResult.failed(turn.pending[0], Code.EXECUTION_FAILED, "no")
    assert append_results(turn, [failed], []).ending is None
    assert append_results(turn, [], []).ending is None
