"""The chain of the audit log: every row carries a digest of itself and of all rows before it. Pure.

An edit, a deletion or a new order breaks the chain from there on. Whoever can write the whole log can make a new chain,
and a tail can be cut off without a trace: that is what signed checkpoints in a second place are for.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import field
from typing import Any

import orjson

from toolwire.protocol.values import dataclass

BEGINNING = ""
_PATIENCE_S = 120.0  # processes write side by side, and clocks are corrected a little


def link(before: str, row: tuple[Any, ...]) -> str:
    """The digest of a row and of everything before it. The row is what the table holds, without number and digest."""
    return hashlib.sha256(before.encode() + b"\n" + orjson.dumps(row)).hexdigest()


@dataclass(slots=True)
class AuditChain:
    """What a walk along the chain found.

    `unchained` rows are older than the chain; `broken_at` is the number of the first row that does not fit.
    `set_back_at` is the number of the first row that is minutes older than one before it: the clock went back.
    `heads` are the digests at the numbers that were asked for. The first `dropped` rows are no longer kept;
    `cut_is_signed` says whether this user's toolwire has signed where the log was cut.
    """

    rows: int = 0
    unchained: int = 0
    last: int = 0
    head: str = BEGINNING
    broken_at: int | None = None
    set_back_at: int | None = None
    heads: dict[int, str] = field(default_factory=dict)
    dropped: int = 0
    cut_is_signed: bool = True


def walk(
    rows: Iterable[tuple[int, tuple[Any, ...], str]], wanted: frozenset[int], after: tuple[int, str] = (0, BEGINNING)
) -> AuditChain:
    """Walk along numbered rows with their digests, keeping nothing but the sums.

    Rows up to a number were dropped: `after` has that number, and the digest of its row.
    """
    dropped, head = after
    found = AuditChain(last=dropped, head=head, dropped=dropped)
    if dropped in wanted and head != BEGINNING:
        found.heads[dropped] = head
    latest = 0.0
    for number, row, digest in rows:
        found.rows += 1
        if number != found.last + 1 and found.broken_at is None:  # the store numbers rows without a gap
            found.broken_at = number
        if row[0] < latest - _PATIENCE_S and found.set_back_at is None:
            found.set_back_at = number
        found.last, latest = number, max(latest, row[0])
        if not digest and found.head == BEGINNING:
            found.unchained += 1
            continue
        if link(found.head, row) != digest and found.broken_at is None:
            found.broken_at = number
        found.head = digest
        if number in wanted:
            found.heads[number] = digest
    return found
