"""Calls on their way to other processes, in the SQLite store; see `ledger.due_call` for when each is sent."""

import sqlite3
from collections.abc import Callable, Sequence

import orjson
from msgspec.structs import replace

from toolwire.errors import StoreError
from toolwire.protocol.records import CallCard, Dispatch
from toolwire.record import ledger, refusals
from toolwire.record.changes import ChangeTime
from toolwire.record.contract import DueDispatch
from toolwire.record.ledger import Sending
from toolwire.record.lookup import Lookup
from toolwire.record.rows import CallKey, Row, column, columns, read_card, upsert
from toolwire.record.transaction import CARD, CARD_COLUMNS, CARD_JOINS, Transaction, TurnRow

_KEY = ("turn_id", "project", "call_id")
_REST = ("card_id", "epoch", "subject", "message", "due", "expires_at", "repeatable", "sent")
KEEP = upsert("dispatches", _KEY, *_REST)
COLUMNS = "project, turn_id, call_id, card_id, epoch, subject, message, due, expires_at, repeatable, sent"
OF_CARDS = f"""
    {CARD_COLUMNS}, t.epoch, t.state, t.owner, d.{COLUMNS.replace(", ", ", d.")}
    FROM dispatches d
    JOIN records c ON c.project = d.project AND c.turn_id = d.turn_id AND c.call_id = d.call_id
        AND c.schema_name = 'tool.call'
    {CARD_JOINS}
    LEFT JOIN turns t ON t.id = d.turn_id AND t.project = d.project
    WHERE d.card_id IN (SELECT value FROM json_each(?1))
"""  # noqa: S608
CardKey = tuple[str, str]
"""The project and the id of a card."""

DispatchedCall = tuple[Dispatch, CallCard, TurnRow | None]
_WIDTH = COLUMNS.count(",") + 1
_TURN_WIDTH = 3
_OF_CALL = f"SELECT {COLUMNS} FROM dispatches WHERE turn_id = ? AND project = ? AND call_id = ?"  # noqa: S608
_WANTED = "due <= ? AND (expires_at <= ? OR subject NOT IN (SELECT value FROM json_each(?)))"
_DUE = f"SELECT {COLUMNS} FROM dispatches WHERE {_WANTED} ORDER BY due LIMIT ?"  # noqa: S608
_DUE_OF_PROJECT = f"SELECT {COLUMNS} FROM dispatches WHERE project = ? AND {_WANTED} ORDER BY due LIMIT ?"  # noqa: S608
_FAIRLY = f"""
    SELECT {COLUMNS} FROM dispatches JOIN (
        SELECT project AS whose, turn_id AS turn, call_id AS one,
               row_number() OVER (PARTITION BY project ORDER BY due) AS place
        FROM dispatches WHERE {_WANTED}
    ) AS placed ON project = whose AND turn_id = turn AND call_id = one
    ORDER BY place, due LIMIT ?
"""  # noqa: S608
DROP = "DELETE FROM dispatches WHERE project = ? AND turn_id = ? AND call_id = ?"
_DROPPED_AT_ONCE = 500
_DROP_ENDED = f"""
    DELETE FROM dispatches WHERE (turn_id, project, call_id) IN (
        SELECT turn_id, project, call_id FROM dispatches WHERE due <= ?1 AND project = ?2
        ORDER BY due LIMIT {_DROPPED_AT_ONCE}
    ) AND EXISTS (
        SELECT 1 FROM records r WHERE r.turn_id = dispatches.turn_id AND r.project = dispatches.project
            AND r.call_id = dispatches.call_id AND r.schema_name = 'tool.result'
    )
"""  # noqa: S608
_DROP_ALL_ENDED = _DROP_ENDED.replace(" AND project = ?2", "")
LATER = "UPDATE dispatches SET due = ?, sent = ? WHERE project = ? AND turn_id = ? AND call_id = ?"


def keep(tx: Transaction, dispatch: Dispatch, audit: Sequence[Row], now: ChangeTime) -> CallCard | StoreError:
    key = _key(dispatch)
    answer = ledger.dispatch_call(dispatch, tx.call(key), tx.turn(key[:2]), now.at, tx.alive)
    if isinstance(answer, StoreError) or answer.result is not None:
        return answer
    project, turn_id, call_id = key
    texts = columns(dispatch.subject, dispatch.message)
    rest = (answer.record_id, dispatch.epoch, *texts, dispatch.due, dispatch.expires_at, int(dispatch.repeatable))
    tx.connection.execute(KEEP, (turn_id, project, call_id, *rest, dispatch.sent))
    tx.audit.extend(audit)
    return answer


def _ids_of_cards(keys: Sequence[CardKey]) -> Sequence[str]:
    return (orjson.dumps([column(card_id) for _, card_id in keys]).decode(),)


def _read_dispatched(keys: Sequence[CardKey], rows: Sequence[Row]) -> dict[CardKey, DispatchedCall]:
    wanted, found = {(column(project), column(card_id)): (project, card_id) for project, card_id in keys}, {}
    for row in rows:
        rest, kept = row[:-_WIDTH], row[-_WIDTH:]
        card, turn = rest[:-_TURN_WIDTH], rest[-_TURN_WIDTH:]
        if (key := wanted.get((kept[0], kept[3]))) is not None:
            found[key] = _read(kept), read_card(card), None if turn[0] is None else TurnRow(*turn)
    return found


of_cards = Lookup(OF_CARDS, _ids_of_cards, _read_dispatched)
"""By project and id of the card, as far as they are kept; each card with its token, and with its turn."""


def of_call(connection: sqlite3.Connection, turn_id: str, call_id: str, project: str) -> tuple[Dispatch, CallCard]:
    return _with_card(connection, connection.execute(_OF_CALL, columns(turn_id, project, call_id)).fetchone(), call_id)


def _with_card(connection: sqlite3.Connection, kept: Row | None, sought: str) -> tuple[Dispatch, CallCard]:
    card = None if kept is None else connection.execute(CARD, kept[:3]).fetchone()
    if kept is None or card is None:
        raise refusals.not_dispatched(sought)
    return _read(kept), replace(read_card(card), token="")


def take_due(
    tx: Transaction,
    now: ChangeTime,
    upto: float,
    pause: Callable[[int], float],
    limit: int,
    project: str | None,
    skip: Sequence[str] = (),
) -> list[DueDispatch]:
    """Those that are due at the time `upto`; each is put off, or dropped. Nearly all have ended by then."""
    others = orjson.dumps([column(subject) for subject in skip]).decode()
    if project is None:
        _drop_ended(tx, _DROP_ALL_ENDED, (upto,))
        rows = tx.connection.execute(_DUE, (upto, upto, others, limit)).fetchall()
        if 0 < limit <= len(rows):  # there may be more, and the oldest may all be of one project
            rows = tx.connection.execute(_FAIRLY, (upto, upto, others, limit)).fetchall()
    else:
        _drop_ended(tx, _DROP_ENDED, (upto, column(project)))
        rows = tx.connection.execute(_DUE_OF_PROJECT, (column(project), upto, upto, others, limit)).fetchall()
    tx.look_up([(row[0], row[1], row[2]) for row in rows])
    taken, dropped, later = [], [], []
    for dispatch in map(_read, rows):
        key = _key(dispatch)
        card, turn = tx.call(key), tx.turn(key[:2])
        what, until = ledger.due_call(dispatch, card, turn, now.at, tx.alive)
        if what is Sending.DROP or card is None:
            dropped.append(key)
            continue
        sent = dispatch.sent + (what is Sending.SEND)
        later.append((until or upto + pause(dispatch.sent), sent, *key))
        if what is not Sending.WAIT:
            seen = replace(card, epoch=dispatch.epoch, token="")
            taken.append(DueDispatch(replace(dispatch, sent=sent), seen, what is Sending.GIVE_UP))
    tx.connection.executemany(DROP, dropped)
    tx.connection.executemany(LATER, later)
    return taken


def _drop_ended(tx: Transaction, dropping: str, given: tuple[float | str, ...]) -> None:
    """Of the oldest that are due, drop those that have ended: of thousands that wait, the rest have not begun."""
    while tx.connection.execute(dropping, given).rowcount == _DROPPED_AT_ONCE:
        pass


def _key(dispatch: Dispatch) -> CallKey:
    project, turn_id, call_id = columns(dispatch.project, dispatch.turn_id, dispatch.call_id)
    return project, turn_id, call_id


def _read(row: Row) -> Dispatch:
    project, turn_id, call_id, card_id, epoch, subject, message, due, expires_at, repeatable, sent = row
    return Dispatch(
        project, turn_id, call_id, card_id, epoch, subject, message, due, expires_at, bool(repeatable), sent
    )  # fmt: skip
