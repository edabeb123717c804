"""The rules of every store, each by itself: what a change means, given what is kept.

The suites of the stores show that they ask these rules. Here every rule is stated with its neighbours: the case just
beside it, in which it does not hold.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from toolwire.errors import CallHeld, Fenced, NotFound, StoreError
from toolwire.protocol.approvals import Approval, ApprovalCard, ApprovalState, Scope
from toolwire.protocol.bus import CONTROL, AfterExecution
from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.outcomes import Status
from toolwire.protocol.records import LONGEST_NAME, AuditRow, CallCard, Dispatch
from toolwire.protocol.tools import USUAL, Agreement
from toolwire.record import ledger
from toolwire.record.ledger import Claim, Sending

from . import samples
from .samples import a_call, a_turn, failure, success

AT = 1_000.0
STORE = "this-store"
OTHER = "another-store"
LONG = "n" * (LONGEST_NAME + 1)


class Kept(Struct, frozen=True):
    """A kept turn, as the rules see it."""

    epoch: int = 1
    state: str = ledger.RUNNING
    owner: str | None = STORE


RUNS = Kept()
FREE = Kept(state=ledger.INTERRUPTED, owner=None)
TAKEN = Kept(epoch=2, owner=OTHER)
ENDED = Kept(state=ledger.ENDED, owner=None)


def everyone(_owner: str) -> bool:
    return True


def no_one(_owner: str) -> bool:
    return False


def only(name: str) -> Callable[[str], bool]:
    return lambda owner: owner == name


def a_card(call: ToolCall | None = None, *, epoch: int = 1, **more: Any) -> CallCard:
    return samples.a_card(call, a_turn(epoch=epoch), **more)


def a_claimed(**more: Any) -> CallCard:
    """A call that the process which runs its turn has claimed."""
    given: dict[str, Any] = {"attempt": 1, "token": "mine"} | more
    return a_card(**given)


def refusal(step: Any, kind: type[StoreError], *, audited: tuple[str, ...] = ()) -> str:
    """A change that must not happen: nothing is kept or charged, and the log says what it should."""
    answer, after, rows, charge = step
    assert (type(answer), after, charge) == (kind, None, 0)
    assert tuple(row.event for row in rows) == audited
    return str(answer)


def claim(**more: Any) -> Claim:
    return Claim(**({"token": "new", "store": STORE} | more))


# Turns


def test_a_turn_is_begun_once() -> None:
    assert ledger.begin("turn-1", None) is None
    for kept in (RUNS, FREE, ENDED):
        assert "already kept" in str(ledger.begin("turn-1", kept))


@pytest.mark.parametrize("what", ["turn id", "project", "agent", "thread", "model"])
def test_a_turn_does_not_begin_under_a_name_that_is_too_long(what: str) -> None:
    def begun(name: str) -> StoreError | None:
        names = dict.fromkeys(("turn id", *ledger.NAMES_OF_TURN), "short") | {what: name}
        return ledger.begin(names.pop("turn id"), None, names)

    assert begun(LONG[1:]) is None
    assert f"the {what} 'nnn" in str(begun(LONG))
    assert "has 802 bytes" in str(begun("é" * 401))


def test_a_turn_is_resumed_under_the_next_epoch_unless_it_is_run_or_has_ended() -> None:
    assert ledger.resume("turn-1", FREE, everyone) == 2
    assert ledger.resume("turn-1", Kept(epoch=7), no_one) == 8
    assert isinstance(ledger.resume("turn-1", None, no_one), NotFound)
    assert "living process" in str(ledger.resume("turn-1", RUNS, everyone))
    assert "has ended" in str(ledger.resume("turn-1", replace(ENDED, owner=STORE), no_one))


def test_a_turn_is_canceled_once_the_holder_of_one_of_its_calls_was_asked_to_stop() -> None:
    assert ledger.why_canceled(["", "too slow", ""]) == "too slow"
    assert ledger.why_canceled(["", ""]) == ledger.why_canceled([]) == ""


def test_a_turn_runs_on_while_it_is_run_under_the_same_epoch() -> None:
    assert ledger.still_runs(1, RUNS)
    assert not any(ledger.still_runs(1, kept) for kept in (None, FREE, ENDED, TAKEN))


def test_only_the_current_epoch_of_a_turn_that_has_not_ended_changes_it() -> None:
    turn = a_turn()
    for kept in (RUNS, FREE):
        assert ledger.change_turn(turn, kept) is None
    assert isinstance(ledger.change_turn(turn, None), NotFound)
    assert "epoch 2, not 1" in str(ledger.change_turn(turn, TAKEN))
    assert "epoch 1, not 2" in str(ledger.change_turn(replace(turn, epoch=2), RUNS))
    assert "has ended" in str(ledger.change_turn(turn, ENDED))


@pytest.mark.parametrize(
    ("card", "is_reset"),
    [
        (a_claimed(), True),
        (a_card(), False),
        (a_claimed(result=success()), False),
        (a_claimed(until=AT + 1), False),
        (a_claimed(owner="worker"), False),
    ],
)
def test_a_claim_of_the_turn_that_had_not_begun_is_as_if_it_had_not_been_made(card: CallCard, is_reset: bool) -> None:
    found = ledger.not_begun([card], begun=lambda _: False)
    assert found == ([replace(card, attempt=0, token="")] if is_reset else [])
    assert ledger.not_begun([card], begun=lambda _: True) == []


# Who holds a call


@pytest.mark.parametrize(
    ("card", "turn", "alive", "is_held"),
    [
        (a_card(), RUNS, everyone, False),
        (a_claimed(result=success()), RUNS, everyone, False),
        # until a date, whoever lives
        (a_claimed(until=AT + 1), None, no_one, True),
        (a_claimed(until=AT), RUNS, everyone, False),
        (a_claimed(until=AT - 1, owner="worker"), RUNS, everyone, False),
        # as long as its owner is alive, whatever becomes of the turn
        (a_claimed(owner="worker"), ENDED, only("worker"), True),
        (a_claimed(owner="worker"), RUNS, only(STORE), False),
        # as long as the turn is run under the epoch of the claim, by one who is alive
        (a_claimed(), RUNS, only(STORE), True),
        (a_claimed(), RUNS, no_one, False),
        (a_claimed(), None, everyone, False),
        (a_claimed(), FREE, everyone, False),
        (a_claimed(), ENDED, everyone, False),
        (a_claimed(), Kept(owner=None), everyone, False),
        (a_claimed(), TAKEN, everyone, False),
        (a_claimed(epoch=2), TAKEN, only(OTHER), True),
    ],
)
def test_who_holds_a_call(card: CallCard, turn: Kept | None, alive: Callable[[str], bool], is_held: bool) -> None:
    assert ledger.is_held(card, turn, AT, alive) is is_held


# Opening


def test_a_new_call_is_kept_as_it_is_and_costs_one() -> None:
    card = a_card()
    assert ledger.open_call(card, None, RUNS, AT, everyone, STORE) == (card, card, (), 1)
    assert ledger.open_call(card, None, None, AT, everyone, STORE) == (card, card, (), 1)


def test_a_new_call_that_is_refused_at_once_costs_nothing() -> None:
    card = a_card(result=success(text="denied"))
    assert ledger.open_call(card, None, RUNS, AT, everyone, STORE) == (card, card, (), 0)


@pytest.mark.parametrize("kept", [None, a_card()])
def test_a_call_is_opened_for_its_turn_as_it_is_now(kept: CallCard | None) -> None:
    card = a_card()
    assert "epoch 2, not 1" in refusal(ledger.open_call(card, kept, TAKEN, AT, everyone, STORE), Fenced)


def test_a_new_call_is_not_kept_under_a_name_that_is_too_long() -> None:
    """The names of a turn that is kept were looked at when it began."""

    def opened(call_id: str, turn: Kept | None, **names: Any) -> Any:
        return ledger.add_call(replace(a_card(a_call(call_id)), **names), None, turn, AT, everyone, STORE)

    for turn in (RUNS, None):
        assert "the call id 'nnn" in refusal(opened(LONG, turn), StoreError)
        assert opened(LONG[1:], turn)[3] == 1
    assert "the turn id 'nnn" in refusal(opened("call-1", None, turn_id=LONG), StoreError)
    assert "the project 'nnn" in refusal(opened("call-1", None, project=LONG), StoreError)
    for call_id in ("call-1", LONG[1:]):
        assert opened(call_id, RUNS, turn_id=LONG, project=LONG)[3] == 1


@pytest.mark.parametrize(
    ("card", "turn", "token", "owner"),
    [
        (a_claimed(token="mine"), RUNS, "mine", ""),
        (a_claimed(token=""), RUNS, "turn-1/call-1", ""),
        (a_claimed(token="mine"), None, "mine", STORE),
        (a_claimed(token="mine"), FREE, "mine", STORE),
        (a_claimed(token="mine"), Kept(owner=OTHER), "mine", STORE),
        (a_claimed(token="", until=AT + 9), RUNS, "turn-1/call-1", STORE),
    ],
)
def test_a_call_that_is_opened_as_claimed_is_held_by_the_process_that_runs_its_turn_or_by_this_store(
    card: CallCard, turn: Kept | None, token: str, owner: str
) -> None:
    answer, after, rows, charge = ledger.add_call(card, None, turn, AT, everyone, STORE)
    assert answer == after == replace(card, token=token, owner=owner)
    assert (rows, charge) == ((), 1)


def test_the_call_that_was_kept_first_wins() -> None:
    """It comes back under the caller's epoch, and with its token only to who shows it."""
    kept = a_claimed(token="theirs", epoch=1)
    for shown, seen in (("", ""), ("other", ""), ("theirs", "theirs")):
        answer, after, rows, charge = ledger.add_call(
            a_card(epoch=2, token=shown), kept, Kept(epoch=2), AT, everyone, STORE
        )
        assert (answer, after, rows, charge) == (replace(kept, epoch=2, token=seen), None, (), 0)


def test_another_call_under_the_same_identity_is_refused_and_audited() -> None:
    step = ledger.add_call(a_card(args_digest="other"), a_card(), RUNS, AT, everyone, STORE)
    assert "other arguments" in refusal(step, StoreError, audited=("idempotency_conflict",))


def test_a_kept_call_is_ended_by_a_card_with_a_result_unless_it_is_held_or_has_ended() -> None:
    denied, kept = a_card(result=success(text="denied")), a_card()
    ended = replace(kept, result=denied.result)
    # It was reserved for a day, and has not run; one that was claimed may have.
    assert ledger.add_call(denied, kept, RUNS, AT, everyone, STORE) == (ended, ended, (), -1)
    tried = a_claimed(epoch=1, token="old")
    answer, after, rows, charge = ledger.add_call(denied, tried, RUNS, AT, no_one, STORE)
    assert answer == replace(tried, token="", result=denied.result)
    assert (after, rows, charge) == (replace(tried, token="", result=denied.result), (), 0)
    for other in (a_claimed(), replace(kept, result=success())):
        seen = replace(other, token="")
        assert ledger.add_call(denied, other, RUNS, AT, everyone, STORE) == (seen, None, (), 0)


# Claiming


def test_a_free_call_is_claimed_with_a_new_token_and_one_attempt_more() -> None:
    kept = a_claimed(attempt=3, token="old")
    step = ledger.claim_call(a_card(epoch=2), kept, Kept(epoch=2), AT, no_one, claim())
    mine = replace(kept, attempt=4, token="new", epoch=2)
    assert step == (mine, mine, (), 0)


@pytest.mark.parametrize(
    ("given", "turn", "owner"),
    [
        ({}, RUNS, ""),
        ({"owner": "worker"}, RUNS, "worker"),
        ({"until": AT + 9}, RUNS, STORE),
        ({}, None, STORE),
        ({}, FREE, STORE),
        ({}, Kept(owner=OTHER), STORE),
        ({"owner": "worker", "until": AT + 9}, None, "worker"),
    ],
)
def test_a_claim_is_kept_alive_by_its_turn_or_its_owner(given: dict[str, Any], turn: Kept | None, owner: str) -> None:
    answer, mine, _, _ = ledger.claim_call(a_card(), a_card(), turn, AT, no_one, claim(**given))
    assert isinstance(answer, CallCard)
    assert answer == mine
    assert (answer.owner, answer.until) == (owner, given.get("until"))


def test_what_cannot_be_claimed_changes_nothing() -> None:
    card, kept = a_card(), a_claimed(token="theirs")
    assert "no call" in refusal(ledger.claim_call(card, None, RUNS, AT, no_one, claim()), NotFound)
    assert "epoch 2" in refusal(ledger.claim_call(card, kept, TAKEN, AT, no_one, claim()), Fenced)
    assert "held by another" in refusal(ledger.claim_call(card, kept, RUNS, AT, everyone, claim()), CallHeld)
    canceled = a_card(cancel="too slow")
    assert "was canceled (too slow)" in refusal(ledger.claim_call(card, canceled, RUNS, AT, no_one, claim()), Fenced)


def test_an_ended_call_comes_back_with_its_result_instead_of_being_claimed() -> None:
    kept = a_claimed(token="theirs", result=success(), epoch=1)
    step = ledger.claim_call(a_card(epoch=2, token=""), kept, Kept(epoch=2), AT, no_one, claim())
    assert step == (replace(kept, epoch=2, token=""), None, (), 0)


def test_the_holder_holds_on_by_its_token() -> None:
    kept = a_claimed(until=AT + 9, owner=STORE)
    assert ledger.claim_call(kept, kept, RUNS, AT, everyone, claim(until=AT + 9)) == (kept, None, (), 0)
    longer = replace(kept, until=AT + 99)
    assert ledger.claim_call(kept, kept, RUNS, AT, everyone, claim(until=AT + 99)) == (longer, longer, (), 0)


def test_an_empty_token_makes_no_holder() -> None:
    """A call that was never claimed has none, and neither has a claim that was taken back."""
    kept = a_card()
    for card in (a_card(), a_card(token="made up")):
        assert "not held under this token" in refusal(ledger.renew_call(card, kept, RUNS, STORE, AT + 9), Fenced)
    taken_back = a_card(token="mine", attempt=0)
    assert "not held" in refusal(ledger.renew_call(taken_back, taken_back, RUNS, STORE, AT + 9), Fenced)


# Renewing


def test_a_lease_of_its_own_is_renewed_whatever_becomes_of_the_turn() -> None:
    for given in ({"until": AT - 1}, {"owner": "worker"}):
        kept = a_claimed(**given)
        longer = replace(kept, owner=kept.owner or STORE, until=AT + 9)
        for turn in (RUNS, TAKEN, FREE, ENDED, None):
            assert ledger.renew_call(kept, kept, turn, STORE, AT + 9) == (longer, longer, (), 0)
            assert ledger.renew_call(kept, kept, turn, STORE, None) == (kept, None, (), 0)
            assert ledger.renew_call(kept, kept, turn, STORE, kept.until) == (kept, None, (), 0)


def test_a_lease_of_the_turn_is_renewed_while_the_turn_is_run_under_its_epoch() -> None:
    kept = a_claimed()
    assert ledger.renew_call(kept, kept, RUNS, STORE, None) == (kept, None, (), 0)
    own = replace(kept, owner=STORE, until=AT + 9)
    assert ledger.renew_call(kept, kept, RUNS, STORE, AT + 9) == (own, own, (), 0)
    for turn, epoch in ((TAKEN, 2), (FREE, 1), (ENDED, 1), (None, 0)):
        said = refusal(ledger.renew_call(kept, kept, turn, STORE, AT + 9), Fenced)
        assert f"epoch {epoch}, not 1" in said


def test_what_cannot_be_renewed_changes_nothing() -> None:
    kept = a_claimed(until=AT + 9)
    assert "no call" in refusal(ledger.renew_call(kept, None, RUNS, STORE, AT), NotFound)
    stale = replace(kept, token="older")
    assert "not held under this token" in refusal(ledger.renew_call(stale, kept, RUNS, STORE, AT), Fenced)
    ended = replace(kept, result=success())
    assert ledger.renew_call(kept, ended, RUNS, STORE, AT + 99) == (ended, None, (), 0)
    assert ledger.renew_call(stale, ended, RUNS, STORE, AT + 99) == (replace(ended, token=""), None, (), 0)


# Closing


def closed(card: CallCard, kept: CallCard | None, turn: Kept | None, alive: Any = everyone, *, ran: bool = True) -> Any:
    return ledger.close_call(card, success(), kept, turn, AT, alive, STORE, ran=ran)


@pytest.mark.parametrize("turn", [RUNS, TAKEN, FREE, ENDED, None])
@pytest.mark.parametrize("given", [{}, {"until": AT - 1}, {"until": AT + 1}, {"owner": "worker"}])
def test_the_result_of_the_holder_is_kept_whatever_has_become_of_turn_and_lease(
    turn: Kept | None, given: dict[str, Any]
) -> None:
    kept = a_claimed(**given)
    ended = replace(kept, result=success(), token="")
    assert closed(kept, kept, turn) == (success(), ended, (), 0)


@pytest.mark.parametrize("token", ["", "mine"])
def test_a_call_that_never_ran_is_given_back(token: str) -> None:
    kept = a_claimed()
    assert closed(replace(kept, token=token), kept, RUNS, ran=False)[3] == -1


def test_the_first_result_stays_and_a_later_one_is_audited() -> None:
    kept = a_claimed(result=success(text="first"))
    for token in ("", "mine", "older"):
        answer, after, rows, charge = closed(replace(kept, token=token), kept, RUNS)
        assert (answer, after, charge) == (success(text="first"), None, 0)
        assert [row.event for row in rows] == ["late_result"]


def test_a_result_under_another_token_is_refused_and_audited() -> None:
    said = refusal(closed(a_claimed(token="older"), a_claimed(), RUNS), Fenced, audited=("late_result",))
    assert "not held under this token" in said
    assert "not held" in refusal(closed(a_card(token="made up"), a_card(), RUNS), Fenced, audited=("late_result",))


def test_what_is_not_kept_here_cannot_be_closed() -> None:
    assert "no call" in refusal(closed(a_claimed(), None, RUNS), NotFound)


def test_without_a_token_it_is_the_turns_own_write_under_its_epoch() -> None:
    card, kept = a_card(), a_claimed()
    ended = replace(kept, result=success(), token="")
    assert closed(card, kept, RUNS) == (success(), ended, (), 0)
    assert closed(card, a_card(), None)[0] == success()
    assert "epoch 2, not 1" in refusal(closed(card, kept, TAKEN), Fenced, audited=("late_result",))


@pytest.mark.parametrize(
    ("given", "alive", "waits"),
    [
        ({}, everyone, False),
        ({"owner": STORE}, everyone, False),
        ({"owner": "worker"}, everyone, True),
        ({"owner": "worker"}, no_one, False),
        ({"until": AT + 1}, no_one, True),
        ({"until": AT + 1, "owner": STORE}, no_one, True),
        ({"until": AT}, everyone, False),
    ],
)
def test_the_turns_own_write_waits_for_a_lease_that_is_not_the_turns_own(
    given: dict[str, Any], alive: Callable[[str], bool], waits: bool
) -> None:
    step = closed(a_card(attempt=1), a_claimed(**given), RUNS, alive)
    if waits:
        assert "held by another claim" in refusal(step, CallHeld)
    else:
        assert step[0] == success()


@pytest.mark.parametrize(
    ("given", "is_other"),
    [({}, False), ({"owner": STORE}, False), ({"owner": "worker"}, True), ({"until": AT, "owner": STORE}, True)],
)
def test_the_turns_own_write_is_about_the_call_as_it_was_read(given: dict[str, Any], is_other: bool) -> None:
    """A worker that has claimed it since, and died, may have done what the result says was not begun."""
    step = closed(a_card(), a_claimed(**given), RUNS, no_one)
    if is_other:
        assert "claimed by another process since it was read (attempt 1)" in refusal(step, CallHeld)
    else:
        assert step[0] == success()


# Marking


def marked(card: CallCard, kept: CallCard | None, turn: Kept | None) -> list[Any]:
    return [ledger.detach_call(card, kept, turn), ledger.ask_to_cancel(card, kept, turn, "too slow")]


@pytest.mark.parametrize("turn", [Kept(epoch=2), None])
def test_a_mark_is_kept_beside_the_claim_and_comes_back_as_the_caller_sees_it(turn: Kept | None) -> None:
    kept = a_claimed(token="theirs")
    for shown, seen in (("", ""), ("theirs", "theirs")):
        steps = marked(a_card(epoch=2, token=shown), kept, turn)
        for step, after in zip(steps, (replace(kept, detached=True), replace(kept, cancel="too slow")), strict=True):
            assert step == (replace(after, epoch=2, token=seen), after, (), 0)


def test_only_an_open_call_is_marked_under_the_epoch_of_its_turn() -> None:
    kept = a_claimed(result=success())
    for step in marked(a_card(), None, RUNS):
        assert "no call" in refusal(step, NotFound)
    for step in marked(a_card(), a_claimed(), TAKEN):
        assert "epoch 2, not 1" in refusal(step, Fenced)
    for step in marked(a_card(epoch=2), kept, Kept(epoch=2)):
        assert step == (replace(kept, epoch=2, token=""), None, (), 0)


# Sending


def a_dispatch(**more: Any) -> Dispatch:
    given = {"epoch": 1, "due": AT, "expires_at": AT + 1} | more
    return Dispatch("default", "turn-1", "call-1", "turn-1/call-1", subject="s", message="{}", **given)


@pytest.mark.parametrize("turn", [Kept(epoch=2), None])
@pytest.mark.parametrize("kept", [a_card(), a_claimed(owner="worker"), a_claimed(result=success())])
def test_a_call_is_sent_unless_it_is_held_and_its_token_is_not_shown(kept: CallCard, turn: Kept | None) -> None:
    sent = ledger.dispatch_call(a_dispatch(epoch=2), kept, turn, AT, no_one)
    assert sent == replace(kept, epoch=2, token="")


def test_what_cannot_be_sent_says_why() -> None:
    def refused(kept: CallCard | None, turn: Kept, kind: type[StoreError]) -> str:
        answer = ledger.dispatch_call(a_dispatch(), kept, turn, AT, everyone)
        assert type(answer) is kind
        return str(answer)

    assert "no call 'call-1' of turn 'turn-1'" in refused(None, RUNS, NotFound)
    assert "epoch 2, not 1" in refused(a_card(), TAKEN, Fenced)
    assert "held by another claim" in refused(a_claimed(), RUNS, CallHeld)


DETACHED, DIED = a_card(detached=True), a_claimed(owner="worker", until=AT)
EXPIRED, REPEATABLE = {"expires_at": AT}, {"repeatable": True}


@pytest.mark.parametrize(
    ("kept", "turn", "given", "what", "until"),
    [
        (a_card(), RUNS, {}, Sending.SEND, None),
        (a_card(), None, {}, Sending.SEND, None),
        # there is nothing left to send
        (None, RUNS, {}, Sending.DROP, None),
        (a_card(result=success()), RUNS, {}, Sending.DROP, None),
        (a_card(), ENDED, {}, Sending.DROP, None),
        (DETACHED, ENDED, {}, Sending.SEND, None),
        # it was to be canceled: its holder stops, who took the turn over ends it, and without either it is given up
        (a_card(cancel="too slow"), RUNS, {}, Sending.GIVE_UP, None),
        (a_card(cancel="too slow"), ENDED, {}, Sending.DROP, None),
        (a_card(cancel="too slow"), TAKEN, {}, Sending.WAIT, None),
        (replace(DETACHED, cancel="too slow"), ENDED, {}, Sending.GIVE_UP, None),
        (replace(DIED, cancel="too slow"), RUNS, REPEATABLE, Sending.GIVE_UP, None),
        (a_claimed(until=AT + 1, cancel="too slow"), RUNS, {}, Sending.WAIT, AT + 1),
        # the process that took the turn over sends its calls again
        (a_card(), TAKEN, {}, Sending.WAIT, None),
        (DETACHED, TAKEN, {}, Sending.SEND, None),
        # it is held
        (a_claimed(until=AT + 1), RUNS, EXPIRED, Sending.WAIT, AT + 1),
        (a_claimed(owner="worker"), RUNS, EXPIRED, Sending.WAIT, None),
        # its holder died, or none came in time
        (DIED, RUNS, {}, Sending.GIVE_UP, None),
        (DIED, RUNS, REPEATABLE, Sending.SEND, None),
        (DIED, RUNS, REPEATABLE | EXPIRED, Sending.GIVE_UP, None),
        (a_card(), RUNS, EXPIRED, Sending.GIVE_UP, None),
    ],
)
def test_what_is_done_about_a_dispatch_whose_time_has_come(
    kept: CallCard | None, turn: Kept | None, given: dict[str, Any], what: Sending, until: float | None
) -> None:
    assert ledger.due_call(a_dispatch(**given), kept, turn, AT, everyone) == (what, until)


@pytest.mark.parametrize(
    ("kept", "turn", "is_stranded"),
    [
        (a_card(), TAKEN, True),
        (DIED, TAKEN, True),
        (None, TAKEN, False),
        (a_card(result=success()), TAKEN, False),
        (a_card(), None, False),
        (a_card(), RUNS, False),
        (a_claimed(until=AT + 1), TAKEN, False),
        (a_claimed(epoch=2), TAKEN, False),
    ],
)
def test_a_call_that_was_sent_under_an_earlier_epoch_is_stranded_while_it_is_open_and_not_held(
    kept: CallCard | None, turn: Kept | None, is_stranded: bool
) -> None:
    assert ledger.is_stranded(1, kept, turn, AT, everyone) is is_stranded


# What a turn does about a result

SUSPEND, TERMINATE, DETACH = AfterExecution.SUSPEND, AfterExecution.TERMINATE, AfterExecution.DETACH


def controlling(value: object) -> dict[str, Any]:
    return {CONTROL: {"after_execution": value}}


def settled(
    result: ToolResult, after_execution: AfterExecution = SUSPEND, *, controls: bool = False
) -> tuple[AfterExecution | None, tuple[AuditRow, ...]]:
    agreed = Agreement(after_execution, controls)
    card = a_card(agreed=USUAL if agreed == USUAL else agreed)  # which most cards have
    kept, rows = ledger.settle(card, result, AT)
    assert kept == replace(result, after_execution=kept.after_execution)
    return kept.after_execution, rows


@pytest.mark.parametrize(
    ("agreed", "reported", "after"),
    [
        (SUSPEND, None, None),
        (SUSPEND, TERMINATE, TERMINATE),
        (TERMINATE, None, TERMINATE),
        (TERMINATE, SUSPEND, None),
        (TERMINATE, DETACH, None),
        (DETACH, None, None),
        (DETACH, TERMINATE, None),
    ],
)
def test_a_result_ends_its_turn_as_was_reported_or_agreed_unless_it_failed(
    agreed: AfterExecution, reported: AfterExecution | None, after: AfterExecution | None
) -> None:
    for structured in (None, [CONTROL], CONTROL, {"other": 1}):
        result = success(after_execution=reported, structured=structured)
        assert settled(result, agreed) == (after, ())
    assert settled(replace(result, status=Status.PARTIAL), agreed) == (after, ())
    assert settled(failure(after_execution=reported), agreed) == (None, ())


@pytest.mark.parametrize(
    ("agreed", "controls", "reported", "said", "after", "is_heeded"),
    [
        (SUSPEND, True, None, "terminate", TERMINATE, True),
        (SUSPEND, True, SUSPEND, "terminate", TERMINATE, True),
        (TERMINATE, True, TERMINATE, "suspend", None, True),
        # a tool that does not declare it has no say
        (SUSPEND, False, None, "terminate", None, False),
        (TERMINATE, False, None, "suspend", TERMINATE, False),
        # nor has one whose turn did not wait
        (DETACH, True, None, "terminate", None, False),
        (DETACH, False, None, "terminate", None, False),
        # nor has a value that is not known
        (TERMINATE, True, None, "explode", TERMINATE, False),
        (SUSPEND, True, TERMINATE, None, TERMINATE, False),
    ],
)
def test_what_a_result_itself_says_counts_first_where_its_tool_declares_it_and_is_audited(
    agreed: AfterExecution, controls: bool, reported: AfterExecution | None, said: Any, after: Any, is_heeded: bool
) -> None:
    result = success(after_execution=reported, structured=controlling(said))
    event = "turn_controlled" if is_heeded else "turn_control_ignored"
    word = said if said in list(AfterExecution) else "unknown"
    row = AuditRow.about(a_card(), event, AT, detail={"after_execution": word})
    assert settled(result, agreed, controls=controls) == (after, (row,))
    assert settled(replace(result, status=Status.FAILED), agreed, controls=controls) == (None, (row,))


# Approvals


def asked(**more: Any) -> ApprovalCard:
    fields = {"id": "a", "turn_id": "turn-1", "call_id": "call-1", "tool": "launch", "arguments": {}, "digest": "d"}
    return ApprovalCard(**(fields | {"expires_at": AT} | more))


YES = Approval(granted=True)


def answered(card: ApprovalCard | None, turn: Kept | None = RUNS, date: float = AT - 1) -> ledger.Answered | StoreError:
    return ledger.answer("a", card, turn, YES, at=5.0, date=date)


def test_a_request_is_kept_once_for_each_call() -> None:
    first = asked()
    assert ledger.request_approval(None, AT) is None
    assert ledger.request_approval(first, AT - 1) == first
    late = ledger.request_approval(first, AT)
    assert isinstance(late, ApprovalCard)
    assert (late.id, late.state) == ("a", ApprovalState.EXPIRED)


def test_the_first_answers_that_decide_a_request_count_until_its_time_is_over() -> None:
    done = answered(asked())
    assert isinstance(done, ledger.Answered)
    assert (done.card.state, done.audit.event, done.audit.at) == (ApprovalState.GRANTED, "approved", 5.0)
    assert isinstance(answered(None), NotFound)
    assert "its time is over" in str(answered(asked(), date=AT))
    assert "it is granted" in str(answered(asked(answers=(YES,))))


def test_a_request_of_a_turn_that_has_ended_is_not_answered() -> None:
    for date in (AT - 1, AT):
        assert "'turn-1' has ended" in str(answered(asked(), ENDED, date))
    assert "it is granted" in str(answered(asked(answers=(YES,)), ENDED))
    for turn in (RUNS, FREE, TAKEN, None):
        assert isinstance(answered(asked(), turn), ledger.Answered)


def test_an_approval_of_a_pattern_is_taken_back_while_it_lasts() -> None:
    pattern = Approval(granted=True, scope=Scope.PATTERN, pattern="path is docs/*", lasts_s=10.0)
    card = asked().answered(pattern, 100.0)
    done = ledger.revoke("a", card, "ann", 109.0, AT - 1)
    assert isinstance(done, ledger.Answered)
    assert (done.card.stands_until, done.audit.event, done.audit.detail["by"]) == (0.0, "revoked", "ann")
    assert "nothing to take back" in str(ledger.revoke("a", card, "ann", 110.0, AT - 1))
    assert "nothing to take back" in str(ledger.revoke("a", asked(), "ann", 109.0, AT - 1))
    assert isinstance(ledger.revoke("a", None, "ann", 109.0, AT - 1), NotFound)
