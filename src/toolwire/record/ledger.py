"""The rules of every store: what a change means, given what is kept. Pure, so that they are written and tested once.

A store reads what is kept, asks the rule, and writes what the rule says, all in one transaction; it adds no rule of its
own. A change that must not happen comes back as the exception to raise, with what the audit log says about it, so that
other changes of the same transaction are made all the same.

**Turns.** A turn belongs to one owner under one epoch. Replies, notes, endings and releases carry that epoch and are
refused under any other. Taking the turn over raises it. Who does so learns whether the turn was canceled meanwhile,
and then ends it.

**Calls.** A call is opened once, under `(turn, call id)`. To run it a process claims it, and holds it while its lease
lasts; there is one holder at a time. It is closed once: a holder closes it by its token, whatever has become of the
turn meanwhile. Everything else that closes calls (refusals, cancellations, outcomes that stay unknown) is the turn's
own write: it carries the epoch, and waits for leases that are not the turn's own.

**Projects.** Every project has ids of its own: a store looks for what is kept under the project of the change, so that
what belongs to another one is not found, and its ids are free.

**Approvals.** A request is kept once for each call. The first answers that decide it count, until its time is over or
its turn has ended.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from toolwire.errors import StoreError
from toolwire.protocol.approvals import Approval, ApprovalCard, ApprovalState
from toolwire.protocol.bus import CONTROL, AfterExecution, control_of, effective_action
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.records import SURELY_SHORT, AuditRow, CallCard, Dispatch, is_long
from toolwire.protocol.tools import USUAL
from toolwire.protocol.turns import Turn
from toolwire.record import refusals
from toolwire.record.liveness import Alive

NAMES_OF_TURN = ("project", "agent", "thread", "model")
_NO_NAMES: Mapping[str, str] = {}
RUNNING, INTERRUPTED, ENDED = "running", "interrupted", "ended"


class TurnState(Protocol):
    """What the rules ask about a kept turn."""

    @property
    def epoch(self) -> int: ...

    @property
    def state(self) -> str: ...

    @property
    def owner(self) -> str | None: ...


Answer = TypeVar("Answer", CallCard, ToolResult)
Step = tuple[Answer | StoreError, CallCard | None, Sequence[AuditRow], int]
"""What a change of a call comes to; a plain tuple, since every call comes through here.

First what the caller is told, then the card as it is kept from now on, or None when nothing of it changes. Where it
changes, the caller's audit rows count; otherwise, what the log says instead. Last, with how many calls the day of the
turn's agent is charged.
"""


class Claim(Struct, frozen=True):
    """What a call is claimed with: a new token, and how long the lease lasts; see `CallCard`.

    `store` is the name of the store that is asked, which owns the claim unless another owner is named.
    """

    token: str
    store: str
    owner: str = ""
    until: float | None = None


# Turns


def begin(turn_id: str, kept: TurnState | None, names: Mapping[str, str] = _NO_NAMES) -> StoreError | None:
    """Why a turn may not begin: there is one with this id, or one of its `names` is too long to be looked for."""
    if kept:
        return refusals.already_begun(turn_id)
    return _too_long({"turn id": turn_id, **names})


def _too_long(names: Mapping[str, str]) -> StoreError | None:
    if max(map(len, names.values())) <= SURELY_SHORT:  # as nearly always
        return None
    return next((refusals.too_long(f"the {what}", name) for what, name in names.items() if is_long(name)), None)


def resume(turn_id: str, kept: TurnState | None, is_run: Callable[[str], bool]) -> StoreError | int:
    """The new epoch of a turn, unless it has ended or its owner still runs it."""
    if kept is None:
        return refusals.no_turn(turn_id)
    if kept.state == ENDED:
        return refusals.ended(turn_id)
    if kept.owner is not None and is_run(kept.owner):
        return refusals.owned(turn_id)
    return kept.epoch + 1


def change_turn(turn: Turn, kept: TurnState | None) -> StoreError | None:
    """Why this epoch may not change the turn any more, if so: for replies, notes, endings and releases."""
    if kept is None:
        return refusals.no_turn(turn.id)
    if kept.epoch != turn.epoch:
        return refusals.taken_over(turn.id, turn.epoch, kept.epoch)
    return refusals.ended(turn.id) if kept.state == ENDED else None


def why_canceled(marks: Iterable[str]) -> str:
    """Why a turn was canceled whose calls have these marks; empty where it was not.

    Its holder is asked to stop only since the whole turn is to end. The mark stays, whatever comes of the call.
    """
    return next(filter(None, marks), "")


def still_runs(epoch: int, kept: TurnState | None) -> bool:
    """Whether a turn is run, and under this epoch."""
    return kept is not None and (kept.epoch, kept.state) == (epoch, RUNNING)


def not_begun(kept: Iterable[CallCard], begun: Callable[[CallCard], bool]) -> list[CallCard]:
    """The cards, as they are kept from now on, of calls that were claimed by the turn's owner and had not begun.

    Leases that last until a date, or with an owner of their own, are not the turn's business.
    """
    return [
        replace(card, attempt=0, token="")
        for card in kept
        if card.attempt and card.result is None and card.until is None and not card.owner and not begun(card)
    ]


# Calls


def is_held(kept: CallCard, turn: TurnState | None, at: float, alive: Alive) -> bool:
    """Whether a call has a holder now."""
    if kept.result is not None or not kept.attempt:
        return False
    if kept.until is not None:
        return at < kept.until
    if kept.owner:
        return alive(kept.owner)
    return _is_run(kept, turn) and turn is not None and turn.owner is not None and alive(turn.owner)


def open_call(
    card: CallCard, kept: CallCard | None, turn: TurnState | None, at: float, alive: Alive, store: str
) -> Step[CallCard]:
    """Write a call down, or give back what is kept under its identity. A card with a result is closed at once."""
    if turn is not None and turn.epoch != card.epoch:
        return refusals.taken_over(card.turn_id, card.epoch, turn.epoch), None, (), 0
    return add_call(card, kept, turn, at, alive, store)


def add_call(
    card: CallCard, kept: CallCard | None, turn: TurnState | None, at: float, alive: Alive, store: str
) -> Step[CallCard]:
    """The same for a call that comes with a reply, whose turn was looked at already."""
    if kept is None:
        if len(card.call.id) > SURELY_SHORT or turn is None:
            own = {} if turn is not None else {"turn id": card.turn_id, "project": card.project}
            if refusal := _too_long({"call id": card.call.id, **own}):
                return refusal, None, (), 0
        if card.attempt and not (card.token and turn is not None and turn.owner == store):
            card = replace(card, token=card.token or card.record_id, owner=_owner_of_lease(turn, store, card.until))
        return card, card, (), 1 if card.result is None else 0
    if kept.args_digest != card.args_digest:
        return refusals.conflict(card), None, (refusals.conflict_row(card, at),), 0
    seen = _seen(kept, card)
    if kept.result is not None or card.result is None or is_held(kept, turn, at, alive):
        return seen, None, (), 0
    # It was reserved for a day, and is refused now.
    return replace(seen, result=card.result), replace(kept, result=card.result, token=""), (), 0 if kept.attempt else -1


def claim_call(
    card: CallCard, kept: CallCard | None, turn: TurnState | None, at: float, alive: Alive, claim: Claim
) -> Step[CallCard]:
    """Hold a call from now on, before anything of it begins. One that has ended comes back with its result.

    A claim is made for a turn as it is now: under an older epoch the call may have been judged otherwise. A detached
    call was let go of for good, so that what becomes of its turn does not matter.
    """
    if kept is None:
        return refusals.no_call(card.turn_id, card.call.id), None, (), 0
    if kept.result is None and kept.attempt and kept.token and kept.token in (card.token, claim.token):
        return renew_call(replace(card, token=kept.token), kept, turn, claim.store, claim.until)
    if turn is not None and turn.epoch != card.epoch and not kept.detached:
        return refusals.taken_over(card.turn_id, card.epoch, turn.epoch), None, (), 0
    if kept.result is not None:
        return _seen(kept, card), None, (), 0
    if is_held(kept, turn, at, alive):
        return refusals.held(kept), None, (), 0
    if kept.cancel:
        return refusals.canceled(kept), None, (), 0
    owner = claim.owner or _owner_of_lease(turn, claim.store, claim.until)
    mine = replace(kept, attempt=kept.attempt + 1, epoch=card.epoch, token=claim.token, owner=owner, until=claim.until)
    return mine, mine, (), 0


def renew_call(
    card: CallCard, kept: CallCard | None, turn: TurnState | None, store: str, until: float | None
) -> Step[CallCard]:
    """Hold a call for longer, by its token. A lease that ran out is as good as new if no other has claimed the call.

    A lease that lasts as long as its turn is run ends with that; given a date, it becomes one of its own.
    """
    if kept is None:
        return refusals.no_call(card.turn_id, card.call.id), None, (), 0
    if kept.result is not None:
        return _seen(kept, card), None, (), 0
    if not _is_holder(card, kept):
        return refusals.claim_lost(card), None, (), 0
    if kept.until is None and not kept.owner and not _is_run(kept, turn):
        return refusals.taken_over(card.turn_id, card.epoch, turn.epoch if turn else 0), None, (), 0
    if until is None or until == kept.until:
        return kept, None, (), 0
    longer = replace(kept, owner=kept.owner or store, until=until)
    return longer, longer, (), 0


def refuse_close(
    card: CallCard, result: ToolResult, kept: CallCard | None, turn: TurnState | None, at: float, alive: Alive,
    store: str,
) -> Step[ToolResult] | None:  # fmt: skip
    """What is answered instead where a result is not kept; None where it is. The log hears of every other result.

    With the token of its newest claim it is the holder's result, and kept whatever has become of the turn. Without
    one it is the turn's own write, and waits for a living lease that is not the turn's (or this `store`'s, for a call
    that has no turn). It says something about the call as it was read: one that another process has claimed since may
    have taken effect, although that process is gone again.
    """
    if kept is None:
        return refusals.no_call(card.turn_id, card.call.id), None, (), 0
    if kept.result is not None:
        return kept.result, None, (refusals.late_result(card, result, at),), 0
    if not card.token:
        if turn is not None and turn.epoch != card.epoch and not kept.detached:
            late = (refusals.late_result(card, result, at),)
            return refusals.taken_over(card.turn_id, card.epoch, turn.epoch), None, late, 0
        if kept.until is not None or kept.owner not in ("", store):
            if is_held(kept, turn, at, alive):
                return refusals.held(kept), None, (), 0
            if kept.attempt != card.attempt:  # what is said of it may be true no more
                return refusals.claimed_since(kept), None, (), 0
    elif card.token != kept.token:
        return refusals.claim_lost(card), None, (refusals.late_result(card, result, at),), 0
    return None


def close_call(
    card: CallCard,
    result: ToolResult,
    kept: CallCard | None,
    turn: TurnState | None,
    at: float,
    alive: Alive,
    store: str,
    ran: bool,
) -> Step[ToolResult]:
    """Keep how a call ended, once."""
    ended = None if kept is None else replace(kept, result=result, token="")
    return refuse_close(card, result, kept, turn, at, alive, store) or (result, ended, (), 0 if ran else -1)


def detach_call(card: CallCard, kept: CallCard | None, turn: TurnState | None) -> Step[CallCard]:
    """Let a call run on its own: its turn does not wait for it from now on. One that has ended comes back as it is."""
    return _marked(card, kept, turn, detached=True)


def ask_to_cancel(card: CallCard, kept: CallCard | None, turn: TurnState | None, why: str) -> Step[CallCard]:
    """Ask the holder of a call to stop. From now on no other claims it. One that has ended comes back as it is."""
    return _marked(card, kept, turn, cancel=why)


def _marked(card: CallCard, kept: CallCard | None, turn: TurnState | None, **marks: object) -> Step[CallCard]:
    if kept is None:
        return refusals.no_call(card.turn_id, card.call.id), None, (), 0
    if turn is not None and turn.epoch != card.epoch:
        return refusals.taken_over(card.turn_id, card.epoch, turn.epoch), None, (), 0
    if kept.result is not None:
        return _seen(kept, card), None, (), 0
    marked = replace(kept, **marks)
    return _seen(marked, card), marked, (), 0


def dispatch_call(
    dispatch: Dispatch, kept: CallCard | None, turn: TurnState | None, at: float, alive: Alive
) -> CallCard | StoreError:
    """The card of a call that may be sent, or that has ended; otherwise why it may not."""
    if kept is None:
        return refusals.no_call(dispatch.turn_id, dispatch.call_id)
    if turn is not None and turn.epoch != dispatch.epoch:
        return refusals.taken_over(dispatch.turn_id, dispatch.epoch, turn.epoch)
    if is_held(kept, turn, at, alive):
        return refusals.held(kept)
    return replace(kept, epoch=dispatch.epoch, token="")


class Sending(Enum):
    """What is done about a dispatch whose time has come."""

    SEND = "send"
    WAIT = "wait"
    GIVE_UP = "give up"
    DROP = "drop"


def due_call(
    dispatch: Dispatch, kept: CallCard | None, turn: TurnState | None, at: float, alive: Alive
) -> tuple[Sending, float | None]:
    """What is done about a dispatch now; and, where its call is held, until when.

    Under another epoch the process that took the turn over sends its calls again, or ends them; see `is_stranded`. A
    detached call is sent whatever becomes of its turn. One that was to be canceled is not sent: without a holder it is
    ended, since the process that canceled it may have died, and its turn may have gone on.
    """
    if kept is None or kept.result is not None:
        return Sending.DROP, None
    if turn is not None and turn.state == ENDED and not kept.detached:
        return Sending.DROP, None
    if turn is not None and turn.epoch != dispatch.epoch and not kept.detached:
        return Sending.WAIT, None
    if is_held(kept, turn, at, alive):
        return Sending.WAIT, kept.until
    if kept.cancel:
        return Sending.GIVE_UP, None
    if kept.attempt and not dispatch.repeatable:
        return Sending.GIVE_UP, None
    return (Sending.GIVE_UP if at >= dispatch.expires_at else Sending.SEND), None


def is_stranded(sent: int, kept: CallCard | None, turn: TurnState | None, at: float, alive: Alive) -> bool:
    """Whether no process brings a call to its end that was `sent` under some epoch, so that its turn must not wait.

    That epoch is over, and the holder of the call has died; or the process that took the turn over did, before it
    came to send the call again.
    """
    if kept is None or kept.result is not None or turn is None or turn.epoch == sent:
        return False
    return not is_held(kept, turn, at, alive)


def settle(card: CallCard, result: ToolResult, at: float) -> tuple[ToolResult, tuple[AuditRow, ...]]:
    """A result as it is kept, with what its turn does about it, and what the audit log says of that.

    What the result itself says counts before what was reported with it, and that before what was agreed about the call;
    the first only where the tool declares it, since a result is data and may hold what others wrote. A call that failed
    ends no turn: the model hears of it. Nor does one that its turn did not wait for.
    """
    agreed, structured = card.agreed, result.structured
    has_control = type(structured) is dict and CONTROL in structured
    if agreed is USUAL and result.after_execution is None and not has_control:
        return result, ()
    override = control_of(structured) if agreed.controls_turn else None
    action = effective_action(override, result.after_execution, agreed.after_execution)
    waits = agreed.after_execution is not AfterExecution.DETACH
    ends = action is AfterExecution.TERMINATE and waits and not result.is_failure
    kept = replace(result, after_execution=AfterExecution.TERMINATE if ends else None)
    if not has_control:
        return kept, ()
    event = "turn_controlled" if override is not None and waits else "turn_control_ignored"
    said = control_of(structured)
    detail = {"after_execution": said.value if said is not None else "unknown"}
    return kept, (AuditRow.about(card, event, at, detail=detail),)


def _seen(kept: CallCard, card: CallCard) -> CallCard:
    """A kept card as its caller sees it: under the caller's epoch, and with the token only for who knows it."""
    return replace(kept, epoch=card.epoch, token=card.token if card.token == kept.token else "")


def _is_holder(card: CallCard, kept: CallCard) -> bool:
    return bool(card.token) and card.token == kept.token and kept.attempt > 0


def _is_run(kept: CallCard, turn: TurnState | None) -> bool:
    """Whether a turn is run under the epoch in which its call was claimed."""
    return turn is not None and turn.epoch == kept.epoch and turn.state == RUNNING


def _owner_of_lease(turn: TurnState | None, store: str, until: float | None) -> str:
    """Which owner keeps a lease alive; empty where the turn does, claimed by the process that runs it."""
    if until is None and turn is not None and turn.state == RUNNING and turn.owner == store:
        return ""
    return store


# Approvals


class Answered(Struct, frozen=True):
    """An approval as it is kept from now on, and what the log says."""

    card: ApprovalCard
    audit: AuditRow


def request_approval(kept: ApprovalCard | None, date: float) -> ApprovalCard | None:
    """What is kept about a call already, at a date; None if the request is new."""
    return None if kept is None else kept.at(date)


def answer(
    approval_id: str, kept: ApprovalCard | None, turn: TurnState | None, word: Approval, *, at: float, date: float
) -> Answered | StoreError:
    """One more answer, at a time; `date` is what the request itself goes by."""
    if kept is None:
        return refusals.no_approval(approval_id)
    card = kept.at(date)
    if turn is not None and turn.state == ENDED and card.state in (ApprovalState.OPEN, ApprovalState.EXPIRED):
        return refusals.ended_before_answer(card)
    if card.state is not ApprovalState.OPEN:
        return refusals.decided(card)
    return Answered(card.answered(word, at), refusals.answer_row(card, word, at))


def revoke(approval_id: str, kept: ApprovalCard | None, by: str, at: float, date: float) -> Answered | StoreError:
    """Take back an approval of a pattern."""
    if kept is None:
        return refusals.no_approval(approval_id)
    card = kept.at(date)
    if card.stands_until <= at:
        return refusals.stands_no_more(card)
    return Answered(card.revoked(), refusals.revoked_row(card, by, at))
