"""Which calls a day has room for. Pure, the same for every store; the store sees to it that nobody else counts then."""

from collections.abc import Mapping, Sequence

from toolwire.protocol.budgets import Spending
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.values import dataclass
from toolwire.record.contract import Reservation


@dataclass(frozen=True, slots=True)
class Reserved:
    """The cards as they are kept, how many of them count, and what the audit log says about those refused."""

    cards: Sequence[CallCard]
    charged: int
    denied: Mapping[int, AuditRow]


def reserved(reserve: Reservation, cards: Sequence[CallCard], spent: Spending) -> Reserved:
    """Cards that have a result cost nothing; of the others the first ones are kept, and the rest refused."""
    room = max(reserve.most - spent.calls, 0)
    kept, charged, denied = list(cards), 0, {}
    for place, card in enumerate(cards):
        if card.result is not None:
            continue
        if charged < room:
            charged += 1
        else:
            kept[place], denied[place] = reserve.refuse(card, spent + Spending(charged))
    return Reserved(kept, charged, denied)
