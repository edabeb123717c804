"""Who is alive, and what they had begun: the contract behind the ownership of turns.

A store gives its turns to an owner. An owner is alive while it renews its lease; one that is killed, stopped or cut off
does not, and whoever takes a turn over raises its epoch, which fences the old owner. Before a call is handed to its
executor the owner notes that, where the note survives the process: a call without one has provably not begun.
"""

from collections.abc import Collection
from typing import Protocol

LEASE_S = 30.0


class Liveness(Protocol):
    """One owner's lease, and a look at those of others. No method waits for a disk to flush."""

    name: str

    @property
    def lapses(self) -> int:
        """How often the lease ran out before it was renewed: what was owned then may have been taken over."""
        ...

    def alive(self, owner: str) -> bool:
        """Whether an owner holds its lease."""
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
