"""In which order the calls of one reply run: one that names others as its dependencies waits for them."""

from collections.abc import Collection, Sequence

from toolwire.protocol.calls import ToolCall

CallPlan = tuple[int, ...] | str
"""Which calls of the reply come before a call, by their places; or why it cannot run."""


def depends(call: ToolCall) -> bool:
    """Whether a call names others that come before it."""
    return call.options is not None and bool(call.options.dependencies)


def call_order(calls: Sequence[ToolCall], earlier: Collection[str] = ()) -> list[CallPlan]:
    """What each call waits for. A dependency among the `earlier` calls of the turn is met already."""
    places: dict[str, list[int]] = {}
    for place, call in enumerate(calls):
        for name in {call.alias or call.id, call.id}:
            places.setdefault(name, []).append(place)
    plans = [_plan(call, places, earlier) for call in calls]
    for place in _circular(plans):
        plans[place] = "its dependencies are circular"
    return plans


def _plan(call: ToolCall, places: dict[str, list[int]], earlier: Collection[str]) -> CallPlan:
    names = call.options.dependencies if call.options is not None else ()
    for name in names:
        if name not in places and name not in earlier:
            return f"it depends on {name[:80]!r}, and no request has this id"
    return tuple(dict.fromkeys(place for name in names for place in places.get(name, ())))


def _circular(plans: Sequence[CallPlan]) -> list[int]:
    """The places of calls that would wait for themselves, or for others that do."""
    waiting = {place: set(plan) for place, plan in enumerate(plans) if not isinstance(plan, str)}
    done = {place for place, plan in enumerate(plans) if isinstance(plan, str)}
    while ready := [place for place, before in waiting.items() if before <= done]:
        done.update(ready)
        for place in ready:
            del waiting[place]
    return list(waiting)
