"""Records that toolwire acts on are checked when they are written, so that a fault is told to who made it."""

from collections.abc import Callable, Mapping
from typing import Any

from toolwire.breadcrumbs.rules import agent_definitions, schedule_definitions
from toolwire.breadcrumbs.rules.schemas import type_family
from toolwire.breadcrumbs.rules.subscriptions import read_subscription
from toolwire.errors import InvalidRecord
from toolwire.execute.egress.places import BadUrl, read_url
from toolwire.protocol.breadcrumbs import Record, Sensitivity


def check_subscription(context: Mapping[str, Any], _now: float) -> None:
    """Raises InvalidRecord for a subscription that cannot be followed, or delivered to its address."""
    url = read_subscription(context).url
    try:
        _ = read_url(url) if url else None
    except BadUrl as wrong:
        raise InvalidRecord(f"the url of the subscription cannot be used: {wrong}") from None


CHECKS: Mapping[str, Callable[[Mapping[str, Any], float], None]] = {
    "agent.def": agent_definitions.check_agent,
    "schedule.definition": schedule_definitions.check_definition,
    "subscription": check_subscription,
}
"""What checks the context of a type, given the time, by the name of the type without its version."""


def check_definition(record: Record, now: float) -> None:
    """Raises InvalidRecord for a record that toolwire would act on and cannot."""
    check = CHECKS.get(type_family(record.schema_name))
    if check is None:
        return
    if record.sensitivity is not Sensitivity.NORMAL:
        raise InvalidRecord(f"a {record.schema_name} record cannot be {record.sensitivity}: toolwire has to read it")
    check(record.context, now)
