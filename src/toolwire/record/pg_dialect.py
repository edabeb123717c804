"""The store's statements, which are written for SQLite, as PostgreSQL understands them. Pure.

Few things differ: how parameters are written, hints for SQLite's planner, types of columns, triggers, and a handful of
functions, which `FUNCTIONS` gives to PostgreSQL under the same names.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from toolwire.record.lease_rows import NOW
from toolwire.record.record_index import PG_INDEX

_PLACE = re.compile(r"'[^']*'|\?(\d*)")
_TYPELESS = re.compile(r"\?(\d+) IS NULL")
_BY_ID = (
    (
        re.compile(r"\b((?:\w+\.)?project) = (\S+) AND ((?:\w+\.)?(?:turn_|record_)?id (?:=|IN))"),
        r"\1 || '' = \2 AND \3",
    ),
    (re.compile(r"\b((?:\w+\.)?(?:turn_|record_)?id = \S+) AND ((?:\w+\.)?project) = "), r"\1 AND \2 || '' = "),
    (
        re.compile(r"\b((?:turn_)?id IN \(SELECT value FROM json_each\(\S+\)\)) AND project = "),
        r"\1 AND project || '' = ",
    ),
    (re.compile(r"\b((?:\w+\.)?(?:turn|call)_id = \S+) AND ((?:\w+\.)?schema_name) = "), r"\1 AND \2 || '' = "),
    (
        re.compile(r"\b(turn_id IN \(SELECT value FROM json_each\(\S+\)\) AND .+?) AND (schema_name) = "),
        r"\1 AND \2 || '' = ",
    ),
)
# As a set it is joined, and then the planner may read all rows and parse the JSON again for each of them.
_IN_LIST = re.compile(r"(?<!NOT) IN \((SELECT (?:value|CAST\(value AS \w+\)) FROM json_each\([^()]+\))\)")
_HINT = re.compile(r" INDEXED BY \w+")
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA"}
_TYPE = re.compile(r"\b(INTEGER|REAL|BLOB)\b")
_TABLE = re.compile(r"\s*CREATE TABLE \"?(\w+)")
_OWN_KEY = re.compile(r"\b(\w+) INTEGER PRIMARY KEY\b")
_TABLE_END = re.compile(r"\)\s*(?:STRICT|WITHOUT ROWID)(?:\s*,\s*(?:STRICT|WITHOUT ROWID))*\s*\Z")
_FULL_TEXT = re.compile(r"\s*CREATE VIRTUAL TABLE ")
_KEEPS_FULL_TEXT = re.compile(r"\s*CREATE TRIGGER \w+ AFTER ")
_TRIGGER = re.compile(
    r"\s*CREATE TRIGGER (?P<name>\w+) (?P<when>BEFORE \w+) ON (?P<table>\w+)(?:\s+WHEN (?P<only>.+?))?\s+"
    r"BEGIN SELECT raise\(ABORT, '(?P<words>[^']+)'\)(?: WHERE (?P<where>.+?))?; END\s*\Z",
    re.DOTALL,
)

FUNCTIONS = (
    "CREATE FUNCTION iif(boolean, anyelement, anyelement) RETURNS anyelement LANGUAGE sql IMMUTABLE"
    " AS 'SELECT CASE WHEN $1 THEN $2 ELSE $3 END'",
    "CREATE FUNCTION max(double precision, double precision) RETURNS double precision LANGUAGE sql IMMUTABLE"
    " AS 'SELECT greatest($1, $2)'",
    "CREATE FUNCTION max(bigint, bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT greatest($1, $2)'",
    "CREATE FUNCTION min(double precision, double precision) RETURNS double precision LANGUAGE sql IMMUTABLE"
    " AS 'SELECT least($1, $2)'",
    "CREATE FUNCTION min(bigint, bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT least($1, $2)'",
    "CREATE FUNCTION json_each(text) RETURNS TABLE (value text) LANGUAGE sql IMMUTABLE"
    " AS 'SELECT json_array_elements_text($1::json)'",
    # Only numbers are asked for.
    "CREATE FUNCTION json_extract(text, text) RETURNS double precision LANGUAGE sql IMMUTABLE"
    " AS 'SELECT CASE WHEN json_typeof($1::json -> substr($2, 3)) = ''number''"
    " THEN ($1::json ->> substr($2, 3))::double precision END'",
    "CREATE AGGREGATE total(double precision) (sfunc = float8pl, stype = double precision, initcond = '0')",
)
"""What SQLite has and PostgreSQL lacks, for the schema that holds the store's tables."""

LOCK = "pg_advisory_xact_lock(hashtextextended('toolwire:' || current_schema(), 0))"
"""Transactions that write take turns by it."""
COMMITS = "(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM commits)"
"""How many transactions that wrote have been committed; asked under the lock."""
_DOLLAR = re.compile(r"\$(\d+)")
_INSERT = re.compile(r"\s*INSERT INTO (\w+) \(([^)]+)\)\s+VALUES \((.*?)\)\s*(ON CONFLICT .*)?\Z", re.DOTALL)
_NUMBERS = {
    "double precision": frozenset({"at", "created_at", "elapsed_ms", "total_ms", "max_ms", "last_error_at", "until"}),
    "bigint": frozenset({"seq", "number", "calls", "success", "errors", "timeouts", "canceled", "starts", "epoch"}),
}


def from_json(sql: str, given: str) -> str:
    """A statement that adds a row, as one that adds all rows of an array in JSONB."""
    found = _INSERT.match(sql)
    assert found is not None, sql
    table, names, values, conflict = found.groups()
    columns = [name.strip() for name in names.split(",")]
    places = iter(enumerate(columns))

    def value(_: re.Match[str]) -> str:
        place, column = next(places)
        kind = next((kind for kind, names in _NUMBERS.items() if column in names), "text")
        return f"(each.value ->> {place})::{kind}"

    values = _PLACE.sub(value, values)
    if "seq" not in columns and table in ("records", "audit"):  # what numbers rows one by one takes long
        names = f"seq, {names}"
        values = f"(SELECT coalesce(max(seq), 0) FROM {table}) + each.ordinality, {values}"  # noqa: S608
    rows = f"jsonb_array_elements({given}) WITH ORDINALITY AS each(value, ordinality)"
    return f"INSERT INTO {table} ({names}) SELECT {values} FROM {rows} {conflict or ''}"  # noqa: S608 -- our own words


def row_from_json(sql: str, row: str, types: Sequence[str]) -> str:
    """A statement whose parameters are in an array in JSONB, of these types."""
    values = [f"({row} ->> {place})::{kind}" for place, kind in enumerate(types)]
    return _DOLLAR.sub(lambda found: values[int(found[1]) - 1], to_postgres(sql))


def rows_from_json(sql: str, given: str, types: Sequence[str]) -> str:
    """A statement that adds a row, with parameters of these types, as one that adds all rows of an array in JSONB."""
    found = _INSERT.match(row_from_json(sql, "each.value", types))
    assert found is not None, sql
    table, names, values, conflict = found.groups()
    if names.startswith("seq"):  # asked for once: what is added by the statement itself it does not see
        values = f"each.ordinality - 1 + {values}"
    rows = f"jsonb_array_elements({given}) WITH ORDINALITY AS each(value, ordinality)"
    return f"INSERT INTO {table} ({names}) SELECT {values} FROM {rows} {conflict or ''}"  # noqa: S608 -- our own words


@lru_cache(maxsize=512)
def to_postgres(sql: str) -> str:
    """One statement that reads or writes rows."""
    numbers = iter(range(1, 1_000))

    def place(match: re.Match[str]) -> str:
        if match[0][0] == "'":
            return match[0]
        return f"${match[1] or next(numbers)}"

    plain = _TYPELESS.sub(r"CAST(?\1 AS TEXT) IS NULL", _HINT.sub("", sql).replace(NOW, _NOW))
    return _PLACE.sub(place, _IN_LIST.sub(r" = ANY (ARRAY(\1))", by_id(_cast(plain))))


def by_id(sql: str) -> str:
    """A statement that finds rows by their ids, and not by their project.

    Where both are given, an index that begins with the project looks as good as one that begins with the id while a
    table is small. A plan is kept for as long as a connection lives, and reads all rows of a project later.
    """
    for pattern, instead in _BY_ID:
        sql = pattern.sub(instead, sql)
    return sql


def _cast(sql: str) -> str:
    return sql.replace(" AS INTEGER)", " AS BIGINT)")


def tables(statements: Sequence[str]) -> Iterator[str]:
    """Statements that make tables, indexes and triggers."""
    for sql in statements:
        if (trigger := _TRIGGER.match(sql)) is not None:
            yield from _trigger(trigger)
        elif _FULL_TEXT.match(sql):
            yield PG_INDEX
        elif _KEEPS_FULL_TEXT.match(sql):
            continue  # the index of a server follows its table
        elif (table := _TABLE.match(sql)) is not None:
            yield from _numbered(table[1], _TABLE_END.sub(")", sql))
        else:
            yield _TYPE.sub(lambda match: _TYPES[match[1]], sql)


def _numbered(table: str, sql: str) -> Iterator[str]:
    """Rows are numbered as SQLite does it, from the highest one on: a sequence would leave gaps in the audit log."""
    key = _OWN_KEY.search(sql)
    if key is not None:
        yield f"""
            CREATE FUNCTION next_in_{table}() RETURNS bigint LANGUAGE plpgsql AS
            $$ BEGIN RETURN (SELECT coalesce(max({key[1]}), 0) + 1 FROM {table}); END $$
        """  # noqa: S608 -- names of our own tables
        sql = _OWN_KEY.sub(rf"\1 BIGINT DEFAULT next_in_{table}() PRIMARY KEY", sql)
    yield _TYPE.sub(lambda match: _TYPES[match[1]], sql)


def _trigger(found: re.Match[str]) -> Iterator[str]:
    name, only = found["name"], found["only"] or found["where"]
    refused = f"RAISE EXCEPTION '{found['words']}' USING ERRCODE = 'integrity_constraint_violation';"
    body = f"IF {only} THEN {refused} END IF;" if only else refused
    event = found["when"].split()[1]
    yield f"""
        CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN {body} RETURN {"OLD" if event == "DELETE" else "NEW"}; END $$
    """
    yield f"CREATE TRIGGER {name} {found['when']} ON {found['table']} FOR EACH ROW EXECUTE FUNCTION {name}()"
