"""`next_step` as a pure question: the whole loop without a model, a tool or a clock."""

import pytest
from msgspec.structs import replace

from toolwire import Code, Delivery, Limits, Problem, Reply, Status, Text, ToolCall, ToolResult, Turn, Usage
from toolwire.loop.limits import WARNING
from toolwire.loop.step import (
    AskModel,
    Finished,
    RunCalls,
    append_reply,
    append_results,
    next_step,
    with_last_request,
    with_own_ids,
)
from toolwire.protocol.chat import Message, Note, UserMessage
from toolwire.protocol.turns import RESTORED_EPOCHS, EndReason

NOW = 100.0


def begun(**limits: object) -> Turn:
    return Turn("turn-000000000001", messages=(UserMessage("q"),), running_since=NOW, limits=Limits(**limits))  # type: ignore[arg-type]


def wants(*names: str) -> Reply:
    return Reply("", calls=tuple(ToolCall(name, {}, alias="call_1") for name in names))


def results(turn: Turn, *, ok: bool = True, text: str = "fine") -> list[ToolResult]:
    if ok:
        return [ToolResult(call.id, call.name, Status.SUCCESS, (Text(text),)) for call in turn.pending]
    return [ToolResult.failed(call, Code.EXECUTION_FAILED, text) for call in turn.pending]


def stepped(turn: Turn, reply: Reply, *, ok: bool = True, text: str = "fine") -> Turn:
    turn = append_reply(with_last_request(turn), with_own_ids(turn, reply))
    return append_results(turn, results(turn, ok=ok, text=text), [(call.name, text) for call in turn.pending])


@pytest.mark.feature("F032", "F036", "F038")
def test_a_turn_goes_from_question_over_calls_to_an_answer() -> None:
    turn = begun()
    assert next_step(turn, NOW) == AskModel()
    turn = append_reply(turn, with_own_ids(turn, wants("read", "grep")))
    step = next_step(turn, NOW)
    assert isinstance(step, RunCalls)
    assert [call.name for call in step.calls] == ["read", "grep"]
    turn = append_results(turn, results(turn), [("read", "1"), ("grep", "2")])
    assert next_step(turn, NOW) == AskModel()
    turn = append_reply(turn, Reply(" It is done. "))
    step = next_step(turn, NOW)
    assert isinstance(step, Finished)
    assert (step.ending.reason, step.ending.answer) == (EndReason.ANSWERED, "It is done.")


@pytest.mark.requirement("call.minted-id")
@pytest.mark.feature("F009", "F011")
def test_ids_are_minted_by_turn_step_and_place_and_aliases_are_kept() -> None:
    turn = begun()
    first = with_own_ids(turn, wants("read", "read"))
    second = with_own_ids(append_reply(turn, first), wants("read"))
    ids = [call.id for call in (*first.calls, *second.calls)]
    assert len(set(ids)) == 3
    assert [call.alias for call in first.calls] == ["call_1", "call_1"]
    assert ids == [call.id for call in (*with_own_ids(turn, first).calls, *second.calls)]


@pytest.mark.threat("T14")
@pytest.mark.requirement("loop.limits")
@pytest.mark.feature("F033")
def test_the_last_step_offers_no_tools_and_asks_for_the_answer() -> None:
    turn = begun(iterations=3)
    turn = stepped(turn, wants("a"), text="1")
    assert next_step(turn, NOW) == AskModel()
    turn = stepped(turn, wants("b"), text="2")
    assert next_step(turn, NOW) == AskModel(EndReason.ITERATION_LIMIT)
    turn = with_last_request(turn)
    assert isinstance(turn.messages[-1], Note)
    assert "Answer the user now" in turn.messages[-1].text
    turn = append_reply(turn, Reply("what I know", calls=(ToolCall("c", {}),)))
    assert turn.ending is not None
    assert (turn.ending.reason, turn.ending.answer) == (EndReason.ITERATION_LIMIT, "what I know")
    assert turn.pending == ()


@pytest.mark.requirement("loop.limits")
@pytest.mark.feature("F034", "F143")
def test_consecutive_failed_steps_are_counted_by_outcome_and_a_success_resets_them() -> None:
    turn = begun()
    for text in ("1", "2"):
        turn = stepped(turn, wants("a"), ok=False, text=text)
    assert turn.failures == 2
    turn = stepped(turn, wants("a"), text="3")
    assert turn.failures == 0
    for text in ("4", "5", "6"):
        assert next_step(turn, NOW) == AskModel()
        turn = stepped(turn, wants("a"), ok=False, text=text)
    assert next_step(turn, NOW) == AskModel(EndReason.FAILURE_LIMIT)


@pytest.mark.threat("T14")
@pytest.mark.requirement("loop.stuck")
@pytest.mark.feature("F039", "F144")
def test_the_same_call_with_the_same_result_is_warned_about_once_and_then_stopped() -> None:
    turn = stepped(begun(), wants("a"), text="same")
    assert not turn.warned
    turn = stepped(turn, wants("a"), text="same")
    assert turn.messages[-1] == Note(WARNING)
    assert next_step(turn, NOW) == AskModel()
    turn = stepped(turn, wants("a"), text="same")
    assert next_step(turn, NOW) == AskModel(EndReason.STUCK)
    assert turn.messages.count(Note(WARNING)) == 1


@pytest.mark.requirement("loop.stuck")
def test_the_same_call_several_times_in_one_reply_is_no_repetition_yet() -> None:
    turn = stepped(begun(), wants("a", "a", "a"), text="same")
    assert not turn.warned
    assert next_step(turn, NOW) == AskModel()


@pytest.mark.contrast("T14")
@pytest.mark.requirement("loop.stuck")
def test_the_same_call_with_new_results_is_progress() -> None:
    turn = begun()
    for n in range(8):
        turn = stepped(turn, wants("poll"), text=f"at {n} %")
    assert next_step(turn, NOW) == AskModel()
    assert not turn.warned


@pytest.mark.feature("F041")
def test_a_token_budget_ends_the_turn_with_the_last_words() -> None:
    turn = begun(tokens=100)
    turn = append_reply(turn, with_own_ids(turn, replace(wants("a"), content="Let me look.", usage=Usage(90, 20))))
    step = next_step(turn, NOW)
    assert isinstance(step, Finished)
    assert (step.ending.reason, step.ending.answer) == (EndReason.TOKEN_BUDGET, "Let me look.")


@pytest.mark.requirement("execute.approval-free")
def test_a_deadline_ends_the_turn_and_time_spent_on_approvals_does_not_count() -> None:
    turn = begun(deadline_s=10.0)
    assert isinstance(next_step(turn, NOW + 9.9), AskModel)
    late = next_step(turn, NOW + 10.1)
    assert isinstance(late, Finished)
    assert late.ending.reason is EndReason.DEADLINE
    assert isinstance(next_step(replace(turn, waited_s=60.0), NOW + 69.0), AskModel)


@pytest.mark.feature("F146")
def test_without_tools_one_reply_is_the_answer() -> None:
    turn = append_reply(begun(tools_enabled=False), Reply("plain", calls=(ToolCall("x", {}),)))
    assert turn.ending is not None
    assert (turn.ending.reason, turn.ending.answer) == (EndReason.ANSWERED, "plain")


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (Reply("<tool_call>{", problems=(Problem("truncated", "The call was cut off."),)), "cut off"),
        (Reply("I will use read", problems=(Problem("mentioned", "A tool was mentioned."),)), "mentioned"),
        (Reply("   "), "empty"),
    ],
)
def test_a_reply_that_is_neither_answer_nor_call_is_sent_back_with_a_word(reply: Reply, word: str) -> None:
    turn = append_reply(begun(), reply)
    note = turn.messages[-1]
    assert isinstance(note, Note)
    assert word in note.text
    assert next_step(turn, NOW) == AskModel()
    for _ in range(2):
        turn = append_reply(turn, reply)
    assert next_step(turn, NOW) == AskModel(EndReason.FAILURE_LIMIT)


@pytest.mark.parametrize(("restores", "mark"), [(0, ""), (1, "_r1"), (2, "_r2")])
@pytest.mark.parametrize("resumed", [0, 7])
def test_ids_of_calls_tell_how_often_the_store_was_restored(restores: int, mark: str, resumed: int) -> None:
    turn = replace(begun(), id="a-turn", epoch=restores * RESTORED_EPOCHS + resumed)
    assert [call.id for call in with_own_ids(turn, wants("a")).calls] == [f"call_a-turn_1{mark}_1"]


@pytest.mark.requirement("loop.text-kept")
def test_a_repaired_reply_is_an_answer_and_text_beside_calls_stays_in_the_conversation() -> None:
    done = append_reply(begun(), Reply("42", problems=(Problem("repaired", "a comma"),)))
    assert done.ending is not None
    turn = begun()
    turn = append_reply(turn, with_own_ids(turn, replace(wants("a"), content="First I look.")))
    said: list[Message] = [message for message in turn.messages if isinstance(message, Reply)]
    assert isinstance(said[0], Reply)
    assert said[0].content == "First I look."


@pytest.mark.requirement("loop.errors-return")
def test_results_for_the_user_end_the_turn_unless_one_of_them_failed() -> None:
    turn = begun()
    turn = append_reply(turn, with_own_ids(turn, wants("a", "b")))
    good = [replace(result, delivery=Delivery.USER.value) for result in results(turn, text="hello")]
    done = append_results(turn, good, [])
    assert done.ending is not None
    assert (done.ending.reason, done.ending.answer) == (EndReason.DELIVERED, "hello\nhello")
    bad = append_results(turn, [good[0], *results(turn, ok=False)[1:]], [])
    assert bad.ending is None
    assert next_step(bad, NOW) == AskModel()


def test_copying_a_turn_of_any_length_keeps_what_came_before() -> None:
    turn = begun(iterations=500)
    for n in range(50):
        turn = stepped(turn, wants("a"), text=str(n))
    assert len(turn.messages) == 101
    assert turn.calls == 50
