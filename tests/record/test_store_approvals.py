"""What every store keeps about questions to people."""

from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from toolwire.errors import Fenced, NotFound
from toolwire.protocol.approvals import LONGEST_PATTERN_S, Approval, ApprovalCard, ApprovalState, Scope
from toolwire.protocol.records import AuditRow
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record import ledger
from toolwire.record.contract import Store, TurnStats
from toolwire.record.memory import MemoryStore

from .conftest import NOW, OpenStore

CARD = ApprovalCard(
    "ask-1", "turn-1", "call-1", "bash", {"command": "ls \ud800"}, "d" * 64, "It runs.", "agent", NOW, NOW + 60
)
YES, NO = Approval(granted=True, by="ann"), Approval(granted=False, by="bob", reason="not today")


async def test_a_question_is_kept_with_its_exact_arguments_until_it_is_answered(store: Store) -> None:
    assert await store.request_approval(CARD, [AuditRow(NOW, "asked", turn_id="turn-1")]) == CARD
    assert await store.approval("ask-1") == CARD
    assert await store.approvals(only_open=True) == [CARD]
    answered = await store.answer("ask-1", YES)
    assert (answered.state, answered.word) == (ApprovalState.GRANTED, YES)
    assert await store.approval("ask-1") == answered
    assert await store.approvals(only_open=True) == []
    assert [row.event for row in await store.audit_log()] == ["asked", "approved"]


async def test_a_call_is_asked_about_once(store: Store) -> None:
    await store.request_approval(CARD, ())
    await store.answer("ask-1", YES)
    again = await store.request_approval(replace(CARD, id="ask-2"), [AuditRow(NOW, "asked")])
    assert (again.id, again.state) == ("ask-1", ApprovalState.GRANTED)
    assert await store.approvals() == [again]


async def test_the_first_decision_counts_and_a_second_one_is_told_so(store: Store) -> None:
    await store.request_approval(CARD, ())
    rejected = await store.answer("ask-1", NO)
    assert rejected.state is ApprovalState.REJECTED
    with pytest.raises(Fenced, match="it is rejected"):
        await store.answer("ask-1", YES)
    assert (await store.approval("ask-1")).word == NO


async def test_control_without_its_rule_a_second_decision_counts() -> None:
    store, right = MemoryStore(clock=lambda: NOW), ledger.answer

    def answer(approval_id: str, _kept: Any, *rest: Any, **named: Any) -> Any:
        return right(approval_id, CARD, *rest, **named)

    await store.request_approval(CARD, ())
    with patch.object(ledger, "answer", answer):
        await store.answer("ask-1", NO)
        assert (await store.answer("ask-1", YES)).state is ApprovalState.GRANTED


async def test_past_its_time_an_unanswered_question_is_a_no(store: Store) -> None:
    await store.request_approval(replace(CARD, expires_at=NOW), ())
    assert (await store.approval("ask-1")).state is ApprovalState.EXPIRED
    assert await store.approvals(only_open=True) == []
    with pytest.raises(Fenced, match="its time is over"):
        await store.answer("ask-1", YES)


async def test_T115_a_question_of_a_turn_that_has_ended_cannot_be_answered(store: Store) -> None:
    turn = Turn("turn-1", flags=("--tools", "shell"))
    await store.begin(turn)
    await store.request_approval(CARD, ())
    assert (await store.turn("turn-1")).opening.flags == ("--tools", "shell")
    await store.end(replace(turn, ending=Ending(EndReason.DEADLINE, "")), TurnStats())
    for word in (YES, NO):
        with pytest.raises(Fenced, match="turn 'turn-1' has ended"):
            await store.answer("ask-1", word)


async def test_a_question_of_a_turn_that_has_ended_is_not_open(store: Store) -> None:
    turn, other = Turn("turn-1"), Turn("turn-2")
    for each in (turn, other):
        await store.begin(each)
    await store.request_approval(CARD, ())
    await store.request_approval(replace(CARD, id="ask-2", turn_id="turn-2"), ())
    await store.request_approval(replace(CARD, id="ask-3", turn_id="turn-1", call_id="call-3"), ())
    await store.answer("ask-3", YES)
    await store.end(replace(turn, ending=Ending(EndReason.DEADLINE, "")), TurnStats())
    await store.release(other)

    assert [card.id for card in await store.approvals(only_open=True)] == ["ask-2"]
    assert await store.approvals(turn_id="turn-1", only_open=True) == []
    states = {card.id: card.state.value for card in await store.approvals()}
    assert states == {"ask-1": "expired", "ask-2": "open", "ask-3": "granted"}
    assert (await store.approval("ask-1")).state is ApprovalState.EXPIRED


async def test_ended_turns_take_no_place_in_the_list_of_open_questions(store: Store) -> None:
    await store.begin(Turn("turn-0"))
    await store.request_approval(replace(CARD, turn_id="turn-0"), ())
    for number in range(2, 5):
        turn = Turn(f"turn-{number}")
        await store.begin(turn)
        await store.request_approval(replace(CARD, id=f"ask-{number}", turn_id=turn.id), ())
        await store.end(replace(turn, ending=Ending(EndReason.DEADLINE, "")), TurnStats())

    assert [card.id for card in await store.approvals(only_open=True, limit=1)] == ["ask-1"]


async def test_a_quorum_counts_different_people_and_one_refusal_decides(store: Store) -> None:
    await store.request_approval(replace(CARD, quorum=2), ())
    assert (await store.answer("ask-1", YES)).state is ApprovalState.OPEN
    assert (await store.answer("ask-1", YES)).state is ApprovalState.OPEN
    assert (await store.answer("ask-1", replace(YES, by="cleo"))).state is ApprovalState.GRANTED
    await store.request_approval(replace(CARD, id="ask-2", call_id="call-2", quorum=2), ())
    await store.answer("ask-2", YES)
    assert (await store.answer("ask-2", NO)).state is ApprovalState.REJECTED


@pytest.mark.parametrize(
    "again", ["ann", "Ann", "ann ", " ANN\n", "\uff41nn", "a\u200bnn", "\u2060ann\ufeff", "ann\u00a0", "\u00ad\uff21NN"]
)
async def test_T82_no_spelling_of_a_name_is_a_second_person(store: Store, again: str) -> None:
    await store.request_approval(replace(CARD, quorum=2), ())
    await store.answer("ask-1", YES)
    asked = await store.answer("ask-1", replace(YES, by=again))
    assert (asked.state, len(asked.voices), asked.agreed) == (ApprovalState.OPEN, 1, ())
    assert (await store.answer("ask-1", replace(YES, by=again, on_behalf_of="cleo"))).state is ApprovalState.OPEN


async def test_T82_control_another_name_is_another_person(store: Store) -> None:
    await store.request_approval(replace(CARD, quorum=2), ())
    await store.answer("ask-1", YES)
    asked = await store.answer("ask-1", replace(YES, by="anna", on_behalf_of="ann"))
    assert (asked.state, [one.speaker for one in asked.voices]) == (ApprovalState.GRANTED, ["ann", "anna for ann"])
    assert (await store.approval("ask-1")).answers[1].on_behalf_of == "ann"


async def test_an_answer_keeps_other_arguments_and_its_scope(store: Store) -> None:
    await store.request_approval(CARD, ())
    edited = Approval(granted=True, by="ann", arguments={"command": "ls -l"}, scope=Scope.TURN)
    await store.answer("ask-1", edited)
    assert (await store.approval("ask-1")).word == edited


async def test_an_unknown_question_is_not_kept(store: Store) -> None:
    for asking in (store.approval("nope"), store.answer("nope", YES)):
        with pytest.raises(NotFound, match="`toolwire approvals` lists"):
            await asking


async def test_questions_are_listed_by_turn_newest_first(store: Store) -> None:
    for number in (1, 2, 3):
        card = replace(CARD, id=f"ask-{number}", call_id=f"call-{number}", turn_id=f"turn-{number % 2}")
        await store.request_approval(card, ())
    assert [card.id for card in await store.approvals()] == ["ask-3", "ask-2", "ask-1"]
    assert [card.id for card in await store.approvals(turn_id="turn-1", limit=1)] == ["ask-3"]


async def test_questions_survive_the_process_and_can_be_answered_by_another(open_sqlite: OpenStore) -> None:
    first, second = await open_sqlite(), await open_sqlite()
    await first.request_approval(CARD, ())
    await second.answer("ask-1", YES)
    await second.close_store()
    assert (await first.approval("ask-1")).state is ApprovalState.GRANTED


async def test_a_yes_for_a_pattern_stands_until_its_time_is_over_or_it_is_taken_back(store: Store) -> None:
    word = Approval(granted=True, by="ann", scope=Scope.PATTERN, pattern="ls", lasts_s=60.0)
    asked = replace(CARD, project="p", policy="v1")
    await store.request_approval(asked, ())
    assert await store.active_patterns() == []
    answered = await store.answer("ask-1", word)
    assert (answered.stands_until, answered.pattern, answered.project) == (NOW + 60, "ls", "p")
    assert await store.active_patterns() == [answered]
    assert (await store.revoke("ask-1", "bob")).stands_until == 0
    assert await store.active_patterns() == []
    assert [row.event for row in await store.audit_log()] == ["approved", "revoked"]
    with pytest.raises(Fenced, match="nothing to take back"):
        await store.revoke("ask-1", "bob")
    with pytest.raises(NotFound):
        await store.revoke("nope", "bob")


async def test_no_yes_for_a_pattern_stands_longer_than_a_month(store: Store) -> None:
    await store.request_approval(CARD, ())
    for_ever = Approval(granted=True, scope=Scope.PATTERN, pattern="ls", lasts_s=1e300)
    assert (await store.answer("ask-1", for_ever)).stands_until == NOW + LONGEST_PATTERN_S
