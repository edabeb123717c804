"""Records that toolwire acts on are checked when they are written, so that a fault is told to who made it."""

from collections.abc import Callable, Mapping
from typing import Any

from toolwire.breadcrumbs.rules import agent_definitions, schedule_definitions
from toolwire.breadcrumbs.rules.schemas import type_family
from toolwire.breadcrumbs.rules.subscriptions import read_subscription
from toolwire.errors import Conflict, InvalidRecord
from toolwire.execute.egress.places import BadUrl, read_url
from toolwire.protocol.breadcrumbs import Record, RecordQuery, Sensitivity
from toolwire.record.contract import RecordStore


def check_subscription(context: Mapping[str, Any], _now: float) -> None:
    """Raises InvalidRecord for a subscription that cannot be followed, or delivered to its address."""
    url = read_subscription(context).url
    try:
        _ = read_url(url) if url else None
    except BadUrl as wrong:
        raise InvalidRecord(f"the url of the subscription cannot be used: {wrong}") from None


MOST_AGENTS = 200
"""So many agents of a project are looked at, the newest ones."""

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


async def check_agent_name(record: Record, store: RecordStore) -> None:
    """Raises Conflict for an agent whose name another one has: work that is assigned to it would be done by both."""
    if type_family(record.schema_name) != type_family(agent_definitions.AGENT):
        return
    name = _name_in_use(record)
    query = RecordQuery(schema_name=agent_definitions.AGENT)
    for row in await store.records(query, limit=MOST_AGENTS, project=record.project) if name else ():
        if row.value.id != record.id and _name_in_use(row.value) == name:
            raise Conflict(f"the agent {name} is defined by record {row.value.id} already; patch that one")


def _name_in_use(record: Record) -> str:
    """The name of an agent, or nothing where it cannot be read or is not enabled."""
    try:
        definition = agent_definitions.read_agent(record.context)
    except InvalidRecord:
        return ""
    return definition.name if definition.enabled else ""
