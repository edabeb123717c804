"""The sentences with which every store says no, and the audit rows that go with them."""

from msgspec.structs import replace

from toolwire.errors import CallHeld, Fenced, NotFound, StoreError
from toolwire.protocol.approvals import Approval, ApprovalCard, ApprovalState
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.records import LONGEST_NAME, AuditRow, CallCard, short_name
from toolwire.protocol.turns import Ending, Turn


def no_turn(turn_id: str) -> NotFound:
    return NotFound(f"no turn {turn_id[:100]!r} is kept here; `toolwire status` lists the newest turns")


def in_several_projects(what: str) -> StoreError:
    return StoreError(f"{what[:120]} is kept in several projects; ask the view of one of them (of_project)")


def no_call(turn_id: str, call_id: str) -> NotFound:
    return NotFound(f"no call {call_id!r} of turn {turn_id!r} is kept here; open it before it starts or ends")


def not_dispatched(sought: str) -> NotFound:
    return NotFound(f"{sought[:100]!r} is not that of a call on its way to another process")


def no_approval(approval_id: str) -> NotFound:
    return NotFound(f"no approval request {approval_id[:100]!r} is kept here; `toolwire approvals` lists them")


def decided(card: ApprovalCard) -> Fenced:
    how = "its time is over" if card.state is ApprovalState.EXPIRED else f"it is {card.state.value}"
    return Fenced(f"approval {card.id!r} cannot be answered any more: {how}")


def ended_before_answer(card: ApprovalCard) -> Fenced:
    return Fenced(f"approval {card.id!r} cannot be answered any more: turn {card.turn_id!r} has ended")


def stands_no_more(card: ApprovalCard) -> Fenced:
    return Fenced(f"approval {card.id!r} is no yes for a pattern that still stands; there is nothing to take back")


def revoked_row(card: ApprovalCard, by: str, at: float) -> AuditRow:
    """Who took which yes back."""
    return replace(answer_row(card, card.word, at), event="revoked", detail={"by": by, "pattern": card.pattern})


def answer_row(card: ApprovalCard, answer: Approval, at: float) -> AuditRow:
    """Who said what to which question."""
    detail = {"by": answer.speaker, "reason": answer.reason, "digest": card.digest, "scope": answer.scope.value}
    if answer.arguments is not None:
        detail["edited"] = "yes"
    detail |= {name: value for name in ("pattern", "under") if (value := getattr(answer, name))}
    return AuditRow(
        at=at,
        event="approved" if answer.granted else "rejected",
        project=card.project,
        agent=card.agent,
        turn_id=card.turn_id,
        call_id=card.call_id,
        tool=card.tool,
        rule="confirmation",
        detail=detail,
    )


def no_body(handle: str) -> NotFound:
    return NotFound(f"nothing is kept under {handle[:100]!r}; a handle is sha256: and 64 hexadecimal digits")


def damaged_body(handle: str) -> StoreError:
    return StoreError(
        f"the body kept under {handle[:100]!r} is damaged: its digest is another; restore a copy of the store"
    )


def upload_removed() -> StoreError:
    return StoreError(
        "the body is not kept: no piece of it came for an hour, and what had come was removed; keep it again"
    )


def too_long(what: str, name: str) -> StoreError:
    size = len(name.encode("utf-8", "backslashreplace"))
    return StoreError(
        f"{what} {name[:100]!r}… has {size} bytes, and a store keeps at most {LONGEST_NAME}; choose a shorter one"
    )


def already_begun(turn_id: str) -> StoreError:
    return StoreError(f"turn {turn_id!r} is already kept; resume it, or begin one with a new id")


def ended(turn_id: str) -> Fenced:
    return Fenced(f"turn {turn_id!r} has ended; begin a new one")


def owned(turn_id: str) -> Fenced:
    return Fenced(f"turn {turn_id!r} is run by a living process; stop that process, or let it release the turn, first")


def taken_over(turn_id: str, epoch: int, current: int) -> Fenced:
    return Fenced(f"turn {turn_id!r} was taken over (epoch {current}, not {epoch}); stop working on it")


def canceled(card: CallCard) -> Fenced:
    """A call whose holder was asked to stop; `card` is the kept one."""
    return Fenced(
        f"call {card.call.id!r} of turn {card.turn_id!r} was canceled ({card.cancel}); it is not run any more"
    )


def held(card: CallCard) -> CallHeld:
    """A call that a living claim is on; `card` is the kept one."""
    lasts = "while its process is alive" if card.until is None else f"until {card.until:.3f} (Unix time)"
    return CallHeld(
        f"call {card.call.id!r} of turn {card.turn_id!r} is held by another claim (attempt {card.attempt}, {lasts}); "
        "wait for its result, or for the end of its lease",
        card.owner,
        card.until,
    )


def claimed_since(card: CallCard) -> CallHeld:
    """A call that was claimed after it was read; `card` is the kept one."""
    return CallHeld(
        f"call {card.call.id!r} of turn {card.turn_id!r} was claimed by another process since it was read "
        f"(attempt {card.attempt}); read it again",
        card.owner,
        card.until,
    )


def claim_lost(card: CallCard) -> Fenced:
    return Fenced(
        f"call {card.call.id!r} of turn {card.turn_id!r} is not held under this token: it was never claimed "
        "with it, or another process has claimed it since; stop working on it"
    )


def conflict(card: CallCard) -> StoreError:
    return StoreError(
        f"call {card.call.id!r} of turn {card.turn_id!r} is kept with other arguments; a new call needs a new id"
    )


def ending_of(turn: Turn) -> Ending:
    """The turn's ending, which it must have to be ended."""
    if turn.ending is None:
        raise StoreError(f"turn {turn.id!r} has no ending; release it instead, so that it can be resumed")
    return turn.ending


def conflict_row(card: CallCard, at: float) -> AuditRow:
    return _row(card, at, "idempotency_conflict")


def late_result(card: CallCard, result: ToolResult, at: float) -> AuditRow:
    code = result.error.code if result.error else ""
    return _row(card, at, "late_result", status=result.status, code=code, elapsed_ms=result.elapsed_ms)


def _row(
    card: CallCard, at: float, event: str, *, status: str = "", code: str = "", elapsed_ms: float | None = None
) -> AuditRow:
    return AuditRow(
        at=at,
        event=event,
        project=card.project,
        agent=card.agent,
        turn_id=card.turn_id,
        call_id=card.call.id,
        tool=short_name(card.call.name),
        status=status,
        code=code,
        args_digest=card.args_digest,
        elapsed_ms=elapsed_ms,
    )
