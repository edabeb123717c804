"""Whatever turns of two processes reserve, use, lose and leave: together they stay within the day.

The model below knows what was used, and which turns hold a reservation; how much each got it only bounds.
"""

import asyncio
import tempfile
from collections.abc import Awaitable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from toolwire.errors import Fenced
from toolwire.protocol.budgets import Budget, Spending
from toolwire.protocol.chat import Reply, Usage
from toolwire.protocol.turns import Turn
from toolwire.record.contract import Reservation, Store, UsageRequest
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW, database_server
from .samples import a_turn

T = TypeVar("T")
LIMIT = 100
TURNS = st.sampled_from(["a", "b", "c"])
WANTS = st.sampled_from([1, 30, 60, 100, 150])
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
BUDGET = Budget(tokens=LIMIT, cost_usd=float(LIMIT))


@dataclass
class Running:
    """A turn, in which of two processes it is run, and what it has reserved at most."""

    turn: Turn
    by: int
    wants: int | None = None
    is_whole: bool = True


class Spenders(RuleBasedStateMachine):
    kind: ClassVar[str] = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = ExitStack()
        self.turns: dict[str, Running] = {}
        self.beyond = 0
        self.used = 0

    def do(self, work: Awaitable[T]) -> T:
        async def waited() -> T:
            return await work

        return self.runner.run(waited())

    @initialize()
    def begin(self) -> None:
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        if self.kind not in ("memory", "sqlite"):
            self.on = self.stack.enter_context(database_server(self.kind, self.folder))
        self.memory = MemoryStore(clock=lambda: NOW)
        self.stores = [self.opened(number) for number in range(2)]
        for number, name in enumerate("abc"):
            self.turns[name] = Running(a_turn(name), number % 2)
            self.do(self.stores[number % 2].begin(a_turn(name)))

    def opened(self, number: int) -> Store:
        match self.kind:
            case "memory":
                return self.memory
            case "sqlite":
                return self.do(SqliteStore.at(self.folder / "home", clock=lambda: NOW))
        return self.do(self.on(self.folder / f"home-{number}", clock=lambda: NOW))

    def teardown(self) -> None:
        for store in getattr(self, "stores", []):
            self.do(store.close_store())
        self.runner.close()
        self.stack.close()

    def held_by_others(self, name: str) -> int:
        """The most that other turns can have reserved."""
        return sum(one.wants or 0 for other, one in self.turns.items() if other != name)

    @rule(name=TURNS, want=WANTS)
    def reserve(self, name: str, want: int) -> None:
        one = self.turns[name]
        request = UsageRequest(Spending(0, want, float(want)), BUDGET, ("agent",))
        others, left = self.held_by_others(name), LIMIT - self.used
        if self.do(self.stores[one.by].reserve_usage(one.turn, request)):
            is_whole = want <= left - others
            assert is_whole or others == 0, "two calls hold what only one can have"
            one.wants, one.is_whole = want if is_whole else max(left, 0), is_whole
        else:
            assert want > left - others, "there was room"
            one_alone = others == 0 and left > 0
            assert not one_alone, "a call that is alone gets what is left"

    @rule(name=TURNS, used=WANTS)
    def reply(self, name: str, used: int) -> None:
        """A call uses at most what it reserved, but one that got less than it wanted may use more."""
        one = self.turns[name]
        if one.wants is None:
            return
        used = used if not one.is_whole else min(used, one.wants)
        self.beyond = max(self.beyond, used - one.wants)
        usage = Usage(used, 0, 0, float(used))
        settles = Reservation(None, ("agent",), lambda card, _: (card, card), settles=True)  # type: ignore[arg-type, return-value]
        self.do(self.stores[one.by].append_reply(one.turn, Reply("so", usage=usage), [], [], settles))
        self.used += used
        one.turn, one.wants = replace(one.turn, usage=one.turn.usage + usage), None

    @rule(name=TURNS)
    def give_up(self, name: str) -> None:
        one = self.turns[name]
        self.do(self.stores[one.by].release_usage(one.turn))
        one.wants = None

    @rule(name=TURNS, by=st.sampled_from([0, 1]))
    def change_hands(self, name: str, by: int) -> None:
        """Another process goes on with a turn, and what was reserved under its old epoch counts no more."""
        one = self.turns[name]
        before = one.turn
        self.do(self.stores[one.by].release(before))
        epoch = self.do(self.stores[by].resume(name)).opening.epoch
        one.turn, one.by, one.wants = replace(before, epoch=epoch), by, None
        with pytest.raises(Fenced):
            self.do(self.stores[by].reserve_usage(before, UsageRequest(Spending(0, 1), BUDGET, ("agent",))))

    @rule(number=st.sampled_from([0, 1]))
    def process_dies(self, number: int) -> None:
        """A process ends without a word; another one takes over what it had."""
        if self.kind == "memory":
            return
        self.do(self.stores[number].close_store())
        for one in self.turns.values():
            if one.by == number:
                one.wants = None
        self.stores[number] = self.opened(number)
        for name, one in self.turns.items():
            if one.by == number:
                epoch = self.do(self.stores[number].resume(name)).opening.epoch
                one.turn = replace(one.turn, epoch=epoch)

    @invariant()
    def the_day_is_exceeded_by_at_most_what_one_call_used_beyond_its_reservation(self) -> None:
        if not self.turns:
            return
        spent = self.do(self.stores[0].spent("agent", NOW))
        assert (spent.tokens, spent.cost_usd) == (self.used, float(self.used))
        assert self.used <= LIMIT + self.beyond


@pytest.mark.parametrize(("kind", "examples"), [("memory", 60), ("sqlite", 10), ("libsql", 3), ("postgres", 2)])
@pytest.mark.usefixtures("postgres")
def test_A7_reservations_keep_all_turns_within_the_day(kind: str, examples: int) -> None:
    machine = type("Machine", (Spenders,), {"kind": kind})
    quietly = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck),
        phases=WITHOUT_SHRINKING,
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=quietly)
