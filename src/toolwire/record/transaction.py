"""One transaction of the SQLite store: what its changes ask is read once, what they add is written together."""

import re
import sqlite3
from collections.abc import Collection, Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain, islice
from typing import Final, NamedTuple

from msgspec import Struct, field

from toolwire.protocol.calls import ToolResult
from toolwire.protocol.records import CallCard
from toolwire.record.audit_heads import newest_head
from toolwire.record.chain import link_own
from toolwire.record.contract import LoopMetrics
from toolwire.record.liveness import Alive
from toolwire.record.rows import CallKey, Row, TurnKey, call_key, column, read_card
from toolwire.record.tally import ToolTally

MAX_KNOWN = 10_000
_AT_ONCE = (64, 32, 16, 8, 4)
_VALUES = re.compile(r"VALUES (\([?, ]+\))")

_TURN = "SELECT epoch, state, owner FROM turns WHERE project = ? AND id = ?"
CARD_COLUMNS = """
    SELECT c.id, c.turn_id, c.project, c.created_by, c.created_at, c.context, s.starts, s.owner, s.until, s.epoch,
           s.token, s.detached, s.cancel, r.context
"""
CARD_JOINS = """
    LEFT JOIN starts s ON s.project = c.project AND s.turn_id = c.turn_id AND s.call_id = c.call_id
    LEFT JOIN records r ON r.project = c.project AND r.turn_id = c.turn_id AND r.call_id = c.call_id
        AND r.schema_name = 'tool.result'
"""
CARD = f"""
    {CARD_COLUMNS}
    FROM records c
    {CARD_JOINS}
    WHERE c.project = ? AND c.turn_id = ? AND c.call_id = ? AND c.schema_name = 'tool.call'
"""
ADD_CLAIM = """
    INSERT INTO starts (project, turn_id, call_id, starts, owner, until, epoch, token) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (turn_id, project, call_id) DO UPDATE SET
        starts = starts.starts + excluded.starts, owner = excluded.owner, until = excluded.until,
        epoch = excluded.epoch, token = excluded.token
"""
_MARKED = """
    INSERT INTO starts (project, turn_id, call_id, starts, detached, cancel) VALUES (?, ?, ?, 0, ?, ?)
    ON CONFLICT (turn_id, project, call_id) DO UPDATE SET detached = excluded.detached, cancel = excluded.cancel
"""
_DETACHED_ENDED = "UPDATE starts SET detached = 2 WHERE project = ? AND turn_id = ? AND call_id = ?"
LOOP_COLUMNS = (
    "turns", "answered", "iterations", "total_ms", "batches", "max_concurrency", "saved_ms", "with_failures",
    "recovered", "input_tokens", "output_tokens", "cost_usd",
)  # fmt: skip
LOOP_SUMS = f"SELECT {', '.join(LOOP_COLUMNS)} FROM loop_metrics WHERE project = ?"  # noqa: S608 -- our own names
ADD_LOOP = f"""
    INSERT INTO loop_metrics (project, {", ".join(LOOP_COLUMNS)}) VALUES (?, {", ".join("?" * len(LOOP_COLUMNS))})
    ON CONFLICT (project) DO UPDATE SET {
    ", ".join(
        f"{name} = loop_metrics.{name} + excluded.{name}"
        for name in LOOP_COLUMNS
        if name not in ("max_concurrency", "cost_usd")
    )
},
        max_concurrency = max(loop_metrics.max_concurrency, excluded.max_concurrency),
        cost_usd = CASE WHEN excluded.cost_usd IS NULL THEN loop_metrics.cost_usd
                        ELSE coalesce(loop_metrics.cost_usd, 0.0) + excluded.cost_usd END
"""  # noqa: S608 -- our own names
ADD_RECORD = """
    INSERT INTO records (id, project, schema_name, title, context, created_by, created_at, turn_id, call_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
ADD_AUDIT = """
    INSERT INTO audit (at, event, project, agent, turn_id, call_id, tool, rule, status, code, args_digest,
                       elapsed_ms, detail, digest)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
ADD_WRITER = """
    INSERT INTO audit_writers (seq, writer, number, project) VALUES ((SELECT max(seq) FROM audit) - ?, ?, ?, ?)
"""
# A call that waits for its result counts for the day; one that did not run is given back.
ADD_CHARGE = """
    INSERT INTO charges (project, turn_id, calls) VALUES (?, ?, ?)
    ON CONFLICT (turn_id, project) DO UPDATE SET calls = charges.calls + excluded.calls
"""
ADD_METRICS = """
    INSERT INTO tool_metrics (project, tool, calls, success, errors, timeouts, canceled, total_ms, max_ms, last_error,
                              last_error_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (project, tool) DO UPDATE SET
        calls = tool_metrics.calls + excluded.calls,
        success = tool_metrics.success + excluded.success,
        errors = tool_metrics.errors + excluded.errors,
        timeouts = tool_metrics.timeouts + excluded.timeouts,
        canceled = tool_metrics.canceled + excluded.canceled,
        total_ms = tool_metrics.total_ms + excluded.total_ms,
        max_ms = max(tool_metrics.max_ms, excluded.max_ms),
        last_error = iif(excluded.last_error_at IS NULL, tool_metrics.last_error, excluded.last_error),
        last_error_at = coalesce(excluded.last_error_at, tool_metrics.last_error_at)
"""


EACH_CALL = (ADD_RECORD, ADD_AUDIT, ADD_WRITER, ADD_CHARGE, ADD_METRICS, ADD_CLAIM)
"""What nearly every call writes, and nothing else; a server can be given the rows of all of them at once."""


class StaleCache(sqlite3.OperationalError):
    """Another connection has committed since, so that what was known when the transaction began may be wrong."""


class TurnRow(NamedTuple):
    """What the rules ask about a kept turn."""

    epoch: int
    state: str
    owner: str | None


class _Ended(Enum):
    """In the place of a call that has ended, which may be large."""

    ENDED = "ended"


_ENDED: Final = _Ended.ENDED


class Cache(Struct):
    """What a connection has learned: true as long as its transactions succeed and no other connection commits.

    Of the turns that began `here` it has seen every call. `heads` are the ends of the audit chains of projects.
    """

    version: int = -1
    turns: dict[TurnKey, TurnRow | None] = field(default_factory=dict)
    here: set[TurnKey] = field(default_factory=set)
    calls: dict[CallKey, CallCard | _Ended | None] = field(default_factory=dict)
    heads: dict[str, tuple[int, str]] = field(default_factory=dict)

    def still_true(self, connection: sqlite3.Connection) -> "Cache":
        """What is known, or nothing once another connection has committed. Asked inside a transaction."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self.version:
            return Cache(version)
        if self._size >= MAX_KNOWN:
            self._forget_older_turns()
        return self if self._size < MAX_KNOWN else Cache(version)

    @property
    def _size(self) -> int:
        return len(self.turns) + len(self.calls) + len(self.heads)

    def _forget_older_turns(self) -> None:
        """Forget the half that was asked for first; of those that run now, most were asked for lately."""
        older = set(islice(self.turns, len(self.turns) // 2 + 1))
        for key in older:
            del self.turns[key]
        self.forget_calls(older)

    def learn(self, key: CallKey, turn: TurnRow | None, card: CallCard | None) -> None:
        """Take in a turn and a call of it as they are kept now. Calls that have ended are not held here."""
        self.turns[key[:2]] = turn
        self.calls[key] = card if card is None or card.result is None else _ENDED

    def believe(self, key: CallKey, turn: TurnRow | None, card: CallCard) -> None:
        """Take in what was read a moment ago about a call without a result, where nothing else is known."""
        self.turns.setdefault(key[:2], turn)
        self.calls.setdefault(key, card)

    def forget_calls(self, turns: Collection[TurnKey]) -> None:
        """The calls of these turns are other ones now than is known: they are read again when they are asked for."""
        self.here.difference_update(turns)
        self.calls = {key: card for key, card in self.calls.items() if key[:2] not in turns}


class Facts(Struct):
    """What a transaction took for true without asking the server. The server checks it before it writes anything.

    `settled` is what was read, or changed, in the transaction itself.
    """

    turns: dict[TurnKey, TurnRow | None] = field(default_factory=dict)
    calls: dict[CallKey, CallCard | None] = field(default_factory=dict)
    settled: set[TurnKey | CallKey] = field(default_factory=set)
    unfinished: dict[TurnKey, list[CallCard]] = field(default_factory=dict)
    """Of turns that are taken over, the calls without a result, until the transaction itself changes one of them."""
    left: dict[TurnKey, int] = field(default_factory=dict)
    """How many of them there are."""

    @property
    def any(self) -> bool:
        return bool(self.turns or self.calls or self.left)

    def taken(self) -> "Facts":
        """What is to be checked now, and not again."""
        taken = Facts(self.turns, self.calls, left=self.left)
        self.turns, self.calls, self.left = {}, {}, {}
        return taken

    def note_turn(self, key: TurnKey, turn: TurnRow | None) -> None:
        if key not in self.settled:
            self.settled.add(key)
            self.turns[key] = turn

    def note_call(self, key: CallKey, card: CallCard | None) -> None:
        if key not in self.settled:
            self.settled.add(key)
            self.calls[key] = card

    def unfinished_of(self, key: TurnKey) -> list[CallCard] | None:
        """The calls of a turn without a result, if they were looked up; from then on they are taken for true."""
        cards = self.unfinished.get(key)
        if cards is not None and key not in self.left:
            self.left[key] = len(cards)
            for card in cards:
                self.note_call(call_key(card), card)
        return cards


class Transaction(Struct):
    """What a transaction knows and will add. Its changes read here, and keep it true for those after them.

    `facts` is given where other connections may write while this one believes what it knows; elsewhere a version of
    the whole database says whether what is known is still true.
    """

    connection: sqlite3.Connection
    known: Cache
    alive: Alive
    records: list[Row] = field(default_factory=list)
    audit: list[Row] = field(default_factory=list)
    audited: list[Row] = field(default_factory=list)
    tallies: dict[tuple[str, str], ToolTally] = field(default_factory=dict)
    loops: dict[str, LoopMetrics] = field(default_factory=dict)
    charges: dict[TurnKey, int] = field(default_factory=dict)
    claims: dict[CallKey, Row] = field(default_factory=dict)
    writer: str = ""
    facts: Facts | None = None

    def turn(self, key: TurnKey) -> TurnRow | None:
        """The current epoch, the state and the owner of a turn, if it is kept."""
        turns = self.known.turns
        if key in turns:
            if self.facts is not None:
                self.facts.note_turn(key, turns[key])
        else:
            row = self.connection.execute(_TURN, key).fetchone()
            turns[key] = None if row is None else TurnRow(*row)
            if self.facts is not None:
                self.facts.settled.add(key)
        return turns[key]

    def turn_of_holder(self, key: TurnKey) -> TurnRow | None:
        """The same as it was a while ago, for what does not depend on it."""
        return self.known.turns[key] if key in self.known.turns else self.turn(key)

    def set_turn(self, key: TurnKey, turn: TurnRow) -> None:
        self.known.turns[key] = turn
        if self.facts is not None:
            self.facts.settled.add(key)

    def call(self, key: CallKey) -> CallCard | None:
        """A kept call, with its token and result, and including what this transaction has added."""
        calls = self.known.calls
        known = calls.get(key, _ENDED)
        if known is _ENDED and key[:2] in self.known.here and key not in calls:
            known = calls[key] = None
        if known is not _ENDED:
            if self.facts is not None:
                self.facts.note_call(key, known)
            return known
        self.flush()
        row = self.connection.execute(CARD, key).fetchone()
        card = None if row is None else read_card(row)
        calls[key] = card if card is None or card.result is None else _ENDED
        if self.facts is not None:
            self.facts.settled.add(key)
        return card

    def look_up(self, keys: Sequence[CallKey]) -> None:
        """Know these calls and their turns, by one question where each question is a long way."""
        if (look_up := getattr(self.connection, "look_up", None)) is not None:
            look_up(self.known, [key for key in keys if key not in self.known.calls or key[:2] not in self.known.turns])

    def _changes_call(self, key: CallKey) -> None:
        """What was looked up before about the calls of its turn is true no more."""
        if self.facts is not None:
            self.facts.unfinished.pop(key[:2], None)

    def forget_calls(self, turn: TurnKey) -> None:
        """The calls of a turn were changed by a statement, and are read again when they are asked for."""
        self.known.forget_calls({turn})
        if self.facts is not None:
            self.facts.unfinished.pop(turn, None)

    def add_call(self, key: CallKey, card: CallCard, row: Row) -> None:
        self._changes_call(key)
        self.records.append(row)
        self.known.calls[key] = card
        if card.owner:
            self.claim_call(key, card, more=0)

    def claim_call(self, key: CallKey, card: CallCard, *, more: int) -> None:
        """Keep who holds a call; so many attempts more than before."""
        self._changes_call(key)
        self.known.calls[key] = card
        before = self.claims.get(key)
        more += before[3] if before is not None else 0
        self.claims[key] = (*key, more, card.owner, card.until, card.epoch, card.token)

    def mark_call(self, key: CallKey, card: CallCard) -> None:
        """Keep that a turn does not wait for a call, or that its holder is asked to stop."""
        self._changes_call(key)
        self.known.calls[key] = card
        self.connection.execute(_MARKED, (*key, int(card.detached), card.cancel or None))

    def end_call(self, key: CallKey, result: ToolResult, row: Row, at: float) -> None:
        """Keep how a call ended, and count it under the project and the title of its row."""
        self._changes_call(key)
        self.records.append(row)
        known = self.known.calls.get(key)
        if isinstance(known, CallCard) and known.detached:
            self.connection.execute(_DETACHED_ENDED, key)
        self.known.calls[key] = _ENDED
        counted = (row[1], row[3])
        tally = self.tallies.get(counted)
        if tally is None:
            tally = self.tallies[counted] = ToolTally()
        tally.add(result, at)

    def charge(self, key: TurnKey, calls: int) -> None:
        """Count calls of a turn, or give them back. A turn that was never begun counts none."""
        if self.known.turns.get(key) is not None:  # each change has asked for its turn by then
            self.charges[key] = self.charges.get(key, 0) + calls

    def write_charges(self) -> None:
        """Write what calls were counted so far, before it is asked for."""
        add_rows(self.connection, ADD_CHARGE, [(*key, calls) for key, calls in self.charges.items()])
        self.charges.clear()

    def flush(self) -> None:
        """Write what was added so far."""
        if self.charges:
            self.write_charges()
        if self.records:
            add_rows(self.connection, ADD_RECORD, self.records)
            self.records.clear()
        if self.claims:
            add_rows(self.connection, ADD_CLAIM, list(self.claims.values()))
            self.claims.clear()
        if self.audit:
            self.audited += self._add_audit()
            self.audit.clear()
        if self.tallies:
            add_rows(self.connection, ADD_METRICS, [_metrics_row(*item) for item in self.tallies.items()])
            self.tallies.clear()
        if self.loops:
            rows = [
                (whose, *(getattr(sums, name) for name in LoopMetrics.__struct_fields__))
                for whose, sums in self.loops.items()
            ]
            add_rows(self.connection, ADD_LOOP, rows)
            self.loops.clear()

    def _add_audit(self) -> list[Row]:
        """Add the audit rows, each with its digest: this transaction alone writes, so the newest rows are known."""
        if (server := getattr(self.connection, "link_audit", None)) is not None and server(self.audit, self.writer):
            return [(*row, None) for row in self.audit]
        heads, chained, own, writer = self.known.heads, [], [], self.writer
        for place, row in enumerate(self.audit):
            project = row[2]
            number, head = heads.get(project) or newest_head(self.connection, writer, project)
            number += 1
            head = link_own(head, row, writer, number)
            heads[project] = (number, head)
            chained.append((*row, head))
            if writer:
                own.append((len(self.audit) - 1 - place, writer, number, project))
        add_rows(self.connection, ADD_AUDIT, chained)
        if own:
            self.connection.executemany(ADD_WRITER, own)
        return chained


def add_rows(connection: sqlite3.Connection, sql: str, rows: Sequence[Row]) -> None:
    """Add rows by a statement for one of them. SQLite takes many at once in two thirds of the time."""
    begin = 0
    if isinstance(connection, sqlite3.Connection):
        for many in _AT_ONCE:
            while len(rows) - begin >= many:
                some = rows[begin : (begin := begin + many)]
                connection.execute(_for_many(sql, many), tuple(chain.from_iterable(some)))
    if begin < len(rows):
        connection.executemany(sql, rows[begin:] if begin else rows)


@lru_cache(maxsize=64)
def _for_many(sql: str, many: int) -> str:
    """The statement for many rows at once.

    SQLite would copy every page that it changes, to take back the rows before one that fails. The writer takes the
    whole transaction back then, so that there is no need to.
    """
    sql = sql.replace("INSERT INTO", "INSERT OR FAIL INTO", 1)
    return _VALUES.sub(lambda found: f"VALUES {', '.join([found[1]] * many)}", sql, count=1)


def _metrics_row(counted: tuple[str, str], tally: ToolTally) -> Row:
    return (
        *counted,
        tally.calls,
        tally.success,
        tally.errors,
        tally.timeouts,
        tally.canceled,
        tally.total_ms,
        tally.max_ms,
        column(tally.last_error),
        tally.last_error_at,
    )
