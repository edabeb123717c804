"""Asking people about a call: the question is kept, an answer is bound to it, and the wait costs no deadline."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from toolwire.decide.patterns import standing_yes
from toolwire.deliver.endings import rejected
from toolwire.errors import Fenced
from toolwire.protocol.approvals import Approval, ApprovalCard, ApprovalState
from toolwire.protocol.calls import Allowed, Decision, Denied, NeedsApproval, ToolCall
from toolwire.protocol.events import ApprovalAsked, Event
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Turn
from toolwire.protocol.values import changed
from toolwire.record.contract import Store

QUESTIONS = 20
"""How many questions a turn may put to people, and an agent may leave open."""

Approve = Callable[[NeedsApproval], Awaitable[Approval]]
Tell = Callable[[ApprovalCard], None]
"""Hears of each question that opens. It must neither wait nor raise."""

_MOST_LOOKED_AT = 1_000


class Office(Protocol):
    """What asking needs of the runtime."""

    store: Store
    approve: Approve | None
    suspends: bool
    tell: Tell | None
    approval_s: float
    questions: int
    clock: Callable[[], float]
    monotonic: Callable[[], float]
    new_id: Callable[[], str]

    def judge_anew(self, turn: Turn, call: ToolCall) -> Decision: ...


class Waits(Protocol):
    """Hears when people are waited for and when no longer."""

    def ask(self, now: float) -> None: ...

    def heard(self, now: float) -> None: ...


class People:
    """Whoever may say yes or no to the calls of one turn."""

    def __init__(self, office: Office, turn: Turn, waits: Waits, emit: Callable[[Event], None] | None) -> None:
        self._office = office
        self._turn = turn
        self._waits = waits
        self._emit = emit
        self._counting = asyncio.Lock()

    async def were_asked(self, card: CallCard, request: NeedsApproval) -> bool:
        """Whether people have been asked about this call before, or have approved calls like it."""
        if await self._said_before(request):
            return True
        kept = await self._office.store.approvals(turn_id=self._turn.id, limit=_MOST_LOOKED_AT)
        return any(one.call_id == card.call.id for one in kept)

    async def asked(self, card: CallCard, request: NeedsApproval) -> Allowed | Denied | None:
        """What people say; None while too few have spoken."""
        office, call = self._office, card.call
        standing = await self._said_before(request)
        if not standing and office.approve is None and not office.suspends:
            return rejected(call, f"{request.reason} Nobody is there to ask; tell the user what you wanted to do.")
        question = self._question(card, request)
        async with self._counting:  # calls of one step ask together, and all of them count
            if not standing and (weary := await self._weary(call)):
                return rejected(call, weary)
            asked = await office.store.ask_people(question, self._row(card, request))
        if asked.digest != request.digest:
            return rejected(
                call, "Tool, arguments, policy or files are not what people were asked about; make a new call."
            )
        if asked.state is ApprovalState.OPEN:
            for word in standing or await self._words(asked, request, is_new=asked.id == question.id):
                asked = await self._answered(asked, word)
        return self._outcome(call, request, asked)

    def _row(self, card: CallCard, request: NeedsApproval) -> Sequence[AuditRow]:
        """What the audit log says about a question that a trial came before; others are in it already."""
        if not request.tries:
            return ()
        said = {"reason": request.reason}
        return [AuditRow.about(card, "awaiting_approval", self._office.clock(), rule="confirmation", detail=said)]

    def _outcome(self, call: ToolCall, request: NeedsApproval, asked: ApprovalCard) -> Allowed | Denied | None:
        match asked.state:
            case ApprovalState.GRANTED:
                return self._granted(call, request, asked)
            case ApprovalState.REJECTED:
                reason = asked.word.reason
                return rejected(call, f"The user did not allow {call.name!r}{': ' + reason if reason else '.'}")
            case ApprovalState.EXPIRED:
                return rejected(call, f"Nobody answered in time whether {call.name!r} may run, so it may not.")
        if self._office.suspends:
            return None
        return rejected(call, f"More people must agree before {call.name!r} may run.")

    async def _said_before(self, request: NeedsApproval) -> Sequence[Approval]:
        """The words of an earlier yes that is for this call too: for the whole turn, or for a pattern."""
        store, turn, tool = self._office.store, self._turn, request.allowed.tool
        for card in await store.approvals(turn_id=turn.id, limit=_MOST_LOOKED_AT):
            same = card.tool == tool.name and card.policy == request.policy
            if same and card.whole_turn:
                return _repeated(card, "allowed for the whole turn")
        cards = [card for card in await store.standing() if (card.project, card.agent) == (turn.project, turn.agent)]
        found = standing_yes(cards, tool, request.allowed.arguments, request.policy) if cards else None
        return () if found is None else _repeated(found, f"allowed by pattern: {found.pattern}")

    async def _weary(self, call: ToolCall) -> str:
        """Why people are not asked again, where they were asked too often: nobody reads the hundredth question."""
        most, turn = self._office.questions, self._turn
        cards = await self._office.store.approvals(turn_id=turn.id, limit=_MOST_LOOKED_AT)
        put = [card for card in cards if _was_put(card)]
        if any(card.call_id == call.id for card in put):
            return ""
        if len(put) >= most:
            return f"People were asked {most} times in this turn, which is as often as they are. Go on without."
        waiting = await self._office.store.approvals(only_open=True, limit=_MOST_LOOKED_AT)
        if sum((card.project, card.agent) == (turn.project, turn.agent) for card in waiting) >= most:
            return f"{most} questions of this agent wait for an answer already; no more are asked until some have one."
        return ""

    def _question(self, card: CallCard, request: NeedsApproval) -> ApprovalCard:
        office, allowed = self._office, request.allowed
        now = office.clock()
        return ApprovalCard(
            office.new_id(), card.turn_id, card.call.id, allowed.tool.name, allowed.arguments, request.digest,
            request.reason, card.agent, now, now + office.approval_s, request.quorum,
            project=card.project, policy=request.policy,
        )  # fmt: skip

    async def _words(self, asked: ApprovalCard, request: NeedsApproval, *, is_new: bool) -> Sequence[Approval]:
        """What the one who is there says; nothing where nobody is."""
        office = self._office
        if is_new and office.tell is not None:
            office.tell(asked)
        if office.approve is None:
            return ()
        if self._emit:
            allowed = request.allowed
            self._emit(
                ApprovalAsked(
                    asked.call_id, allowed.tool.name, allowed.arguments, request.reason, request.digest, request.quorum
                )
            )
        self._waits.ask(office.monotonic())
        try:
            return (await office.approve(request),)
        except Exception as error:  # the approver is a door: its failure is an answer to the model, not the turn's end
            failed = f"asking failed ({type(error).__name__}: {error})"
            return (Approval(granted=False, by="nobody", reason=failed),)
        finally:
            self._waits.heard(office.monotonic())

    async def _answered(self, asked: ApprovalCard, word: Approval) -> ApprovalCard:
        try:
            return await self._office.store.answer(asked.id, word)
        except Fenced:  # somebody else has answered meanwhile, and the first answer counts
            return await self._office.store.approval(asked.id)

    def _granted(self, call: ToolCall, request: NeedsApproval, asked: ApprovalCard) -> Allowed | Denied:
        """The call as it was approved: other arguments are judged like any, and need no second approval.

        If as they are now they want more people than have agreed, they do.
        """
        arguments = asked.word.arguments
        if arguments is None:
            return request.allowed
        decision = self._office.judge_anew(self._turn, changed(call, arguments=arguments))
        if isinstance(decision, Denied):
            return decision
        if isinstance(decision, NeedsApproval) and decision.refusal:
            return rejected(call, decision.refusal)
        if isinstance(decision, NeedsApproval) and decision.quorum > len(asked.agreed):
            return rejected(call, f"With the arguments that the user chose, {decision.quorum} people must agree.")
        allowed = decision.allowed if isinstance(decision, NeedsApproval) else decision
        return changed(allowed, notes=(*allowed.notes, "the user changed the arguments"))


def _repeated(card: ApprovalCard, reason: str) -> Sequence[Approval]:
    """Everyone's yes once more, for one call."""
    return [Approval(granted=True, by=one.by, reason=reason, under=card.id) for one in card.voices]


def _was_put(card: ApprovalCard) -> bool:
    """Whether people had to read this question; one that an earlier yes answered they did not."""
    return not card.answers or any(not answer.under for answer in card.answers)
