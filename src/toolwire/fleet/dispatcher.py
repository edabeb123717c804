"""Sends calls of tools behind the bus: by keeping, in the store, that they are to be sent."""

import math
import secrets
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from toolwire.define.service_arguments import HiddenArgument
from toolwire.errors import CallHeld
from toolwire.execute.contract import Dispatched
from toolwire.fleet.arrivals import STAYS_S, Arrival, Arrivals
from toolwire.fleet.parcels import CHANNEL, Parcel, command_message, pack, write_parcel
from toolwire.fleet.relay import FIRST_PAUSE_S
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import AuditRow, CallCard, Dispatch
from toolwire.protocol.subjects import BadSubject
from toolwire.protocol.tools import REPEATABLE, BusService, Effect, Tool
from toolwire.protocol.turns import Limits
from toolwire.record.contract import Store
from toolwire.wire.utp.messages import CallOrigin
from toolwire.wire.utp.violations import Refusal

__all__ = ["STAYS_S", "BusDispatcher", "Report", "Sender", "Watches", "traced_origin"]

QUEUE_S = 3_600.0
"""How long a call may wait for a worker."""

_USUAL = Limits()


def traced_origin(context: Context) -> CallOrigin:
    """Where a call comes from: the trace of its turn."""
    return CallOrigin(traceparent=context.trace.traceparent, tracestate=context.trace.tracestate)


class Sender(Protocol):
    """What sends commands that were just written down; a relay."""

    def send_soon(self, dispatch: Dispatch, card: CallCard, message: BusMessage | None = None) -> None: ...


Report = Callable[[str, float | None], None]
Write = Callable[[str, str], None]


class Watches(Protocol):
    """What hears how far calls have come that were sent."""

    def watch(self, turn_id: str, call_id: str, report: Report) -> None:
        """Tell `report` what the worker says about a call."""
        ...


@runtime_checkable
class WatchesOutput(Protocol):
    """The same for what calls write while they run."""

    def watch_output(self, turn_id: str, call_id: str, write: Write) -> None: ...


class BusDispatcher:
    """The executor of tools whose target is a `BusService`. Its turn waits for the result on record.

    Nothing is published here: a `relay` does that, in this process if it is given, and in any other. One that `stays`
    goes on with the turn as soon as the result is there, for a user who waits for it; with `arrivals` it hears of that
    at once, and may stay for `stays_s` only, before it leaves the turn to whichever process takes it up.
    """

    def __init__(
        self,
        store: Store,
        relay: Sender | None = None,
        *,
        channel: str = CHANNEL,
        limits: Limits = _USUAL,
        queue_s: float = QUEUE_S,
        stays: bool = False,
        stays_s: float = 0.0,
        arrivals: Arrivals | None = None,
        watches: Watches | None = None,
        origin: Callable[[Context], CallOrigin] = traced_origin,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._relay = relay
        self._channel = channel
        self._limits = limits
        self._queue_s = queue_s
        self._stays_s = math.inf if stays else stays_s
        self._arrivals = arrivals
        self._watches = watches
        self._origin = origin
        self._clock = clock or store.clock

    def dispatches(self, tool: Tool) -> bool:
        return isinstance(tool.target, BusService)

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:  # noqa: ARG002 -- as an executor
        message = f"{allowed.call.name!r} was not started: its tool runs in workers behind the bus."
        return ToolResult.failed(allowed.call, Code.UNAVAILABLE, message)

    async def dispatch(self, allowed: Allowed, context: Context) -> ToolResult | Dispatched:
        note_key = secrets.token_hex(16) if self._arrivals is not None and self._stays_s == math.inf else ""
        try:
            parcel = pack(
                allowed,
                context,
                channel=self._channel,
                result_chars=self._limits.result_chars,
                envelope=self._limits.envelope,
                origin=self._origin(context),
                note_key=note_key,
            )
        except BadSubject as wrong:
            return _not_sent(allowed, Code.UNAVAILABLE, str(wrong))
        except HiddenArgument as wrong:
            return _not_sent(allowed, Code.INVALID_PARAMS, str(wrong))
        now = self._clock()
        dispatch = self._dispatch(parcel, allowed, context, now)
        card = CallCard(context.record_id, context.turn_id, context.epoch, allowed.call, parcel.digest)
        if isinstance(message := command_message(parcel, dispatch, card, step_id=context.step_id), Refusal):
            return _not_sent(allowed, Code.UNAVAILABLE, message.violations[0].message)
        row = AuditRow(
            now, "dispatched", context.project, context.agent, context.turn_id, context.call_id, allowed.call.name,
            args_digest=parcel.digest, detail={"subject": dispatch.subject},
        )  # fmt: skip
        if self._watches is not None and self._stays_s == math.inf:  # else the call outlives its watcher here
            self._watches.watch(context.turn_id, context.call_id, context.report)
            if isinstance(self._watches, WatchesOutput):
                self._watches.watch_output(context.turn_id, context.call_id, context.write)
        arrival = self._expect(context, note_key)
        try:
            kept = await self._store.dispatch(dispatch, [row])
        except CallHeld as held:  # a worker has it already
            return self._dispatched(arrival, held.until)
        except BaseException:
            if arrival is not None:
                arrival.close()
            raise
        if kept.result is not None:
            if arrival is not None:
                arrival.close()
            return kept.result
        if self._relay is not None:
            is_same = kept.record_id == card.record_id and kept.step_id == context.step_id
            self._relay.send_soon(dispatch, kept, message if is_same else None)
        return self._dispatched(arrival)

    def _expect(self, context: Context, note_key: str) -> Arrival | None:
        """Hear of the result from before the call is on its way."""
        if self._arrivals is None or not self._stays_s:
            return None
        return self._arrivals.expect(context.project, context.turn_id, context.call_id, self._stays_s, note_key)

    def _dispatched(self, arrival: Arrival | None, until: float | None = None) -> Dispatched:
        return Dispatched(until, stays=arrival is not None or self._stays_s == math.inf, arrival=arrival)

    def _dispatch(self, parcel: Parcel, allowed: Allowed, context: Context, now: float) -> Dispatch:
        """Where a relay of this process sends it at once, it is due after a first pause."""
        tool = allowed.tool
        journaled = tool.journaled and tool.effect is Effect.TRANSACTIONAL
        return Dispatch(
            context.project,
            context.turn_id,
            context.call_id,
            context.record_id,
            context.epoch,
            str(parcel.subject),
            write_parcel(parcel),
            now if self._relay is None else now + FIRST_PAUSE_S,
            now + self._queue_s,
            repeatable=journaled or tool.effect in REPEATABLE,
        )

    async def close(self) -> None:
        """It holds nothing."""


def _not_sent(allowed: Allowed, code: Code, reason: str) -> ToolResult:
    return ToolResult.failed(allowed.call, code, f"{allowed.call.name!r} was not sent: {reason}.")
