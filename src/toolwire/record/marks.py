"""What untrusted turns have written, in the SQLite store: one row for each resource of a project."""

import sqlite3
from collections.abc import Sequence

import orjson

from toolwire.protocol.provenance import UntrustedMark
from toolwire.record.rows import column, upsert
from toolwire.record.transaction import Transaction

_MARK = upsert("untrusted", ("project", "resource"), "inode", "version", "origins", "at")
_UNMARK = "DELETE FROM untrusted WHERE project = ? AND resource = ?"
_MARKS = "SELECT resource, origins, inode, version, at FROM untrusted WHERE project = ? ORDER BY resource"


def mark(tx: Transaction, project: str, marks: Sequence[UntrustedMark], gone: Sequence[str]) -> None:
    place = column(project)
    tx.connection.executemany(_UNMARK, [(place, column(resource)) for resource in gone])
    rows = [
        (place, column(one.resource), one.inode, one.version, orjson.dumps(one.origins).decode(), one.at)
        for one in marks
    ]
    tx.connection.executemany(_MARK, rows)


def marks(connection: sqlite3.Connection, project: str) -> list[UntrustedMark]:
    rows = connection.execute(_MARKS, (column(project),))
    return [
        UntrustedMark(resource, tuple(orjson.loads(origins)), inode, version, at)
        for resource, origins, inode, version, at in rows
    ]
