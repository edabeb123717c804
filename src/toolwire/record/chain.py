"""The chain of the audit log: every row carries a digest of itself and of all rows before it. Pure.

An edit, a deletion or a new order breaks the chain from there on. Whoever can write the whole log can make a new chain,
and a tail can be cut off without a trace: that is what signed checkpoints in a second place are for.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

BEGINNING = ""


def link(before: str, row: tuple[Any, ...]) -> str:
    """The digest of a row and of everything before it. The row is what the table holds, without number and digest."""
    return hashlib.sha256(before.encode() + b"\n" + orjson.dumps(row)).hexdigest()


@dataclass(slots=True)
class AuditChain:
    """What a walk along the chain found.

    `unchained` rows are older than the chain; `broken_at` is the number of the first row that does not fit.
    `heads` are the digests at the numbers that were asked for.
    """

    rows: int = 0
    unchained: int = 0
    last: int = 0
    head: str = BEGINNING
    broken_at: int | None = None
    heads: dict[int, str] = field(default_factory=dict)


def walk(rows: Iterable[tuple[int, tuple[Any, ...], str]], wanted: frozenset[int]) -> AuditChain:
    """Walk along numbered rows with their digests, keeping nothing but the sums."""
    found = AuditChain()
    for number, row, digest in rows:
        found.rows += 1
        found.last = number
        if not digest and found.head == BEGINNING:
            found.unchained += 1
            continue
        if link(found.head, row) != digest and found.broken_at is None:
            found.broken_at = number
        found.head = digest
        if number in wanted:
            found.heads[number] = digest
    return found
