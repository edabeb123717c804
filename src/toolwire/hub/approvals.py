"""Approval of a call: the request is kept, an answer is bound to it, and the time until it comes is not the turn's."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from toolwire.decide.patterns import matching_approval
from toolwire.deliver.endings import rejection
from toolwire.errors import Fenced
from toolwire.hub.calls import Waiting
from toolwire.hub.judging import judge_again
from toolwire.hub.services import Services
from toolwire.hub.slots import Slots
from toolwire.protocol.approvals import Approval, ApprovalCard, ApprovalState
from toolwire.protocol.calls import Allowed, Denied, NeedsApproval, ToolCall
from toolwire.protocol.events import ApprovalAsked, Emit
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import ForApproval

_MOST_LOOKED_AT = 1_000


class ApprovalGate:
    """Decides about a call of one turn that needs approval. The request is kept, and an answer is bound to it."""

    def __init__(self, services: Services, turn: Turn, slots: Slots, emit: Emit | None) -> None:
        self._services = services
        self._turn = turn
        self._slots = slots
        self._emit = emit

    async def knows(self, card: CallCard, request: NeedsApproval) -> bool:
        """Whether approval of this call was requested before, or calls like it are approved."""
        if await self._earlier_approval(request):
            return True
        kept = await self._services.store.approvals(turn_id=self._turn.id, limit=_MOST_LOOKED_AT)
        return any(one.call_id == card.call.id for one in kept)

    async def decide(self, card: CallCard, request: NeedsApproval) -> Allowed | Denied | Waiting:
        """Request approval, unless an earlier one is for this call too, and say what it comes to."""
        services, call = self._services, card.call
        earlier = await self._earlier_approval(request)
        if not earlier and services.approve is None and not services.suspends:
            return rejection(call, f"{request.reason} No approver is present; tell the user what you wanted to do.")
        question = self._question(card, request)
        async with self._counting():  # calls of one step ask together, and all of them count
            if not earlier and (limit := await self._approval_limit(call)):
                return rejection(call, limit)
            asked = await services.store.request_approval(question, self._row(card, request))
        if asked.digest != request.digest:
            return rejection(
                call, "Tool, arguments, policy or files have changed since approval was requested; make a new call."
            )
        if asked.state is ApprovalState.OPEN:
            for answer in earlier or await self._answers(asked, request, is_new=asked.id == question.id):
                asked = await self._keep_answer(asked, answer)
        return self._outcome(call, request, asked)

    def _counting(self) -> asyncio.Lock:
        """One request of a step at a time is counted and kept."""
        if self._slots.asking is None:
            self._slots.asking = asyncio.Lock()
        return self._slots.asking

    def _row(self, card: CallCard, request: NeedsApproval) -> Sequence[AuditRow]:
        """What the audit log says about a question that a trial came before; others are in it already."""
        if not request.tries:
            return ()
        said = {"reason": request.reason}
        return [AuditRow.about(card, "awaiting_approval", self._services.clock(), rule="confirmation", detail=said)]

    def _outcome(self, call: ToolCall, request: NeedsApproval, asked: ApprovalCard) -> Allowed | Denied | Waiting:
        match asked.state:
            case ApprovalState.GRANTED:
                return self._granted(call, request, asked)
            case ApprovalState.REJECTED:
                reason = asked.word.reason
                return rejection(call, f"The user did not allow {call.name!r}{': ' + reason if reason else '.'}")
            case ApprovalState.EXPIRED:
                return rejection(call, f"No one approved {call.name!r} in time, so it did not run.")
        if self._services.suspends:
            return Waiting((ForApproval(asked.id),))
        return rejection(call, f"More approvals are needed before {call.name!r} may run.")

    async def _earlier_approval(self, request: NeedsApproval) -> Sequence[Approval]:
        """The answers of an earlier approval that covers this call too: for the whole turn, or for a pattern."""
        store, turn, tool = self._services.store, self._turn, request.allowed.tool
        for card in await store.approvals(turn_id=turn.id, limit=_MOST_LOOKED_AT):
            same = card.tool == tool.name and card.policy == request.policy
            if same and card.whole_turn:
                return _repeated(card, "allowed for the whole turn")
        cards = [
            card for card in await store.active_patterns() if (card.project, card.agent) == (turn.project, turn.agent)
        ]
        found = matching_approval(cards, tool, request.allowed.arguments, request.policy) if cards else None
        return () if found is None else _repeated(found, f"allowed by pattern: {found.pattern}")

    async def _approval_limit(self, call: ToolCall) -> str:
        """Why no approval is requested, where there were too many: a person does not read the hundredth request."""
        most, turn = self._services.questions, self._turn
        cards = await self._services.store.approvals(turn_id=turn.id, limit=_MOST_LOOKED_AT)
        put = [card for card in cards if _was_put(card)]
        if any(card.call_id == call.id for card in put):
            return ""
        if len(put) >= most:
            return f"This turn has reached its limit of {most} approval requests. Continue without this call."
        waiting = await self._services.store.approvals(only_open=True, limit=_MOST_LOOKED_AT)
        if sum((card.project, card.agent) == (turn.project, turn.agent) for card in waiting) >= most:
            return f"This agent has {most} pending approval requests already. Continue without this call."
        return ""

    def _question(self, card: CallCard, request: NeedsApproval) -> ApprovalCard:
        services, allowed = self._services, request.allowed
        now = services.clock()
        return ApprovalCard(
            services.new_id(), card.turn_id, card.call.id, allowed.tool.name, allowed.arguments, request.digest,
            request.reason, card.agent, now, now + services.approval_s, request.quorum,
            project=card.project, policy=request.policy,
        )  # fmt: skip

    async def _answers(self, asked: ApprovalCard, request: NeedsApproval, *, is_new: bool) -> Sequence[Approval]:
        """What the approver of this process answers; nothing where there is none."""
        services = self._services
        if is_new and services.tell is not None:
            services.tell(asked)
        if services.approve is None:
            return ()
        if self._emit:
            allowed = request.allowed
            self._emit(
                ApprovalAsked(
                    asked.call_id, allowed.tool.name, allowed.arguments, request.reason, request.digest, request.quorum
                )
            )
        self._slots.ask(services.monotonic())
        try:
            return (await services.approve(request),)
        except Exception as error:  # the approver is code of others: its failure is a refusal, not the end of the turn
            failed = f"asking failed ({type(error).__name__}: {error})"
            return (Approval(granted=False, by="nobody", reason=failed),)
        finally:
            self._slots.heard(services.monotonic())

    async def _keep_answer(self, asked: ApprovalCard, answer: Approval) -> ApprovalCard:
        try:
            return await self._services.store.answer(asked.id, answer)
        except Fenced:  # another answer came first, and that one counts
            return await self._services.store.approval(asked.id)

    def _granted(self, call: ToolCall, request: NeedsApproval, asked: ApprovalCard) -> Allowed | Denied:
        """The call as it was approved: other arguments are judged like any, and need no second approval.

        If they need more approvals than were given, they are refused.
        """
        arguments = asked.word.arguments
        if arguments is None:
            return request.allowed
        decision = judge_again(self._services, self._turn, replace(call, arguments=arguments))
        if isinstance(decision, Denied):
            return decision
        if isinstance(decision, NeedsApproval) and decision.refusal:
            return rejection(call, decision.refusal)
        if isinstance(decision, NeedsApproval) and decision.quorum > len(asked.agreed):
            return rejection(call, f"With the arguments that the user chose, {decision.quorum} approvals are needed.")
        allowed = decision.allowed if isinstance(decision, NeedsApproval) else decision
        return replace(allowed, notes=(*allowed.notes, "the user changed the arguments"))


def _repeated(card: ApprovalCard, reason: str) -> Sequence[Approval]:
    """The answers of an approval once more, for one call."""
    return [Approval(granted=True, by=one.by, reason=reason, under=card.id) for one in card.voices]


def _was_put(card: ApprovalCard) -> bool:
    """Whether a person had to read this request; one that an earlier approval answered needed none."""
    return not card.answers or any(not answer.under for answer in card.answers)
