"""What the sub-agents of a question have been lent, kept with the question: a new process goes on with what is left."""

import sqlite3

from toolwire.protocol.budgets import Lent, Purse, Spending
from toolwire.record.page import Page
from toolwire.record.rows import column

_LENT = "SELECT calls, tokens, cost_usd, agents FROM lent WHERE root = ?"
_ASKER = "SELECT calls, tokens, cost_usd FROM turns WHERE id = ?"
_KEEP = """
    INSERT INTO lent (calls, tokens, cost_usd, agents, root) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (root) DO UPDATE SET calls = excluded.calls, tokens = excluded.tokens, cost_usd = excluded.cost_usd,
                                     agents = excluded.agents
"""


def draw(page: Page, root: str, purse: Purse, question: Purse | None, most: int) -> Purse | None:
    known = _kept(page.connection, root) or Lent()
    asker = page.connection.execute(_ASKER, (column(root),)).fetchone()
    share = known.share(purse, question, Spending(*asker) if asker else Spending(), most)
    if share is not None:
        _keep(page, root, Lent(known.used + share.held, known.agents + 1))
    return share


def give_back(page: Page, root: str, unused: Spending) -> None:
    if (known := _kept(page.connection, root)) is not None:
        _keep(page, root, Lent(known.used - unused, known.agents))


def lent(connection: sqlite3.Connection, root: str) -> Spending:
    return (_kept(connection, root) or Lent()).used


def _kept(connection: sqlite3.Connection, root: str) -> Lent | None:
    row = connection.execute(_LENT, (column(root),)).fetchone()
    return None if row is None else Lent(Spending(*row[:3]), row[3])


def _keep(page: Page, root: str, known: Lent) -> None:
    used = known.used
    page.connection.execute(_KEEP, (used.calls, used.tokens, used.cost_usd, known.agents, column(root)))
