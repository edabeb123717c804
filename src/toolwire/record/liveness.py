"""Which owners are alive, and what they had begun: the contract behind the ownership of turns.

A store gives its turns to an owner. An owner is alive while it renews its lease; one that is killed, stopped or cut off
does not. The next process takes its turns over and raises their epoch, which fences the old owner. Before a call is
handed to its executor the owner notes that, where the note survives the process: a call without one has provably not
begun.

There are two implementations. Which one is used belongs to the store:

- `owners.Owners` locks a file, for stores that the processes of one machine share (SQLite);
- `lease_rows.LeaseRows` keeps a row in the database, by the database's own clock, for stores that machines share.
"""

import sqlite3
from collections.abc import Callable, Collection
from typing import Protocol

LEASE_S = 30.0

Alive = Callable[[str], bool]
"""Whether an owner holds its lease."""


class Liveness(Protocol):
    """One owner's lease, and a look at those of others. No method waits for a disk to flush.

    `alive_on`, `join` and `rolled_back` are called inside a transaction, by the thread that writes or reads.
    """

    name: str

    @property
    def lapses(self) -> int:
        """How often the lease may have run out before it was renewed: what was owned then may have been taken over.

        Asked on the event loop, so it is answered from what is known here.
        """
        ...

    def alive_on(self, connection: sqlite3.Connection) -> Alive:
        """Says which owners hold their lease, as the transaction of this connection sees it."""
        ...

    def join(self, connection: sqlite3.Connection) -> None:
        """A transaction begins that may own something: from its commit on, others must see this owner alive."""
        ...

    def rolled_back(self) -> None:
        """That transaction came to nothing."""
        ...

    def mark(self, turn_id: str, call_id: str) -> None:
        """Note that a call begins. Raises OSError when neither the note can be kept nor that there are no notes."""
        ...

    def unmark(self, turn_id: str, call_id: str) -> None:
        """The result of a call is on record, so that its note is needed no more."""
        ...

    def erase(self, turn_id: str, call_id: str) -> None:
        """A call that began has stopped without effect and begins again later. If this fails, it counts as begun."""
        ...

    def begun(self, owner: str) -> "Collection[bytes] | None":
        """The keys of the calls that an owner had begun; None where that is not known, or it may still begin some."""
        ...

    def sweep(self, in_use: Collection[str]) -> None:
        """Remove what owners left that are gone, except for those that still own turns."""
        ...

    def close(self) -> None:
        """Give up the lease, so that others may take over what it owns. Harmless when called twice."""
        ...
