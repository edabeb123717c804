"""`loop.step` where a tool ends a turn, or a turn must end with one, as pure questions."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.loop.test_step import NOW, begun, results, stepped, wants
from toolwire import Code, Delivery, Reply, Status, Text, ToolResult, Turn, Usage
from toolwire.loop.step import (
    AskModel,
    Finished,
    append_note,
    append_reply,
    append_results,
    end_turn,
    next_step,
    with_last_request,
    with_own_ids,
)
from toolwire.protocol.bus import CONTROL, AfterExecution
from toolwire.protocol.chat import Note
from toolwire.protocol.turns import Ending, EndReason


def pending(*names: str, **limits: object) -> Turn:
    return append_reply(begun(**limits), with_own_ids(begun(), wants(*names)))


def ended(turn: Turn) -> Ending:
    assert turn.ending is not None
    return turn.ending


def terminating(result: ToolResult, structured: Any = None) -> ToolResult:
    return replace(result, after_execution=AfterExecution.TERMINATE, structured=structured)


def test_results_that_end_a_turn_are_its_deliverable() -> None:
    turn = pending("read", "book", "mail")
    read, book, mail = results(turn)
    words = replace(read, content=(Text("only read"),), delivery=Delivery.USER)
    value = {"seat": "é", CONTROL: {"after_execution": "terminate"}}

    one = ended(append_results(turn, [words, terminating(book, value), mail], []))
    assert one == Ending(EndReason.DELIVERED, '{"seat": "é"}', {"seat": "é"}, book.call_id)
    two = ended(append_results(turn, [words, terminating(book, value), terminating(mail, [CONTROL])], []))
    assert two == Ending(EndReason.DELIVERED, '{"seat": "é"}\nfine', [{"seat": "é"}, [CONTROL]], book.call_id)
    plain = ended(append_results(turn, [words, terminating(book, {"seat": 3}), mail], []))
    assert plain == Ending(EndReason.DELIVERED, "fine", {"seat": 3}, book.call_id)
    assert ended(append_results(turn, [terminating(book)], [])).call_id == book.call_id
    suspended = replace(book, after_execution=AfterExecution.SUSPEND, delivery=Delivery.USER)
    to_user = [replace(one, delivery=Delivery.USER) for one in (words, suspended, mail)]
    assert ended(append_results(turn, to_user, [])) == Ending(EndReason.DELIVERED, "only read\nfine\nfine")
    assert append_results(turn, [words, suspended, mail], []).ending is None


def test_a_turn_that_must_end_with_a_tool_ends_with_a_success_of_it_and_with_nothing_else() -> None:
    turn = pending("read", "book", must_end_with=("book",))
    read, book = (replace(one, delivery=Delivery.USER) for one in results(turn))
    failed = results(turn, ok=False)[1]

    assert ended(append_results(turn, [read, book], [])) == Ending(EndReason.DELIVERED, "fine", None, book.call_id)
    for others in ([read, failed], [terminating(read), failed], [read]):
        after = append_results(turn, others, [])
        assert (after.ending, after.reminders) == (None, 0)
        assert next_step(after, NOW) == AskModel()


def test_a_model_that_answers_instead_is_reminded_twice_and_then_the_turn_has_failed() -> None:
    turn = begun(must_end_with=("book", "cancel"))
    for count in (1, 2):
        turn = append_reply(turn, Reply("Done.", usage=Usage(3, 4)))
        assert turn.messages[-1] == Note(
            "This turn must end with a call of book or cancel, not with words. Call it now, with what you have."
        )
        assert (turn.reminders, turn.iterations, turn.usage.total_tokens) == (count, count, 7 * count)
        assert next_step(turn, NOW) == AskModel()
    said = "The turn had to end with a call of book or cancel, and the model did not make one that succeeded."
    failed = Ending(EndReason.MUST_END_WITH, f"{said} Its last words: Done.")
    assert next_step(append_reply(turn, Reply("Done.")), NOW) == Finished(failed)
    silent = replace(begun(must_end_with=("book", "cancel"), iterations=1), reminders=2)
    assert ended(append_reply(with_last_request(silent), Reply(" "))) == Ending(EndReason.MUST_END_WITH, said)


def test_on_the_last_step_the_tool_can_still_be_called_and_a_failure_of_it_is_told() -> None:
    turn = with_last_request(begun(must_end_with=("book",), iterations=1))
    assert turn.messages[-1] == Note(
        "This is the last step, and only book can be called. Call it now, with what you know."
    )
    turn = append_reply(turn, with_own_ids(turn, wants("book")))
    again = append_results(turn, results(turn, ok=False), [])
    assert (again.reminders, again.ending) == (1, None)
    assert isinstance(again.messages[-1], Note)
    done = append_results(turn, results(turn), [])
    assert (done.reminders, ended(done).reason) == (0, EndReason.DELIVERED)


@pytest.mark.parametrize(
    ("status", "failures", "failed_calls"),
    [(Status.SUCCESS, 0, 1), (Status.PARTIAL, 0, 1), (Status.FAILED, 2, 2)],
)
def test_part_of_what_was_wanted_is_no_failure(status: Status, failures: int, failed_calls: int) -> None:
    turn = stepped(begun(), wants("a"), ok=False)
    turn = append_reply(turn, with_own_ids(turn, wants("b")))
    after = append_results(turn, [ToolResult(call.id, call.name, status) for call in turn.pending], [])
    assert (after.failures, after.failed_calls) == (failures, failed_calls)


def test_several_failures_of_one_step_are_one_failed_step() -> None:
    turn = pending("a", "b")
    after = append_results(turn, results(turn, ok=False), [])
    assert (after.failures, after.failed_calls, after.calls) == (1, 2, 2)
    assert append_reply(after, Reply("")).failures == 2


def test_money_that_is_used_up_ends_the_turn() -> None:
    turn = append_reply(begun(cost_usd=0.5), replace(wants("a"), usage=Usage(1, 1, cost_usd=0.6)))
    assert next_step(turn, NOW) == Finished(Ending(EndReason.COST_BUDGET, "The money for this turn is used up."))


def test_a_note_and_an_end_from_outside_are_kept() -> None:
    turn = pending("a")
    assert append_note(turn, Note("go on")).messages == (*turn.messages, Note("go on"))
    stopped = end_turn(turn, Ending(EndReason.CANCELED, "Stopped."))
    assert (stopped.pending, next_step(stopped, NOW)) == ((), Finished(Ending(EndReason.CANCELED, "Stopped.")))
    failed = ToolResult.failed(turn.pending[0], Code.CANCELED, "no")
    assert append_results(turn, [failed], []).messages[:-1] == turn.messages
