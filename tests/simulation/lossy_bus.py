"""A bus that does all that brokers and networks do: it loses, doubles, delays and reorders messages, and forgets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass
from random import Random

from tests.simulation.crash_points import Fault
from tests.simulation.shared_store import Network
from tests.simulation.virtual_loop import PROCESS, VirtualLoop
from toolwire.bus.contract import ACK_WAIT_S, HANDOFF_S, IN_FLIGHT, BusHealth, HandoffAnswer, Take
from toolwire.bus.in_flight import InFlight
from toolwire.errors import BusUnavailable
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import filter_matches

REPORT = ".execution.report"
DEDUPE_S = 20.0
COPIES, LATE_S = 5, 10.0
"""What becomes of a message at a crash point: how often it comes, and how late."""

LONGEST_ACK_WAIT_S = 6.0
"""Shorter than a broker's, as all times here are, so that a run is short."""


@dataclass(slots=True)
class BusFaults:
    """How often each thing goes wrong."""

    drop: float = 0.0
    double: float = 0.0
    reorder: float = 0.0
    lost_ack: float = 0.0
    slow_s: float = 0.02


@dataclass(slots=True)
class _Entry:
    message: BusMessage
    attempt: int = 0


class _Group:
    """The messages of one durable name."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.waiting: list[_Entry] = []
        self.generation = 0
        self._sleepers: list[asyncio.Future[None]] = []

    def add(self, entry: _Entry) -> None:
        self.waiting.append(entry)
        self.wake()

    def wake(self) -> None:
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result(None)
        self._sleepers.clear()

    async def change(self) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        await sleeper


class LossyBus:
    """One broker for all processes; see `bus.contract.Bus`."""

    def __init__(self, loop: VirtualLoop, random: Random, network: Network) -> None:
        self.loop = loop
        self.random = random
        self.network = network
        self.faults = BusFaults()
        self.away_until = 0.0
        self.reports: set[tuple[str, str, str]] = set()
        """The calls of which reports were received, and need not come again."""
        self._groups: dict[str, _Group] = {}
        self._ids: dict[str, float] = {}
        self.takers: list[_Taker] = []

    def chance(self, odds: float) -> bool:
        return odds > 0 and self.random.random() < odds

    @property
    def is_away(self) -> bool:
        return self.loop.time() < self.away_until

    def later(self, delay_s: float, act: object, *args: object) -> asyncio.TimerHandle:
        """A timer of the broker's own: it goes on when the process dies that it is about."""
        return self.loop.call_later(delay_s, act, *args, context=self.loop.world.context)  # type: ignore[arg-type]

    def wipe(self) -> None:
        """Lose everything, as a broker does whose disk is gone. Durable names are made again by their subscribers."""
        self._ids.clear()
        for group in self._groups.values():
            group.waiting.clear()
            group.generation += 1

    async def publish(self, message: BusMessage, *, dedupe_id: str = "") -> bool:
        await asyncio.sleep(self.random.random() * self.faults.slow_s)
        if self.is_away and self.chance(0.5):
            raise BusUnavailable("the simulated broker is away")
        fault = await self.network.reach("publish", "before")
        if fault is Fault.FAIL:
            raise BusUnavailable("the simulated broker is away")
        is_new = self._keep(message, dedupe_id, fault)
        if await self.network.reach("publish", "after") is Fault.FAIL or self.is_away:
            raise BusUnavailable("the simulated broker did not confirm")
        await asyncio.sleep(self.random.random() * self.faults.slow_s)
        return is_new

    def _keep(self, message: BusMessage, dedupe_id: str, fault: Fault | None) -> bool:
        now = self.loop.time()
        if dedupe_id:
            if self._ids.get(dedupe_id, -DEDUPE_S) > now - DEDUPE_S:
                return False
            self._ids[dedupe_id] = now
        if fault is Fault.LOSE or self.chance(self.faults.drop):
            return True
        copies = COPIES if fault is Fault.REPEAT else 1 + self.chance(self.faults.double)
        late_s = LATE_S if fault is Fault.DELAY else 0.0
        for group in self._groups.values():
            if filter_matches(group.pattern, message.subject):
                for _ in range(copies):
                    self.later(late_s + self.random.random() * self.faults.slow_s, group.add, _Entry(message))
        return True

    async def hand_over(self, message: BusMessage, *, timeout_s: float = HANDOFF_S) -> HandoffAnswer:
        """A handoff or its answer may get lost, and a copy of it may reach another subscriber."""
        fault = await self.network.reach("hand over", "before")
        answer: asyncio.Future[HandoffAnswer] = self.loop.create_future()
        takers = [one for one in self.takers if filter_matches(one.pattern, message.subject)]
        if not takers:
            return HandoffAnswer.UNHEARD
        is_lost = fault in (Fault.FAIL, Fault.LOSE) or self.is_away or self.chance(self.faults.drop)
        if not is_lost:
            late_s = LATE_S if fault is Fault.DELAY else 0.0
            for _ in range(COPIES if fault is Fault.REPEAT else 1 + self.chance(self.faults.double)):
                self.random.choice(takers).ask(late_s + self.random.random() * self.faults.slow_s, message, answer)
        try:
            async with asyncio.timeout(timeout_s):
                found = await answer
        except TimeoutError:
            found = HandoffAnswer.UNHEARD
        is_unheard = await self.network.reach("hand over", "after") is Fault.FAIL
        return HandoffAnswer.UNHEARD if is_unheard else found

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, durable: str, ack_wait_s: float = ACK_WAIT_S, in_flight: int = IN_FLIGHT
    ) -> AsyncIterator["LossySubscription"]:
        await asyncio.sleep(self.random.random() * self.faults.slow_s)
        if self.is_away:
            raise BusUnavailable("the simulated broker is away")
        group = self._groups.setdefault(durable, _Group(pattern))
        subscription = LossySubscription(self, group, min(ack_wait_s, LONGEST_ACK_WAIT_S), in_flight)
        try:
            yield subscription
        finally:
            subscription.stop()
            self.takers = [one for one in self.takers if one.subscription is not subscription]

    async def stream(self, message: BusMessage) -> None:
        """Lost: no process of a simulation watches others."""

    @asynccontextmanager
    async def listen(self, pattern: str) -> AsyncIterator[AsyncIterator[BusMessage]]:
        yield LossySubscription(self, _Group(pattern), LONGEST_ACK_WAIT_S, 1).messages()

    async def health(self) -> BusHealth:
        return BusHealth(connected=not self.is_away)

    async def close(self) -> None:
        """It holds nothing."""


class _Taker:
    """A process that takes handoffs. What it took dies with it, and the broker notices that by the next one."""

    def __init__(self, subscription: "LossySubscription", in_flight: int, take: Take) -> None:
        self.subscription = subscription
        self.pattern = subscription.group.pattern
        self._bus = subscription.bus
        self._take = take
        self._in_flight = InFlight(in_flight)
        self._process = PROCESS.get()
        self._context = copy_context()

    def ask(self, after_s: float, message: BusMessage, answer: "asyncio.Future[HandoffAnswer]") -> None:
        """Hand a message over, unless its process is dead by now; one that is paused hears of it later."""
        if self._process.is_dead:
            self._bus.takers.remove(self)
        else:
            self._bus.loop.call_later(after_s, self._hear, message, answer, context=self._context)

    def _hear(self, message: BusMessage, answer: "asyncio.Future[HandoffAnswer]") -> None:
        bus = self._bus
        is_taken = self._in_flight.hand_over(message, self._take, bus.publish)
        if not bus.chance(bus.faults.drop):
            said = HandoffAnswer.TAKEN if is_taken else HandoffAnswer.BUSY
            bus.later(bus.random.random() * bus.faults.slow_s, _set, answer, said)


def _set(answer: "asyncio.Future[HandoffAnswer]", said: HandoffAnswer) -> None:
    if not answer.done():
        answer.set_result(said)


class LossySubscription:
    """What one process gets of a durable name."""

    def __init__(self, bus: LossyBus, group: _Group, ack_wait_s: float, in_flight: int) -> None:
        self.bus = bus
        self.group = group
        self.ack_wait_s = ack_wait_s
        self.count = 0
        self._most = in_flight
        self._stopped = False

    def __aiter__(self) -> "LossySubscription":
        return self

    async def __anext__(self) -> "LossyDelivery":
        group, bus = self.group, self.bus
        while not self._stopped:
            if self.count < self._most and group.waiting and not bus.is_away:
                place = bus.random.randrange(len(group.waiting)) if bus.chance(bus.faults.reorder) else 0
                return LossyDelivery(self, group.waiting.pop(place))
            if group.waiting and bus.is_away:
                bus.later(bus.away_until - bus.loop.time(), group.wake)
            await group.change()
        raise StopAsyncIteration

    async def messages(self) -> AsyncIterator[BusMessage]:
        async for delivered in self:
            yield delivered.message

    async def take_handoffs(self, take: Take) -> None:
        self.bus.takers.append(_Taker(self, self._most, take))

    async def drain(self, timeout_s: float) -> int:
        self.stop()
        until = self.bus.loop.time() + timeout_s
        while self.count and self.bus.loop.time() < until:  # noqa: ASYNC110 -- time is virtual
            await asyncio.sleep(0.2)
        return self.count

    def stop(self) -> None:
        self._stopped = True
        self.group.wake()


class LossyDelivery:
    """A message in a process's hands. It comes again unless the broker hears of its end in time."""

    def __init__(self, subscription: LossySubscription, entry: _Entry) -> None:
        entry.attempt += 1
        self.message = entry.message
        self.attempt = entry.attempt
        self.receiver = PROCESS.get().name
        self._entry = entry
        self._of = subscription
        self._generation = subscription.group.generation
        self._is_open = True
        subscription.count += 1
        self._timer = subscription.bus.later(subscription.ack_wait_s, self._again)

    async def ack(self) -> None:
        bus = self._of.bus
        await bus.network.reach("ack", "before")
        self._let_go()
        if self.message.subject.endswith(REPORT):
            said = json.loads(self.message.data)
            bus.reports.add((said["project_id"], said["agent_turn_id"], said["tool_call_id"]))
        if not (bus.is_away or bus.chance(bus.faults.lost_ack)):
            self._timer.cancel()

    async def nak(self, delay_s: float = 0.0) -> None:
        self._let_go()
        if not self._of.bus.is_away and not self._timer.cancelled():
            self._timer.cancel()
            self._timer = self._of.bus.later(delay_s, self._again)

    async def progress(self) -> None:
        if self._is_open and not self._of.bus.is_away:
            self._timer.cancel()
            self._timer = self._of.bus.later(self._of.ack_wait_s, self._again)

    def _let_go(self) -> None:
        if self._is_open:
            self._is_open = False
            self._of.count -= 1
            self._of.group.wake()

    def _again(self) -> None:
        """The broker has heard nothing: another subscriber may have the message."""
        self._let_go()
        if self._generation == self._of.group.generation:
            self._of.group.add(self._entry)
