"""The questions that can be asked of the SQLite store, each answered from one consistent view."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

import orjson
from msgspec import Struct
from msgspec.structs import replace

from toolwire.protocol.approvals import ApprovalCard, ApprovalState
from toolwire.protocol.budgets import Spending
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Message
from toolwire.protocol.records import AuditRow, CallCard, short_name
from toolwire.protocol.turns import Ending
from toolwire.protocol.waits import ForApproval, ForResult, ForTurn, Wait
from toolwire.record import ledger, ready, refusals, story
from toolwire.record.approval_clock import ApprovalClock
from toolwire.record.audit_heads import shared_upto
from toolwire.record.chain import AuditChain, KeptRow, read_heads, walk
from toolwire.record.contract import KeptTurn, LoopMetrics, Numbered, ToolMetrics, TurnSummary, Workload
from toolwire.record.liveness import Alive
from toolwire.record.lookup import Lookup
from toolwire.record.ownership import is_signed
from toolwire.record.retention import AT_FULL_SPEED, CUT, PrunePace, newest_cut
from toolwire.record.rows import (
    RESULT,
    CallKey,
    LeftTurn,
    Row,
    column,
    question,
    read_audit,
    read_card,
    read_history,
    read_left,
    read_opening,
    read_said,
    read_waits,
)
from toolwire.record.tally import DAY_S, NEWEST_RESULTS, ToolTally, tool_metrics
from toolwire.record.transaction import CARD, CARD_COLUMNS, CARD_JOINS, LOOP_SUMS, TurnRow
from toolwire.wire.codecs.faithful import load
from toolwire.wire.codecs.stored import read_approval, read_ending, read_result
from toolwire.wire.formats.tally import FormatTally, read_tally


class _Scoped(NamedTuple):
    """A question about one project, which is its first parameter, and the same about all of them."""

    own: str
    all: str

    def of(self, project: str | None) -> str:
        return self.all if project is None else self.own


def _scoped(sql: str) -> _Scoped:
    """In the question about all projects the first parameter is empty, and the condition about it always holds."""
    return _Scoped(sql, sql.replace("project = ?1", "?1 IS NULL"))


_COUNTED = (
    "max(calls + coalesce((SELECT calls FROM charges WHERE turn_id = turns.id AND project = turns.project), 0), 0)"
)
_TURN = _scoped(f"""
    SELECT id, project, agent, thread, model, epoch, opening, started_at, waits, history, history_upto, state, owner,
           ran_s, {_COUNTED}, ending
    FROM turns WHERE project = ?1 AND id = ?2 LIMIT 2
""")  # noqa: S608
WHOLE_TURN = _scoped(f"""
    SELECT 0, 0, id, project, agent, thread, model, epoch, opening, started_at, waits, history, history_upto, state,
           owner, ran_s, {_COUNTED}, ending, NULL, NULL, NULL
    FROM turns WHERE project = ?1 AND id = ?2
    UNION ALL
    SELECT 1, seq, NULL, project, {", ".join(["NULL"] * 14)}, schema_name, call_id, context FROM records
    WHERE turn_id = ?2 AND project = ?1 AND schema_name IN ('turn.reply', 'turn.note', 'tool.result')
    UNION ALL
    SELECT 2, detached, NULL, project, {", ".join(["NULL"] * 14)}, NULL, call_id, cancel FROM starts
    WHERE turn_id = ?2 AND project = ?1 AND (detached > 0 OR cancel IS NOT NULL)
    ORDER BY 1, 2
""")  # noqa: S608
_SAID = """
    SELECT schema_name, call_id, context FROM records INDEXED BY records_by_call
    WHERE turn_id = ? AND project = ? AND schema_name IN ('turn.reply', 'turn.note', 'tool.result') ORDER BY seq
"""
_RUNNING_OWNERS = _scoped("""
    SELECT DISTINCT owner FROM turns INDEXED BY turns_running
    WHERE project = ?1 AND state = 'running' AND owner IS NOT NULL
""")
# Nearly all turns have ended, so those that have not are found by indexes that hold no others.
_SUMMARY = """
    SELECT id, project, agent, thread, model, opening,
           iif(state = 'running' AND owner IN (SELECT value FROM json_each(?2)), 'interrupted', state),
           started_at, updated_at, ending,
           (SELECT count(*) FROM records
            WHERE turn_id = turns.id AND records.project = turns.project AND schema_name = 'tool.call'),
           waits
"""
_SUMMARIES = _SUMMARY + " FROM turns WHERE seq IN ({wanted} ORDER BY seq DESC LIMIT ?3) ORDER BY seq DESC"
_LEFT = "project = ?1 AND state = 'running' AND owner IN (SELECT value FROM json_each(?2))"
_INTERRUPTED = "SELECT seq FROM turns INDEXED BY turns_interrupted WHERE project = ?1 AND state = 'interrupted'"
_WANTED = {
    None: "SELECT seq FROM turns WHERE project = ?1",
    "ended": "SELECT seq FROM turns INDEXED BY turns_by_project WHERE project = ?1 AND state = 'ended'",
    "running": """SELECT seq FROM turns INDEXED BY turns_running WHERE project = ?1 AND state = 'running'
                  AND coalesce(owner NOT IN (SELECT value FROM json_each(?2)), true)""",
    "interrupted": f"SELECT seq FROM turns INDEXED BY turns_running WHERE {_LEFT} UNION ALL {_INTERRUPTED}",  # noqa: S608
    "waiting": f"""SELECT seq FROM turns INDEXED BY turns_running WHERE {_LEFT} AND waits <> ''
                   UNION ALL {_INTERRUPTED} AND waits <> ''""",  # noqa: S608
}
_TURNS_IN = {state: _scoped(_SUMMARIES.format(wanted=wanted)) for state, wanted in _WANTED.items()}
_WAITING = _scoped(f"""
    SELECT seq, project, id, waits FROM turns WHERE seq IN ({_WANTED["waiting"]}) AND seq > ?4
    ORDER BY seq LIMIT ?3
""")  # noqa: S608
_NAMED_WAITING = _scoped(f"""
    SELECT seq, project, id, waits FROM turns
    WHERE id IN (SELECT value FROM json_each(?3)) AND project = ?1 AND waits <> '' AND seq > ?4
        AND (state = 'interrupted' OR (state = 'running' AND owner IN (SELECT value FROM json_each(?2))))
    ORDER BY seq LIMIT {ready.MOST_AT_ONCE}
""")  # noqa: S608
_NUMBERED_TURNS = _scoped(f"""
    {_SUMMARY} FROM turns WHERE seq IN (SELECT CAST(value AS INTEGER) FROM json_each(?3)) AND project = ?1 ORDER BY seq
""")  # noqa: S608
_IDS = "(SELECT value FROM json_each(?2))"
RESULTS_OF_TURNS = _scoped(f"""
    SELECT project, turn_id, call_id FROM records INDEXED BY records_by_call
    WHERE turn_id IN {_IDS} AND project = ?1 AND schema_name = 'tool.result'
""")  # noqa: S608
SENT_BEFORE = _scoped(f"""
    SELECT d.project, d.turn_id, d.call_id, d.epoch, t.epoch, t.state, t.owner
    FROM (SELECT project, turn_id, call_id, epoch FROM dispatches WHERE turn_id IN {_IDS} AND project = ?1) d
    JOIN turns t ON t.project = d.project AND t.id = d.turn_id
    WHERE d.epoch <> t.epoch
""")  # noqa: S608
_NOT_ENDED = _scoped(f"SELECT project, id FROM turns WHERE id IN {_IDS} AND project = ?1 AND state <> 'ended'")  # noqa: S608
_THREAD = """
    SELECT seq, id, opening, ended FROM turns
    WHERE thread = ? AND ended > ? AND ended <= ? AND project = ? ORDER BY ended
"""
_LEFT_TURNS = """
    SELECT seq, id, opening, state, owner FROM turns WHERE thread = ? AND ended IS NULL AND project = ? ORDER BY seq
"""
_TURNS_UNTIL = "SELECT count(*) FROM turns WHERE thread = ? AND ended <= ? AND project = ?"
_NEWEST = (1 << 63) - 1

_CARDS = """
    {columns}
    FROM ({cards}) c
    {joins}
    ORDER BY c.seq {order}
"""


def _cards(cards: str, order: str, columns: str = CARD_COLUMNS) -> _Scoped:
    return _scoped(_CARDS.format(columns=columns, cards=cards, joins=CARD_JOINS, order=order))


CALLS_OF_TURN = _cards(
    """SELECT * FROM records INDEXED BY records_by_call
       WHERE project = ?1 AND turn_id = ?2 AND schema_name = 'tool.call' AND (?3 IS NULL OR title = ?3)
       ORDER BY seq LIMIT ?4""",
    "ASC",
)
CALLS_BY_ID = f"""
    SELECT c.call_id, t.state, {CARD_COLUMNS.strip().removeprefix("SELECT ")}
    FROM records c
    {CARD_JOINS}
    LEFT JOIN turns t ON t.id = c.turn_id AND t.project = c.project
    WHERE c.turn_id IN (SELECT value FROM json_each(?1)) AND c.call_id IN (SELECT value FROM json_each(?2))
        AND c.schema_name = 'tool.call'
"""  # noqa: S608
_CALLS_OF_TOOL = _cards(
    """SELECT * FROM records WHERE project = ?1 AND ?2 IS NULL AND schema_name = 'tool.call' AND title = ?3
       ORDER BY seq DESC LIMIT ?4""",
    "DESC",
)
_NEWEST_CALLS = _cards(
    """SELECT * FROM records
       WHERE project = ?1 AND ?2 IS NULL AND ?3 IS NULL AND schema_name = 'tool.call' ORDER BY seq DESC LIMIT ?4""",
    "DESC",
)
_CALLS_AFTER = _cards(
    """SELECT * FROM records WHERE project = ?1 AND schema_name = 'tool.call' AND seq > ?2
       ORDER BY seq LIMIT ?3""",
    "ASC",
    f"{CARD_COLUMNS}, c.seq",
)
_DETACHED = _scoped(f"""
    {CARD_COLUMNS}
    FROM (SELECT project, turn_id, call_id FROM starts WHERE project = ?1 AND detached = 1 LIMIT ?2) d
    JOIN records c ON c.project = d.project AND c.turn_id = d.turn_id AND c.call_id = d.call_id
        AND c.schema_name = 'tool.call'
    {CARD_JOINS}
    ORDER BY c.seq
""")  # noqa: S608
_DETACHED_OF_TURN = "SELECT call_id FROM starts WHERE turn_id = ? AND project = ? AND detached > 0"
_TURNS_BEFORE = _scoped(f"{_SUMMARY}, seq FROM turns WHERE project = ?1 AND seq < ?3 ORDER BY seq DESC LIMIT ?4")
_TURNS_AFTER = _scoped(f"{_SUMMARY}, seq FROM turns WHERE project = ?1 AND seq > ?3 ORDER BY seq LIMIT ?4")
_AUDIT_OF_TURN = """
    SELECT * FROM audit WHERE project = ?1 AND turn_id = ?2 AND (?3 IS NULL OR tool = ?3) AND seq > ?4 ORDER BY seq
"""
_AUDIT_OF_TOOL = "SELECT * FROM audit WHERE project = ?1 AND ?2 IS NULL AND tool = ?3 AND seq > ?4 ORDER BY seq"
_ALL_AUDIT = "SELECT * FROM audit WHERE project = ?1 AND ?2 IS NULL AND ?3 IS NULL AND seq > ?4 ORDER BY seq"
# The store numbers rows from 1 on, so a lower number was not written by it.
_CHAIN = """
    SELECT a.*, coalesce(w.writer, ''), w.number FROM audit a LEFT JOIN audit_writers w ON w.seq = a.seq
    WHERE {rows} ORDER BY a.seq
"""
_WHOLE_CHAIN = _CHAIN.format(rows="a.seq > ? OR a.seq < 1")
_SHARED_CHAIN = _CHAIN.format(rows="(a.seq > ?1 AND a.seq <= ?2) OR a.seq < 1")
_OWN_CHAIN = _CHAIN.format(rows="a.project = ?1 AND (a.seq > ?2 OR a.seq < 1)")
_NEXT_ROWS = {wanted: _scoped(f"{wanted} LIMIT ?5") for wanted in (_AUDIT_OF_TURN, _AUDIT_OF_TOOL, _ALL_AUDIT)}
_NEWEST_ROWS = {wanted: _scoped(f"{wanted} DESC LIMIT ?5") for wanted in _NEXT_ROWS}
_TALLIES = """
    SELECT tool, calls, success, errors, timeouts, canceled, total_ms, max_ms, last_error, last_error_at
    FROM tool_metrics WHERE project = ? ORDER BY tool
"""
_NEWEST_MS = """
    SELECT json_extract(r.context, '$.elapsed_ms')
    FROM records c JOIN records r ON r.project = c.project AND r.turn_id = c.turn_id AND r.call_id = c.call_id
        AND r.schema_name = 'tool.result'
    WHERE c.schema_name = 'tool.call' AND c.title = ? AND c.project = ? ORDER BY c.seq DESC LIMIT ?
"""
# Which results have an error is guessed by their text, and known once the few that may are read.
_NEWEST_ERRORS = """
    SELECT r.context
    FROM records c JOIN records r ON r.project = c.project AND r.turn_id = c.turn_id AND r.call_id = c.call_id
        AND r.schema_name = 'tool.result'
    WHERE c.schema_name = 'tool.call' AND c.title = ? AND c.project = ? AND r.context LIKE '%"error":{%'
    ORDER BY c.seq DESC LIMIT ?
"""
_SPENT = f"""
    SELECT coalesce(sum(calls), 0), coalesce(sum(tokens), 0), total(cost_usd), total(wall_s) FROM (
        SELECT calls, tokens, cost_usd, wall_s FROM spending WHERE agent = ?1 AND day = ?2 AND project = ?6
        UNION ALL
        SELECT {_COUNTED}, tokens, cost_usd, ran_s * own_time
        FROM turns INDEXED BY turns_running
        WHERE state = 'running' AND agent = ?1 AND id <> ?3 AND updated_at >= ?4 AND updated_at < ?5
            AND project = ?6
        UNION ALL
        SELECT {_COUNTED}, tokens, cost_usd, ran_s * own_time
        FROM turns INDEXED BY turns_interrupted
        WHERE state = 'interrupted' AND agent = ?1 AND id <> ?3 AND updated_at >= ?4 AND updated_at < ?5
            AND project = ?6
    )
"""  # noqa: S608
# A question of a turn that has ended cannot be answered any more, however long it would have stayed open.
_OF_ENDED_TURN = """
    EXISTS (SELECT 1 FROM turns WHERE turns.id = approvals.turn_id AND turns.project = approvals.project
            AND turns.state = 'ended')
"""
_QUESTION = f"SELECT body, {_OF_ENDED_TURN} FROM approvals"  # noqa: S608
_PENDING = f"decided = 0 AND expires_at > ?4 AND NOT {_OF_ENDED_TURN}"
_OWN = "WHERE project = ?1"
_COUNT_PENDING = f"""
    SELECT count(*) FROM approvals {_OWN} AND decided = 0 AND expires_at > ?2 AND NOT {_OF_ENDED_TURN}
"""  # noqa: S608
_APPROVAL = _scoped(f"{_QUESTION} {_OWN} AND id = ?2 LIMIT 2")
_NEWEST_APPROVALS = _scoped(f"{_QUESTION} {_OWN} AND ?2 IS NULL ORDER BY seq DESC LIMIT ?3")
_PENDING_APPROVALS = _scoped(
    f"{_QUESTION} INDEXED BY approvals_open {_OWN} AND ?2 IS NULL AND {_PENDING} ORDER BY seq DESC LIMIT ?3"
)
_PENDING_APPROVALS = _PENDING_APPROVALS._replace(
    all=_PENDING_APPROVALS.all.replace("approvals_open", "approvals_open_anywhere")
)
APPROVALS_OF_TURN = _scoped(f"{_QUESTION} {_OWN} AND turn_id = ?2 ORDER BY seq DESC LIMIT ?3")
_PENDING_OF_TURN = _scoped(f"{_QUESTION} {_OWN} AND turn_id = ?2 AND {_PENDING} ORDER BY seq DESC LIMIT ?3")
_APPROVALS_AFTER = _scoped(
    f"SELECT body, {_OF_ENDED_TURN}, seq FROM approvals {_OWN} AND seq > ?2 ORDER BY seq LIMIT ?3"  # noqa: S608
)
_ASKED_FOR = _scoped(
    f"SELECT project, id, body, {_OF_ENDED_TURN} FROM approvals WHERE id IN {_IDS} AND project = ?1"  # noqa: S608
)
_STANDING = _scoped("""
    SELECT body FROM approvals INDEXED BY approvals_standing
    WHERE project = ?1 AND stands_until > 0 AND stands_until > ?2 ORDER BY seq DESC LIMIT ?3
""")
AliveOn = Callable[[sqlite3.Connection], Alive]
"""Says which owners are alive, as a transaction sees it."""


def turn(connection: sqlite3.Connection, turn_id: str, alive_on: AliveOn, project: str | None = None) -> KeptTurn:
    rows = connection.execute(WHOLE_TURN.of(project), (_maybe(project), column(turn_id))).fetchall()
    found = [row for row in rows if row[0] == 0]
    if not found:
        raise refusals.no_turn(turn_id)
    if len(found) > 1:
        raise refusals.in_several_projects(f"turn {turn_id!r}")
    *header, history, upto, state, owner, ran_s, calls, ending = found[0][2:-3]
    own = [row for row in rows if row[3] == header[1]]  # another project may have calls under the same id
    marked = [(row[1] > 0, row[-2], row[-1] or "") for row in own if row[0] == 2]
    said = _heard(
        [row[-3:] for row in own if row[0] == 1], (call_id for is_detached, call_id, _ in marked if is_detached)
    )
    cancel = ledger.why_canceled(why for _, _, why in marked)
    earlier = _earlier(connection, header[1], header[3], upto, history)
    opening = read_opening(tuple(header), earlier)
    orphaned = state == "running" and not (owner is not None and alive_on(connection)(owner))
    events = story.events(*said)
    return KeptTurn(opening, events, "interrupted" if orphaned else state, ran_s, calls, _ending(ending), cancel)


def turns(
    connection: sqlite3.Connection, limit: int, state: str | None, alive_on: AliveOn, project: str | None = None
) -> list[TurnSummary]:
    wanted = _TURNS_IN.get(state)
    if wanted is None:
        return []
    given = (_maybe(project), _dead_owners(connection, project, alive_on), max(limit, 0))
    return [_summary(*row) for row in connection.execute(wanted.of(project), given)]


def ready_turns(
    connection: sqlite3.Connection,
    now: float,
    limit: int,
    alive_on: AliveOn,
    asked: ApprovalClock,
    project: str | None = None,
    only: Sequence[str] | None = None,
) -> list[TurnSummary]:
    """Waiting turns that can go on, the oldest of each project first: a few questions for thousands that wait."""
    dead = _dead_owners(connection, project, alive_on)
    is_stranded = partial(_is_stranded, connection, now, alive_on(connection))
    found: list[tuple[int, str, str]] = []
    last: int | None = 0
    while last is not None and (project is None or len(found) < limit):
        if only is None:
            given: tuple[Any, ...] = (_maybe(project), dead, ready.MOST_AT_ONCE, last)
            rows = connection.execute(_WAITING.of(project), given).fetchall()
        else:
            given = (_maybe(project), dead, orjson.dumps([column(turn_id) for turn_id in only]).decode(), last)
            rows = connection.execute(_NAMED_WAITING.of(project), given).fetchall()
        waiting = [(seq, of, turn_id, read_waits(waits)) for seq, of, turn_id, waits in rows]
        come = _come(connection, waiting, asked, project, is_stranded)
        found += [(seq, of, id_) for seq, of, id_, waits in waiting if ready.is_ready(of, id_, waits, now, come)]
        last = rows[-1][0] if len(rows) == ready.MOST_AT_ONCE else None
    chosen = ready.in_turn(found, itemgetter(1))[: max(limit, 0)]
    wanted = (_maybe(project), dead, orjson.dumps([seq for seq, _, _ in chosen]).decode())
    summaries = [_summary(*row) for row in connection.execute(_NUMBERED_TURNS.of(project), wanted)]
    places = {(of, turn_id): place for place, (_, of, turn_id) in enumerate(chosen)}
    return sorted(summaries, key=lambda one: places.get((one.project, one.id), 0))


def calls_with_results(
    connection: sqlite3.Connection, turn_ids: Sequence[str], project: str | None
) -> set[tuple[str, str]]:  # fmt: skip
    """The calls of these turns that have a result."""
    found: set[tuple[str, str]] = set()
    for some in ready.batches([column(turn_id) for turn_id in turn_ids]):
        given = (_maybe(project), orjson.dumps(some).decode())
        found.update((row[1], row[2]) for row in connection.execute(RESULTS_OF_TURNS.of(project), given))
    return found


def _come(
    connection: sqlite3.Connection,
    waiting: Iterable[tuple[int, str, str, tuple[Wait, ...]]],
    asked: ApprovalClock,
    project: str | None,
    is_stranded: Callable[[tuple[Any, ...]], bool],
) -> ready.KnownOutcomes:
    """What has come of what these turns wait for."""
    called: dict[str, None] = {}
    others: dict[str, None] = {}
    approvals: dict[str, None] = {}
    for _, _, turn_id, waits in waiting:
        for wait in waits:
            match wait:
                case ForResult():
                    called[turn_id] = None
                case ForTurn(other):
                    others[column(other)] = None
                case ForApproval(approval_id):
                    approvals[column(approval_id)] = None

    def rows(wanted: _Scoped, ids: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        for some in ready.batches(list(ids)):
            given = (_maybe(project), orjson.dumps(some).decode())
            yield from connection.execute(wanted.of(project), given).fetchall()

    back = set(rows(RESULTS_OF_TURNS, called))
    back |= {row[:3] for row in rows(SENT_BEFORE, called) if is_stranded(row)}
    going_on = set(rows(_NOT_ENDED, others))
    pending = set()
    for of, approval_id, body, turn_has_ended in rows(_ASKED_FOR, approvals):
        card = _approval(body, turn_has_ended)
        if card.at(asked.date(card)).state is ApprovalState.OPEN:
            pending.add((of, approval_id))
    return ready.KnownOutcomes(
        is_decided=lambda of, approval_id: (of, column(approval_id)) not in pending,
        has_ended=lambda of, turn_id: (of, column(turn_id)) not in going_on,
        is_back=lambda of, turn_id, call_id: (of, turn_id, column(call_id)) in back,
    )


def _is_stranded(connection: sqlite3.Connection, now: float, alive: Alive, sent: tuple[Any, ...]) -> bool:
    """Of a call that was sent under another epoch than its turn has now."""
    card = connection.execute(CARD, sent[:3]).fetchone()
    return card is not None and ledger.is_stranded(sent[3], read_card(card), TurnRow(*sent[4:]), now, alive)


def _dead_owners(connection: sqlite3.Connection, project: str | None, alive_on: AliveOn) -> str:
    """Those who own turns and give no signs of life, as JSON."""
    owners = [owner for (owner,) in connection.execute(_RUNNING_OWNERS.of(project), (_maybe(project),))]
    alive = alive_on(connection)
    return orjson.dumps([owner for owner in owners if not alive(owner)]).decode()


class EndedTurn(Struct, frozen=True):
    """What was said in a turn of a thread that ended as number `ended`."""

    ended: int
    seq: int
    said: tuple[Message, ...]


def ended_turns(
    connection: sqlite3.Connection, project: str, name: str, after: int = 0, upto: int = _NEWEST
) -> list[EndedTurn]:
    """The ended turns of a project's thread between two numbers."""
    rows = connection.execute(_THREAD, (column(name), after, upto, column(project))).fetchall()
    return [
        EndedTurn(ended, seq, (*question(opening), *story.history(*_said(connection, column(project), turn_id))))
        for seq, turn_id, opening, ended in rows
    ]


def turns_until(connection: sqlite3.Connection, project: str, name: str, upto: int) -> int:
    """How many ended turns of a project's thread are kept up to a number."""
    (count,) = connection.execute(_TURNS_UNTIL, (column(name), upto, column(project))).fetchone() if upto else (0,)
    return int(count)


def left_turns(connection: sqlite3.Connection, project: str, name: str, alive_on: AliveOn) -> tuple[LeftTurn, ...]:
    """What was said in the interrupted turns of a project's thread."""
    alive = alive_on(connection)
    return tuple(
        (seq, (*question(opening), *story.unfinished(*_said(connection, column(project), turn_id))))
        for seq, turn_id, opening, state, owner in connection.execute(
            _LEFT_TURNS, (column(name), column(project))
        ).fetchall()
        if state == "interrupted" or not (owner is not None and alive(owner))
    )


def conversation_messages(ended: Iterable[EndedTurn], left: Iterable[LeftTurn]) -> tuple[Message, ...]:
    """What was said in the turns of a thread, in order."""
    turns = story.merge_turns(((turn.seq, turn.said) for turn in ended), left)
    return tuple(message for said in turns for message in said)


def _earlier(
    connection: sqlite3.Connection, project: str, name: str, upto: int, history: str | None
) -> tuple[Message, ...]:
    """What was said before a turn: in its thread, with the interrupted turns of then, or in messages of its own."""
    if not upto:
        return () if history is None else read_history(history)
    left = () if history is None else read_left(history)
    return conversation_messages(ended_turns(connection, project, name, upto=upto), left)


def _ids_of_calls(keys: Sequence[CallKey]) -> Sequence[str]:
    return [orjson.dumps(list({column(key[place]): None for key in keys})).decode() for place in (1, 2)]


def _read_calls(keys: Sequence[CallKey], rows: Sequence[Row]) -> dict[CallKey, tuple[CallCard, bool]]:
    wanted = {(column(project), column(turn), column(call)): (project, turn, call) for project, turn, call in keys}
    found = {}
    for row in rows:
        card = read_card(row[2:])
        if (key := wanted.get((card.project, card.turn_id, row[0]))) is not None:
            found[key] = replace(card, token="") if card.token else card, row[1] == ledger.ENDED
    return found


calls_by_id = Lookup(CALLS_BY_ID, _ids_of_calls, _read_calls)
"""Calls by their project, turn and id, as far as they are kept, and whether their turns have ended."""


def calls(
    connection: sqlite3.Connection, turn_id: str | None, tool: str | None, limit: int, project: str | None = None
) -> list[CallCard]:
    match turn_id, tool:
        case None, None:
            wanted = _NEWEST_CALLS
        case None, _:
            wanted = _CALLS_OF_TOOL
        case _:
            wanted = CALLS_OF_TURN
    named = tool and short_name(tool)
    rows = connection.execute(wanted.of(project), (_maybe(project), _maybe(turn_id), _maybe(named), max(limit, 0)))
    return [replace(card, token="") if card.token else card for card in map(read_card, rows)]


def audit_log(
    connection: sqlite3.Connection,
    turn_id: str | None,
    tool: str | None,
    limit: int,
    after: int | None,
    project: str | None = None,
) -> list[AuditRow]:
    match turn_id, tool:
        case None, None:
            wanted = _ALL_AUDIT
        case None, _:
            wanted = _AUDIT_OF_TOOL
        case _:
            wanted = _AUDIT_OF_TURN
    given = (_maybe(project), _maybe(turn_id), _maybe(tool and short_name(tool)), after or 0, max(limit, 0))
    if after is not None:
        return [read_audit(row) for row in connection.execute(_NEXT_ROWS[wanted].of(project), given)]
    return [read_audit(row) for row in connection.execute(_NEWEST_ROWS[wanted].of(project), given)][::-1]


def turns_before(
    connection: sqlite3.Connection, cursor: int | None, limit: int, alive_on: AliveOn, project: str | None = None
) -> list[Numbered[TurnSummary]]:
    before = _NEWEST if cursor is None else cursor
    given = (_maybe(project), _dead_owners(connection, project, alive_on), before, max(limit, 0))
    rows = connection.execute(_TURNS_BEFORE.of(project), given)
    return [Numbered(seq, _summary(*row)) for *row, seq in rows.fetchall()]


def turns_after(
    connection: sqlite3.Connection, cursor: int, limit: int, alive_on: AliveOn, project: str | None = None
) -> list[Numbered[TurnSummary]]:
    given = (_maybe(project), _dead_owners(connection, project, alive_on), cursor, max(limit, 0))
    rows = connection.execute(_TURNS_AFTER.of(project), given)
    return [Numbered(seq, _summary(*row)) for *row, seq in rows.fetchall()]


def detached_calls(connection: sqlite3.Connection, limit: int, project: str | None = None) -> list[CallCard]:
    """Calls that no turn waits for and that have no result yet."""
    rows = connection.execute(_DETACHED.of(project), (_maybe(project), max(limit, 0)))
    return [replace(card, token="") if card.token else card for card in map(read_card, rows)]


def calls_after(
    connection: sqlite3.Connection, cursor: int, limit: int, project: str | None = None
) -> list[Numbered[CallCard]]:
    rows = connection.execute(_CALLS_AFTER.of(project), (_maybe(project), cursor, max(limit, 0)))
    return [Numbered(seq, replace(read_card(tuple(row)), token="")) for *row, seq in rows.fetchall()]


def approvals_after(
    connection: sqlite3.Connection, cursor: int, limit: int, asked: ApprovalClock, project: str | None = None
) -> list[Numbered[ApprovalCard]]:
    rows = connection.execute(_APPROVALS_AFTER.of(project), (_maybe(project), cursor, max(limit, 0))).fetchall()
    cards = [(seq, _approval(body, has_ended)) for body, has_ended, seq in rows]
    return [Numbered(seq, card.at(asked.date(card))) for seq, card in cards]


def audit_chain(
    connection: sqlite3.Connection, seqs: Iterable[int], pace: PrunePace = AT_FULL_SPEED, project: str | None = None
) -> AuditChain:
    """The chains of all projects, or those of one: after what all of them share, its own rows alone are read."""
    cut, shared = newest_cut(connection), shared_upto(connection)
    begin = cut.seq if cut else 0
    found = walk(
        pace.rows(_chained(connection, begin, shared, project)), frozenset(seqs), begin,
        read_heads(cut.head, begin) if cut else {}, shared_upto=shared, project=project or "",
    )  # fmt: skip
    found.cut_is_signed = cut is None or is_signed(cut.signature, CUT, CUT, cut.content)
    return found


def _chained(connection: sqlite3.Connection, begin: int, shared: int, project: str | None) -> Iterator[KeptRow]:
    questions: list[tuple[str, tuple[Any, ...]]] = [(_WHOLE_CHAIN, (begin,))]
    if project is not None:
        questions = [(_OWN_CHAIN, (column(project), max(begin, shared)))]
        if begin < shared:
            questions.insert(0, (_SHARED_CHAIN, (begin, shared)))
    for sql, given in questions:
        for seq, *row, digest, writer, own in connection.execute(sql, given):
            yield seq, tuple(row), digest, writer, own


def approval(
    connection: sqlite3.Connection, approval_id: str, asked: ApprovalClock, project: str | None = None
) -> ApprovalCard:
    rows = connection.execute(_APPROVAL.of(project), (_maybe(project), column(approval_id))).fetchall()
    if not rows:
        raise refusals.no_approval(approval_id)
    if len(rows) > 1:
        raise refusals.in_several_projects(f"approval {approval_id!r}")
    card = _approval(*rows[0])
    return card.at(asked.date(card))


def approvals(
    connection: sqlite3.Connection,
    turn_id: str | None,
    only_open: bool,
    limit: int,
    asked: ApprovalClock,
    project: str | None = None,
) -> list[ApprovalCard]:
    if turn_id is None:
        wanted = _PENDING_APPROVALS if only_open else _NEWEST_APPROVALS
    else:
        wanted = _PENDING_OF_TURN if only_open else APPROVALS_OF_TURN
    given = (_maybe(project), _maybe(turn_id), max(limit, 0), asked.earliest())
    rows = connection.execute(wanted.of(project), given if only_open else given[:3])
    cards = [card.at(asked.date(card)) for row in rows for card in (_approval(*row),)]
    return [card for card in cards if not only_open or card.state is ApprovalState.OPEN]


def _approval(body: str, turn_has_ended: int) -> ApprovalCard:
    card = read_approval(load(body))
    return card.at(inf) if turn_has_ended else card


def active_patterns(
    connection: sqlite3.Connection, limit: int, at: float, project: str | None = None
) -> list[ApprovalCard]:
    rows = connection.execute(_STANDING.of(project), (_maybe(project), at, max(limit, 0)))
    return [read_approval(load(body)) for (body,) in rows]


def metrics(connection: sqlite3.Connection, project: str) -> tuple[list[ToolMetrics], LoopMetrics]:
    whose = column(project)
    tallies = connection.execute(_TALLIES, (whose,)).fetchall()
    tools = [_tool_metrics(connection, whose, tool, ToolTally(*sums)) for tool, *sums in tallies]
    sums = connection.execute(LOOP_SUMS, (whose,)).fetchone()
    return tools, LoopMetrics(*sums) if sums else LoopMetrics()


def read_spending(connection: sqlite3.Connection, project: str, agent: str, day: int, but: str) -> Spending:
    row = (column(agent), day, column(but), day * DAY_S, (day + 1) * DAY_S, column(project))
    return Spending(*connection.execute(_SPENT, row).fetchone())


def formats(connection: sqlite3.Connection, project: str) -> list[FormatTally]:
    rows = connection.execute(
        "SELECT tally FROM format_tallies WHERE project = ? ORDER BY model, offered", (column(project),)
    )
    return [read_tally(load(tally)) for (tally,) in rows]


def workload(connection: sqlite3.Connection, project: str, at: float) -> Workload:
    """What is not over, by four counts along indexes that hold nothing else."""
    own = column(project)
    [(running,)] = connection.execute("SELECT count(*) FROM turns WHERE project = ? AND state = 'running'", (own,))
    [(left, waiting)] = connection.execute(
        "SELECT count(*), count(CASE WHEN waits <> '' THEN 1 END) FROM turns "
        "WHERE project = ? AND state = 'interrupted'",
        (own,),
    )
    [(pending,)] = connection.execute(_COUNT_PENDING, (own, at))
    [(sent, due)] = connection.execute("SELECT count(*), min(due) FROM dispatches WHERE project = ?", (own,))
    overdue_s = 0.0 if due is None else max(0.0, at - due)
    return Workload(running, waiting, left - waiting, pending, sent, overdue_s)


def _tool_metrics(connection: sqlite3.Connection, project: str, tool: str, tally: ToolTally) -> ToolMetrics:
    errors = _newest_errors(connection, tool, project) if tally.success < tally.calls else ()
    return tool_metrics(tool, tally, _newest_ms(connection, tool, project), errors)


def _newest_errors(connection: sqlite3.Connection, tool: str, project: str) -> list[str]:
    """The codes of the newest calls that failed."""
    rows: Iterable[tuple[str]] = connection.execute(_NEWEST_ERRORS, (tool, project, NEWEST_RESULTS))
    errors = (load(context).get("error") for (context,) in rows)
    return [str(error["code"]) for error in errors if isinstance(error, dict) and "code" in error]


def _newest_ms(connection: sqlite3.Connection, tool: str, project: str) -> list[float]:
    rows: Iterable[tuple[Any]] = connection.execute(_NEWEST_MS, (tool, project, NEWEST_RESULTS))
    return [max(float(took), 0.0) if isinstance(took, int | float) else 0.0 for (took,) in rows]


def _said(
    connection: sqlite3.Connection, project: str, turn_id: str
) -> tuple[list[story.Said], dict[str, ToolResult], frozenset[str]]:
    rows = connection.execute(_SAID, (turn_id, project)).fetchall()
    detached = connection.execute(_DETACHED_OF_TURN, (turn_id, project)).fetchall() if rows else ()
    return _heard(rows, (call_id for (call_id,) in detached))


def _heard(
    rows: Iterable[tuple[Any, ...]], detached: Iterable[str]
) -> tuple[list[story.Said], dict[str, ToolResult], frozenset[str]]:
    said: list[story.Said] = []
    results: dict[str, ToolResult] = {}
    for schema_name, call_id, context in rows:
        if schema_name == RESULT:
            results[call_id] = read_result(load(context))
        else:
            said.append(read_said(schema_name, context))
    return said, results, frozenset(detached)


def _ending(kept: str | None) -> Ending | None:
    return read_ending(load(kept)) if kept else None


def _summary(
    turn_id: str,
    project: str,
    agent: str,
    thread: str,
    model: str,
    opening: str,
    state: str,
    started_at: float,
    updated_at: float,
    ending: str | None,
    calls: int,
    waits: str,
) -> TurnSummary:
    ended = load(ending) if ending else {}
    asked = load(opening).get("question", "")
    reason, answer = ended.get("reason", ""), ended.get("answer", "")
    return TurnSummary(
        turn_id, project, agent, thread, model, asked, state, started_at, updated_at, reason, answer, calls,
        read_waits(waits), ended.get("value"),
    )  # fmt: skip


def _maybe(text: str | None) -> str | None:
    return None if text is None else column(text)
