"""Which owners are alive, by rows in the database: for a store that several machines share.

Each owner has one row. A thread renews it every third of the lease, over a connection of its own, so that neither the
event loop nor a turn ever waits for it. All dates are the database's own: a machine whose clock is wrong, or jumps,
neither loses its turns nor takes those of others. How long its own lease lasts at least, an owner measures from before
it asked for it, on a clock that goes on while the machine is suspended.

A row says nothing about calls that had begun. Notes about those lie in a file of this machine, as for any other store,
so that the calls of an owner on another machine count as begun once they were claimed. The file also tells at once that
an owner on this machine is dead, whose row would last a while longer.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Collection

from toolwire.errors import StoreError
from toolwire.record.liveness import LEASE_S, Alive
from toolwire.record.owners import Owners
from toolwire.record.shared_clock import SharedClock

NOW = "((julianday('now') - 2440587.5) * 86400.0)"
"""The database's own time, in seconds since 1970. SQLite gives one answer within a statement."""

# A row that ran out and is renewed gets a new generation, and so does one that was swept meanwhile: by that its owner
# learns that others may have taken over what it owns, whatever its own clock says.
_RENEW = f"""
    INSERT INTO owner_leases (owner, until, generation) VALUES (?1, {NOW} + ?2, ?3 + 1)
    ON CONFLICT (owner) DO UPDATE SET until = excluded.until,
        generation = CASE WHEN owner_leases.until <= {NOW} THEN owner_leases.generation + 1
                          ELSE owner_leases.generation END
    RETURNING generation, {NOW}
"""  # noqa: S608 -- our own words
_ROWS = f"SELECT owner, CASE WHEN until > {NOW} THEN 1 ELSE 0 END FROM owner_leases"  # noqa: S608
_LEAVE = "DELETE FROM owner_leases WHERE owner = ?"
_SWEEP = f"""
    DELETE FROM owner_leases
    WHERE until <= {NOW} AND owner NOT IN (SELECT owner FROM turns WHERE state = 'running' AND owner IS NOT NULL)
"""  # noqa: S608
_TIME = f"SELECT {NOW}"
_RETRIES = 10
"""A renewal that failed is tried again so often in the time of a lease."""


def owners_with_lease(connection: sqlite3.Connection) -> frozenset[str]:
    """The names of those whose rows have not run out, alive or not."""
    return frozenset(owner for owner, lasts in connection.execute(_ROWS).fetchall() if lasts)


def suspended_too() -> float:
    """Seconds that pass, also while the machine is suspended, where the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class LeaseRows:
    """This store's own row, and a look at those of others; see `Liveness`."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        local: Owners,
        *,
        lease_s: float = LEASE_S,
        elapsed: Callable[[], float] = suspended_too,
    ) -> None:
        self.clock = SharedClock(elapsed)
        self.name = local.name
        self._connect = connect
        self._local = local
        self._lease_s = lease_s
        self._elapsed = elapsed
        self._guard = threading.Lock()
        self._generation = 0
        self._lapses = 0
        self._is_written = False
        self._is_in_doubt = False  # whether it was written in a transaction that is not committed yet
        self._until: float | None = None  # none before the first lease, and from a lapse that was counted to the next
        self._until_committed: float | None = None  # the same if the transaction that renewed it is rolled back
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.mark, self.unmark, self.erase, self.begun = local.mark, local.unmark, local.erase, local.begun

    def ask_time(self, connection: sqlite3.Connection) -> None:
        """Set the clock that all machines share. Each renewal of the row does that again."""
        asked = self._elapsed()
        (time,) = connection.execute(_TIME).fetchone()
        self.clock.learn(asked, time)

    @property
    def lapses(self) -> int:
        if self._has_run_out(self._elapsed()):
            with self._guard:
                if self._has_run_out(self._elapsed()):
                    self._lapse()
        return self._lapses

    def alive_on(self, connection: sqlite3.Connection) -> Alive:
        """The rows are read once in a transaction, and only if some owner is asked about."""
        rows: dict[str, bool] | None = None

        def alive(owner: str) -> bool:
            nonlocal rows
            if owner == self.name:
                return not self._closed.is_set()
            if rows is None:
                rows = {name: bool(lasts) for name, lasts in connection.execute(_ROWS).fetchall()}
            lasts = rows.get(owner)
            if lasts is None:  # a process of an earlier version has a file only
                return self._local.alive(owner)
            return lasts and not self._local.is_gone(owner)

        return alive

    def join(self, connection: sqlite3.Connection) -> None:
        """The row comes with the first change, so that who only reads writes nothing."""
        asked = self._elapsed()
        with self._guard:  # what was renewed in an earlier transaction is committed, or was rolled back
            self._until_committed = self._until
            self._is_in_doubt = False
            if self._is_written and self._until is not None and asked <= self._until:
                return
        connection.execute(_SWEEP)
        self._renew(asked, connection, is_committed=False)
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_renewing, name="toolwire-store-heartbeat", daemon=True)
            self._thread.start()

    def rolled_back(self) -> None:
        """The row may have gone with it. The next transaction writes it again, and so does the next renewal."""
        with self._guard:
            self._is_written = self._is_written and not self._is_in_doubt
            self._until = self._until_committed

    def sweep(self, in_use: Collection[str]) -> None:
        self._local.sweep(in_use)

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            if self._thread is not None:
                self._thread.join()
        self._local.close()

    def _renew(self, asked: float, connection: sqlite3.Connection, *, is_committed: bool = True) -> None:
        """Renew the row, and take note of how long it lasts at least, counted from when it was `asked` for."""
        renewed = connection.execute(_RENEW, (self.name, self._lease_s, self._generation))
        generation, time = renewed.fetchone()
        if is_committed:  # in a transaction it may have waited for other writers
            self.clock.learn(asked, time)
        with self._guard:
            if self._until is not None and (generation != self._generation or self._has_run_out(asked)):
                self._lapse()
            is_first = not self._generation
            self._generation = generation
            self._until = asked + self._lease_s
            self._is_written, self._is_in_doubt = True, not is_committed
            if is_committed or is_first:
                self._until_committed = self._until

    def _has_run_out(self, now: float) -> bool:
        until = self._until
        return until is not None and now > until

    def _lapse(self) -> None:
        self._lapses += 1
        self._until = self._until_committed = None

    def _keep_renewing(self) -> None:
        """The heartbeat. Where the database cannot be reached the lease runs out, and what it owns is fenced."""
        pause_s = self._lease_s / 3
        connection: sqlite3.Connection | None = None
        while not self._closed.wait(pause_s):
            pause_s = self._lease_s / 3
            try:
                connection = connection or self._connect()
                self._renew(self._elapsed(), connection)
            except (sqlite3.Error, StoreError, OSError):
                pause_s = self._lease_s / _RETRIES
                _drop(connection)
                connection = None
        with contextlib.suppress(sqlite3.Error, StoreError, OSError):  # a row that stays runs out
            connection = connection or self._connect()
            connection.execute(_LEAVE, (self.name,))
        _drop(connection)


def _drop(connection: sqlite3.Connection | None) -> None:
    """After an error a connection may stay unusable."""
    if connection is not None:
        with contextlib.suppress(sqlite3.Error):
            connection.close()
