"""The words and vectors by which records in the SQLite store are found; see `RecordIndexStore`.

`record_words` has a line of words for each record. SQLite keeps a full-text index of it by triggers, which knows of a
word only in which records it is: that is all that is asked, and such an index is small. PostgreSQL has an index of its
own on the same lines, and statements of its own that ask it.

`record_vectors` has a row for each record, and for some days one for each that is gone: read in the order of changes,
they tell those who hold vectors in memory what to take in and what to drop.
"""

import sqlite3
from collections.abc import Mapping, Sequence

import orjson

from toolwire.breadcrumbs.rules.words import WordMatch, is_found, record_words
from toolwire.protocol.breadcrumbs import Record
from toolwire.record.contract import NewVector, VectorRow
from toolwire.record.rows import column
from toolwire.record.transaction import Transaction

_PENDING, _EMBEDDED, _NONE = 0, 1, 2
_NEWEST = 1 << 62

KEEP_WORDS = """
    INSERT INTO record_words (number, words) VALUES (?, ?) ON CONFLICT (number) DO UPDATE SET words = excluded.words
"""
DROP_WORDS = "DELETE FROM record_words WHERE number = ?"
KEEP_STATE = """
    INSERT INTO record_vectors (number, project, changed, state) VALUES (?, ?, ?, ?)
    ON CONFLICT (number) DO UPDATE SET changed = excluded.changed, state = excluded.state, model = '', bits = NULL,
        vector = NULL, gone_at = NULL
"""
DROP_VECTOR = """
    UPDATE record_vectors SET changed = ?, state = 2, model = '', bits = NULL, vector = NULL, gone_at = ?
    WHERE number = ?
"""
WRITES = (KEEP_WORDS, DROP_WORDS, KEEP_STATE, DROP_VECTOR)
_DROP_GONE = "DELETE FROM record_vectors WHERE gone_at < ?"
_KEEP_VECTOR = """
    UPDATE record_vectors SET state = 1, model = ?, bits = ?, vector = ? WHERE number = ? AND changed = ?
        AND project = ? AND state < 2
"""

_MATCHING = """
    SELECT rowid FROM record_words_index WHERE record_words_index MATCH ?1 AND rowid >= ?2 AND rowid < ?3
    ORDER BY rowid DESC LIMIT ?4
"""
_COUNTED = """
    SELECT (SELECT count(*) FROM (SELECT 1 FROM record_words_index WHERE record_words_index MATCH value LIMIT ?2) AS f)
    FROM json_each(?1)
"""
_TSQUERY = "replace(replace(replace({0}, '\"', ''''), ' AND ', ' & '), ' OR ', ' | ')::tsquery"
_LEXEMES = "array_to_tsvector(string_to_array(words, ' '))"
PG_INDEX = f"CREATE INDEX record_words_index ON record_words USING gin ({_LEXEMES})"
PG_INSTEAD = {
    _MATCHING: f"""
        SELECT number FROM record_words WHERE {_LEXEMES} @@ {_TSQUERY.format("$1::text")} AND number >= $2
            AND number < $3
        ORDER BY number DESC LIMIT $4
    """,  # noqa: S608 -- our own words
    _COUNTED: f"""
        SELECT (SELECT count(*) FROM (
            SELECT 1 FROM record_words WHERE {_LEXEMES} @@ {_TSQUERY.format("value")} LIMIT $2) AS f)
        FROM json_each($1)
    """,  # noqa: S608
}
"""The questions to the full-text index, as PostgreSQL is asked them."""
_NUMBERED = "number IN (SELECT CAST(value AS INTEGER) FROM json_each(?))"
# Rows are found by their numbers, and then looked at: an index of a project would be read from end to end.
_WORDS = f"""
    SELECT number, words FROM record_words
    WHERE {_NUMBERED} AND (SELECT v.project FROM record_vectors v WHERE v.number = record_words.number) = ?
"""  # noqa: S608
_VECTORS = f"""
    SELECT number, vector FROM record_vectors WHERE {_NUMBERED} AND model = ? AND project || '' = ? AND state = 1
"""  # noqa: S608
_CHANGES = """
    SELECT changed, number, state, model, bits FROM record_vectors WHERE project = ? AND changed > ?
    ORDER BY changed LIMIT ?
"""


def put(connection: sqlite3.Connection, number: int, record: Record, changed: int) -> None:
    """What a version of a record is found by. It is embedded later."""
    connection.execute(KEEP_WORDS, (number, record_words(record)))
    state = _PENDING if is_found(record) else _NONE
    connection.execute(KEEP_STATE, (number, column(record.project), changed, state))


def drop(connection: sqlite3.Connection, number: int, changed: int, now: float) -> None:
    connection.execute(DROP_WORDS, (number,))
    connection.execute(DROP_VECTOR, (changed, now, number))


def drop_gone(connection: sqlite3.Connection, before: float) -> None:
    """Forget records that were gone by then."""
    connection.execute(_DROP_GONE, (before,))


def matching(
    connection: sqlite3.Connection, match: WordMatch, limit: int, since: int | None, until: int | None
) -> list[int]:
    asked = _expression(match)
    if not asked:
        return []
    span = (max(since or 0, 0), _NEWEST if until is None else min(until, _NEWEST))
    return [number for (number,) in connection.execute(_MATCHING, (asked, *span, max(limit, 0))).fetchall()]


def count_matching(connection: sqlite3.Connection, matches: Sequence[WordMatch], most: int) -> list[int]:
    asked = orjson.dumps([_expression(match) for match in matches]).decode()
    return [count for (count,) in connection.execute(_COUNTED, (asked, max(most, 0))).fetchall()]


def words_of(connection: sqlite3.Connection, numbers: Sequence[int], project: str) -> Mapping[int, str]:
    return dict(connection.execute(_WORDS, (_json(numbers), column(project))).fetchall())


def changed_after(connection: sqlite3.Connection, cursor: int, model: str, limit: int, project: str) -> list[VectorRow]:
    rows = connection.execute(_CHANGES, (column(project), cursor, max(limit, 0))).fetchall()
    return [
        VectorRow(changed, number, b"" if state == _NONE else bits if state == _EMBEDDED and of == model else None)
        for changed, number, state, of, bits in rows
    ]


def vectors_of(connection: sqlite3.Connection, numbers: Sequence[int], model: str, project: str) -> Mapping[int, bytes]:
    return dict(connection.execute(_VECTORS, (_json(numbers), model, column(project))).fetchall())


def put_vectors(tx: Transaction, vectors: Sequence[NewVector], model: str, project: str) -> None:
    rows = [(model, bits, vector, number, cursor, column(project)) for number, cursor, bits, vector in vectors]
    tx.connection.executemany(_KEEP_VECTOR, rows)


def _json(numbers: Sequence[int]) -> str:
    return orjson.dumps(list(numbers)).decode()


def _expression(match: WordMatch) -> str:
    """A match in the language of the full-text index. Words have none of its signs; each is quoted all the same."""
    groups = [f"({' OR '.join(map(_quoted, group))})" for group in match.groups]
    return " AND ".join((*map(_quoted, match.every), *groups))


def _quoted(word: str) -> str:
    return '"' + "".join(char for char in word if char.isalnum() or not char.isascii()) + '"'
