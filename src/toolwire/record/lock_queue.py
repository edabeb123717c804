"""Who goes first where calls of several processes want the same lock. Pure, the same for every store.

Each call has a ticket with a number, and one line for each thing it claims. It may go once none of its claims is
blocked by a line with a lower number of an owner that is alive. All lines of a ticket are written at once, so that all
queues have the same order and no two calls wait for each other.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from toolwire.record.liveness import Alive


class LockLine(NamedTuple):
    """One claim of a ticket: on a resource, for writing or reading, or on one of `most` places."""

    number: int
    token: str
    owner: str
    resource: str
    writes: bool
    most: int | None = None


def may_go(token: str, lines: Iterable[LockLine], alive: Alive) -> bool | None:
    """Whether the call with this ticket holds all that it claims; None where there is no such ticket.

    A process that slept through its lease finds its tickets removed, and has to queue again.
    """
    known = list(lines)
    mine = [line for line in known if line.token == token]
    return not any(_is_blocked(line, known, alive) for line in mine) if mine else None


def _is_blocked(mine: LockLine, lines: Sequence[LockLine], alive: Alive) -> bool:
    before = [
        line
        for line in lines
        if line.number < mine.number and line.resource == mine.resource and alive(line.owner)
    ]  # fmt: skip
    if mine.most is not None:
        return len(before) >= mine.most
    return any(line.writes or mine.writes for line in before)
