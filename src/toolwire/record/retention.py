"""What of a store may go: by age and size, for each kind. Nothing goes that is still needed.

Turns that have not ended, threads that were spoken in since, pending approvals and approvals of patterns stay. Sums
(metrics, budgets) are kept apart from what was summed, so they stay exact. The audit log is cut only at its beginning:
the number and digest of the last row that goes are signed and stay, so that the rest still proves itself. Records stay
until they are deleted or expire; what happened to them is told for some days.
"""

import math
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from toolwire.errors import StoreError
from toolwire.lazy import lazy_pattern
from toolwire.record.audit_heads import heads_at
from toolwire.record.ownership import FOLDER_FLAGS
from toolwire.record.rows import TurnKey
from toolwire.record.transaction import Transaction

AT_ONCE, FEW_AT_ONCE = 200, 20
CUT = "audit cut"
ROWS_AT_ONCE = 5_000
DAY_S = 86_400.0
UNNAMED_DAYS = 7.0  # `te` keeps outputs in the same folder for a week
_ROW_BYTES = 300
_ROWS_BEFORE_PAUSE = 500
_HANDLES = lazy_pattern(r"sha256:([0-9a-f]{64})", re.ASCII)
_LOG = lazy_pattern(r"audit-\d{4}-\d\d-\d\d\.jsonl", re.ASCII)
_SHELF = lazy_pattern(r"[0-9a-f]{2}", re.ASCII)
_BODY = lazy_pattern(r"[0-9a-f]{62}", re.ASCII)

_TURN_SIZES = """
    SELECT updated_at, length(opening) + coalesce(length(history), 0) + ?1 +
           (SELECT coalesce(sum(length(context) + ?1), 0) FROM records
            WHERE turn_id = turns.id AND records.project = turns.project)
    FROM turns ORDER BY seq DESC
"""
_OLD_TURNS = """
    SELECT project, id FROM turns t WHERE state = 'ended' AND updated_at < ?1
        AND (thread = '' OR NOT EXISTS (
            SELECT 1 FROM turns o WHERE o.thread = t.thread AND o.project = t.project
                AND (o.state <> 'ended' OR o.updated_at >= ?1)))
    ORDER BY seq
"""
_DROP_TURN = (
    "DELETE FROM records WHERE project = ? AND turn_id = ?",
    "DELETE FROM starts WHERE project = ? AND turn_id = ?",
    "DELETE FROM dispatches WHERE project = ? AND turn_id = ?",
    "DELETE FROM lent WHERE project = ? AND root = ?",
    "DELETE FROM result_cards WHERE project = ? AND turn_id = ?",
    "DELETE FROM events WHERE project = ? AND turn_id = ? AND seq < (SELECT max(seq) FROM events)",
    "DELETE FROM turns WHERE project = ? AND id = ?",
)
_DROP_APPROVALS = "DELETE FROM approvals WHERE project = ? AND turn_id = ? AND stands_until <= ?"
_KEEP_CURSORS = tuple(
    f"""
    INSERT INTO cursor_floors VALUES ('{kind}', (SELECT coalesce(max(seq), 0) FROM {kind}))
    ON CONFLICT (kind) DO UPDATE SET seq = max(cursor_floors.seq, excluded.seq)
    """  # noqa: S608 -- our own names
    for kind in ("turns", "approvals")
)
# Records come with every call, and looking up a floor would cost each of them: a row of its own holds the place.
_DROP_CURSOR = "DELETE FROM records WHERE turn_id IS NULL AND schema_name = 'cursor.floor' AND seq < ?"
_KEEP_RECORDS_CURSOR = """
    INSERT INTO records (seq, id, project, schema_name, title, context, created_by, created_at)
    SELECT CAST(?1 AS INTEGER), 'cursor-floor', 'default', 'cursor.floor', '', '{}', '', 0
    WHERE ?1 > (SELECT coalesce(max(seq), 0) FROM records)
"""
_FIRST_OPEN = """
    SELECT min(seq) FROM audit WHERE (turn_id, project) IN (SELECT id, project FROM turns WHERE state <> 'ended')
"""
_NAMING = "SELECT context FROM records WHERE schema_name = 'tool.result' AND context LIKE '%sha256:%'"
_NAMED_BY_OPEN = """
    SELECT context FROM records WHERE schema_name = 'tool.result' AND context LIKE '%sha256:%'
    AND (turn_id, project) IN (SELECT id, project FROM turns WHERE state <> 'ended')
"""
# Records stay until they are deleted or expire, and so does what they name.
_NAMED_BY_RECORDS = """
    SELECT body FROM shared_records WHERE body LIKE '%sha256:%'
    UNION ALL SELECT body FROM record_versions WHERE body LIKE '%sha256:%'
"""

T = TypeVar("T")


class KeepLimits(Struct, frozen=True):
    """How long things of one kind are kept, and how many bytes of them; None is no limit."""

    days: float | None = None
    max_bytes: int | None = None


class Retention(Struct, frozen=True):
    """What is kept of turns with their calls, of the audit log, of large bodies and of log files."""

    turns: KeepLimits = KeepLimits()
    audit: KeepLimits = KeepLimits()
    bodies: KeepLimits = KeepLimits()
    logs: KeepLimits = KeepLimits()


class PrunePace(Struct):
    """How fast to prune: with pauses, and not beyond a time of the monotonic clock or when it was stopped."""

    until: float = math.inf
    pause_s: float = 0.005
    stopped: bool = False

    def stop(self) -> None:
        self.stopped = True

    def is_over(self) -> bool:
        return self.stopped or time.monotonic() >= self.until

    def rows(self, rows: Iterator[T]) -> Iterator[T]:
        """The rows, with a pause every now and then; a part of them where the time is over."""
        for number, row in enumerate(rows, 1):
            if number % _ROWS_BEFORE_PAUSE == 0:
                if self.is_over():
                    return
                time.sleep(self.pause_s)
            yield row


AT_FULL_SPEED = PrunePace(pause_s=0.0)


class Pruned(Struct):
    """What has gone, or would."""

    turns: int = 0
    calls: int = 0
    audit_rows: int = 0
    bodies: int = 0
    body_bytes: int = 0
    log_files: int = 0
    staging_files: int = 0
    record_changes: int = 0

    def counts(self) -> dict[str, int]:
        return asdict(self)


class AuditCut(Struct, frozen=True):
    """The last row of the audit log that is no longer kept: its number and digest, signed."""

    seq: int
    head: str
    at: float
    signature: str = ""

    @property
    def content(self) -> bytes:
        return f"{self.seq}\n{self.head}\n{self.at!r}".encode()


def old_turns(connection: sqlite3.Connection, keep: KeepLimits, now: float) -> list[TurnKey]:
    """The turns that may go, oldest first."""
    cutoff = max(_before(keep, now), _size_cutoff(connection.execute(_TURN_SIZES, (_ROW_BYTES,)), keep.max_bytes))
    if cutoff == -math.inf:
        return []
    return [(project, turn_id) for project, turn_id in connection.execute(_OLD_TURNS, (cutoff,))]


def calls_of(connection: sqlite3.Connection, turns: Sequence[TurnKey]) -> int:
    counted = "SELECT count(*) FROM records WHERE project = ? AND turn_id = ? AND schema_name = 'tool.call'"
    return sum(connection.execute(counted, key).fetchone()[0] for key in turns)


def drop_turns(tx: Transaction, turns: Sequence[TurnKey], now: float) -> int:
    """Drop turns with all that belongs to them, unless they are open again; how many went."""
    dropped = 0
    tx.flush()
    for statement in _KEEP_CURSORS:
        tx.connection.execute(statement)
    (newest,) = tx.connection.execute("SELECT coalesce(max(seq), 0) FROM records").fetchone()
    for key in turns:
        kept = tx.connection.execute("SELECT state FROM turns WHERE project = ? AND id = ?", key).fetchone()
        if kept != ("ended",):
            continue
        for statement in _DROP_TURN:
            tx.connection.execute(statement, key)
        tx.connection.execute(_DROP_APPROVALS, (*key, now))
        tx.known.turns.pop(key, None)
        dropped += 1
    tx.known.forget_calls(set(turns))
    tx.connection.execute(_DROP_CURSOR, (newest,))
    tx.connection.execute(_KEEP_RECORDS_CURSOR, (newest,))
    return dropped


def audit_cut(connection: sqlite3.Connection, keep: KeepLimits, now: float) -> tuple[int, str]:
    """The number and digest of the last audit row that may go; 0 if none. The newest row always stays."""
    newest = connection.execute("SELECT coalesce(max(seq), 0) FROM audit").fetchone()[0]
    cutoff = _before(keep, now)
    young = connection.execute("SELECT seq FROM audit WHERE at >= ? ORDER BY seq LIMIT 1", (cutoff,)).fetchone()
    by_age = 0 if cutoff == -math.inf else (young[0] - 1 if young else newest)
    sizes = connection.execute("SELECT seq, length(detail) + ? FROM audit ORDER BY seq DESC", (_ROW_BYTES,))
    by_size = _size_cutoff(sizes, keep.max_bytes, inclusive=False)
    first_open = connection.execute(_FIRST_OPEN).fetchone()[0]
    upto = min(int(max(by_age, by_size, 0)), newest - 1, newest if first_open is None else first_open - 1)
    row = connection.execute("SELECT 1 FROM audit WHERE seq = ?", (upto,)).fetchone()
    return (upto, heads_at(connection, upto)) if row else (0, "")


def newest_cut(connection: sqlite3.Connection) -> AuditCut | None:
    row = connection.execute("SELECT seq, head, at, signature FROM audit_cuts ORDER BY seq DESC LIMIT 1").fetchone()
    return AuditCut(*row) if row else None


def rows_until(connection: sqlite3.Connection, upto: int) -> int:
    return int(connection.execute("SELECT count(*) FROM audit WHERE seq <= ?", (upto,)).fetchone()[0])


def cut_audit(tx: Transaction, cut: AuditCut) -> int:
    """Keep where the log is cut, and drop some of the rows before; how many went. ApprovalClock again until none do."""
    tx.connection.execute(
        "INSERT INTO audit_cuts VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", (cut.seq, cut.head, cut.at, cut.signature)
    )
    tx.connection.execute("DELETE FROM audit_writers WHERE seq <= ?", (cut.seq,))
    tx.known.heads.clear()
    gone = "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE seq <= ? ORDER BY seq LIMIT ?)"
    return tx.connection.execute(gone, (cut.seq, ROWS_AT_ONCE)).rowcount


def named_bodies(connection: sqlite3.Connection) -> tuple[set[str], set[str]]:
    """The digests of the bodies that results and records name, and of those that open turns and records name."""
    results, still, records = (
        {digest for (text,) in connection.execute(sql) for digest in _HANDLES.findall(text)}
        for sql in (_NAMING, _NAMED_BY_OPEN, _NAMED_BY_RECORDS)
    )
    return results | records, still | records


class KeptBody(Struct, frozen=True):
    """A body that is kept: its digest, when it was last needed, and its bytes."""

    digest: str
    at: float
    size: int


class _File(Struct, frozen=True):
    path: Path
    at: float
    size: int


Aged = TypeVar("Aged", KeptBody, _File)


def bodies_in(folder: Path) -> list[KeptBody]:
    """The bodies in a folder."""
    files = (one for one in _files(folder.glob("??/*")) if _BODY.fullmatch(one.path.name))
    return [KeptBody(_digest(one.path), one.at, one.size) for one in files]


def old_bodies(
    bodies: Sequence[KeptBody], named: set[str], needed: set[str], keep: KeepLimits, now: float
) -> list[KeptBody]:
    """The bodies that may go: those that are too old or too many, and those that no result names."""
    unnamed = [
        one for one in bodies if one.digest not in named and one.at < now - UNNAMED_DAYS * DAY_S
    ]  # one that was just kept is named in a moment
    gone = {one.digest for one in unnamed}
    others = [one for one in bodies if one.digest not in gone and one.digest not in needed]
    return [*unnamed, *_beyond(others, keep, now)]


def old_logs(folder: Path, keep: KeepLimits, now: float) -> list[Path]:
    """The log files that may go. The newest one always stays."""
    files = sorted((one for one in _files(folder.glob("*.jsonl")) if _LOG.fullmatch(one.path.name)), key=_name)
    return [one.path for one in _beyond(files[:-1], keep, now)]


def remove(paths: Iterable[Path]) -> tuple[int, int]:
    """Remove files; how many there were, and how many bytes."""
    removed = total = 0
    for path in paths:
        with suppress(FileNotFoundError):
            size = path.lstat().st_size
            path.unlink()
            removed, total = removed + 1, total + size
    return removed, total


def copy_bodies(source: Path, target: Path, tell: Callable[[str], None]) -> None:
    """Copy all bodies into another folder of bodies. No link is followed."""
    for shelf in sorted(path for path in source.glob("??") if _SHELF.fullmatch(path.name)):
        os.close(os.open(shelf, FOLDER_FLAGS))
        (target / shelf.name).mkdir(mode=0o700, exist_ok=True)
        for file in _files(shelf.iterdir()):
            (target / shelf.name / file.path.name).write_bytes(file.path.read_bytes())
        tell(f"copied artifacts/{shelf.name}")


def not_whole(row: int) -> StoreError:
    return StoreError(f"row {row} of the audit log does not fit the rows before it; a broken log is not pruned")


def _before(keep: KeepLimits, now: float) -> float:
    return -math.inf if keep.days is None else now - keep.days * DAY_S


def _size_cutoff(newest_first: Iterable[tuple[float, int]], max_bytes: int | None, *, inclusive: bool = True) -> float:
    """The place (a time or a number) of the newest thing that is beyond so many bytes; with `inclusive` just above."""
    total = 0
    if max_bytes is not None:
        for place, size in newest_first:
            total += size
            if total > max_bytes:
                return math.nextafter(place, math.inf) if inclusive else place
    return -math.inf


def _beyond(files: Sequence[Aged], keep: KeepLimits, now: float) -> list[Aged]:
    cutoff, total, gone = _before(keep, now), 0, []
    for one in sorted(files, key=lambda file: file.at, reverse=True):
        total += one.size
        if one.at < cutoff or (keep.max_bytes is not None and total > keep.max_bytes):
            gone.append(one)
    return gone


def _files(paths: Iterable[Path]) -> Iterator[_File]:
    for path in paths:
        with suppress(FileNotFoundError):
            about = path.lstat()
            yield _File(path, about.st_mtime, about.st_size)


def _digest(path: Path) -> str:
    return path.parent.name + path.name


def _name(file: _File) -> str:
    return file.path.name
