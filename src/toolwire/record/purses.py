"""What sub-agents of one question share, kept with the question: a new process goes on with what is left."""

from toolwire.protocol.turns import Purse
from toolwire.record.page import Page
from toolwire.record.rows import column

_PURSE = "SELECT calls, tokens, agents FROM purses WHERE root = ?"
_KEEP = """
    INSERT INTO purses VALUES (?, ?, ?, ?)
    ON CONFLICT (root) DO UPDATE SET calls = excluded.calls, tokens = excluded.tokens, agents = excluded.agents
"""


def draw(page: Page, root: str, opening: Purse, most: int) -> Purse | None:
    purse = _kept(page, root) or opening
    share = purse.share(most)
    if share is not None:
        _keep(page, root, purse.without(share))
    return share


def give_back(page: Page, root: str, calls: int, tokens: int) -> None:
    if (purse := _kept(page, root)) is not None:
        _keep(page, root, purse.given_back(calls, tokens))


def _kept(page: Page, root: str) -> Purse | None:
    row = page.connection.execute(_PURSE, (column(root),)).fetchone()
    return None if row is None else Purse(*row)


def _keep(page: Page, root: str, purse: Purse) -> None:
    page.connection.execute(_KEEP, (column(root), purse.calls, purse.tokens, purse.agents))
