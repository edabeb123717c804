"""Runs a call that this process has claimed for a turn which another process runs."""

from msgspec.structs import replace

from toolwire.hub.calls import Accepted
from toolwire.hub.journey import Journey
from toolwire.hub.services import Services
from toolwire.hub.slots import Slots
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import CallInfo, Context
from toolwire.protocol.events import Emit
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import CallCard
from toolwire.protocol.turns import Limits, Turn


class ClaimedJourney(Journey):
    """The part of a call's journey that is left after it was claimed. What its turn knows has travelled with it."""

    __slots__ = ("_info",)

    def __init__(
        self, services: Services, card: CallCard, allowed: Allowed, info: CallInfo, limits: Limits, emit: Emit | None
    ) -> None:
        turn = Turn(
            info.turn_id, info.project, info.agent, info.thread, card.epoch, grant=info.grant, limits=limits,
            trace=info.trace,
        )  # fmt: skip
        super().__init__(services, turn, Slots(1), emit, Accepted(card, allowed), alone=True)
        self._info = info

    async def run(self, allowed: Allowed) -> ToolResult:
        """Its result, which the caller closes it with."""
        outcome = await self._run_here(allowed)
        if self._output is not None:
            self._output.close()
        if isinstance(outcome, ToolResult):
            return outcome
        message = f"{allowed.call.name!r} waits for something, which a tool behind the bus cannot."
        return ToolResult.failed(allowed.call, Code.EXECUTION_FAILED, message)

    def _context(self, allowed: Allowed) -> Context:
        info, card = self._info, self._card
        return replace(
            super()._context(allowed), tainted_by=info.tainted_by, approved=info.approved, record_id=card.record_id,
            epoch=card.epoch,
        )  # fmt: skip
