"""Sends the commands of calls, again and again until each has a result.

It looks at what the store says, not at what it did before: whatever is due is sent, in whichever process it was written
down, and a broker that lost everything is filled again by that. Any number of relays may share a store; each command is
taken by one of them, and sending one twice does no harm.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from toolwire.bus.contract import Bus
from toolwire.deliver.endings import not_taken, unknown
from toolwire.errors import BusError, BusUnavailable, CallHeld, Fenced, StoreError, ToolwireError
from toolwire.fleet.parcels import command_message, read_parcel, wakeup_message
from toolwire.protocol.records import AuditRow, CallCard, Dispatch
from toolwire.protocol.values import changed
from toolwire.record.contract import DueDispatch, Store
from toolwire.wire.utp.violations import Refusal

FIRST_PAUSE_S = 5.0
PAUSES_S = (FIRST_PAUSE_S, 15.0, 30.0, 60.0)
"""After the first, the second … time that a command was sent. Within two minutes the broker drops repeated ones."""

POLL_S = 1.0
AT_ONCE = 100
MOST_WAITING = 10_000
"""So many commands wait for a broker that is away; more are found in the store later."""

_log = logging.getLogger(__name__)


def pause_after(sent: int) -> float:
    """How long until a command is sent again that was sent so often before."""
    return PAUSES_S[min(sent, len(PAUSES_S) - 1)]


class Relay:
    """Sends what is due. `run` it as a task."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        *,
        poll_s: float = POLL_S,
        at_once: int = AT_ONCE,
        pause: Callable[[int], float] = pause_after,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._bus = bus
        self._poll_s = poll_s
        self._at_once = at_once
        self._pause = pause
        self._clock = clock
        self._waiting: deque[tuple[Dispatch, CallCard]] = deque(maxlen=MOST_WAITING)
        self._last_error = ""
        self._woken = asyncio.Event()

    def send_soon(self, dispatch: Dispatch, card: CallCard) -> None:
        """Send a command that was just written down, without looking for it in the store."""
        self._waiting.append((dispatch, card))
        self._woken.set()

    async def run(self) -> None:
        """Send until canceled."""
        looked = 0.0
        loop = asyncio.get_running_loop()
        while True:
            await self._send_waiting()
            if loop.time() - looked >= self._poll_s:
                try:
                    while await self.send_due() >= self._at_once:
                        pass
                except ToolwireError as error:
                    _log.warning("what is to be sent cannot be looked up: %s", error)
                except Exception:  # nothing else would start it again
                    _log.exception("the relay broke, and goes on")
                looked = loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._woken.wait()
            self._woken.clear()

    async def send_due(self) -> int:
        """Send what is due now, at most so much at once; how much that was."""
        due = await self._store.take_due(self._clock(), self._pause, limit=self._at_once)
        for one in due:
            if one.gives_up:
                await self._give_up(one)
            else:
                self._waiting.append((one.dispatch, one.card))
        await self._send_waiting()
        return len(due)

    async def _send_waiting(self) -> None:
        """Send what waits, many at once. What the broker does not take stays, and is tried again."""
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._at_once))]
            sent = await asyncio.gather(*(self._is_sent(*one) for one in some))
            if lost := [one for one, is_sent in zip(some, sent, strict=True) if not is_sent]:
                self._waiting.extendleft(reversed(lost))
                _log.warning("commands that wait for the broker: %d; %s", len(self._waiting), self._last_error)
                return

    async def _is_sent(self, dispatch: Dispatch, card: CallCard) -> bool:
        try:
            await self._send(dispatch, card)
        except BusUnavailable as error:
            self._last_error = str(error)
            return False
        except BusError as error:  # the broker will never take it, and the others must be sent all the same
            _log.error("call %s cannot be sent: %s", card.record_id, error)
        return True

    async def _send(self, dispatch: Dispatch, card: CallCard) -> None:
        try:
            message = command_message(read_parcel(dispatch), dispatch, card)
        except StoreError as wrong:
            _log.error("%s", wrong)
            return
        if isinstance(message, Refusal):
            _log.error("call %s cannot be sent: %s", card.record_id, message.violations[0].message)
            return
        # Sent again after a worker died over it, it is another message: the broker must not take it for a repeated one.
        await self._bus.publish(message, dedupe_id=f"{card.record_id}:{dispatch.epoch}:{card.attempt}")

    async def _give_up(self, one: DueDispatch) -> None:
        """Close a call that is not sent any more: its worker died over it, or none has taken it for too long."""
        card = one.card
        result = unknown(card) if card.attempt else not_taken(card)
        row = AuditRow.about(card, "finished", self._clock(), result=result)
        try:
            await self._store.close(changed(card, token=""), result, [row], ran=bool(card.attempt))
        except (Fenced, CallHeld):  # the turn goes on elsewhere, or a worker has come
            return
        parcel = read_parcel(one.dispatch)
        message = wakeup_message(card, parcel.subject.channel, parcel.origin)
        if not isinstance(message, Refusal):
            with suppress(BusUnavailable):
                await self._bus.publish(message)
