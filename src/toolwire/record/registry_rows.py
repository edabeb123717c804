"""Registered tools and cards of results in the SQLite store; see `registry_rules` for what may be written."""

import sqlite3
from collections.abc import Sequence

from toolwire.errors import StoreError
from toolwire.protocol.registrations import ResultCard, ToolRegistration
from toolwire.record import registry_rules
from toolwire.record.registry_rules import Registered, Version
from toolwire.record.rows import Row, audit_rows, column, upsert
from toolwire.record.transaction import Transaction
from toolwire.wire.codecs.faithful import dump, load

_COLUMNS = (
    "description", "parameters", "target_subject", "after_execution", "options", "digest", "created_at", "updated_at",
)  # fmt: skip
_KEY = ("project", "tool_name", "version")
_KEEP = upsert("registered_tools", _KEY, *_COLUMNS)
_OF_PROJECT = f"SELECT {', '.join((*_KEY, *_COLUMNS))} FROM registered_tools WHERE project = ?"  # noqa: S608 -- ours
_DROP = "DELETE FROM registered_tools WHERE project = ? AND tool_name = ? AND version = ?"
_ADD_CARD = """
    INSERT INTO result_cards (project, card_id, turn_id, call_id, digest, body, author, created_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_CARD = """
    SELECT project, card_id, turn_id, call_id, digest, body, author, created_at FROM result_cards
    WHERE project = ? AND card_id = ?
"""
_CARDS_OF_CALL = """
    SELECT count(*) FROM result_cards WHERE project = ? AND turn_id = ? AND call_id = ? AND author <> ''
"""


def register(
    tx: Transaction, project: str, rows: Sequence[ToolRegistration], by: str, at: float, *, replace: bool
) -> list[ToolRegistration] | StoreError:
    done = registry_rules.register(_kept(tx.connection, project), rows, by=by, at=at, replace=replace)
    if isinstance(done, Registered):
        tx.connection.executemany(_KEEP, [_row(row) for row in done.new])
        tx.audit.extend(audit_rows(done.audit))
        return done.rows
    return done


def unregister(
    tx: Transaction, project: str, name: str, version: str | None, by: str, at: float
) -> list[ToolRegistration] | StoreError:
    done = registry_rules.unregister(_kept(tx.connection, project), project, name, version, by=by, at=at)
    if isinstance(done, Registered):
        tx.connection.executemany(_DROP, [_row(row)[:3] for row in done.rows])
        tx.audit.extend(audit_rows(done.audit))
        return done.rows
    return done


def registered(connection: sqlite3.Connection, project: str) -> list[ToolRegistration]:
    rows = connection.execute(_OF_PROJECT, (column(project),)).fetchall()
    return sorted(map(_read, rows), key=lambda row: (row.name, row.version))


def keep_card(tx: Transaction, card: ResultCard) -> ResultCard | StoreError:
    before = _card(tx.connection, card.id, card.project)
    (of_call,) = tx.connection.execute(_CARDS_OF_CALL, _card_row(card)[0:1] + _card_row(card)[2:4]).fetchone()
    kept = registry_rules.add_card(before, of_call, card)
    if kept is None:
        tx.connection.execute(_ADD_CARD, _card_row(card))
        return card
    return kept


def card(connection: sqlite3.Connection, card_id: str, project: str) -> ResultCard:
    found = _card(connection, card_id, project)
    if found is None:
        raise registry_rules.no_card(card_id)
    return found


def _card(connection: sqlite3.Connection, card_id: str, project: str) -> ResultCard | None:
    row = connection.execute(_CARD, (column(project), column(card_id))).fetchone()
    return None if row is None else ResultCard(*row)


def _card_row(card: ResultCard) -> Row:
    names = map(column, (card.project, card.id, card.turn_id, card.call_id))
    return (*names, card.digest, card.body, column(card.author), card.created_at)


def _kept(connection: sqlite3.Connection, project: str) -> dict[Version, ToolRegistration]:
    return {(row.name, row.version): row for row in registered(connection, project)}


def _row(row: ToolRegistration) -> Row:
    return (
        *map(column, (row.project, row.name, row.version)),
        *(dump(row.description), dump(row.parameters), column(row.target_subject), row.after_execution),
        *(dump(row.options), row.digest, row.created_at, row.updated_at),
    )


def _read(row: Row) -> ToolRegistration:
    project, name, version, description, parameters, subject, after, options, digest, created_at, updated_at = row
    said = (load(description), load(parameters), subject, after, load(options))
    return ToolRegistration(project, name, version, *said, digest, created_at, updated_at)
