"""The queue of shared locks in the SQLite store; see `lock_queue` for who goes first."""

import sqlite3
from collections.abc import Sequence

from toolwire.plan.resources import LockClaim
from toolwire.protocol.records import short_name
from toolwire.record.lock_queue import LockLine, may_go
from toolwire.record.reads import AliveOn
from toolwire.record.rows import column
from toolwire.record.transaction import Transaction

_QUEUE = "INSERT INTO lock_queue VALUES (?, ?, ?, ?, ?, ?, ?)"
_LAST = "SELECT coalesce(max(number), 0) FROM lock_queue"
_OWNERS = "SELECT DISTINCT owner FROM lock_queue"
_SWEEP = "DELETE FROM lock_queue WHERE owner = ?"
_LEAVE = "DELETE FROM lock_queue WHERE project = ? AND token = ?"
_LINES = """
    SELECT number, token, owner, resource, writes, most FROM lock_queue
    WHERE project = ?1 AND resource IN (SELECT resource FROM lock_queue WHERE project = ?1 AND token = ?2)
"""


def queue(tx: Transaction, project: str, claims: Sequence[LockClaim], token: str, owner: str) -> bool:
    """Take a ticket; whether it may go at once. What dead owners have left is removed."""
    for (other,) in tx.connection.execute(_OWNERS).fetchall():
        if other != owner and not tx.alive(other):
            tx.connection.execute(_SWEEP, (other,))
    (last,) = tx.connection.execute(_LAST).fetchone()
    rows = [
        (column(project), short_name(column(claim.resource)), last + 1, token, owner, int(claim.writes), claim.most)
        for claim in claims
    ]
    tx.connection.executemany(_QUEUE, rows)
    return may_go(token, _lines(tx.connection, project, token), tx.alive) is True


def holds(connection: sqlite3.Connection, project: str, token: str, alive_on: AliveOn) -> bool | None:
    return may_go(token, _lines(connection, project, token), alive_on(connection))


def release(tx: Transaction, project: str, token: str) -> None:
    tx.connection.execute(_LEAVE, (column(project), token))


def _lines(connection: sqlite3.Connection, project: str, token: str) -> list[LockLine]:
    rows = connection.execute(_LINES, (column(project), token)).fetchall()
    return [LockLine(number, name, owner, what, bool(writes), most) for number, name, owner, what, writes, most in rows]
