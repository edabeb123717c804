"""What is reserved for the sub-agents of a question, kept with it: a new process goes on with what is left."""

import sqlite3

from toolwire.protocol.budgets import Allotment, ReservedShares, Spending
from toolwire.record.rows import TurnKey, column
from toolwire.record.transaction import Transaction

_LENT = "SELECT calls, tokens, cost_usd, agents FROM lent WHERE project = ? AND root = ?"
# What the question uses itself, with what it has reserved for the reply that it waits for.
_ASKER = """
    SELECT t.calls, t.tokens + coalesce(r.tokens, 0), t.cost_usd + coalesce(r.cost_usd, 0)
    FROM turns t LEFT JOIN reserved_usage r ON r.project = t.project AND r.turn_id = t.id AND r.epoch = t.epoch
    WHERE t.project = ? AND t.id = ?
"""
_KEEP = """
    INSERT INTO lent (calls, tokens, cost_usd, agents, project, root) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (root, project) DO UPDATE SET
        calls = excluded.calls, tokens = excluded.tokens, cost_usd = excluded.cost_usd, agents = excluded.agents
"""


def reserve_share(
    tx: Transaction, project: str, root: str, allotment: Allotment, question: Allotment | None, most: int
) -> Allotment | None:
    key = (column(project), column(root))
    known = _kept(tx.connection, key) or ReservedShares()
    asker = tx.connection.execute(_ASKER, key).fetchone()
    share = known.share(allotment, question, Spending(*asker) if asker else Spending(), most)
    if share is not None:
        _keep(tx, key, ReservedShares(known.used + share.held, known.agents + 1))
    return share


def release_unused(tx: Transaction, project: str, root: str, unused: Spending) -> None:
    key = (column(project), column(root))
    if (known := _kept(tx.connection, key)) is not None:
        _keep(tx, key, ReservedShares(known.used - unused, known.agents))


def reserved_shares(connection: sqlite3.Connection, project: str, root: str) -> Spending:
    return (_kept(connection, (column(project), column(root))) or ReservedShares()).used


def _kept(connection: sqlite3.Connection, key: TurnKey) -> ReservedShares | None:
    row = connection.execute(_LENT, key).fetchone()
    return None if row is None else ReservedShares(Spending(*row[:3]), row[3])


def _keep(tx: Transaction, key: TurnKey, known: ReservedShares) -> None:
    used = known.used
    tx.connection.execute(_KEEP, (used.calls, used.tokens, used.cost_usd, known.agents, *key))
