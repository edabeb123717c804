"""One transaction of the SQLite store: what its changes ask is read once, what they add is written together."""

import sqlite3
from dataclasses import field
from typing import Final, NamedTuple

from toolwire.protocol.calls import ToolResult
from toolwire.protocol.records import CallCard
from toolwire.protocol.values import dataclass
from toolwire.record.chain import BEGINNING, link_own, read_heads
from toolwire.record.liveness import Alive
from toolwire.record.rows import Row, column, read_card
from toolwire.record.tally import ToolTally

MAX_KNOWN = 10_000

_TURN = "SELECT project, epoch, state, owner FROM turns WHERE id = ?"
CARD_COLUMNS = """
    SELECT c.id, c.turn_id, c.project, c.created_by, c.created_at, c.context, s.starts, s.owner, s.until, s.epoch,
           s.token, r.context
"""
_CARD = f"""
    {CARD_COLUMNS}
    FROM records c
    LEFT JOIN starts s ON s.turn_id = c.turn_id AND s.call_id = c.call_id
    LEFT JOIN records r ON r.turn_id = c.turn_id AND r.call_id = c.call_id AND r.schema_name = 'tool.result'
    WHERE c.turn_id = ? AND c.call_id = ? AND c.schema_name = 'tool.call'
"""
_CLAIMED = """
    INSERT INTO starts (turn_id, call_id, starts, owner, until, epoch, token) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (turn_id, call_id) DO UPDATE SET starts = starts + excluded.starts, owner = excluded.owner,
        until = excluded.until, epoch = excluded.epoch, token = excluded.token
"""
LOOP_SUMS = """
    SELECT turns, answered, iterations, total_ms, batches, max_concurrency, saved_ms, with_failures, recovered,
           input_tokens, output_tokens, cost_usd
    FROM loop_metrics WHERE project = ?
"""
_ADD_RECORD = """
    INSERT INTO records (id, project, schema_name, title, context, created_by, created_at, turn_id, call_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_AUDIT = """
    INSERT INTO audit (at, event, project, agent, turn_id, call_id, tool, rule, status, code, args_digest,
                       elapsed_ms, detail, chain)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_WRITER = "INSERT INTO audit_writers (seq, writer, number) VALUES ((SELECT max(seq) FROM audit) - ?, ?, ?)"
_HEAD = "SELECT seq, chain FROM audit ORDER BY seq DESC LIMIT 1"
_OWN_HEAD = """
    SELECT w.number, a.chain FROM audit_writers w JOIN audit a ON a.seq = w.seq WHERE w.writer = ?
    ORDER BY w.seq DESC LIMIT 1
"""
_CUT = "SELECT seq, head FROM audit_cuts ORDER BY seq DESC LIMIT 1"
# A call that waits for its result counts for the day; one that did not run is given back.
_CHARGE = """
    INSERT INTO charges (turn_id, calls) VALUES (?, ?)
    ON CONFLICT (turn_id) DO UPDATE SET calls = calls + excluded.calls
"""
_ADD_METRICS = """
    INSERT INTO tool_metrics (project, tool, calls, success, errors, timeouts, canceled, total_ms, max_ms, last_error,
                              last_error_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (project, tool) DO UPDATE SET
        calls = calls + excluded.calls,
        success = success + excluded.success,
        errors = errors + excluded.errors,
        timeouts = timeouts + excluded.timeouts,
        canceled = canceled + excluded.canceled,
        total_ms = total_ms + excluded.total_ms,
        max_ms = max(max_ms, excluded.max_ms),
        last_error = iif(excluded.last_error_at IS NULL, last_error, excluded.last_error),
        last_error_at = coalesce(excluded.last_error_at, last_error_at)
"""


class TurnRow(NamedTuple):
    """What the rules ask about a kept turn."""

    project: str
    epoch: int
    state: str
    owner: str | None


class _Ended:
    """In the place of a call that has ended, which may be large."""


_ENDED: Final = _Ended()


@dataclass(slots=True)
class Cache:
    """What a connection has learned: true as long as its transactions succeed and nobody else commits.

    Of the turns that began `here` it has seen every call.
    """

    version: int = -1
    turns: dict[str, TurnRow | None] = field(default_factory=dict)
    here: set[str] = field(default_factory=set)
    calls: dict[tuple[str, str], CallCard | _Ended | None] = field(default_factory=dict)
    head: tuple[int, str] | None = None

    def still_true(self, connection: sqlite3.Connection) -> "Cache":
        """What is known, or nothing once another connection has committed. ApprovalClock inside a transaction."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version == self.version and len(self.turns) + len(self.calls) < MAX_KNOWN:
            return self
        return Cache(version)


@dataclass(slots=True)
class Transaction:
    """What a transaction knows and will add. Its changes read here, and keep it true for those after them."""

    connection: sqlite3.Connection
    known: Cache
    alive: Alive
    records: list[Row] = field(default_factory=list)
    audit: list[Row] = field(default_factory=list)
    audited: list[Row] = field(default_factory=list)
    tallies: dict[tuple[str, str], ToolTally] = field(default_factory=dict)
    charges: dict[str, int] = field(default_factory=dict)
    writer: str = ""

    def turn(self, turn_id: str) -> TurnRow | None:
        """The current epoch, the state and the owner of a turn, if it is kept."""
        turns = self.known.turns
        if turn_id not in turns:
            row = self.connection.execute(_TURN, (turn_id,)).fetchone()
            turns[turn_id] = None if row is None else TurnRow(*row)
        return turns[turn_id]

    def set_turn(self, turn_id: str, turn: TurnRow) -> None:
        self.known.turns[turn_id] = turn

    def call(self, key: tuple[str, str]) -> CallCard | None:
        """A kept call, with its token and result, and including what this transaction has added."""
        calls = self.known.calls
        if key not in calls and key[0] in self.known.here:
            calls[key] = None
        known = calls.get(key, _ENDED)
        if not isinstance(known, _Ended):
            return known
        self.flush()
        row = self.connection.execute(_CARD, key).fetchone()
        card = None if row is None else read_card(row)
        calls[key] = card if card is None or card.result is None else _ENDED
        return card

    def add_call(self, key: tuple[str, str], card: CallCard, row: Row) -> None:
        self.records.append(row)
        self.known.calls[key] = card
        if card.owner:
            self.claim_call(key, card, more=0)

    def claim_call(self, key: tuple[str, str], card: CallCard, *, more: int) -> None:
        """Keep who holds a call; so many attempts more than before."""
        self.known.calls[key] = card
        self.connection.execute(_CLAIMED, (*key, more, card.owner, card.until, card.epoch, card.token))

    def end_call(self, key: tuple[str, str], result: ToolResult, row: Row, at: float) -> None:
        """Keep how a call ended, and count it under the project and the title of its row."""
        self.records.append(row)
        self.known.calls[key] = _ENDED
        counted = (row[1], row[3])
        tally = self.tallies.get(counted)
        if tally is None:
            tally = self.tallies[counted] = ToolTally()
        tally.add(result, at)

    def charge(self, turn_id: str, calls: int) -> None:
        """Count calls of a turn, or give them back. A turn that was never begun counts none."""
        if self.known.turns.get(turn_id) is not None:  # each change has asked for its turn by then
            self.charges[turn_id] = self.charges.get(turn_id, 0) + calls

    def write_charges(self) -> None:
        """Write what calls were counted so far, before somebody asks for it."""
        self.connection.executemany(_CHARGE, self.charges.items())
        self.charges.clear()

    def flush(self) -> None:
        """Write what was added so far."""
        if self.charges:
            self.write_charges()
        self.connection.executemany(_ADD_RECORD, self.records)
        if self.audit:
            self.audited += self._add_audit()
        self.connection.executemany(_ADD_METRICS, [_metrics_row(*item) for item in self.tallies.items()])
        self.records.clear()
        self.audit.clear()
        self.tallies.clear()

    def _add_audit(self) -> list[Row]:
        """Add the audit rows, each with its digest: this transaction alone writes, so the newest row is known."""
        number, head = self.known.head or self._newest_row()
        chained: list[Row] = []
        for row in self.audit:
            number += 1
            head = link_own(head, row, self.writer, number)
            chained.append((*row, head))
        self.known.head = number, head
        self.connection.executemany(_ADD_AUDIT, chained)
        if self.writer:
            own = [(back, self.writer, number - back) for back in range(len(chained))]
            self.connection.executemany(_ADD_WRITER, own)
        return chained

    def _newest_row(self) -> tuple[int, str]:
        """The number and digest of the newest row of this writer, which may be pruned."""
        if not self.writer:
            return self.connection.execute(_HEAD).fetchone() or (0, BEGINNING)
        if found := self.connection.execute(_OWN_HEAD, (self.writer,)).fetchone():
            return int(found[0]), str(found[1])
        cut = self.connection.execute(_CUT).fetchone()
        return read_heads(cut[1], cut[0]).get(self.writer, (0, BEGINNING)) if cut else (0, BEGINNING)


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
