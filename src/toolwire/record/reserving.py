"""Which calls, tokens and money a day has room for. Pure, the same for every store.

A store asks in the transaction that keeps what was reserved, so that no other process counts at the same moment.
"""

from collections.abc import Mapping, Sequence
from math import inf

from msgspec import Struct

from toolwire.protocol.budgets import Number, Spending, least
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.record.contract import Reservation, UsageRequest


class Reserved(Struct, frozen=True):
    """The cards as they are kept, how many of them count, and what the audit log says about those refused."""

    cards: Sequence[CallCard]
    charged: int
    denied: Mapping[int, AuditRow]


def reserve_cards(reserve: Reservation, cards: Sequence[CallCard], spent: Spending) -> Reserved:
    """Cards that have a result cost nothing; of the others the first ones are kept, and the rest refused."""
    room = len(cards) if reserve.most is None else max(reserve.most - spent.calls, 0)
    kept, charged, denied = list(cards), 0, {}
    for place, card in enumerate(cards):
        if card.result is not None:
            continue
        if charged < room:
            charged += 1
        else:
            kept[place], denied[place] = reserve.refuse(card, spent + Spending(charged))
    return Reserved(kept, charged, denied)


def grant_usage(
    request: UsageRequest, used: Spending, others: Spending, held: Spending, lent: Spending
) -> Spending | None:
    """What a model call may reserve now; None where it must wait, or nothing is left.

    `used` is what its turn has used so far, `others` and `held` what all other turns of the day have used and reserved,
    and `lent` what its own sub-agents use or hold. A call gets what it wants, if there is room for that. It gets less,
    namely all that is left, only while no other call holds anything. So what was used and what is reserved are together
    never above the limit, and at most one call at a time has reserved less than it wants.
    """
    want, day, own = request.want, request.budget, request.own
    spent, mine = used + others, used + lent
    tokens = _granted(want.tokens, day.tokens, spent.tokens, held.tokens, own.tokens, mine.tokens)
    cost_usd = _granted(want.cost_usd, day.cost_usd, spent.cost_usd, held.cost_usd, own.cost_usd, mine.cost_usd)
    return None if tokens is None or cost_usd is None else Spending(0, tokens, cost_usd)


def _granted(
    want: Number, most: Number | None, spent: Number, held: Number, own: Number | None, mine: Number
) -> Number | None:
    own_left = None if own is None else own - mine
    if want <= 0:
        return want
    if own_left is not None and own_left <= 0:
        return None
    wanted = least(want, own_left)
    assert wanted is not None
    if most is None:
        return spent * 0 if wanted == inf else wanted
    left = most - spent - held
    if wanted <= left:
        return wanted
    return left if held <= 0 and left > 0 else None
