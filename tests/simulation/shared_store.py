"""The one truth of a simulated fleet, and what each process sees of it.

`SharedStore` is the product's memory store with an owner for each process: an owner lives while its process gives signs
of life. A `StoreView` is one process's connection: what it asks takes time on both ways, fails while the store is away,
and may be done although the answer is lost. It keeps the promises that the stores on a disk make in that case: a
result or a release that cannot be written now is written as soon as it can be.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, cast

from tests.simulation.crash_points import DEADLY, Fault
from tests.simulation.invariants import wrong_about_tasks
from tests.simulation.virtual_loop import PROCESS, SimulatedProcess, VirtualLoop
from toolwire.errors import StoreError, StoreUnavailable
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.records import CallCard, Dispatch
from toolwire.protocol.turns import EndReason, Turn
from toolwire.protocol.waits import ForTurn
from toolwire.record import ledger
from toolwire.record.contract import KeptTurn, Store, TurnStats, TurnSummary
from toolwire.record.memory import MemoryStore

LEASE_S = 4.0
_RETRIED = frozenset(["close", "release"])
_SYNC = frozenset(["begins", "pauses"])
_READS = frozenset(
    "turn turns ready_turns calls approvals approval active_patterns dispatched dispatched_call audit_log untrusted "
    "thread holds_locks spent reserved_shares fetch detached_calls result_card".split()
)


class Leases:
    """Which owners are alive. A process renews its lease as long as it runs and reaches the store."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._ends: dict[str, float] = {}
        self.lapses: dict[str, int] = {}

    def end(self, owner: str, after_s: float) -> None:
        """It gives no more signs of life: its lease runs out after so long."""
        self._ends[owner] = min(self._ends.get(owner, float("inf")), self._loop.time() + after_s)

    def renew(self, owner: str) -> None:
        if self._ends.pop(owner, float("inf")) <= self._loop.time():
            self.lapses[owner] = self.lapses.get(owner, 0) + 1

    def lapses_of(self, owner: str) -> int:
        """How often its lease ran out, as the owner itself can tell."""
        return self.lapses.get(owner, 0) + (not self.is_alive(owner))

    def is_alive(self, owner: str) -> bool:
        return self._ends.get(owner, float("inf")) > self._loop.time()


class SharedStore(MemoryStore):
    """What is kept, whichever process asks. It checks each change against what must never happen."""

    def __init__(self, loop: VirtualLoop, violate: Callable[[str], None]) -> None:
        super().__init__(clock=loop.time, monotonic=loop.time, max_calls=None, max_bytes=None)
        self.leases = Leases(loop)
        self._violate = violate
        self.views: dict[str, StoreView] = {}
        self.truly_runs: Callable[[str], bool] = lambda _: False

    @property
    def _owner(self) -> str:  # type: ignore[override]
        return PROCESS.get().name

    def _is_alive(self, owner: str) -> bool:
        return owner == self._owner or self.leases.is_alive(owner)

    async def begin(self, turn: Turn, **more: Any) -> None:
        is_there = (turn.project, turn.id) in self._turns
        await super().begin(turn, **more)
        if is_there:
            self._violate(f"turn {turn.id} was begun again")

    async def resume(self, turn_id: str, *, project: str | None = None) -> KeptTurn:
        before = self._find(turn_id, project)
        owner, epoch, state = before.owner, before.epoch, before.state
        if owner == self._owner and (project, turn_id) not in self.views[owner].runs:
            before.owner = None  # left here by an answer that was lost
        try:
            kept = await super().resume(turn_id, project=project)
        except StoreError:
            before.owner = owner
            raise
        if kept.opening.epoch <= epoch:
            self._violate(f"resuming {turn_id} did not raise its epoch {epoch}")
        if state == ledger.ENDED:
            self._violate(f"turn {turn_id} was resumed after its end")
        if owner is not None and owner != self._owner and self.leases.is_alive(owner):
            self._violate(f"turn {turn_id} was taken from {owner}, which lives")
        return kept

    async def claim(self, card: CallCard, *args: Any, **more: Any) -> CallCard:
        kept, turn = self._kept(card), self._turns.get((card.project, card.turn_id))
        held = kept is not None and ledger.is_held(kept, turn, self._clock(), self._is_alive)
        mine = await super().claim(card, *args, **more)
        if mine.result is not None or kept is None or mine.attempt == kept.attempt:
            return mine
        if kept.cancel:
            self._violate(f"call {card.call.id} was claimed although it was to be canceled")
        if turn is not None and card.epoch != turn.epoch and not kept.detached:
            self._violate(f"call {card.call.id} was claimed under epoch {card.epoch}, and its turn has {turn.epoch}")
        if held:
            self._violate(f"call {card.call.id} was claimed while {kept.owner} held it")
        return mine

    def _end_call(self, card: CallCard, result: ToolResult, at: float) -> None:
        kept = self._kept(card)
        if kept is not None and kept is not card and kept.result is not None:
            self._violate(f"call {card.call.id} has a second result")
        super()._end_call(card, result, at)

    async def close(self, card: CallCard, result: ToolResult, *args: Any, **more: Any) -> ToolResult:
        kept, turn = self._kept(card), self._turns.get((card.project, card.turn_id))
        others = kept is not None and kept.owner not in ("", self._owner)
        held = kept is not None and others and ledger.is_held(kept, turn, self._clock(), self._is_alive)
        first = await super().close(card, result, *args, **more)
        if kept is None or kept.result is not None:
            return first
        if card.token and card.token != kept.token and not more.get("claims"):
            self._violate(f"call {card.call.id} was closed by a process that had lost it")
        if held and not card.token:
            self._violate(f"call {card.call.id} was closed while {kept.owner} held it")
        for wrong in wrong_about_tasks(self._turns, kept, first, self._clock()):
            self._violate(f"{card.call.name} {card.call.id}: {wrong}")
        return first

    async def end(self, turn: Turn, stats: TurnStats) -> None:
        await super().end(turn, stats)
        assert turn.ending is not None
        if turn.ending.reason is EndReason.CANCELED:
            waited_for = self._turns[turn.project, turn.id].opening.waits
            waits = (wait.turn_id for wait in waited_for if isinstance(wait, ForTurn))
            if left := [child for child in waits if not self._is_over_soon(turn.project, child)]:
                self._violate(f"turn {turn.id} was canceled, and what it waited for was not: {left}")

    def _is_over_soon(self, project: str, turn_id: str) -> bool:
        """Whether a turn has ended, or the holders of its calls were asked to stop."""
        return self._is_over(project, turn_id) or any(one.cancel for one in self._cards[project, turn_id].values())

    def _held(self, turn: Turn) -> Any:
        kept = super()._held(turn)
        if kept.epoch != turn.epoch or kept.state == ledger.ENDED:
            self._violate(f"turn {turn.id} was changed under epoch {turn.epoch}; it is {kept.state} under {kept.epoch}")
        return kept

    def open_detached(self) -> list[CallCard]:
        """The calls that run on their own and have no result."""
        return [one for cards in self._cards.values() for one in cards.values() if one.detached and one.result is None]

    def turn_of(self, question: str) -> str:
        """The turn in which something was asked first; empty where that has not been asked yet."""
        return next((kept.opening.id for kept in self._turns.values() if kept.opening.question == question), "")

    def has_body(self, handle: str) -> bool:
        return self._bodies.get(handle) is not None

    def let_go(self, owner: str, runs: "dict[tuple[str | None, str], int]") -> None:
        """Release what an owner has and does not run, since it never heard that it has it."""
        for key, kept in self._open.items():
            if kept.owner == owner and key not in runs:
                kept.owner, kept.state = None, ledger.INTERRUPTED


class StoreView:
    """One process's connection to the store. Use `as_store` where a `Store` is wanted."""

    def __init__(self, store: SharedStore, process: SimulatedProcess, random: Random, network: "Network") -> None:
        self._store = store
        self.clock = store.clock
        self._process = process
        self._random = random
        self._network = network
        self.runs: dict[tuple[str | None, str], int] = {}
        store.views[process.name] = self

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

    def holds(self, turn_id: str, *, project: str = "default") -> bool:
        lapses = self.runs.get((project, turn_id))
        return lapses is None or lapses == self._store.leases.lapses_of(self._process.name)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in _SYNC:
            return method

        def ask(*args: Any, **more: Any) -> Coroutine[Any, Any, Any]:
            if self._process.loop.is_disposed:  # the cleanup of what was killed: no coroutine must be left of it
                raise StoreUnavailable("the simulation is over")
            return self._told(name, method, args, more)

        self.__dict__[name] = ask
        return ask

    async def _told(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        if self._network.tell is None:
            return await self._ask(name, method, args, more)
        try:
            answer = await self._ask(name, method, args, more)
        except StoreError as error:
            self._network.tell(f"{name}({_short(args, more)}) raised {error}")
            raise
        self._network.tell(f"{name}({_short(args, more)}) gave {_short((answer,), {})}")
        return answer

    async def close_store(self) -> None:
        """The connection goes with its process."""

    async def _ask(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        network, owner = self._network, self._process.name
        is_slow_to_come = self._random.random() < 0.5  # one of both ways takes time: half the work, and as many orders
        if is_slow_to_come:
            await asyncio.sleep(network.delay())
        if network.is_store_away(owner):
            self._later(name, method, args, more)
            raise StoreUnavailable("the simulated store is away")
        if await network.reach(name, "before") is Fault.FAIL:
            self._later(name, method, args, more)
            raise StoreUnavailable("the simulated store restarts, and has not done it")
        if name not in _READS:
            self._store.leases.renew(owner)
        self._note(name, args)
        answer = await method(*args, **more)
        if name == "resume":
            self.runs[answer.opening.project, answer.opening.id] = self._store.leases.lapses_of(owner)
        found_nothing = answer == []  # so that nothing can be lost with it
        if (not found_nothing and await network.reach(name, "after") is Fault.FAIL) or network.loses_answer():
            self._later(name, method, args, more)
            raise StoreUnavailable("the simulated store did not answer")
        if not is_slow_to_come:
            await asyncio.sleep(network.delay())
        return answer

    def _note(self, name: str, args: tuple[Any, ...]) -> None:
        """What this process runs, as stores on a disk keep it."""
        if name == "begin":
            self.runs[args[0].project, args[0].id] = self._store.leases.lapses_of(self._process.name)
        elif name in ("release", "end"):
            self.runs.pop((args[0].project, args[0].id), None)

    def _later(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> None:
        """Do later what must not get lost, unless this process dies before that."""
        if name in ("release", "begin"):
            self.runs.pop((args[0].project, args[0].id), None)
        if name == "resume":
            self.runs.pop((more["project"], args[0]), None)
        if name in _RETRIED:
            self._process.spawn(self._retry(method, args, more), "retry")
        elif name in ("resume", "begin"):
            self._process.spawn(self._let_go(), "let go")

    async def _retry(self, method: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> None:
        await self._reach()
        try:
            await method(*args, **more)
        except StoreError:
            return  # taken over or ended meanwhile

    async def _let_go(self) -> None:
        await self._reach()
        self._store.let_go(self._process.name, self.runs)

    async def _reach(self) -> None:
        await asyncio.sleep(0.05)
        while self._network.is_store_away(self._process.name):  # noqa: ASYNC110 -- time is virtual
            await asyncio.sleep(0.5)


def _short(args: tuple[Any, ...], more: dict[str, Any]) -> str:
    """What a change is about, in a few words."""
    said = []
    for one in (*args, *more.values()):
        match one:
            case CallCard():
                ended = "ended" if one.result else "open"
                said.append(f"{one.call.id} e{one.epoch} a{one.attempt} {ended} {one.owner}".rstrip())
            case Dispatch():
                said.append(f"{one.call_id} e{one.epoch} due {one.due:.1f}")
            case Turn():
                said.append(f"{one.id} e{one.epoch} {' '.join(map(str, one.waits))}".rstrip())
            case KeptTurn():
                said.append(f"{one.opening.id} e{one.opening.epoch} {one.state}")
            case list() | tuple():
                said.append(f"[{_short(tuple(one), {})}]")
            case TurnSummary():
                said.append(one.id)
            case _:
                said.append(str(one)[:40])
    return ", ".join(said)


class Network:
    """What lies between processes and the store and the bus: delays, and who cannot reach which."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self._store_away: dict[str, float] = {}
        self.slow_s = 0.01
        self.tell: Callable[[str], None] | None = None
        self.crash: Callable[[str, str], Fault | None] | None = None
        self.lost_answers = 0.0

    async def reach(self, operation: str, when: str) -> Fault | None:
        """A process has come to a point where something may go wrong: what does. If it is killed, this never ends."""
        if self.crash is None:
            return None
        fault = self.crash(operation, when)
        if fault in DEADLY:
            await self._loop.create_future()
        if fault is Fault.PAUSE:
            await asyncio.sleep(0)  # until it goes on
        return fault

    def delay(self) -> float:
        return self._random.random() * self.slow_s

    def cut_off(self, owner: str, for_s: float) -> None:
        """Keep one process from the store for a while; all of them with an empty name."""
        self._store_away[owner] = self._loop.time() + for_s

    def heal(self) -> None:
        self._store_away.clear()
        self.lost_answers = 0.0

    def is_store_away(self, owner: str) -> bool:
        if not self._store_away:
            return False
        now = self._loop.time()
        return self._store_away.get("", 0.0) > now or self._store_away.get(owner, 0.0) > now

    def loses_answer(self) -> bool:
        return self.lost_answers > 0 and self._random.random() < self.lost_answers
