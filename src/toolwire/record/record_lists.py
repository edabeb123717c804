"""Lists of records in the SQLite store: first their numbers, from the index that has the fewest, then what else holds.

Which index that is depends on what is kept, and no planner knows it: so it is looked up how many rows each of them has,
up to some number. The rows themselves are found by their numbers, a few at a time, and the other conditions looked at.
Where too few of them fit, the index of words goes on, which has all conditions as facets.
"""

import math
import sqlite3
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import groupby, islice
from typing import NamedTuple

import orjson

from toolwire.breadcrumbs.rules.words import WordMatch, match_of
from toolwire.protocol.breadcrumbs import Record, RecordQuery
from toolwire.record import record_index, record_rules
from toolwire.record.contract import Numbered
from toolwire.record.rows import Row, column

_PROBED = 1_000
"""So many rows of an index are looked at to tell which has the fewest."""
MOST_TRIED = 1_000
"""So many rows of an index are looked at before another one is asked."""
_FEW, _MANY = 32, 2_048
"""Rows that are looked at together: the first time beyond what is asked for, and at most."""
_NEWEST = 1 << 62

_NUMBERS = """
    SELECT number FROM {table} WHERE project = ?{condition} AND number >= ? AND number < ?
    ORDER BY number DESC LIMIT ?
"""
_BY_TAG = _NUMBERS.format(table="record_tags", condition=" AND tag = ?")
_BY_SCHEMA = _NUMBERS.format(
    table="shared_records INDEXED BY shared_records_by_schema", condition=" AND schema_name = ?"
)
_BY_AUTHOR = _NUMBERS.format(
    table="shared_records INDEXED BY shared_records_by_author", condition=" AND created_by = ?"
)
_OF_PROJECT = _NUMBERS.format(table="shared_records INDEXED BY shared_records_by_project", condition="")
_FITTING = """
    SELECT number FROM shared_records
    WHERE number IN (SELECT CAST(value AS INTEGER) FROM json_each(?)) AND project || '' = ?
        AND (ends_at IS NULL OR ends_at > ?){conditions}
    ORDER BY number DESC LIMIT ?
"""
_ROWS = _FITTING.replace("SELECT number FROM", "SELECT number, record_id, uses_left, body FROM", 1)
_HAS_TAGS = """
    AND (SELECT count(*) FROM record_tags t WHERE t.project = shared_records.project
         AND t.tag IN (SELECT value FROM json_each(?)) AND t.number = shared_records.number) >= ?
"""


class _Index(NamedTuple):
    """The statements that give numbers in descending order, whose union is wanted: nearly always one."""

    asked: tuple[tuple[str, Row], ...]


class _Range(NamedTuple):
    """Numbers from the first up to the last, which is not among them."""

    first: int
    last: int


def listed(
    connection: sqlite3.Connection, query: RecordQuery, limit: int, before: int | None, project: str, now: float
) -> list[Numbered[Record]]:
    """The newest records that fit."""
    if not _can_fit(query):
        return []
    wanted, numbers = max(limit, 0), _candidates(connection, query, before, project)
    found: list[Numbered[Record]] = []
    batch = min(wanted + _FEW, _MANY)
    while len(found) < wanted and (some := list(islice(numbers, batch))):
        found += numbered(connection, some, query, project, now, wanted - len(found))
        batch = min(batch * 4, _MANY)
    return found


def _can_fit(query: RecordQuery) -> bool:
    """Whether there can be any such record. What cannot be looked for under a name has none."""
    if any(at is not None and math.isnan(at) for at in (query.since, query.until)):
        return False
    tags = not query.any_tags or any(map(record_rules.is_name, query.any_tags))
    return tags and all(map(record_rules.is_name, (query.schema_name, *query.all_tags)))


def numbered(
    connection: sqlite3.Connection, numbers: Sequence[int], query: RecordQuery, project: str, now: float, limit: int
) -> list[Numbered[Record]]:
    """Those of the records with these numbers that fit, the newest first."""
    statement, given = _with_conditions(_ROWS, query)
    asked = (_with_text(connection, numbers, query.text, project), column(project), now, *given, limit)
    rows = connection.execute(statement, asked).fetchall()
    return [Numbered(number, record_rules.read(project, name, body, left)) for number, name, left, body in rows]


def fitting(
    connection: sqlite3.Connection, numbers: Sequence[int], query: RecordQuery, project: str, now: float
) -> list[int]:
    """Those of the numbers whose records fit; their bodies are not read."""
    statement, given = _with_conditions(_FITTING, query)
    asked = (_with_text(connection, numbers, query.text, project), column(project), now, *given, len(numbers))
    return [number for (number,) in connection.execute(statement, asked).fetchall()]


def _with_text(connection: sqlite3.Connection, numbers: Sequence[int], text: str, project: str) -> str:
    """Those of the numbers whose records have all words of a text, as a statement takes them."""
    if text.strip():
        words = record_index.words_of(connection, numbers, project)
        numbers = [number for number in words if record_rules.has_text(words[number].split(), text)]
    return orjson.dumps(list(numbers)).decode()


def _with_conditions(statement: str, query: RecordQuery) -> tuple[str, list[object]]:
    """A statement with what must hold of a row, whichever index it was found by. What is asked for goes beside it."""
    said: list[tuple[str, Sequence[object]]] = []
    if query.schema_name:
        said.append((" AND schema_name = ?", [query.schema_name]))
    if query.created_by:
        said.append((" AND created_by = ?", [column(query.created_by)]))
    if query.reader is not None:
        said.append((" AND (visibility <> 'private' OR created_by = ?)", [column(query.reader)]))
    if query.public_only:
        said.append((" AND visibility = 'public'", []))
    if query.without_sensitive:
        said.append((" AND sensitivity = 'normal'", []))
    if left_out := list(filter(record_rules.is_name, query.without_schemas)):
        said.append((f" AND schema_name NOT IN ({', '.join('?' * len(left_out))})", left_out))
    if query.since is not None:
        said.append((" AND created_at >= ?", [_date(query.since)]))
    if query.until is not None:
        said.append((" AND created_at < ?", [_date(query.until)]))
    if query.all_tags:
        said.append((_HAS_TAGS, _tags(query.all_tags)))
    if query.any_tags:
        said.append((_HAS_TAGS, [_tags(query.any_tags)[0], 1]))
    conditions = "".join(sql for sql, _ in said)
    return statement.format(conditions=conditions), [value for _, values in said for value in values]


def _tags(tags: Sequence[str]) -> list[object]:
    """Distinct tags as a statement takes them, and how many they are."""
    distinct = list(dict.fromkeys(filter(record_rules.is_name, tags)))
    return [orjson.dumps(distinct).decode(), len(distinct)]


def _candidates(connection: sqlite3.Connection, query: RecordQuery, before: int | None, project: str) -> Iterator[int]:
    """The numbers of all records that may fit, the newest first, without repetition."""
    span = _span(query, before)
    if query.text.strip():
        yield from _by_words(connection, match_of(query, project), span)
        return
    indexes = _indexes(query, column(project))
    best = indexes[0] if len(indexes) == 1 else min(indexes, key=partial(_density, connection, span))
    streams = [_stream(connection, sql, given, span) for sql, given in best.asked]
    newest = (number for number, _ in groupby(streams[0] if len(streams) == 1 else merge(*streams, reverse=True)))
    if len(indexes) == 1 and not (query.public_only or query.without_sensitive or query.reader is not None):
        yield from newest
        return
    last = span.last
    for last in islice(newest, MOST_TRIED):
        yield last
    # Few of so many fit: the index of words has all conditions, but answers more slowly where many do.
    yield from _by_words(connection, match_of(query, project), span._replace(last=last))


def _indexes(query: RecordQuery, project: str) -> list[_Index]:
    found = [_Index(((_BY_TAG, (project, tag)),)) for tag in dict.fromkeys(query.all_tags)]
    if query.any_tags:
        tags = dict.fromkeys(filter(record_rules.is_name, query.any_tags))
        found.append(_Index(tuple((_BY_TAG, (project, tag)) for tag in tags)))
    if query.schema_name:
        found.append(_Index(((_BY_SCHEMA, (project, query.schema_name)),)))
    if query.created_by:
        found.append(_Index(((_BY_AUTHOR, (project, column(query.created_by))),)))
    return found or [_Index(((_OF_PROJECT, (project,)),))]


def _density(connection: sqlite3.Connection, span: _Range, index: _Index) -> tuple[int, int]:
    """How many rows an index has, up to some number, and how new the last of those is."""
    count, oldest = 0, _NEWEST
    for sql, given in index.asked:
        rows = connection.execute(sql, (*given, *span, _PROBED)).fetchall()
        count += len(rows)
        oldest = min(oldest, rows[-1][0] if rows else oldest)
    return min(count, _PROBED), oldest


def _stream(connection: sqlite3.Connection, sql: str, given: Row, span: _Range) -> Iterator[int]:
    batch = _FEW
    while rows := connection.execute(sql, (*given, *span, batch)).fetchall():
        yield from (number for (number,) in rows)
        if len(rows) < batch:
            return
        span = span._replace(last=rows[-1][0])
        batch = min(batch * 4, _MANY)


def _by_words(connection: sqlite3.Connection, match: WordMatch, span: _Range) -> Iterator[int]:
    """The index of words has the filters, too: what it gives fits nearly always."""
    batch = _FEW
    while numbers := record_index.matching(connection, match, batch, span.first, span.last):
        yield from numbers
        span = span._replace(last=numbers[-1])
        batch = min(batch * 4, _MANY)


def _span(query: RecordQuery, before: int | None) -> _Range:
    """The numbers that records of these dates can have; some more at the end, where several were created together."""
    first = 0 if query.since is None else record_rules.number_of(_date(query.since))
    last = _NEWEST
    if query.until is not None:
        last = record_rules.number_of(_date(query.until)) + record_rules.NUMBERS_AT_ONCE
    return _Range(first, min(last, _NEWEST if before is None else max(before, 0)))


def _date(at: float) -> float:
    """A date as every store can compare it."""
    return min(max(at, 0.0), record_rules.LAST_DATE)
