"""What untrusted turns have written, in the SQLite store: one row for each resource of a project.

PostgreSQL cannot index long keys. The row of a resource with a long name has the beginning of it and its digest as its
key, and the whole name beside the origins. That key is longer than any name that is a key itself.
"""

import sqlite3
from collections.abc import Sequence

import orjson

from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.records import is_long, short_name
from toolwire.record.rows import Row, column, upsert
from toolwire.record.transaction import Transaction

_LONGEST_KEY = 1_024
"""In bytes. An index of PostgreSQL takes 2,704 for a row, with the name of the project."""

_MARK = upsert("untrusted", ("project", "resource"), "inode", "version", "origins", "at")
_UNMARK = "DELETE FROM untrusted WHERE project = ? AND resource = ?"
_MARKS = "SELECT resource, origins, inode, version, at FROM untrusted WHERE project = ?"


def mark(tx: Transaction, project: str, marks: Sequence[UntrustedMark], gone: Sequence[str]) -> None:
    place = column(project)
    forgotten = [key for name in map(column, gone) for key in {name, short_name(name, _LONGEST_KEY)}]
    # An earlier version used long names as keys, where the database could index them.
    replaced = [name for one in marks if is_long(name := column(one.resource), _LONGEST_KEY)]
    tx.connection.executemany(_UNMARK, [(place, key) for key in (*forgotten, *replaced)])
    tx.connection.executemany(_MARK, [(place, *_row(one)) for one in marks])


def marks(connection: sqlite3.Connection, project: str) -> list[UntrustedMark]:
    rows = connection.execute(_MARKS, (column(project),))
    return sorted((_mark(*row) for row in rows), key=lambda one: one.resource)


def _row(one: UntrustedMark) -> Row:
    name = column(one.resource)
    key = short_name(name, _LONGEST_KEY)
    said = one.origins if key == name else {"resource": name, "origins": one.origins}
    return key, one.inode, one.version, orjson.dumps(said).decode(), one.at


def _mark(key: str, said: str, inode: str, version: str, at: float) -> UntrustedMark:
    kept = orjson.loads(said)
    name, origins = (kept["resource"], kept["origins"]) if isinstance(kept, dict) else (key, kept)
    return UntrustedMark(name, tuple(origins), inode, version, at)
