"""The chains of the audit log: every row carries a digest of itself and of all rows of its chain before it. Pure.

Each project has chains of its own, so that it can prove its part of the log without a row of another. The processes of
one folder are one writer. Machines that share a database are several, each with a chain (of each project) and a count
of its own, so that none has to wait for the newest row of another; a checkpoint is over the newest rows of all of them.
A log that is older than that begins with rows in a chain of each writer that all projects share.

An edit, a deletion or a new order breaks the chain from there on. A writer of the whole log can make a new chain,
and a tail can be cut off without a trace: that is what signed checkpoints in a second place are for.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from msgspec import Struct, field

BEGINNING = ""
_PATIENCE_S = 120.0  # processes write side by side, and clocks are corrected a little


def link(before: str, row: tuple[Any, ...]) -> str:
    """The digest of a row and of everything before it. The row is what the table holds, without number and digest."""
    return hashlib.sha256(before.encode() + b"\n" + orjson.dumps(row)).hexdigest()


def link_own(before: str, row: tuple[Any, ...], writer: str, number: int) -> str:
    """The digest of a row in the chain of a named writer, which counts its rows itself."""
    return link(before, (*row, writer, number) if writer else row)


ChainKey = tuple[str, str]
"""Whose chain it is: of which writer, and of which project. That of all projects together has an empty one."""
Heads = Mapping[ChainKey, tuple[int, str]]
"""Of each chain, the number and the digest of its newest row."""


def head_of(heads: Heads) -> str:
    """One digest over the newest rows of all chains; where there is one of one writer, that of its own row.

    A project's chain goes on from the shared one, so that where there are those two, the newer stands for both.
    """
    own = [key for key in heads if key[1]]
    only = own or list(heads)
    if len(only) == 1 and all(writer == only[0][0] for writer, _ in heads):
        return heads[only[0]][1]
    return hashlib.sha256(write_heads(heads).encode()).hexdigest() if heads else BEGINNING


def write_heads(heads: Heads) -> str:
    """The heads as a text that is kept, and signed, where the log is cut."""
    if heads.keys() <= {("", "")}:
        return heads["", ""][1] if heads else BEGINNING
    rows = [[writer, *heads[writer, whose], *([whose] if whose else [])] for writer, whose in sorted(heads)]
    return orjson.dumps(rows).decode()


def read_heads(text: str, upto: int) -> dict[ChainKey, tuple[int, str]]:
    """The heads again; a log that had one writer without a name was cut after its row `upto`."""
    if not text.startswith("["):
        return {("", ""): (upto, text)} if upto else {}
    return {
        (writer, whose[0] if whose else ""): (number, digest) for writer, number, digest, *whose in orjson.loads(text)
    }


class AuditChain(Struct):
    """What a walk along the chains found, of all projects or of one. Each writer has a chain, and its own count.

    `unchained` rows are older than the chain; `broken_at` is the number of the first row that does not fit.
    `set_back_at` is the number of the first row that is minutes older than one before it: the clock went back.
    `heads` are the digests over all writers at the numbers that were asked for, `head` is the newest. The first
    `dropped` rows are no longer kept; `cut_is_signed` says whether this user's toolwire has signed where the log was
    cut.
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
    writers: dict[ChainKey, tuple[int, str]] = field(default_factory=dict)
    project: str = ""


KeptRow = tuple[int, tuple[Any, ...], str, str, int | None]
"""A row's number in the log, what it says, its digest, and who wrote it as which of its own rows."""


def walk(
    rows: Iterable[KeptRow],
    wanted: frozenset[int],
    dropped: int = 0,
    heads: Heads | None = None,
    *,
    shared_upto: int = 0,
    project: str = "",
) -> AuditChain:
    """Walk along numbered rows with their digests, keeping nothing but the sums.

    The rows up to number `dropped` are gone; `heads` are those of that row. Of a `project` alone come the rows in the
    chains that all projects share, and then its own, which are not numbered without gaps.
    """
    found = AuditChain(last=dropped, dropped=dropped, writers=_own_heads(heads or {}, project), project=project)
    if dropped in wanted and head_of(found.writers) != BEGINNING:
        found.heads[dropped] = head_of(found.writers)
    latest = 0.0
    for number, row, digest, writer, own in rows:
        found.rows += 1
        whose = row[2] if number > shared_upto else ""
        before, head = found.writers.get((writer, whose)) or found.writers.get((writer, ""), (0, BEGINNING))
        count = number if own is None else own
        has_gap = number != found.last + 1 and (not project or number <= shared_upto)
        is_next = not has_gap and number > found.last and (not writer or count == before + 1)
        if row[0] < latest - _PATIENCE_S and found.set_back_at is None:
            found.set_back_at = number
        found.last, latest = number, max(latest, row[0])
        is_older = not digest and head == BEGINNING
        if not is_next or not (is_older or link_own(head, row, writer, count) == digest):
            found.broken_at = number if found.broken_at is None else found.broken_at
        if is_older:
            found.unchained += 1
            continue
        found.writers[writer, whose] = (count, digest)
        if number in wanted:
            found.heads[number] = head_of(found.writers)
    found.head = head_of(found.writers)
    return found


def _own_heads(heads: Heads, project: str) -> dict[ChainKey, tuple[int, str]]:
    """The heads that a walk begins with: all of them, or those of one project and the shared ones."""
    return {key: head for key, head in heads.items() if not project or key[1] in ("", project)}
