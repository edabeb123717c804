"""Records in the SQLite store; see `record_rules` for what may be written.

A record is one row with its current version as JSON, and the columns by which it is looked for. Its number is the date
of its creation in microseconds, made unique: so lists come newest first, and a span of time is a range of numbers. An
update moves the version that was current to `record_versions`. A change is a small row that names a version; what that
said is copied to it only when the version goes.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, cast

from toolwire.errors import StoreError
from toolwire.protocol.breadcrumbs import ChangeKind, Record, RecordChange, Sensitivity, Visibility
from toolwire.record import record_index, record_rules
from toolwire.record.contract import Numbered
from toolwire.record.record_rules import UsedKey
from toolwire.record.rows import Row, column, columns
from toolwire.record.transaction import Transaction

LOOK_EVERY = 64
"""After about so many changes, those that are too old are dropped; after 16 times as many, those beyond the limit."""
_SCATTER = 2_654_435_761
"""Makes the moments for that independent of projects that write in turn."""
DROPPED_AT_ONCE = 2_000

KEEP = """
    INSERT INTO shared_records (number, project, record_id, schema_name, version, visibility, sensitivity, created_by,
                                created_at, ends_at, uses_left, changed, key_digest, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
KEEP_TAG = "INSERT INTO record_tags (project, tag, number) VALUES (?, ?, ?)"
KEEP_KEY = "INSERT INTO record_keys (project, key_digest, record_id, digest) VALUES (?, ?, ?, ?)"
KEEP_CHANGE = """
    INSERT INTO record_changes (seq, project, record_id, version, kind, at, body) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
KEEP_VERSION = """
    INSERT INTO record_versions (changed, project, record_id, version, body)
    SELECT changed, project, record_id, version, body FROM shared_records WHERE number = ?
"""
REPLACE = """
    UPDATE shared_records SET schema_name = ?, version = ?, visibility = ?, sensitivity = ?, ends_at = ?, uses_left = ?,
        changed = ?, body = ?
    WHERE number = ?
"""
USE = "UPDATE shared_records SET uses_left = ?, ends_at = ? WHERE number = ?"
DROP = "DELETE FROM shared_records WHERE number = ?"
DROP_TAG = "DELETE FROM record_tags WHERE project = ? AND tag = ? AND number = ?"
KEY_GONE = "UPDATE record_keys SET gone_at = ? WHERE project = ? AND key_digest = ?"
COPY_TO_CHANGE = "UPDATE record_changes SET body = ? WHERE seq = ?"
WRITES = (
    KEEP, KEEP_TAG, KEEP_KEY, KEEP_CHANGE, KEEP_VERSION, REPLACE, USE, DROP, DROP_TAG, KEY_GONE, COPY_TO_CHANGE,
)  # fmt: skip
"""Statements whose outcome is not looked at, so that a server can be given all of a transaction at once."""

_NEXT = """
    SELECT (SELECT coalesce(max(seq), 0) + 1 FROM record_changes),
           (SELECT number FROM shared_records WHERE number = ?),
           (SELECT number FROM shared_records WHERE project = ? AND record_id = ?)
"""
_NEXT_CHANGE = "SELECT coalesce(max(seq), 0) + 1 FROM record_changes"
_NEWEST_NUMBER = "SELECT max(number) FROM shared_records WHERE number >= ? AND number < ?"
_COLUMNS = "number, record_id, changed, key_digest, ends_at, uses_left, body"
_CURRENT = f"SELECT {_COLUMNS} FROM shared_records WHERE project = ? AND record_id = ?"  # noqa: S608 -- our own words
_OVER = f"""
    SELECT {_COLUMNS} FROM shared_records WHERE project = ? AND ends_at <= ? ORDER BY ends_at, number LIMIT ?
"""  # noqa: S608
_KEY = "SELECT record_id, digest, gone_at FROM record_keys WHERE project = ? AND key_digest = ?"
_FIRST = "SELECT body FROM record_versions WHERE project = ? AND record_id = ? AND version = 1"
_EARLIER = """
    SELECT body FROM record_versions WHERE project = ? AND record_id = ? AND version < ? ORDER BY version DESC LIMIT ?
"""
# Changes whose versions go keep what those said.
_COPY = """
    UPDATE record_changes SET body = (SELECT v.body FROM record_versions v WHERE v.changed = record_changes.seq)
    WHERE seq IN (SELECT changed FROM record_versions
                  WHERE project = ? AND record_id = ? AND version >= ? AND version < ?)
"""
_VERSIONS = """
    SELECT changed, body FROM record_versions WHERE project = ? AND record_id = ? AND version >= ? AND version < ?
"""
# Versions that may say more than the last one does, where that is as open as records usually are.
_MARKED = f"{_VERSIONS} AND (body LIKE '%\"sensitivity\":%' OR body LIKE '%\"visibility\":%')"
_AT_ONCE = 50
_DROP_VERSIONS = "DELETE FROM record_versions WHERE project = ? AND record_id = ? AND version >= ? AND version < ?"
_CHANGES = """
    SELECT c.seq, c.kind, c.at, c.record_id, coalesce(c.body, v.body, r.body) FROM record_changes c
    LEFT JOIN record_versions v ON v.changed = c.seq
    LEFT JOIN shared_records r ON r.record_id = c.record_id AND r.project = c.project AND r.changed = c.seq
    WHERE c.project = ? AND c.seq > ? ORDER BY c.seq LIMIT ?
"""
_LAST_CHANGE = "SELECT coalesce(max(seq), 0) FROM record_changes WHERE project = ?"
# The newest change stays whatever its age: a number that a follower has seen is never given again.
_OLDEST_CHANGES = """
    SELECT seq, at FROM record_changes WHERE seq < (SELECT max(seq) FROM record_changes) ORDER BY seq LIMIT ?
"""
_DROP_OLDEST = "DELETE FROM record_changes WHERE seq <= ?"
_BEYOND = "SELECT seq FROM record_changes WHERE project = ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
_DROP_BEYOND = """
    DELETE FROM record_changes WHERE seq IN (
        SELECT seq FROM record_changes WHERE project = ? AND seq <= ? ORDER BY seq LIMIT ?)
"""
_COUNTED = """
    SELECT project, count(*), sum(CASE WHEN at < ? THEN 1 ELSE 0 END) FROM record_changes
    WHERE seq < (SELECT max(seq) FROM record_changes) GROUP BY project
"""
_DROP_KEYS = "DELETE FROM record_keys WHERE gone_at < ?"


class _RecordRow(NamedTuple):
    """The row of a record."""

    number: int
    record: Record
    changed: int
    key_digest: str | None
    ends_at: float | None
    body: str

    def is_over(self, now: float) -> bool:
        return self.ends_at is not None and self.ends_at <= now


def create(
    tx: Transaction, record: Record, body: str, key: str, audit: Sequence[Row], now: float
) -> Record | StoreError:
    """Keep the first version of a record, which was checked before."""
    project, record_id = columns(record.project, record.id)
    connection, digest = tx.connection, record_rules.key_digest(record.created_by, key) if key else None
    if digest is not None and (first := _first(connection, record, digest, now)) is not None:
        return first
    number = record_rules.number_of(record.created_at)
    changed, same_number, same_id = connection.execute(_NEXT, (number, project, record_id)).fetchone()
    if same_id is not None:
        kept = _kept(connection, record.project, record.id)
        if kept is None or not kept.is_over(now):
            return record_rules.taken(record.id)
        changed = 1 + _drop(tx, kept, ChangeKind.EXPIRED, now)
        same_number = None if same_number == kept.number else same_number
    if same_number is not None:
        number = record_rules.free_number(number, partial(_newest, connection))
    connection.execute(KEEP, (number, project, record_id, *_said(record, now, changed, digest), body))
    _keep_tags(connection, project, number, record)
    record_index.put(connection, number, record, changed)
    if digest is not None:
        connection.execute(KEEP_KEY, (project, digest, record_id, record_rules.content_digest(record)))
    _keep_change(tx, changed, (project, record_id, 1, ChangeKind.CREATED.value, now, None))
    tx.audit.extend(audit)
    return record_rules.read(record.project, record.id, body)


def replayed(connection: sqlite3.Connection, record: Record, key: str, now: float) -> Record | None:
    """The first record under a key, as it was created; None for a key that was not used. Raises StoreError."""
    first = _first(connection, record, record_rules.key_digest(record.created_by, key), now)
    if isinstance(first, StoreError):
        raise first
    return first


def update(tx: Transaction, record: Record, expected: int, audit: Sequence[Row], now: float) -> Record | StoreError:
    kept = _alive(tx.connection, record.project, record.id, now)
    outcome = record_rules.next_version(None if kept is None else kept.record, record, expected, now)
    if kept is None or isinstance(outcome, StoreError):
        return cast("StoreError", outcome)
    (new, body), connection, (project, record_id) = outcome, tx.connection, columns(record.project, record.id)
    (changed,) = connection.execute(_NEXT_CHANGE).fetchone()
    connection.execute(KEEP_VERSION, (kept.number,))
    schema, version, visibility, sensitivity, _by, _at, ends_at, uses_left, *_ = _said(new, now, changed, None)
    plain = (schema, version, visibility, sensitivity, ends_at, uses_left)
    connection.execute(REPLACE, (*plain, changed, body, kept.number))
    if new.tags != kept.record.tags:
        _drop_tags(connection, project, kept)
        _keep_tags(connection, project, kept.number, new)
    record_index.put(connection, kept.number, new, changed)
    _keep_change(tx, changed, (project, record_id, version, ChangeKind.UPDATED.value, now, None))
    if (first := version - record_rules.MOST_VERSIONS) > 2:  # the first one stays
        connection.execute(_COPY, (project, record_id, 2, first))
        connection.execute(_DROP_VERSIONS, (project, record_id, 2, first))
    tx.audit.extend(audit)
    return new


def delete(
    tx: Transaction, project: str, record_id: str, by: str, expected: int | None, audit: Sequence[Row], now: float
) -> Record | StoreError:
    kept = _alive(tx.connection, project, record_id, now)
    if kept is None:
        return record_rules.no_record(record_id)
    if expected is not None and expected != kept.record.version:
        return record_rules.other_version(kept.record, expected)
    _drop(tx, kept, ChangeKind.DELETED, now, by)
    tx.audit.extend(audit)
    return kept.record


def use(tx: Transaction, project: str, record_id: str, now: float) -> Record | StoreError:
    kept = _alive(tx.connection, project, record_id, now)
    if kept is None:
        return record_rules.no_record(record_id)
    used = record_rules.used(kept.record)
    if used is not kept.record:
        tx.connection.execute(USE, (used.uses_left, record_rules.ends_at(used, now), kept.number))
    return used


def expire(tx: Transaction, project: str, limit: int, now: float) -> list[Record]:
    rows = tx.connection.execute(_OVER, (column(project), now, max(limit, 0))).fetchall()
    over = [_read(project, row) for row in rows]
    for kept in over:
        _drop(tx, kept, ChangeKind.EXPIRED, now)
    return [kept.record for kept in over]


def any_over(connection: sqlite3.Connection, project: str, now: float) -> bool:
    return connection.execute(_OVER, (column(project), now, 1)).fetchone() is not None


def record(connection: sqlite3.Connection, project: str, record_id: str, now: float) -> Record:
    kept = _alive(connection, project, record_id, now)
    if kept is None:
        raise record_rules.no_record(record_id)
    return kept.record


def history(
    connection: sqlite3.Connection, project: str, record_id: str, limit: int, before: int | None, now: float
) -> list[Record]:
    newest = record(connection, project, record_id, now)
    first = [newest] if before is None or newest.version < before else []
    most, upto = max(limit, 0), min(newest.version, newest.version if before is None else before)
    rows = connection.execute(_EARLIER, (*columns(project, record_id), upto, most)).fetchall()
    return [*first, *(record_rules.read(project, newest.id, body) for (body,) in rows)][:most]


def changes_after(
    connection: sqlite3.Connection, cursor: int, limit: int, project: str
) -> list[Numbered[RecordChange]]:
    rows = connection.execute(_CHANGES, (column(project), cursor, max(limit, 0))).fetchall()
    return [
        Numbered(seq, RecordChange(ChangeKind(kind), at, record_rules.read(project, record_id, body)))
        for seq, kind, at, record_id, body in rows
    ]


def last_change(connection: sqlite3.Connection, project: str) -> int:
    return int(connection.execute(_LAST_CHANGE, (column(project),)).fetchone()[0])


def old_changes(connection: sqlite3.Connection, now: float) -> dict[str, int]:
    """How many changes of each project are too old, or too many."""
    cutoff, old = now - record_rules.CHANGES_S, dict[str, int]()
    for project, count, aged in connection.execute(_COUNTED, (cutoff,)).fetchall():
        old[project] = max(aged, count - record_rules.MOST_CHANGES)
    return old


def drop_old(tx: Transaction, projects: Sequence[str], now: float) -> int:
    """Drop changes and keys that are too old, or too many; gives how many changes have gone."""
    gone = _drop_old_changes(tx.connection, now)
    for project in projects:
        gone += _drop_beyond(tx.connection, project)
    _forget(tx.connection, now)
    return gone


def skip_numbers(tx: Transaction, count: int, now: float) -> None:
    """Leave out so many numbers of changes, by a change that is of no project."""
    (following,) = tx.connection.execute(_NEXT_CHANGE).fetchone()
    tx.connection.execute(KEEP_CHANGE, (following + count, "", "", 0, ChangeKind.DELETED.value, now, None))


def _drop_old_changes(connection: sqlite3.Connection, now: float) -> int:
    """Drop the oldest changes of all projects, up to the first that is not too old."""
    rows = connection.execute(_OLDEST_CHANGES, (DROPPED_AT_ONCE,)).fetchall()
    old = 0
    while old < len(rows) and rows[old][1] < now - record_rules.CHANGES_S:
        old += 1
    return connection.execute(_DROP_OLDEST, (rows[old - 1][0],)).rowcount if old else 0


def _drop_beyond(connection: sqlite3.Connection, project: str) -> int:
    row = connection.execute(_BEYOND, (project, record_rules.MOST_CHANGES)).fetchone()
    return 0 if row is None else connection.execute(_DROP_BEYOND, (project, row[0], DROPPED_AT_ONCE)).rowcount


def _keep_change(tx: Transaction, changed: int, row: Row) -> None:
    """Keep a change, and every now and then drop those that are too old by then, or too many."""
    tx.connection.execute(KEEP_CHANGE, (changed, *row))
    chance = (changed * _SCATTER & 0xFFFFFFFF) / (1 << 32)
    if chance < 1 / LOOK_EVERY:
        project, _, _, _, now, _ = row
        _drop_old_changes(tx.connection, now)
        if chance < 1 / LOOK_EVERY / 16:
            _drop_beyond(tx.connection, project)
            _forget(tx.connection, now)


def _forget(connection: sqlite3.Connection, now: float) -> None:
    """Forget keys and vectors of records that have been gone for long."""
    connection.execute(_DROP_KEYS, (now - record_rules.KEYS_S,))
    record_index.drop_gone(connection, now - record_rules.CHANGES_S)


def _drop(tx: Transaction, kept: _RecordRow, kind: ChangeKind, now: float, by: str = "") -> int:
    """Remove a record with its history; its changes keep what they say. Gives the number of the change."""
    connection, (project, record_id) = tx.connection, columns(kept.record.project, kept.record.id)
    (changed,) = connection.execute(_NEXT_CHANGE).fetchone()
    last = record_rules.last_seen(kept.record, kind, by, now)
    clear = _left_behind(kept.record)
    if (version := kept.record.version) > 1:
        connection.execute(_COPY, (project, record_id, 1, version))
        for rows in _restricted(connection, kept.record):
            connection.executemany(COPY_TO_CHANGE, [(clear(body), seq) for seq, body in rows])
        connection.execute(_DROP_VERSIONS, (project, record_id, 1, version))
    _keep_change(tx, changed, (project, record_id, version, kind.value, now, None))
    left = [(kept.changed, kept.body), (changed, record_rules.written(last))]
    connection.executemany(COPY_TO_CHANGE, [(clear(body), seq) for seq, body in left])
    _drop_tags(connection, project, kept)
    connection.execute(DROP, (kept.number,))
    record_index.drop(connection, kept.number, changed, now)
    if kept.key_digest is not None:
        connection.execute(KEY_GONE, (now, project, kept.key_digest))
    return int(changed)


def _restricted(connection: sqlite3.Connection, last: Record) -> Iterator[list[Row]]:
    """The changes and bodies of earlier versions that may say more than the last one does, some at a time."""
    wanted = _VERSIONS if _is_restricted(last) else _MARKED
    oldest = max(2, last.version - record_rules.MOST_VERSIONS - 1)
    for first in (1, *range(oldest, last.version, _AT_ONCE)):
        until = 2 if first == 1 else min(first + _AT_ONCE, last.version)
        yield connection.execute(wanted, (*columns(last.project, last.id), first, until)).fetchall()


def _is_restricted(record: Record) -> bool:
    return record.sensitivity is not Sensitivity.NORMAL or record.visibility is Visibility.PRIVATE


def _left_behind(last: Record) -> Callable[[str], str]:
    def clear(body: str) -> str:
        if not _is_restricted(last) and '"sensitivity":' not in body and '"visibility":' not in body:
            return body
        version = record_rules.read(last.project, last.id, body)
        left = record_rules.left_behind(version, last)
        return body if left is version else record_rules.written(left)

    return clear


def _newest(connection: sqlite3.Connection, first: int, below: int) -> int:
    return int(connection.execute(_NEWEST_NUMBER, (first, below)).fetchone()[0])


def _first(connection: sqlite3.Connection, record: Record, digest: str, now: float) -> Record | StoreError | None:
    used = connection.execute(_KEY, (*columns(record.project), digest)).fetchone()
    if used is None:
        return None
    return _replayed(connection, record, digest, UsedKey(used[0], used[1], used[2] is not None), now)


def _replayed(
    connection: sqlite3.Connection, record: Record, digest: str, used: UsedKey, now: float
) -> Record | StoreError:
    kept = _alive(connection, record.project, used.record_id, now)
    used = used._replace(is_gone=kept is None or kept.key_digest != digest)
    refusal = record_rules.replayed(used, record_rules.content_digest(record))
    if refusal is not None or kept is None:
        return refusal or record_rules.no_record(used.record_id)
    body = kept.body
    if kept.record.version > 1:
        ((body,),) = connection.execute(_FIRST, columns(record.project, used.record_id)).fetchall()
    return record_rules.read(record.project, kept.record.id, body)


def _alive(connection: sqlite3.Connection, project: str, record_id: str, now: float) -> _RecordRow | None:
    kept = _kept(connection, project, record_id)
    return None if kept is None or kept.is_over(now) else kept


def _kept(connection: sqlite3.Connection, project: str, record_id: str) -> _RecordRow | None:
    row = connection.execute(_CURRENT, columns(project, record_id)).fetchone()
    return None if row is None else _read(project, row)


def _read(project: str, row: Row) -> _RecordRow:
    number, record_id, changed, key_digest, ends_at, uses_left, body = row
    return _RecordRow(
        number, record_rules.read(project, record_id, body, uses_left), changed, key_digest, ends_at, body
    )


def _said(record: Record, now: float, changed: int, digest: str | None) -> Row:
    """The columns by which a record is looked for."""
    schema, author = columns(record.schema_name, record.created_by)
    seen = (schema, record.version, record.visibility.value, record.sensitivity.value, author, record.created_at)
    return (*seen, record_rules.ends_at(record, now), record.uses_left, changed, digest)


def _keep_tags(connection: sqlite3.Connection, project: str, number: int, record: Record) -> None:
    connection.executemany(KEEP_TAG, [(project, tag, number) for tag in _tags(record)])


def _drop_tags(connection: sqlite3.Connection, project: str, kept: _RecordRow) -> None:
    connection.executemany(DROP_TAG, [(project, tag, kept.number) for tag in _tags(kept.record)])


def _tags(record: Record) -> dict[str, None]:
    return dict.fromkeys(record.tags)
