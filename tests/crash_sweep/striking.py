"""What goes wrong in a real process, and where: in a store and a bus that tell of the operations of a crash point."""

import asyncio
import fcntl
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

from tests.simulation.crash_points import DEADLY, CrashPoint, Fault
from tests.simulation.lossy_bus import COPIES, REPORT
from toolwire.bus.contract import ACK_WAIT_S, HANDOFF_S, IN_FLIGHT, Bus, HandoffAnswer, Take
from toolwire.errors import BusUnavailable, StoreUnavailable
from toolwire.protocol.bus import BusMessage
from toolwire.record.contract import Store

LATE_S, PAUSE_S, BROKER_AWAY_S = 4.5, 3.0, 2.0
LASTS_S = {Fault.DELAY: LATE_S, Fault.PAUSE: PAUSE_S, Fault.BROKER_AWAY: BROKER_AWAY_S}
"""How long after a strike it may still do harm, whatever has ended meanwhile. A service is waited for 3.5 s."""

LONGEST_ACK_WAIT_S = 0.8
"""Shorter than a broker's, as all times here are, so that a run is short."""

_PATIENCE_S, _APART_S = 10.0, 0.03
BROKER_GONE, STORE_GOES = "broker-is-gone", "store-goes"
STRUCK = "struck"
HISTORY, REPORTED = "history", "reported"
"""What stores were asked and did under which epoch, and of which calls a report was received."""

_UNDER_EPOCH = ("resume", "append_reply", "end", "release", "claim")


def add_line(path: Path, line: str) -> None:
    """Whole, whoever is killed."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


class Striker:
    """Strikes the process that it is in at its points, as often as they say: all processes of a run count together."""

    def __init__(self, folder: Path, points: tuple[CrashPoint, ...], process: str) -> None:
        self.folder = folder
        self._points = [one for one in points if process.startswith(one.role)]
        self._process = process
        self._random = Random(f"{folder.name} {process}")

    def is_about(self, operation: str) -> bool:
        return any(one.operation == operation for one in self._points)

    async def let_be_heard(self) -> None:
        """Now and then, have what a process said before an operation be on its way, so that others go by it."""
        await asyncio.sleep(self._random.choice((0.0, _APART_S)))

    def reach(self, operation: str, when: str) -> Fault | None:
        """What goes wrong with the operation itself, if anything. If the process is killed, this never ends."""
        for point in self._points:
            if point.is_hit(self._process, operation, when) and self._is_due(point):
                self._strike(point.fault)
                return point.fault
        return None

    def _is_due(self, point: CrashPoint) -> bool:
        """Whether a point is to be struck once more, which is noted before it happens."""
        handle = os.open(self.folder / STRUCK, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            before = os.pread(handle, 1 << 20, 0).decode().splitlines()
            is_due = sum(line.split("\t")[0] == point.fault for line in before) < point.times
            if is_due:
                os.write(handle, f"{point.fault}\t{os.getpid()}\t{self._process}\n".encode())
            return is_due
        finally:
            os.close(handle)

    def _strike(self, fault: Fault) -> None:
        if fault in DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault is Fault.PAUSE:
            os.kill(os.getpid(), signal.SIGSTOP)
        if fault in (Fault.BROKER_AWAY, Fault.STORE_DIES):
            sign = self.folder / (BROKER_GONE if fault is Fault.BROKER_AWAY else STORE_GOES)
            until = time.monotonic() + _PATIENCE_S
            while not sign.exists() and time.monotonic() < until:
                time.sleep(0.002)
            sign.unlink(missing_ok=True)


class StruckStore:
    """A store that tells of some operations. Use `as_store` where a `Store` is wanted."""

    def __init__(self, store: Store, striker: Striker) -> None:
        self._store = store
        self.striker = striker

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not self.striker.is_about(name) and name not in _UNDER_EPOCH:
            return method

        def ask(*args: Any, **more: Any) -> Coroutine[Any, Any, Any]:
            return self._ask(name, method, args, more)

        return ask

    async def _ask(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        if self.striker.is_about(name):
            await self.striker.let_be_heard()
        if self.striker.reach(name, "before") is Fault.FAIL:
            raise StoreUnavailable("the store restarts, and has not done it")
        began = time.monotonic()
        answer = await method(*args, **more)
        if name in _UNDER_EPOCH and (change := _change(name, args[0], answer)):
            add_line(self.striker.folder / HISTORY, json.dumps([name, *change, began, time.monotonic()]))
        if answer == []:  # it found nothing to do, so nothing could be lost
            return answer
        if self.striker.reach(name, "after") in (Fault.FAIL, Fault.STORE_DIES):
            raise StoreUnavailable("the store did not answer")
        return answer


def _change(name: str, about: Any, answer: Any) -> tuple[str, str, int, str] | None:
    """Which turn was changed, and under which epoch; with a claim, which one of which call."""
    if name == "claim":
        is_held = answer.result is None and not answer.detached
        which = f"{answer.call.id} for the {answer.attempt}. time"
        return (answer.project, answer.turn_id, about.epoch, which) if is_held else None
    turn = answer.opening if name == "resume" else about
    return turn.project, turn.id, turn.epoch, ""


class StruckBus:
    """A bus that tells of messages sent, handed over and acknowledged. Use `as_bus` where a `Bus` is wanted."""

    def __init__(self, bus: Bus, striker: Striker, random: Random) -> None:
        self._bus = bus
        self._striker = striker
        self._random = random
        self._late: set[asyncio.TimerHandle] = set()
        self._sending: set[asyncio.Task[bool]] = set()

    @property
    def as_bus(self) -> Bus:
        return cast("Bus", self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish(self, message: BusMessage, *, dedupe_id: str = "") -> bool:
        if self._striker.is_about("publish"):  # else all that are sent side by side are under way at any strike
            await asyncio.sleep(self._random.random() * _APART_S)
        match self._striker.reach("publish", "before"):
            case Fault.FAIL:
                raise BusUnavailable("the broker is away")
            case Fault.LOSE:
                return True
            case Fault.DELAY:
                self._late.add(self.loop.call_later(LATE_S, self._send_late, message, dedupe_id))
                return True
            case Fault.REPEAT:
                for _ in range(COPIES - 1):
                    await self._bus.publish(message)
        is_new = await self._bus.publish(message, dedupe_id=dedupe_id)
        if self._striker.reach("publish", "after") is Fault.FAIL:
            raise BusUnavailable("the broker did not confirm")
        return is_new

    def _send_late(self, message: BusMessage, dedupe_id: str) -> None:
        task = asyncio.ensure_future(self._bus.publish(message, dedupe_id=dedupe_id))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def hand_over(self, message: BusMessage, *, timeout_s: float = HANDOFF_S) -> HandoffAnswer:
        copies = COPIES if self._striker.reach("hand over", "before") is Fault.REPEAT else 1
        handing = (self._bus.hand_over(message, timeout_s=timeout_s) for _ in range(copies))
        answers = await asyncio.gather(*handing)
        if self._striker.reach("hand over", "after") is Fault.FAIL:
            return HandoffAnswer.UNHEARD
        return HandoffAnswer.TAKEN if HandoffAnswer.TAKEN in answers else answers[0]

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, durable: str, ack_wait_s: float = ACK_WAIT_S, in_flight: int = IN_FLIGHT
    ) -> AsyncIterator["_Subscription"]:
        wait_s = min(ack_wait_s, LONGEST_ACK_WAIT_S)
        async with self._bus.subscribe(pattern, durable=durable, ack_wait_s=wait_s, in_flight=in_flight) as inner:
            yield _Subscription(inner, self._striker)


class _Subscription:
    def __init__(self, inner: Any, striker: Striker) -> None:
        self._inner = inner
        self._striker = striker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __aiter__(self) -> "_Subscription":
        return self

    async def __anext__(self) -> "_Delivery":
        return _Delivery(await self._inner.__anext__(), self._striker)

    async def take_handoffs(self, take: Take) -> None:
        await self._inner.take_handoffs(lambda delivered: take(cast("Any", _Delivery(delivered, self._striker))))


class _Delivery:
    def __init__(self, inner: Any, striker: Striker) -> None:
        self._inner = inner
        self._striker = striker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def ack(self) -> None:
        self._striker.reach("ack", "before")
        await self._inner.ack()
        if self.message.subject.endswith(REPORT):
            said = json.loads(self.message.data)
            call = [said["project_id"], said["agent_turn_id"], said["tool_call_id"]]
            add_line(self._striker.folder / REPORTED, json.dumps(call))
