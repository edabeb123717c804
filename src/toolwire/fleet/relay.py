"""Sends the commands of calls, again and again until each has a result.

It looks at what the store says, not at what it did before: whatever is due is sent, in whichever process it was written
down, and a broker that lost everything is filled again by that. Any number of relays may share a store; each command is
taken by one of them, and sending one twice does no harm.

The queue is the store, not the broker: of each project and target only so many commands are on their way at a time, and
projects take turns. A project that has thousands of calls to send fills no stream, and others are not behind it.

What was just written down is handed over to a worker with a free slot, which nothing has to keep. Only if none takes it
at once, the broker keeps it in a stream, as everything that is sent again.
"""

import asyncio
import logging
import math
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from toolwire.bus.contract import Bus, HandoffAnswer
from toolwire.deliver.endings import canceled_result, not_taken, unknown
from toolwire.errors import BusError, BusUnavailable, CallHeld, Fenced, StoreError, ToolwireError
from toolwire.fleet.fair_share import FairQueue
from toolwire.fleet.outage_log import OutageLog
from toolwire.fleet.parcels import command_message, read_parcel, wakeup_message
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.records import AuditRow, CallCard, Dispatch
from toolwire.record.contract import DueDispatch, Store
from toolwire.wire.utp.violations import Refusal

FIRST_PAUSE_S = 5.0
PAUSES_S = (FIRST_PAUSE_S, 15.0, 30.0, 60.0)
"""After the first, the second … time that a command was sent. Within two minutes the broker drops repeated ones."""

POLL_S = 1.0
AT_ONCE = 100
MOST_WAITING = 10_000
"""So many commands wait for a broker that is away; more are found in the store later."""

WINDOW = 256
"""So many commands of one project and target are on their way from one relay, and have no result yet."""

REFILL_S = 0.02
"""How soon it is looked which of them have ended, where others wait; less often while few of them have.

Where results are heard of (`note_result`), that is only for those whose wakeup got lost.
"""

TRANSIT_S = 60.0
"""A command counts no longer than this: it may be lost, and is sent again in any case."""

HANDOFF_PAUSES_S = {HandoffAnswer.BUSY: 0.01, HandoffAnswer.UNHEARD: 1.0}
"""How long no more commands are handed over at a subject where one was not taken."""

_Line = tuple[str, str]
"""The project and the subject of commands that wait for each other."""


class _Command(NamedTuple):
    """What is to be sent, with its message if that was made before. One that is new is handed over first."""

    dispatch: Dispatch
    card: CallCard
    message: BusMessage | None = None
    is_new: bool = False

    @property
    def line(self) -> _Line:
        return self.dispatch.project, self.dispatch.subject

    @property
    def call(self) -> tuple[str, str]:
        return self.dispatch.turn_id, self.dispatch.call_id


_log = logging.getLogger(__name__)


def pause_after(sent: int) -> float:
    """How long until a command is sent again that was sent so often before."""
    return PAUSES_S[min(sent, len(PAUSES_S) - 1)]


def next_pause(pause_s: float, ended: int, window: int) -> float:
    """How long until it is looked again which commands of a window have ended, after so many had this time."""
    if 2 * ended > window:
        return max(pause_s / 2, REFILL_S)
    return pause_s if 8 * ended > window else min(pause_s * 2, POLL_S)


class Relay:
    """Sends what is due. `run` it as a task."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        *,
        poll_s: float = POLL_S,
        at_once: int = AT_ONCE,
        window: int = WINDOW,
        pause: Callable[[int], float] = pause_after,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._bus = bus
        self._poll_s = poll_s
        self._at_once = at_once
        self._pause = pause
        self._clock = clock or store.clock
        self._waiting: FairQueue[_Line, _Command] = FairQueue(sys.maxsize, window)
        self._on_their_way: dict[_Line, OrderedDict[tuple[str, str], float]] = {}
        self._line_of: dict[tuple[str, str, str], _Line] = {}
        self._window = window
        self._is_drained = False
        self._refilling: asyncio.Task[None] | None = None
        self._handing_over: set[asyncio.Task[None]] = set()
        self._hands_over_from: dict[_Line, float] = {}
        self._sending = asyncio.Lock()
        self._last_error = ""
        self._outages = OutageLog(_log)
        self._woken = asyncio.Event()

    def send_soon(self, dispatch: Dispatch, card: CallCard, message: BusMessage | None = None) -> None:
        """Send a command that was just written down, without looking for it in the store.

        Its message, if it is there already, is used where not so many wait that it would take much memory.
        """
        message = message if self._waiting.waiting < self._at_once else None
        one = _Command(dispatch, card, message, is_new=True)
        self._add(one)
        if self._waiting.waiting == 1 and self._may_hand_over(one):
            for taken in self._next_few():
                self._hand_over_soon(taken)
        else:
            self._woken.set()

    def note_result(self, project: str, turn_id: str, call_id: str) -> None:
        """A call has a result: another one may be on its way instead."""
        line = self._line_of.get((project, turn_id, call_id))
        if line is not None and self._release(line, (turn_id, call_id)) and self._waiting.waiting:
            self._woken.set()

    async def run(self) -> None:
        """Send until canceled."""
        looked = -math.inf  # the loop's clock may begin at 0, as on a machine that was just started
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._send_waiting()
                if self._is_drained or loop.time() - looked >= self._poll_s:
                    self._is_drained = False
                    await self._guarded(self._send_all_due)
                    looked = loop.time()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await self._woken.wait()
                self._woken.clear()
        finally:
            tasks = [*self._handing_over, *([] if self._refilling is None else [self._refilling])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _refill_soon(self) -> None:
        """Some wait for others to end. Looking which have keeps no command waiting that can be sent."""
        if self._refilling is None or self._refilling.done():
            self._refilling = asyncio.create_task(self._refill(), name="toolwire-refill")

    async def _refill(self) -> None:
        """Look how many commands have ended, as often as that is worth it, until none waits for that."""
        pause_s = REFILL_S
        while lines := self._waiting.projects():
            await asyncio.sleep(min(pause_s, self._poll_s))
            before = self._waiting.running
            await self._guarded(self._look_for_ended)
            pause_s = next_pause(pause_s, before - self._waiting.running, self._window)
            await self._send_waiting()
            if set(lines).difference(self._waiting.projects()):  # the store may have more of them
                self._is_drained = True
                self._woken.set()

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ToolwireError as error:
            self._outages.warn("what is to be sent cannot be looked up", error)
        except Exception:  # nothing else would start it again
            _log.exception("the relay broke, and goes on")

    async def _send_all_due(self) -> None:
        self._forget_old()
        while await self.send_due() >= self._at_once:
            pass

    async def send_due(self) -> int:
        """Send what is due now, at most so much at once; how much that was."""
        waiting = [subject for _, subject in self._waiting.projects()]
        due = await self._store.take_due(self._clock(), self._pause, limit=self._at_once, skip=waiting)
        for one in due:
            if one.gives_up:
                await self._give_up(one)
            else:
                self._add(_Command(one.dispatch, one.card))
        await self._send_waiting()
        return len(due)

    def _add(self, one: _Command) -> None:
        self._waiting.add(one.line, one)
        while self._waiting.waiting > MOST_WAITING:
            self._waiting.shed()

    async def _send_waiting(self) -> None:
        async with self._sending:
            await self._send_what_waits()

    async def _send_what_waits(self) -> None:
        """Send what waits, many at once. What the broker does not take stays, and is tried again."""
        while some := list(self._next_few()):
            kept: list[_Command] = []
            for one in some:
                if self._may_hand_over(one):
                    self._hand_over_soon(one)
                else:
                    kept.append(one)
            sent = await asyncio.gather(*map(self._is_sent, kept))
            lost = [one for one, is_sent in zip(kept, sent, strict=True) if not is_sent]
            for one in reversed(lost):
                self._put_back(one)
            if lost:
                _log.warning("commands that wait for the broker: %d; %s", self._waiting.waiting, self._last_error)
                return

    def _next_few(self) -> Iterator[_Command]:
        """Those that may be sent now, the projects in turn."""
        for _ in range(self._at_once):
            if (taken := self._waiting.take()) is None:
                if self._waiting.waiting:
                    self._refill_soon()
                return
            line, one = taken
            call = one.call
            known = self._on_their_way.setdefault(line, OrderedDict())
            if call in known:  # sent again: it counts once
                self._waiting.release(line)
            known[call] = self._clock()
            known.move_to_end(call)
            self._line_of[line[0], *call] = line
            yield one

    async def _look_for_ended(self) -> None:
        """Make room for those that wait: which of those before them have a result?"""
        for line in self._waiting.projects():
            turns = dict.fromkeys(turn_id for turn_id, _ in self._on_their_way.get(line, ()))
            for call in await self._store.calls_with_results(list(turns), project=line[0]):
                self._release(line, call)

    def _forget_old(self) -> None:
        """What was sent long ago counts no more."""
        before = self._clock() - TRANSIT_S
        for line, known in list(self._on_their_way.items()):
            while known and next(iter(known.values())) < before:
                self._release(line, next(iter(known)))
        now = asyncio.get_running_loop().time()
        self._hands_over_from = {line: at for line, at in self._hands_over_from.items() if at > now}

    def _release(self, line: _Line, call: tuple[str, str]) -> bool:
        known = self._on_their_way.get(line)
        if known is None or known.pop(call, None) is None:
            return False
        self._line_of.pop((line[0], *call), None)
        if not known:
            del self._on_their_way[line]
        self._waiting.release(line)
        return True

    def _put_back(self, one: _Command) -> None:
        """Let a command wait before all others of its line."""
        self._release(one.line, one.call)
        self._waiting.add_first(one.line, one)

    def _may_hand_over(self, one: _Command) -> bool:
        """Whether a command is new, and a worker may have a free slot.

        Of very many that are handed over at a time, most would get no answer in time.
        """
        if not one.is_new or len(self._handing_over) >= self._at_once:
            return False
        return asyncio.get_running_loop().time() >= self._hands_over_from.get(one.line, 0.0)

    def _hand_over_soon(self, one: _Command) -> None:
        """Hand a command over. Nothing waits for the answer here."""
        task = asyncio.create_task(self._hand_over(one), name="toolwire-handoff")
        self._handing_over.add(task)
        task.add_done_callback(self._handing_over.discard)

    async def _hand_over(self, one: _Command) -> None:
        message = _message(one)
        answer = HandoffAnswer.BUSY if message is None else await self._bus.hand_over(message)
        if answer is HandoffAnswer.TAKEN:
            self._hands_over_from.pop(one.line, None)
            return
        self._hands_over_from[one.line] = asyncio.get_running_loop().time() + HANDOFF_PAUSES_S[answer]
        self._put_back(one._replace(message=message, is_new=False))
        self._woken.set()

    async def _is_sent(self, one: _Command) -> bool:
        try:
            await self._send(one)
        except BusUnavailable as error:
            self._last_error = str(error)
            return False
        except BusError as error:  # the broker will never take it, and the others must be sent all the same
            _log.error("call %s cannot be sent: %s", one.card.record_id, error)
        return True

    async def _send(self, one: _Command) -> None:
        if (message := _message(one)) is not None:
            # Sent again after a worker died over it, it is another message: the broker must not take it for a
            # repeated one.
            await self._bus.publish(message, dedupe_id=f"{one.card.record_id}:{one.dispatch.epoch}:{one.card.attempt}")

    async def _give_up(self, one: DueDispatch) -> None:
        """Close a call that is not sent any more: its worker died over it, none came in time, or it was canceled."""
        card = one.card
        if card.cancel:
            result = canceled_result(card.call, begun=bool(card.attempt))
        else:
            result = unknown(card) if card.attempt else not_taken(card)
        row = AuditRow.about(card, "finished", self._clock(), result=result)
        try:
            await self._store.close(replace(card, token=""), result, [row], ran=bool(card.attempt))
        except (Fenced, CallHeld):  # the turn goes on elsewhere, or a worker has come
            return
        parcel = read_parcel(one.dispatch)
        message = wakeup_message(card, parcel.subject.channel, parcel.origin)
        if not isinstance(message, Refusal):
            with suppress(BusUnavailable):
                await self._bus.publish(message)


def _message(one: _Command) -> BusMessage | None:
    """The message of a command; None, and the reason in the log, where it has none."""
    if one.message is not None:
        return one.message
    try:
        message = command_message(read_parcel(one.dispatch), one.dispatch, one.card, is_checked=True)
    except StoreError as wrong:
        _log.error("%s", wrong)
        return None
    if isinstance(message, Refusal):
        _log.error("call %s cannot be sent: %s", one.card.record_id, message.violations[0].message)
        return None
    return message
