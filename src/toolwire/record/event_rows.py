"""Events of turns in the SQLite store: kept for those who watch a turn, and come back after its process was restarted.

Events are not the record. What they tell is on record elsewhere, so they are written in batches, a moment later, and
dropped first: after a time, and the oldest of a turn that has too many.
"""

import sqlite3
from collections.abc import Sequence

from toolwire.record.contract import KeptEvent, Numbered, Place
from toolwire.record.rows import column
from toolwire.record.transaction import Transaction

EVENTS_S = 7 * 86_400.0
"""How long events are kept."""
MOST_BYTES = 2 * 1024 * 1024
"""Of the events of one turn."""
DROPPED_AT_ONCE = 1_000
_ROW_BYTES = 200

_ADD = """
    INSERT INTO events (seq, project, turn_id, epoch, number, at, kind, body, size)
    VALUES ((SELECT coalesce(max(seq), 0) FROM events) + 1, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (turn_id, project, epoch, number) DO NOTHING
"""
# The newest event stays whatever its age: a number that a follower has seen is never given again.
_DROP_OLD = """
    DELETE FROM events WHERE seq IN (
        SELECT seq FROM events WHERE at < ? AND seq < (SELECT max(seq) FROM events) ORDER BY at LIMIT ?)
"""
_SIZE = "SELECT coalesce(sum(size), 0) FROM events WHERE project = ? AND turn_id = ?"
_OLDEST = "SELECT epoch, number, size FROM events WHERE project = ? AND turn_id = ? ORDER BY epoch, number LIMIT ?"
_DROP = "DELETE FROM events WHERE project = ? AND turn_id = ? AND (epoch, number) <= (?, ?)"
_COLUMNS = "project, turn_id, epoch, number, at, kind, body"
_OF_TURN = f"""
    SELECT {_COLUMNS} FROM events WHERE project = ? AND turn_id = ? AND (epoch, number) > (?, ?)
    ORDER BY epoch, number LIMIT ?
"""  # noqa: S608 -- our own words
_AFTER = f"SELECT {_COLUMNS}, seq FROM events WHERE project = ? AND seq > ? ORDER BY seq LIMIT ?"  # noqa: S608


def append(tx: Transaction, events: Sequence[KeptEvent], now: float) -> None:
    """Keep events, once each, and drop what is too old or too much by then."""
    for event in events:
        place = (event.epoch, event.number, event.at, event.kind)
        body = column(event.body)
        key = (column(event.project), column(event.turn_id))
        tx.connection.execute(_ADD, (*key, *place, body, len(body) + _ROW_BYTES))
    for key in {(column(event.project), column(event.turn_id)) for event in events}:
        _drop_beyond(tx, key)
    tx.connection.execute(_DROP_OLD, (now - EVENTS_S, DROPPED_AT_ONCE))


def _drop_beyond(tx: Transaction, key: tuple[str, str]) -> None:
    """Drop the oldest events of a turn that has too many; the newest one stays."""
    (size,) = tx.connection.execute(_SIZE, key).fetchone()
    last: Place | None = None
    if size > MOST_BYTES:
        *oldest, _ = tx.connection.execute(_OLDEST, (*key, DROPPED_AT_ONCE)).fetchall() or [()]
        for epoch, number, weight in oldest:
            if size <= MOST_BYTES:
                break
            size, last = size - weight, (epoch, number)
    if last is not None:
        tx.connection.execute(_DROP, (*key, *last))


def turn_events(
    connection: sqlite3.Connection, turn_id: str, after: Place, limit: int, project: str
) -> list[KeptEvent]:
    rows = connection.execute(_OF_TURN, (column(project), column(turn_id), *after, max(limit, 0)))
    return [KeptEvent(*row) for row in rows.fetchall()]


def events_after(connection: sqlite3.Connection, cursor: int, limit: int, project: str) -> list[Numbered[KeptEvent]]:
    rows = connection.execute(_AFTER, (column(project), cursor, max(limit, 0)))
    return [Numbered(seq, KeptEvent(*row)) for *row, seq in rows.fetchall()]
