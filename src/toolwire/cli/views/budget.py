"""What is left of the day: the budget of the settings, and what was used of it."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from toolwire.assemble.agent_names import AGENT, accounts_of
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.stores import store_of
from toolwire.decide.ladder import Rung
from toolwire.lazy import lazy_module
from toolwire.loop.limits import PARTS, amount, day_sentence, renews_at, used_up
from toolwire.protocol.budgets import Budget, Spending

if TYPE_CHECKING:
    from toolwire.breadcrumbs import specialists
else:
    specialists = lazy_module("toolwire.breadcrumbs.specialists")


async def used_today(place: ProjectFolder) -> Spending:
    """What the agent at the terminal and those that it can set to work have used today.

    A store that does not exist yet is not made by looking for it.
    """
    used = Spending()
    if place.store_exists:
        async with store_of(place, only_reads=True) as store:
            others = () if place.settings.day() is None else await specialists.names_of(store, place.name)
            for agent in dict.fromkeys((*accounts_of(place.settings), *others)):
                used += await store.spent(agent, time.time())
    return used


def budget_object(place: ProjectFolder, used: Spending) -> dict[str, Any]:
    """The budget as `--json` prints it: each part with what was used of it."""
    budget = place.settings.budget
    parts = {part: {"used": getattr(used, part), "allowed": getattr(budget, part)} for part in PARTS}
    return {**parts, "renews_at": renews_at(time.time())}


def budget_line(place: ProjectFolder, used: Spending) -> str:
    """The parts that are limited, in words; empty where none is."""
    said = ", ".join(_parts(place.settings.day() or Budget(), used))
    return f"{said}; renews at {renews_at(time.time())}" if said else ""


def budget_rung(place: ProjectFolder, used: Spending) -> Rung | None:
    """What the day's budget says to a call, as the ladder would; None where there is none."""
    budget = place.settings.day()
    if budget is None:
        return None
    if part := used_up(budget, used):
        return Rung("budget", "denied", f"{day_sentence(AGENT, budget, used, part, time.time())}.")
    return Rung("budget", "passed", f"Used today: {budget_line(place, used)}.")


def _parts(budget: Budget, used: Spending) -> Iterator[str]:
    for part in PARTS:
        if (allowed := getattr(budget, part)) is not None:
            yield f"{amount(part, getattr(used, part))} of {amount(part, allowed)}"
