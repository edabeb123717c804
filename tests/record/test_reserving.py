"""What a model call may reserve: the rule that all stores ask."""

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire.protocol.budgets import Budget, Spending
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.record.contract import Reservation, UsageRequest
from toolwire.record.reserving import grant_usage, reserve_cards

from .samples import a_call, a_card, a_row, success

NONE = Spending()


def tokens(want: int, *, used: int = 0, others: int = 0, held: int = 0, lent: int = 0, **limits: Any) -> int | None:
    """So many tokens are granted."""
    request = UsageRequest(Spending(0, want), limits.get("day", Budget()), ("agent",), limits.get("own", Budget()))
    given = grant_usage(request, *(Spending(0, number) for number in (used, others, held, lent)))
    return None if given is None else given.tokens


def money(want: float, *, held: float = 0.0, day: Budget = Budget()) -> float | None:  # noqa: B008 -- it is frozen
    given = grant_usage(UsageRequest(Spending(0, 0, want), day, ("agent",)), NONE, NONE, Spending(0, 0, held), NONE)
    return None if given is None else given.cost_usd


def refuse(card: CallCard, spent: Spending) -> tuple[CallCard, AuditRow]:
    return replace(card, result=success(card.call, text=f"after {spent.calls}")), a_row("denied", card)


@pytest.mark.parametrize(("spent", "room"), [(0, 2), (3, 1), (4, 0), (9, 0)])
def test_the_first_calls_get_what_is_left_of_the_day_and_the_rest_is_refused(spent: int, room: int) -> None:
    """A day has 4 calls, or 2 more than were made: a call that has its result already takes no place."""
    most = 2 if spent == 0 else 4
    cards = [a_card(a_call(name)) for name in "abc"]
    cards.insert(1, a_card(a_call("answered"), result=success()))
    outcome = reserve_cards(Reservation(most, ("agent",), refuse), cards, Spending(spent))

    places = [0, 2, 3]
    assert outcome.charged == room
    assert [place for place in places if outcome.cards[place] == cards[place]] == places[:room]
    assert outcome.cards[1] == cards[1]
    assert {place: row.event for place, row in outcome.denied.items()} == dict.fromkeys(places[room:], "denied")
    texts = [result.text for place in places[room:] if (result := outcome.cards[place].result) is not None]
    assert texts == [f"after {spent + room}"] * (3 - room)


def test_without_a_limit_of_calls_none_is_refused() -> None:
    cards = [a_card(a_call(name)) for name in "abc"]
    outcome = reserve_cards(Reservation(None, ("agent",), refuse), cards, Spending(1_000))
    assert (list(outcome.cards), outcome.charged, outcome.denied) == (cards, 3, {})


def test_without_a_limit_everything_is_granted_and_an_unknown_amount_counts_as_nothing() -> None:
    assert tokens(5_000, used=7, others=8, held=9, lent=10) == 5_000
    assert (money(0.5), money(inf)) == (0.5, 0.0)
    used = Spending(0, 10, 0.3)
    unknown = UsageRequest(Spending(0, 10, inf), Budget(), ("agent",))
    assert grant_usage(unknown, used, used, NONE, NONE) == Spending(0, 10, 0.0)


@pytest.mark.parametrize(("want", "given"), [(59, 59), (60, 60), (61, None)])
def test_a_call_gets_what_the_others_leave_of_the_day(want: int, given: int | None) -> None:
    """Of 100 tokens, 10 and 20 were used and 10 are reserved."""
    assert tokens(want, used=10, others=20, held=10, lent=1_000, day=Budget(tokens=100)) == given


def test_a_call_gets_less_than_it_wants_only_while_no_other_holds_anything() -> None:
    day = Budget(tokens=100)
    assert tokens(500, used=10, others=20, day=day) == 70
    assert tokens(500, used=10, others=20, held=1, day=day) is None


@pytest.mark.parametrize("spent", [100, 101])
def test_a_day_that_is_used_up_grants_nothing(spent: int) -> None:
    assert tokens(1, others=spent, day=Budget(tokens=100)) is None
    assert tokens(1, used=spent, day=Budget(tokens=100)) is None
    assert tokens(1, others=99, day=Budget(tokens=100)) == 1


def test_what_costs_nothing_is_granted_whatever_is_left() -> None:
    day = Budget(tokens=100, cost_usd=0.5)
    assert tokens(0, others=100, held=50, day=day) == 0
    assert money(0.0, held=0.5, day=day) == 0.0


@pytest.mark.parametrize(("want", "given"), [(39, 39), (40, 40), (41, 40)])
def test_a_turn_gets_what_its_own_limit_and_its_sub_agents_leave(want: int, given: int) -> None:
    """Of its 100 tokens it has used 10 and its sub-agents 50; what others did does not matter."""
    assert tokens(want, used=10, lent=50, others=1_000, held=1_000, own=Budget(tokens=100)) == given


@pytest.mark.parametrize("lent", [90, 91])
def test_a_turn_that_has_nothing_of_its_own_left_gets_nothing(lent: int) -> None:
    assert tokens(1, used=10, lent=lent, own=Budget(tokens=100)) is None
    assert tokens(9, used=10, lent=89, own=Budget(tokens=100)) == 1


def test_both_limits_hold() -> None:
    own, day = Budget(tokens=100), Budget(tokens=1_000)
    assert tokens(500, others=400, held=300, own=own, day=day) == 100
    assert tokens(500, others=400, held=550, own=own, day=day) is None
    assert tokens(500, others=950, own=own, day=day) == 50


@pytest.mark.parametrize("limit", [Budget(tokens=10), Budget(cost_usd=0.1)])
def test_tokens_and_money_are_granted_together_or_not_at_all(limit: Budget) -> None:
    request = UsageRequest(Spending(0, 10, 0.1), limit, ("agent",))
    assert grant_usage(request, NONE, NONE, NONE, NONE) == Spending(0, 10, 0.1)
    assert grant_usage(request, NONE, NONE, Spending(0, 1, 0.01), NONE) is None


def test_a_price_that_is_not_known_takes_all_the_money_that_is_left() -> None:
    assert money(inf, day=Budget(cost_usd=0.5)) == 0.5
    assert money(inf, held=0.1, day=Budget(cost_usd=0.5)) is None
