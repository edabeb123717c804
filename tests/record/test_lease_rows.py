"""Leases as rows and as files, each by itself: when an owner is alive, and what it is told about itself."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolwire.errors import StoreUnavailable
from toolwire.record import schema
from toolwire.record.lease_rows import LeaseRows, suspended_too
from toolwire.record.owners import Owners
from toolwire.testing import FrozenClock

LEASE_S = 30.0
BOUND_S = 20


class Database:
    """A file with the tables of a store, and a clock of its own. It can be out of reach."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now, self.is_down = folder, 1_000_000.0, False
        self.writes = threading.Semaphore(0)
        self.open: list[sqlite3.Connection] = []
        schema.migrate(self.connect(), folder / "store.db")

    def connect(self) -> sqlite3.Connection:
        if self.is_down:
            self.writes.release()
            raise StoreUnavailable("out of reach")
        connection = sqlite3.connect(
            self.folder / "store.db", isolation_level=None, check_same_thread=False, timeout=20
        )
        connection.create_function("julianday", 1, self._julian_day)
        connection.set_trace_callback(self._noted)
        self.open.append(connection)
        return connection

    def _julian_day(self, _: str) -> float:
        if self.is_down:
            raise StoreUnavailable("out of reach")  # which is an error of the statement
        return self.now / 86_400 + 2_440_587.5

    def _noted(self, sql: str) -> None:
        if "INSERT INTO owner_leases" in sql:
            self.writes.release()

    def rows(self) -> list[tuple[str, float, int]]:
        rows = self.open[0].execute("SELECT owner, until, generation FROM owner_leases ORDER BY owner").fetchall()
        return [(owner, round(until - self.now, 3), generation) for owner, until, generation in rows]


Lease = Callable[..., LeaseRows]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database(tmp_path)
    yield found
    for connection in found.open:
        connection.close()


@pytest.fixture
def elapsed() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def lease(database: Database, elapsed: FrozenClock) -> Iterator[Lease]:
    """Makes owners, each on a machine of its own."""
    made: list[LeaseRows] = []

    def make(machine: str, lease_s: float = LEASE_S) -> LeaseRows:
        files = Owners(database.folder / machine / "owners", lease_s=lease_s, monotonic=elapsed)
        made.append(LeaseRows(database.connect, files, lease_s=lease_s, elapsed=elapsed))
        return made[-1]

    for machine in ("one", "two"):
        (database.folder / machine).mkdir()
    yield make
    for one in made:
        one.close()


def joined(one: LeaseRows, database: Database) -> LeaseRows:
    one.join(database.open[0])
    return one


def sees(one: LeaseRows, other: LeaseRows, database: Database) -> bool:
    return one.alive_on(database.open[0])(other.name)


def test_an_owner_is_alive_from_its_first_change_on_until_its_lease_has_run_out(
    database: Database, lease: Lease
) -> None:
    one, two = lease("one"), lease("two")
    assert (sees(two, one, database), database.rows()) == (False, [])
    joined(one, database)
    assert (sees(two, one, database), database.rows()) == (True, [(one.name, LEASE_S, 1)])
    database.now += LEASE_S - 1
    assert sees(two, one, database)
    database.now += 1.01
    assert not sees(two, one, database)
    assert sees(one, one, database)


def test_the_row_is_written_once_and_again_only_when_the_lease_has_run_out_here(
    database: Database, lease: Lease, elapsed: FrozenClock
) -> None:
    one = joined(lease("one"), database)
    elapsed.advance(LEASE_S)
    joined(one, database)
    assert (database.writes.acquire(blocking=False), database.writes.acquire(blocking=False)) == (True, False)
    one.rolled_back()  # which the row outlasts, as it was committed before
    joined(one, database)
    assert not database.writes.acquire(blocking=False)
    elapsed.advance(0.01)
    joined(one, database)
    assert database.writes.acquire(blocking=False)
    assert one.lapses == 1
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("toolwire-store"))


def test_the_clock_of_a_lease_goes_forward() -> None:
    assert 0 < suspended_too() <= suspended_too()


def test_an_owner_counts_each_lapse_of_its_lease_once(database: Database, lease: Lease, elapsed: FrozenClock) -> None:
    one = lease("one")
    elapsed.advance(100 * LEASE_S)
    assert one.lapses == 0  # it had none to lose
    joined(one, database)
    elapsed.advance(LEASE_S)
    assert one.lapses == 0
    elapsed.advance(0.01)
    assert (one.lapses, one.lapses) == (1, 1)
    joined(one, database)
    assert one.lapses == 1
    elapsed.advance(LEASE_S + 1)
    assert one.lapses == 2


@pytest.mark.parametrize("fails_half_way", [False, True])
def test_an_owner_that_is_cut_off_notices_that_its_lease_ran_out_also_after_a_write_that_failed(
    database: Database, lease: Lease, elapsed: FrozenClock, fails_half_way: bool
) -> None:
    one = joined(lease("one"), database)
    if fails_half_way:
        one.rolled_back()
    database.is_down = True
    assert one.lapses == 0
    elapsed.advance(10 * LEASE_S)
    assert (one.lapses, one.lapses) == (1, 1)


def test_a_renewal_that_was_rolled_back_does_not_count(database: Database, lease: Lease, elapsed: FrozenClock) -> None:
    one = joined(lease("one"), database)
    one.rolled_back()
    elapsed.advance(LEASE_S - 1)
    joined(one, database)  # in a transaction that fails, too
    one.rolled_back()
    assert one.lapses == 0
    elapsed.advance(2)
    assert one.lapses == 1
    joined(one, database)
    one.rolled_back()
    elapsed.advance(2 * LEASE_S)
    assert one.lapses == 1  # it had none to lose


def test_a_renewal_that_was_committed_outlasts_a_later_write_that_failed(
    database: Database, lease: Lease, elapsed: FrozenClock
) -> None:
    one = joined(lease("one"), database)
    one.rolled_back()
    elapsed.advance(LEASE_S - 1)
    joined(one, database)
    joined(one, database)  # the next transaction, so that the one before was committed
    one.rolled_back()
    elapsed.advance(LEASE_S)
    assert one.lapses == 0
    elapsed.advance(1)
    assert one.lapses == 1


def test_a_lapse_that_both_clocks_tell_is_counted_once(database: Database, lease: Lease, elapsed: FrozenClock) -> None:
    one = joined(lease("one"), database)
    elapsed.advance(LEASE_S + 1)
    database.now += LEASE_S + 1
    assert one.lapses == 1
    joined(one, database)
    assert (one.lapses, database.rows()) == (1, [(one.name, LEASE_S, 2)])


def test_an_owner_learns_from_the_database_that_its_lease_had_run_out(
    database: Database, lease: Lease, elapsed: FrozenClock
) -> None:
    """Its own clock says otherwise: the machine of the database was ahead."""
    one = joined(lease("one"), database)
    database.now += LEASE_S + 1
    one.rolled_back()
    joined(one, database)
    assert (one.lapses, database.rows()) == (1, [(one.name, LEASE_S, 2)])
    one.rolled_back()
    joined(one, database)
    assert (one.lapses, database.rows()) == (1, [(one.name, LEASE_S, 2)])


def test_an_owner_whose_row_was_swept_learns_that_too(database: Database, lease: Lease) -> None:
    one, two = joined(lease("one"), database), lease("two")
    database.now += LEASE_S + 1
    joined(two, database)
    assert [owner for owner, *_ in database.rows()] == [two.name]
    one.rolled_back()
    joined(one, database)
    assert (one.lapses, sees(two, one, database)) == (1, True)


def test_the_row_of_an_owner_that_still_has_turns_is_not_swept(database: Database, lease: Lease) -> None:
    one, two = joined(lease("one"), database), lease("two")
    columns = "id, project, agent, thread, model, epoch, owner, state, opening, started_at, updated_at"
    database.open[0].execute(
        f"INSERT INTO turns ({columns}) VALUES ('t', 'p', 'a', '', '', 1, ?, 'running', '{{}}', 1.0, 1.0)",
        (one.name,),
    )
    database.now += LEASE_S + 1
    joined(two, database)
    assert {owner for owner, *_ in database.rows()} == {one.name, two.name}


def test_the_heartbeat_renews_the_row_and_tries_again_when_the_database_was_out_of_reach(
    database: Database, lease: Lease
) -> None:
    one = joined(lease("one", 0.3), database)
    for _ in range(3):
        assert database.writes.acquire(timeout=BOUND_S)
    database.is_down = True
    for _ in range(4):  # a statement that fails, then connections
        assert database.writes.acquire(timeout=BOUND_S)
    database.now += 100
    database.is_down = False
    while database.rows()[0][1] < 0:
        assert database.writes.acquire(timeout=BOUND_S)
    assert (database.rows()[0][2], one.lapses) == (2, 1)


def test_an_owner_that_closes_leaves_no_row_and_is_not_alive(database: Database, lease: Lease) -> None:
    one, two = joined(lease("one"), database), joined(lease("two"), database)
    one.close()
    one.close()
    assert [owner for owner, *_ in database.rows()] == [two.name]
    assert not sees(two, one, database)
    assert not sees(one, one, database)


def test_an_owner_that_never_wrote_closes_without_the_database(database: Database, lease: Lease) -> None:
    one = lease("one")
    database.is_down = True
    one.close()
    assert not database.writes.acquire(blocking=False)


def test_a_dead_owner_of_this_machine_is_known_before_its_row_has_run_out(database: Database, lease: Lease) -> None:
    one, two, other = joined(lease("one"), database), lease("one"), lease("two")
    assert sees(two, one, database)
    os.close(one._local._lock)  # as the system does for a process that is gone
    one._local._lock = -1
    assert (sees(two, one, database), sees(other, one, database)) == (False, True)


def test_an_owner_of_an_earlier_version_has_a_file_and_no_row(database: Database, lease: Lease) -> None:
    old, one, other = lease("one"), lease("one"), lease("two")
    assert (sees(one, old, database), sees(other, old, database)) == (True, False)


def test_the_rows_are_read_once_in_a_transaction(database: Database, lease: Lease) -> None:
    one, two = joined(lease("one"), database), lease("two")
    alive = two.alive_on(database.open[0])
    assert alive(one.name)
    database.now += LEASE_S + 1
    assert alive(one.name)
    assert not alive("missing")
    assert not sees(two, one, database)


def test_notes_about_calls_are_those_of_the_machine(database: Database, lease: Lease) -> None:
    one, other = lease("one"), lease("two")
    one.mark("turn", "call")
    assert one.begun(one.name)
    one.erase("turn", "call")
    assert one.begun(one.name) == frozenset()
    assert other.begun(one.name) is None


def test_the_clock_that_machines_share_is_that_of_the_database(
    database: Database, lease: Lease, elapsed: FrozenClock
) -> None:
    """C42: whatever the clocks of the machines say, or how they jump, dates are the same on all of them."""
    one, two = lease("one"), lease("two")
    for owner in (one, two):
        owner.ask_time(database.open[0])
    assert one.clock() == two.clock() == pytest.approx(database.now)

    elapsed.advance(5)
    assert one.clock() == pytest.approx(database.now + 5)

    database.now += 3  # this machine's clock had gone 2 s too fast
    one._renew(elapsed(), database.open[0])
    assert one.clock() == pytest.approx(database.now)
    assert two.clock() == pytest.approx(database.now + 2)
