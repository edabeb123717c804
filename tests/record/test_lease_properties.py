"""Whatever two processes do with the calls of a turn: a call has one holder, and no result of a holder is lost.

The model below knows less than the rules: only which claim on a call is the newest, and whether it may be over.
"""

import asyncio
import tempfile
from collections.abc import Awaitable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from toolwire.errors import CallHeld, Fenced, StoreError
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.records import CallCard
from toolwire.protocol.turns import Ending, EndReason
from toolwire.record.contract import Store, TurnStats
from toolwire.record.libsql import LibsqlStore
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW, database_server, migrated_server
from .samples import a_call, a_card, a_turn, success

T = TypeVar("T")
PROCESSES = st.sampled_from([0, 1])
CALLS = st.sampled_from(["call-1", "call-2"])
LEASE_S = 10_000.0
"""The lease of an owner: so long that no heartbeat comes while a test runs."""
LEASES = st.sampled_from([None, 10.0, 60.0])


@dataclass
class Held:
    """The newest claim on a call."""

    card: CallCard
    by: int


class TwoProcesses(RuleBasedStateMachine):
    kind: ClassVar[str] = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.runner = asyncio.Runner()
        self.stack = ExitStack()
        self.turn = a_turn()
        self.running: int | None = 0
        self.ended = False
        self.newest: dict[str, Held] = {}
        self.old: list[CallCard] = []
        self.results: dict[str, ToolResult] = {}
        self.count = 0
        self.asleep = False

    def do(self, work: Awaitable[T]) -> T:
        async def waited() -> T:
            return await work

        return self.runner.run(waited())

    def failure(self, work: Awaitable[Any]) -> StoreError | None:
        try:
            self.do(work)
        except StoreError as error:
            return error
        return None

    @initialize()
    def begin(self) -> None:
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        clock = lambda: self.now  # noqa: E731
        if self.kind == "memory":
            self.stores: list[Store] = [MemoryStore(clock=clock)] * 2
        elif self.kind == "sqlite":
            self.stores = [self.do(SqliteStore.at(folder / "home", clock=clock)) for _ in range(2)]
        elif self.kind == "machines":
            self.server = self.stack.enter_context(migrated_server(folder))
            homes = (folder / "one", folder / "two")
            self.stores = [
                self.do(LibsqlStore.on(self.server.url, home, clock=clock, lease_s=LEASE_S)) for home in homes
            ]
        else:
            on = self.stack.enter_context(database_server(self.kind, folder))
            self.stores = [self.do(on(folder / "home", clock=clock)) for _ in range(2)]
        self.do(self.stores[0].begin(self.turn))
        self.do(self.stores[1].audit([]))  # both have written once, and so have their leases
        for name in ("call-1", "call-2"):
            self.do(self.stores[0].open(a_card(a_call(name), self.turn), []))

    def teardown(self) -> None:
        for store in getattr(self, "stores", []):
            self.do(store.close_store())
        self.runner.close()
        self.stack.close()

    def card(self, name: str, epoch: int | None = None) -> CallCard:
        return replace(a_card(a_call(name), self.turn), epoch=epoch or self.turn.epoch)

    def may_be_over(self, held: Held, by: int) -> bool:
        """Whether a claim has ended, as one process sees it. No process takes itself for dead."""
        if held.card.until is not None:
            return self.now >= held.card.until
        lost = self.running is None or (self.asleep and by != self.running)
        return lost or self.turn.epoch != held.card.epoch or self.ended

    @rule(by=PROCESSES, name=CALLS, lease_s=LEASES)
    def claim(self, by: int, name: str, lease_s: float | None) -> None:
        if lease_s is None and (by != self.running or self.ended):
            return  # such a claim lasts as long as its process lives, and both live
        until = None if lease_s is None else self.now + lease_s
        before = self.newest.get(name)
        try:
            mine = self.do(self.stores[by].claim(self.card(name), [], until=until))
        except CallHeld:
            assert before is not None
            assert not self.may_be_over(before, by)
            return
        if name in self.results:
            assert mine.result == self.results[name]
            return
        assert before is None or self.may_be_over(before, by), "two claimants hold the call"
        assert mine.token
        assert mine.token not in {card.token for card in self.old}
        if before is not None:
            self.old.append(before.card)
        self.newest[name] = Held(mine, by)

    @rule(name=CALLS)
    def close_as_holder(self, name: str) -> None:
        if (held := self.newest.get(name)) is None:
            return
        self.count += 1
        result = success(held.card.call, text=str(self.count))
        kept = self.do(self.stores[held.by].close(held.card, result, []))
        assert kept == self.results.setdefault(name, result), "the result of the holder was lost"

    @precondition(lambda self: self.old)
    @rule(by=PROCESSES, data=st.data())
    def close_as_an_older_holder(self, by: int, data: st.DataObject) -> None:
        card = data.draw(st.sampled_from(self.old))
        error = self.failure(self.stores[by].close(card, success(card.call, text="old"), []))
        assert isinstance(error, Fenced) == (card.call.id not in self.results)

    @rule(by=PROCESSES, name=CALLS, reads=st.booleans())
    def close_as_the_turn(self, by: int, name: str, reads: bool) -> None:
        """As one does who cancels a turn, or finds a call of which nobody knows whether it took effect.

        Who does not read the call before that knows it as it was opened.
        """
        result, held, card = success(a_call(name), text="by the turn"), self.newest.get(name), self.card(name)
        if reads:
            [kept] = [one for one in self.do(self.stores[by].calls(turn_id=self.turn.id)) if one.call.id == name]
            card = replace(card, attempt=kept.attempt)
        error = self.failure(self.stores[by].close(card, result, []))
        is_known = held is None or held.card.attempt == card.attempt
        if error is None:
            is_free = held is None or held.card.until is None or (self.may_be_over(held, by) and is_known)
            assert is_free or name in self.results
            self.results.setdefault(name, result)
        else:
            assert isinstance(error, CallHeld)
            assert held is not None
            assert not (self.may_be_over(held, by) and is_known)

    @rule(name=CALLS, lease_s=st.sampled_from([5.0, 60.0]))
    def renew(self, name: str, lease_s: float) -> None:
        held = self.newest.get(name)
        if held is None or name in self.results:
            return
        if held.card.until is None and self.may_be_over(held, held.by):
            assert isinstance(self.failure(self.stores[held.by].renew(held.card, self.now + lease_s)), Fenced)
            return
        longer = self.do(self.stores[held.by].renew(held.card, self.now + lease_s))
        assert (longer.token, longer.until) == (held.card.token, self.now + lease_s)
        self.newest[name] = Held(longer, held.by)

    @precondition(lambda self: self.running is not None and not self.ended)
    @rule(begun=st.booleans())
    def release(self, begun: bool) -> None:
        assert self.running is not None
        for name, held in self.newest.items():
            if begun:
                self.stores[held.by].begins(self.turn.id, name)
        self.do(self.stores[self.running].release(self.turn))
        self.running = None
        kept = {card.call.id: card for card in self.do(self.stores[0].calls(turn_id=self.turn.id))}
        for name in [one for one in self.newest if not kept[one].attempt and one not in self.results]:
            assert self.newest[name].card.until is None  # it had not begun, so that nobody holds it any more
            self.old.append(self.newest.pop(name).card)

    @precondition(lambda self: self.running is None and not self.ended)
    @rule(by=PROCESSES)
    def resume(self, by: int) -> None:
        self.turn = replace(self.turn, epoch=self.do(self.stores[by].resume(self.turn.id)).opening.epoch)
        self.running = by

    @precondition(lambda self: self.kind == "machines")
    @rule()
    def leases_run_out(self) -> None:
        """Both machines are stopped for longer than a lease, and go on."""
        self.server.later_s += LEASE_S + 1
        self.asleep = True

    @precondition(lambda self: self.running is not None and not self.ended)
    @rule()
    def take_over(self) -> None:
        """The other process wants a turn that is run: it gets it only if the lease of its owner has run out."""
        assert self.running is not None
        before, other = self.turn, 1 - self.running
        if not self.asleep:
            assert isinstance(self.failure(self.stores[other].resume(self.turn.id)), Fenced)
            return
        self.turn = replace(self.turn, epoch=self.do(self.stores[other].resume(self.turn.id)).opening.epoch)
        assert isinstance(self.failure(self.stores[self.running].release(before)), Fenced), "a late write was kept"
        self.running = other

    @precondition(lambda self: self.running is not None and not self.ended)
    @rule()
    def end(self) -> None:
        assert self.running is not None
        ending = Ending(EndReason.STOPPED, "")
        self.do(self.stores[self.running].end(replace(self.turn, ending=ending), TurnStats()))
        self.ended = True

    @rule(seconds=st.sampled_from([1.0, 11.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def results_stay_as_they_were(self) -> None:
        if not hasattr(self, "stores"):
            return
        for store in self.stores:
            for card in self.do(store.calls(turn_id=self.turn.id)):
                assert card.result == self.results.get(card.call.id)


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize(
    ("kind", "examples"), [("memory", 60), ("sqlite", 10), ("libsql", 3), ("postgres", 2), ("machines", 6)]
)
def test_two_claimants_never_hold_a_call_and_no_result_of_a_holder_is_lost(kind: str, examples: int) -> None:
    machine = type("Machine", (TwoProcesses,), {"kind": kind})
    quietly = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=quietly)
