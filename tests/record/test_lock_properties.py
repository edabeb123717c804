"""Whatever calls of two processes queue for, hold and leave: no lock has two holders, and every wait ends."""

import asyncio
import tempfile
from collections.abc import Awaitable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from toolwire.plan.resources import LockClaim
from toolwire.record.contract import Store
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW, database_server

T = TypeVar("T")
PLACES = 2
CLAIMS = st.lists(
    st.sampled_from(
        [LockClaim(f"shared:{name}", writes=writes) for name in "ab" for writes in (False, True)]
        + [LockClaim("tool:work", writes=False, most=PLACES)]
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda claim: claim.resource,
)


@dataclass
class Queued:
    """A call that waits or holds, in which process, and what for."""

    by: int
    claims: list[LockClaim]


def conflict(one: LockClaim, other: LockClaim) -> bool:
    return one.resource == other.resource and (one.writes or other.writes)


class Queuing(RuleBasedStateMachine):
    kind: ClassVar[str] = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = ExitStack()
        self.queue: dict[str, Queued] = {}
        self.tokens = count()

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

    def holds(self, token: str) -> bool | None:
        return self.do(self.stores[self.queue[token].by].holds_locks(token))

    @rule(by=st.sampled_from([0, 1]), claims=CLAIMS)
    def queue_up(self, by: int, claims: list[LockClaim]) -> None:
        token = f"token-{next(self.tokens)}"
        at_once = self.do(self.stores[by].queue_locks(claims, token))
        self.queue[token] = Queued(by, claims)
        assert at_once is self.holds(token)

    @precondition(lambda self: self.queue)
    @rule(data=st.data(), twice=st.booleans())
    def leave(self, data: st.DataObject, twice: bool) -> None:
        """A call that held or still waited goes away."""
        token = data.draw(st.sampled_from(sorted(self.queue)))
        store = self.stores[self.queue.pop(token).by]
        for _ in range(1 + twice):
            self.do(store.release_locks(token))
        assert self.do(store.holds_locks(token)) is None

    @rule(number=st.sampled_from([0, 1]))
    def process_dies(self, number: int) -> None:
        if self.kind == "memory":
            return
        self.do(self.stores[number].close_store())
        self.queue = {token: one for token, one in self.queue.items() if one.by != number}
        self.stores[number] = self.opened(number)

    @rule()
    def another_project_has_locks_of_its_own(self) -> None:
        claims = [LockClaim("shared:a", writes=True)]
        assert self.do(self.stores[0].queue_locks(claims, "theirs", project="garden"))
        self.do(self.stores[1].release_locks("theirs", project="garden"))

    @invariant()
    def no_two_holders_are_in_conflict_and_the_first_of_all_holds(self) -> None:
        holders = [one for token, one in self.queue.items() if self.holds(token)]
        for place, one in enumerate(holders):
            for other in holders[:place]:
                assert not any(conflict(mine, theirs) for mine in one.claims for theirs in other.claims)
        assert sum(claim.most is not None for one in holders for claim in one.claims) <= PLACES
        if self.queue:
            assert self.holds(next(iter(self.queue))) is True, "the one who came first waits for nobody"


@pytest.mark.parametrize(("kind", "examples"), [("memory", 60), ("sqlite", 10), ("libsql", 3), ("postgres", 2)])
@pytest.mark.usefixtures("postgres")
def test_shared_locks_have_no_two_holders_and_every_wait_ends(kind: str, examples: int) -> None:
    machine = type("Machine", (Queuing,), {"kind": kind})
    quietly = settings(
        max_examples=examples, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=quietly)
