"""Where the audit chains of a database end: what the next row of each is linked to.

Every project has chains of its own, one for each writer. A database that is older than that begins with chains that
all projects share, up to a row that is kept in `audit_shared`; the chain of a project goes on from there.
"""

import sqlite3

from toolwire.record.chain import BEGINNING, Heads, read_heads, write_heads

_SHARED_UPTO = "SELECT upto FROM audit_shared"
_CUT = "SELECT seq, head FROM audit_cuts ORDER BY seq DESC LIMIT 1"
_OWN_ROW = "SELECT seq, digest FROM audit WHERE project = ? AND seq > ? ORDER BY seq DESC LIMIT 1"
_SHARED_ROW = """
    SELECT a.seq, a.digest FROM audit a LEFT JOIN audit_writers w ON w.seq = a.seq
    WHERE a.seq <= ? AND w.seq IS NULL ORDER BY a.seq DESC LIMIT 1
"""
_ROW_OF_WRITER = """
    SELECT w.number, a.digest FROM audit_writers w JOIN audit a ON a.seq = w.seq
    WHERE w.writer = ? AND w.project = ? ORDER BY w.seq DESC LIMIT 1
"""
_NEWEST_OF_CHAINS = """
    SELECT coalesce(w.writer, ''), iif(a.seq > ?1, a.project, ''), coalesce(w.number, a.seq), a.digest
    FROM audit a LEFT JOIN audit_writers w ON w.seq = a.seq
    WHERE a.seq IN (
        SELECT max(b.seq) FROM audit b LEFT JOIN audit_writers v ON v.seq = b.seq WHERE b.seq > ?2 AND b.seq <= ?3
        GROUP BY coalesce(v.writer, ''), iif(b.seq > ?1, b.project, '')
    )
"""


def shared_upto(connection: sqlite3.Connection) -> int:
    """The number of the last row that is in a chain of all projects."""
    return int(connection.execute(_SHARED_UPTO).fetchone()[0])


def newest_head(connection: sqlite3.Connection, writer: str, project: str) -> tuple[int, str]:
    """The number and digest of the newest row that a writer has in the chain of a project; it may be pruned."""
    upto = shared_upto(connection)
    if found := _own_row(connection, writer, project, upto):
        return found
    cut = connection.execute(_CUT).fetchone()
    heads = read_heads(cut[1], cut[0]) if cut else {}
    if (writer, project) in heads:
        return heads[writer, project]
    if upto and (found := _shared_row(connection, writer, upto)):
        return found
    return heads.get((writer, ""), (0, BEGINNING))


def heads_at(connection: sqlite3.Connection, upto: int) -> str:
    """The heads of all chains at a row, as they are kept where the log is cut after it."""
    cut = connection.execute(_CUT).fetchone()
    heads: Heads = read_heads(cut[1], cut[0]) if cut else {}
    begin = cut[0] if cut else 0
    rows = connection.execute(_NEWEST_OF_CHAINS, (shared_upto(connection), begin, upto)).fetchall()
    return write_heads({**heads, **{(writer, whose): (number, digest) for writer, whose, number, digest in rows}})


def _own_row(connection: sqlite3.Connection, writer: str, project: str, upto: int) -> tuple[int, str] | None:
    if writer:
        row = connection.execute(_ROW_OF_WRITER, (writer, project)).fetchone()
    else:
        row = connection.execute(_OWN_ROW, (project, upto)).fetchone()
    return (int(row[0]), str(row[1])) if row else None


def _shared_row(connection: sqlite3.Connection, writer: str, upto: int) -> tuple[int, str] | None:
    if writer:
        row = connection.execute(_ROW_OF_WRITER, (writer, "")).fetchone()
    else:
        row = connection.execute(_SHARED_ROW, (upto,)).fetchone()
    return (int(row[0]), str(row[1])) if row else None
