"""Functions in the server that write a whole transaction at once, and look up what one will ask. PostgreSQL only.

A connection believes what it knows of turns and calls, though other processes write meanwhile. So it sends with its
rows the facts that it took for true. The function takes the lock of all writers, compares the facts with what is kept,
and writes nothing if one of them is wrong: the transaction is then made again, step by step, under the lock. It also
links the rows of the audit log, so that the processes of one folder need not know of one another's newest row.

The names of the functions change with their text, so that versions do not meet.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from hashlib import sha256
from typing import Any, Final

from toolwire.protocol.records import CallCard
from toolwire.record import changes, dispatch_rows, reads, record_index, record_rows
from toolwire.record.pg_dialect import COMMITS, LOCK, from_json, row_from_json, rows_from_json
from toolwire.record.rows import CallKey, Row, TurnKey, call_key, columns, read_card, turn_key
from toolwire.record.transaction import (
    ADD_AUDIT,
    ADD_LOOP,
    CARD_COLUMNS,
    EACH_CALL,
    Cache,
    Facts,
    TurnRow,
)

EACH_TURN = (
    changes.BEGIN_TURN, changes.TAKE_OVER, changes.TOUCH, changes.RELEASE_TURN, changes.END_TURN, changes.CHARGED,
    ADD_LOOP, changes.SPEND, dispatch_rows.KEEP, dispatch_rows.DROP, dispatch_rows.LATER, *record_rows.WRITES,
    *record_index.WRITES,
)  # fmt: skip
"""Statements of turns and records whose outcome is not looked at; each is made for one row after the other."""

_AT_ONCE: Final = (changes.BEGIN_TURN, dispatch_rows.KEEP)
"""Those of them whose rows are added at once: they see nothing of one another."""

_ALL: Final = (*EACH_CALL, *EACH_TURN)
NUMBERS: Final = {sql: number for number, sql in enumerate(_ALL)}
_OF_A_TURN: Final = (
    (changes.BEGIN_TURN, dispatch_rows.KEEP),
    (changes.END_TURN, changes.CHARGED, ADD_LOOP, changes.SPEND),
)
TOGETHER: Final = {NUMBERS[sql]: place for place, some in enumerate(_OF_A_TURN) for sql in some}
"""What turns write for themselves when they begin, and when they end. Of several that do, the first of the statements
may be made for all of them, then the second …
"""
LINK_AUDIT: Final = len(_ALL)
"""Audit rows that the server links, each with what is digested of it less its number, and with the number of its chain.

The chains come after the rows.
"""

Types = Callable[[str], Sequence[str]]
"""The types of a statement's parameters."""

_BY_INDEX = "SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off"
"""A plan is kept for as long as a connection lives, and small tables grow."""
_PLANNED_ONCE = "SET plan_cache_mode = force_generic_plan"
"""Rows are found by their ids, whichever they are."""
# Rows are found one by one by their ids, whatever the tables looked like when the plan was made: a LIMIT keeps the
# planner from joining whole tables, and `|| ''` from indexes that hold all rows of a project, or of a kind.
_FOUND = """
    SELECT {what} FROM {table} x WHERE x.turn_id = {key}.v ->> 1 AND x.project || '' = {key}.v ->> 0
        AND x.call_id = {key}.v ->> 2{more} LIMIT 1
"""


def _found(key: str, table: str, what: str, kind: str = "") -> str:
    """One row of a call, if there is one."""
    more = f" AND x.schema_name || '' = '{kind}'" if kind else ""
    return f"LEFT JOIN LATERAL ({_FOUND.format(key=key, table=table, what=what, more=more)})"


_OTHER_TURN = """
    SELECT 1 FROM jsonb_array_elements(facts -> 'turns') AS f(v)
    LEFT JOIN LATERAL (
        SELECT epoch, state, owner FROM turns x WHERE x.id = f.v ->> 1 AND x.project || '' = f.v ->> 0 LIMIT 1
    ) t ON true
    WHERE (t.epoch, t.state, t.owner) IS DISTINCT FROM ((f.v ->> 2)::bigint, f.v ->> 3, f.v ->> 4)
"""
# A call that was opened as begun has the id of its card for a token, which is in no other row.
_OTHER_CALL = f"""
    SELECT 1 FROM jsonb_array_elements(facts -> 'calls') AS f(v)
    {_found("f", "records", "x.id", "tool.call")} c ON true
    {_found("f", "records", "x.id", "tool.result")} r ON true
    {_found("f", "starts", "*")} s ON true
    WHERE c.id IS DISTINCT FROM f.v ->> 3 OR r.id IS NOT NULL
        OR c.id IS NOT NULL AND (
            coalesce(s.token, '') <> f.v ->> 5
                AND NOT (s.token IS NULL AND ((f.v ->> 4)::bigint = 0 OR f.v ->> 5 = f.v ->> 3))
            OR coalesce(s.starts, 0) < 0 AND (f.v ->> 4)::bigint > 0
            OR coalesce(s.owner, '') <> f.v ->> 6
            OR s.until IS DISTINCT FROM (f.v ->> 7)::float8
            OR coalesce(s.detached, 0) <> (f.v ->> 8)::bigint
            OR coalesce(s.cancel, '') <> f.v ->> 9
        )
"""  # noqa: S608 -- our own words
_OTHER_LEFT = """
    SELECT 1 FROM jsonb_array_elements(facts -> 'left') AS f(v)
    WHERE (f.v ->> 2)::bigint <> (
        SELECT count(*) FROM records x WHERE x.turn_id = f.v ->> 1 AND x.project || '' = f.v ->> 0
            AND x.schema_name || '' = 'tool.call' AND NOT EXISTS (
                SELECT 1 FROM records o WHERE o.turn_id = x.turn_id AND o.project || '' = x.project
                    AND o.call_id = x.call_id AND o.schema_name || '' = 'tool.result'
            )
    )
"""
_ADD_LINKED = (
    from_json(ADD_AUDIT, "given")
    .replace("(each.value ->> 13)::text", "linked[each.ordinality]")
    .replace("(SELECT coalesce(max(seq), 0) FROM audit)", "own")
)
# The lock of all writers is held meanwhile. So the ends of the chains are looked up once, all rows are added at once,
# and loops count: one over the rows of a query takes as long as a statement that adds a row.
_LINKED = f"""
    numbers := '{{}}'; heads := '{{}}'; linked := '{{}}'; places := '{{}}';
    FOR n IN 0 .. jsonb_array_length(op -> 2) - 1 LOOP
        SELECT w.number, a.digest INTO own, head FROM audit_writers w JOIN audit a ON a.seq = w.seq
        WHERE w.writer = op -> 2 -> n ->> 0 AND w.project = op -> 2 -> n ->> 1 ORDER BY w.seq DESC LIMIT 1;
        IF head IS NULL THEN
            RAISE EXCEPTION 'the chain has no row yet' USING ERRCODE = 'serialization_failure';
        END IF;
        numbers := numbers || own;
        heads := heads || head;
    END LOOP;
    FOR n IN 0 .. jsonb_array_length(given) - 1 LOOP
        one := given -> n;
        chain := (one ->> 14)::int;
        numbers[chain] := numbers[chain] + 1;
        heads[chain] := encode(sha256(convert_to(
            heads[chain] || E'\\n' || (one ->> 13) || ',' || numbers[chain] || ']', 'UTF8')), 'hex');
        places := places || numbers[chain];
        linked := linked || heads[chain];
    END LOOP;
    own := (SELECT coalesce(max(seq), 0) FROM audit);
    {_ADD_LINKED};
    INSERT INTO audit_writers (seq, writer, number, project)
    SELECT own + each.ordinality, op -> 2 -> ((each.value ->> 14)::int - 1) ->> 0, places[each.ordinality],
        each.value ->> 2
    FROM jsonb_array_elements(given) WITH ORDINALITY AS each(value, ordinality);
    digests := digests || linked;
"""  # noqa: S608 -- our own words


@cache
def writing_name() -> str:
    """The name of the function that writes; see `writing`."""
    return f"write_calls_{_digest(*_ALL, _OTHER_TURN, _OTHER_CALL, _OTHER_LEFT, _LINKED, 'd')}"


def writing(types: Types) -> str:
    """The statement that makes the function which writes.

    It is given a count of commits, to be compared if it is one; facts; statements, each by its number with rows; and
    whether the transaction ends with it. It gives the digests of the audit rows that it linked, and nothing at all
    where it wrote nothing because a fact is wrong.
    """
    each = [f"WHEN {NUMBERS[sql]} THEN {from_json(sql, 'given')};" for sql in EACH_CALL]
    each += [f"WHEN {NUMBERS[sql]} THEN {rows_from_json(sql, 'given', types(sql))};" for sql in _AT_ONCE]
    for sql in EACH_TURN:
        if sql in _AT_ONCE:
            continue
        made = row_from_json(sql, "one", types(sql))
        loop = f"FOR n IN 0 .. jsonb_array_length(given) - 1 LOOP one := given -> n; {made}; END LOOP;"
        each.append(f"WHEN {NUMBERS[sql]} THEN {loop}")
    facts = (("turns", _OTHER_TURN), ("calls", _OTHER_CALL), ("left", _OTHER_LEFT))
    compare = "PERFORM * FROM ({}) AS other; IF FOUND THEN RETURN NULL; END IF;"
    compared = "\n".join(f"IF facts -> '{name}' <> '[]' THEN {compare.format(sql)} END IF;" for name, sql in facts)
    whens = "\n".join((*each, f"WHEN {LINK_AUDIT} THEN {_LINKED}"))
    return f"""
        CREATE OR REPLACE FUNCTION {writing_name()}(known bigint, facts jsonb, ops jsonb, ends boolean) RETURNS text[]
        LANGUAGE plpgsql {_BY_INDEX} {_PLANNED_ONCE} AS $$
        #variable_conflict use_column
        DECLARE op jsonb; given jsonb; one jsonb; own bigint; chain int; head text; numbers bigint[];
            places bigint[]; heads text[]; linked text[]; digests text[] := '{{}}';
        BEGIN
            PERFORM {LOCK};
            IF known IS NOT NULL AND {COMMITS} <> known THEN RETURN NULL; END IF;
            {compared}
            FOR place IN 0 .. jsonb_array_length(ops) - 1 LOOP
                op := ops -> place;
                given := op -> 1;
                CASE (op ->> 0)::int
                {whens}
                END CASE;
            END LOOP;
            IF ends THEN PERFORM nextval('commits'); END IF;
            RETURN digests;
        END $$
    """


_CARD = " ".join(CARD_COLUMNS.split()).removeprefix("SELECT ")
_CARD_TYPES = "text, text, text, text, float8, text, bigint, text, float8, bigint, text, bigint, text, text"
_KNOWN = f"""
    SELECT t.epoch, t.state, t.owner, {_CARD} FROM json_array_elements($1) WITH ORDINALITY AS k(v, place)
    LEFT JOIN LATERAL (
        SELECT epoch, state, owner FROM turns x WHERE x.id = k.v ->> 1 AND x.project || '' = k.v ->> 0 LIMIT 1
    ) t ON true
    {_found("k", "records", "*", "tool.call")} c ON true
    {_found("k", "records", "x.context", "tool.result")} r ON true
    {_found("k", "starts", "*")} s ON true
    ORDER BY k.place
"""  # noqa: S608
_LEFT = f"""
    SELECT t.epoch, t.state, t.owner, t.project, t.id, {_CARD} FROM json_array_elements($1) AS k(v)
    JOIN LATERAL (
        SELECT epoch, state, owner, project, id FROM turns x
        WHERE x.id = k.v ->> 1 AND x.project || '' = k.v ->> 0 LIMIT 1
    ) t ON true
    LEFT JOIN LATERAL (
        SELECT * FROM records x WHERE x.turn_id = k.v ->> 1 AND x.project || '' = k.v ->> 0
            AND x.schema_name || '' = 'tool.call' AND NOT EXISTS (
                SELECT 1 FROM records o WHERE o.turn_id = x.turn_id AND o.project || '' = x.project
                    AND o.call_id = x.call_id AND o.schema_name || '' = 'tool.result'
            )
        OFFSET 0
    ) c ON true
    LEFT JOIN LATERAL (
        SELECT * FROM starts x WHERE x.turn_id = c.turn_id AND x.project || '' = c.project AND x.call_id = c.call_id
        LIMIT 1
    ) s ON true
    LEFT JOIN LATERAL (SELECT NULL::text AS context) r ON true
"""  # noqa: S608


_REST = """
    LEFT JOIN LATERAL (
        SELECT * FROM starts x WHERE x.turn_id = c.turn_id AND x.project || '' = c.project AND x.call_id = c.call_id
        LIMIT 1
    ) s ON true
    LEFT JOIN LATERAL (
        SELECT x.context FROM records x WHERE x.turn_id = c.turn_id AND x.project || '' = c.project
            AND x.call_id = c.call_id AND x.schema_name || '' = 'tool.result' LIMIT 1
    ) r ON true
"""
INSTEAD: Final = {
    **record_index.PG_INSTEAD,
    reads.CALLS_BY_ID: f"""
        SELECT c.call_id, t.state, {_CARD} FROM json_array_elements_text($1::json) AS k(v)
        JOIN LATERAL (
            SELECT * FROM records x WHERE x.turn_id = k.v AND x.schema_name || '' = 'tool.call'
                AND x.call_id IN (SELECT json_array_elements_text($2::json)) OFFSET 0
        ) c ON true
        LEFT JOIN LATERAL (
            SELECT state FROM turns x WHERE x.id = c.turn_id AND x.project || '' = c.project LIMIT 1
        ) t ON true
        {_REST}
    """,  # noqa: S608
    dispatch_rows.OF_CARDS: f"""
        SELECT {_CARD}, t.epoch, t.state, t.owner, d.{dispatch_rows.COLUMNS.replace(", ", ", d.")}
        FROM json_array_elements_text($1::json) AS k(v)
        JOIN LATERAL (SELECT * FROM dispatches x WHERE x.card_id = k.v OFFSET 0) d ON true
        JOIN LATERAL (
            SELECT * FROM records x WHERE x.turn_id = d.turn_id AND x.project || '' = d.project
                AND x.call_id = d.call_id AND x.schema_name || '' = 'tool.call' LIMIT 1
        ) c ON true
        LEFT JOIN LATERAL (
            SELECT epoch, state, owner FROM turns x WHERE x.id = d.turn_id AND x.project || '' = d.project LIMIT 1
        ) t ON true
        {_REST}
    """,  # noqa: S608
}
"""Questions of every call that are asked in other words here, so that each row is found by its id."""


@cache
def looking() -> dict[str, str]:
    """The functions that look up what transactions will ask: their names and the statements that make them."""
    made = {}
    shapes = (
        ("known_calls", f"bigint, text, text, {_CARD_TYPES}", _KNOWN),
        ("turns_left", f"bigint, text, text, text, text, {_CARD_TYPES}", _LEFT),
    )
    for name, types, sql in shapes:
        full = f"{name}_{_digest(types, sql)}"
        table = ", ".join(f"c{place} {kind}" for place, kind in enumerate(types.split(", ")))
        made[full] = (
            f"CREATE OR REPLACE FUNCTION {full}(json) RETURNS TABLE ({table}) LANGUAGE plpgsql STABLE {_BY_INDEX} AS "
            f"$$ #variable_conflict use_column\nBEGIN RETURN QUERY {sql}; END $$"
        )
    return made


def _digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()[:12]


# What changes ask


class Needs:
    """What the changes of a transaction will ask that is not known yet.

    With `guesses`, what begins is taken for new, as it nearly always is; the server looks whether it is. If that was
    wrong, the transaction is made again without.
    """

    def __init__(self, known: Cache, made: Iterable[Callable[..., Any]], *, guesses: bool) -> None:
        self._guesses = guesses
        self.calls: dict[CallKey, None] = {}
        self.taken_over: dict[TurnKey, None] = {}
        for change in made:
            self._add(known, change)

    def _add(self, known: Cache, change: Callable[..., Any]) -> None:
        if isinstance(change, changes.OpenCard):
            self._add_call(known, change.key)
            return
        if not isinstance(change, partial):
            return
        given = change.keywords
        inner = given.get("change")
        if isinstance(inner, partial):
            if self._guesses and (seen := given.get("seen")) is not None:
                known.believe(*seen)
            self._add(known, inner)
        elif change.func in (changes.claim, changes.close, changes.renew):
            self._add_call(known, call_key(given["card"]))
        elif change.func is dispatch_rows.keep:
            sent = given["dispatch"]
            project, turn_id, call_id = columns(sent.project, sent.turn_id, sent.call_id)
            self._add_call(known, (project, turn_id, call_id))
        elif change.func is changes.begin:
            first = given.get("first")
            if self._guesses:
                known.turns.setdefault(given["key"])
                if first is not None:
                    known.calls.setdefault(first.key)
            elif first is not None:
                self._add_call(known, first.key)
        elif change.func is changes.say:
            for one in given["cards"]:
                if self._guesses:
                    known.calls.setdefault(one.key)
                else:
                    self._add_call(known, one.key)
        elif change.func is changes.resume:
            self.taken_over[given["key"]] = None
        elif change.func is changes.release and given["begun"] is not None:
            self.taken_over[turn_key(given["turn"])] = None

    def _add_call(self, known: Cache, key: CallKey) -> None:
        if (key not in known.calls and key[:2] not in known.here) or key[:2] not in known.turns:
            self.calls[key] = None


def learn_left(known: Cache, facts: Facts, keys: Iterable[TurnKey], rows: Iterable[Row]) -> None:
    """Take in what the server has said about turns and their calls without a result."""
    for key in keys:
        known.turns.setdefault(key)
        facts.unfinished[key] = []
    for epoch, state, owner, project, turn_id, *card in rows:
        known.turns[project, turn_id] = TurnRow(epoch, state, owner)
        if card[0] is not None:
            facts.unfinished[project, turn_id].append(read_card(tuple(card)))


def learn(known: Cache, keys: Sequence[CallKey], rows: Iterable[Row]) -> None:
    """Take in what the server has said about calls."""
    for key, (epoch, state, owner, *card) in zip(keys, rows, strict=True):
        turn = None if epoch is None else TurnRow(epoch, state, owner)
        known.learn(key, turn, None if card[0] is None else read_card(tuple(card)))


# What is sent


def facts_json(facts: Facts) -> dict[str, list[list[Any]]]:
    return {
        "turns": [[*key, *(turn or (None, None, None))] for key, turn in facts.turns.items()],
        "calls": [[*key, *_fact(card)] for key, card in facts.calls.items()],
        "left": [[*key, count] for key, count in facts.left.items()],
    }


def _fact(card: CallCard | None) -> tuple[Any, ...]:
    if card is None:
        return (None,) * 7
    return (
        card.record_id, card.attempt, card.token, card.owner, card.until, int(card.detached), card.cancel,
    )  # fmt: skip
