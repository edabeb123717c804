"""Tokens and money that model calls have reserved, in the SQLite store: one row for each turn that asks its model."""

from toolwire.errors import StoreError
from toolwire.protocol.budgets import Spending
from toolwire.protocol.turns import Turn
from toolwire.record import ledger
from toolwire.record.contract import UsageRequest
from toolwire.record.reads import read_spending as day_spending
from toolwire.record.reserving import grant_usage
from toolwire.record.rows import column, turn_key, upsert
from toolwire.record.sub_agent_shares import reserved_shares
from toolwire.record.tally import day_of
from toolwire.record.transaction import Transaction

_HELD = """
    SELECT r.turn_id, r.agent, r.epoch, r.owner, r.tokens, r.cost_usd, t.epoch, t.state, t.owner
    FROM reserved_usage r LEFT JOIN turns t ON t.project = r.project AND t.id = r.turn_id WHERE r.project = ?
"""
_RESERVE = upsert("reserved_usage", ("project", "turn_id"), "agent", "epoch", "owner", "tokens", "cost_usd")
_RELEASE = "DELETE FROM reserved_usage WHERE project = ? AND turn_id = ?"


def reserve(tx: Transaction, turn: Turn, request: UsageRequest, at: float, owner: str) -> bool | StoreError:
    known = tx.turn(turn_key(turn))
    # A summary is made before its turn is on record, and reserves under the id that it will have.
    if known is not None and (refusal := ledger.change_turn(turn, known)):
        return refusal
    tx.write_charges()
    others = Spending()
    for agent in request.accounts:
        others += day_spending(tx.connection, turn.project, agent, day_of(at), turn.id)
    of_subagents = reserved_shares(tx.connection, turn.project, turn.id)
    share = grant_usage(request, turn.used(), others, _held(tx, turn, request.accounts), of_subagents)
    if share is None:
        return False
    key = (column(turn.project), column(turn.id))
    tx.connection.execute(_RESERVE, (*key, column(turn.agent), turn.epoch, owner, share.tokens, share.cost_usd))
    return True


def release(tx: Transaction, turn: Turn) -> None:
    """The reply is on record, or does not come."""
    tx.connection.execute(_RELEASE, (column(turn.project), column(turn.id)))


def _held(tx: Transaction, turn: Turn, accounts: tuple[str, ...]) -> Spending:
    """What other turns of these agents have reserved. What a turn has left behind that ended is removed."""
    held, names = Spending(), frozenset(map(column, accounts))
    for turn_id, agent, epoch, owner, tokens, cost_usd, now_epoch, state, now_owner in tx.connection.execute(
        _HELD, (column(turn.project),)
    ).fetchall():
        if now_epoch is not None and (now_epoch != epoch or state != ledger.RUNNING):
            tx.connection.execute(_RELEASE, (column(turn.project), turn_id))
        elif turn_id != column(turn.id) and agent in names and tx.alive(now_owner or owner):
            held += Spending(0, tokens, cost_usd)
    return held
