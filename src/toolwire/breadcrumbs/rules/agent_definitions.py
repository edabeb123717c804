"""What an `agent.def.v1` record says about a specialist: its prompt, its model, its tools, and what wakes it. Pure.

    {"name": "tool-maker", "system_prompt": "You write tools.", "tools": ["read"],
     "subscriptions": [{"schema_name": "tool.creation.request.v1"},
                       {"schema_name": "style.guide.v1", "role": "context", "fetch": {"limit": 3}}],
     "context": {"token_budget": 2000, "excluded_tags": ["draft"]}}

A subscription is a selector with a `role`: a record that fits a `trigger` wakes the agent, and records that fit a
`context` are shown to it. A record with the tag `assigned-to:NAME` wakes the agent of that name in any case.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from toolwire.breadcrumbs.rules.selectors import Selector, fits, read_selector
from toolwire.errors import InvalidRecord
from toolwire.lazy import lazy_pattern
from toolwire.protocol.breadcrumbs import ChangeKind, Record, Sensitivity, Visibility
from toolwire.protocol.tools import Tier

AGENT, TASK, RESPONSE, REQUEST, BLACKLIST = (
    "agent.def.v1", "delegation.task.v1", "delegation.response.v1", "task.request.v1", "context.blacklist.v1",
)  # fmt: skip
FEED = "agent.feed.v1"
ASSIGNED = "assigned-to:"
DEEPEST = 3
MOST_UNDER_ONE_ROOT = 32
USUAL_DEADLINE_S, LONGEST_DEADLINE_S = 600.0, 7 * 86_400.0
USUAL_TOKENS, MOST_TOKENS = 2_000, 200_000
MOST_SUBSCRIPTIONS, MOST_TOOLS, MOST_FETCHED = 32, 100, 50
LONGEST_PROMPT = 100_000

_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_KEYS = (
    "name", "agent_id", "description", "system_prompt", "model", "tools", "subscriptions", "context", "tier",
    "permissions", "max_calls", "deadline_s", "enabled",
)  # fmt: skip
_OWN_KEYS = ("role", "key", "fetch", "priority", "comment", "on")
_NEVER_SHOWN = (
    "agent.def", "agent.context", "agent.feed", "context.blacklist", "delegation.task", "schedule.definition",
    "schedule.sign", "schedule.state", "schema.def", "tool.catalog", "tool.code", "tool.config",
    "tool.security.policy", "webhook",
)  # fmt: skip
"""Types that wake no agent and are part of no context: they are how things are kept going, or hold keys."""


class AgentSubscription(Struct, frozen=True):
    """One selector of an agent, with what it is for. Of a context, the newest `limit` records are shown."""

    selector: Selector
    on: frozenset[ChangeKind] = frozenset({ChangeKind.CREATED})
    limit: int = 5
    priority: int = 0


class AgentDefinition(Struct, frozen=True):
    """A specialist. It has the tools that are named and no others; without a tier of its own, that of who asks."""

    name: str
    prompt: str
    model: str = ""
    tools: tuple[str, ...] = ()
    triggers: tuple[AgentSubscription, ...] = ()
    contexts: tuple[AgentSubscription, ...] = ()
    token_budget: int = USUAL_TOKENS
    excluded_schemas: frozenset[str] = frozenset()
    excluded_tags: frozenset[str] = frozenset()
    tier: Tier | None = None
    permissions: frozenset[str] | None = None
    max_calls: int | None = None
    deadline_s: float = USUAL_DEADLINE_S
    enabled: bool = True

    def wakes_on(self, kind: ChangeKind, record: Record) -> bool:
        """Whether a change of a record wakes it. What is kept about its work, and its answer, are for the project."""
        if not self.enabled or is_hidden(record) or record.visibility is Visibility.PRIVATE:
            return False
        if kind is ChangeKind.CREATED and f"{ASSIGNED}{self.name}" in record.tags:
            return True
        return any(kind in one.on and fits(one.selector, record) for one in self.triggers)


class Blacklist(Struct, frozen=True):
    """What no agent is shown, beside what its own definition leaves out."""

    schemas: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()


def is_hidden(record: Record) -> bool:
    """Whether no agent is ever woken by a record or shown it: personal data, secrets, and how things are kept going."""
    return record.sensitivity is not Sensitivity.NORMAL or _is_of(record.schema_name, _NEVER_SHOWN)


def may_be_shown(record: Record, definition: AgentDefinition, blacklist: Blacklist) -> bool:
    """Whether a record may be part of an agent's context."""
    left_out = definition.excluded_schemas | blacklist.schemas
    return (
        not is_hidden(record)
        and not _is_of(record.schema_name, left_out)
        and (definition.excluded_tags | blacklist.tags).isdisjoint(record.tags)
    )


def within_tokens(texts: Iterable[str], budget: int) -> list[str]:
    """The first texts that fit into a budget of tokens together; one that does not is left out, and shorter ones go on.

    Tokens are estimated from the safe side: three bytes each.
    """
    chosen: list[str] = []
    for text in texts:
        cost = len(text.encode()) // 3 + 4
        if cost <= budget:
            chosen.append(text)
            budget -= cost
    return chosen


def read_agent(context: Mapping[str, Any]) -> AgentDefinition:
    """The agent that a record defines. Raises InvalidRecord."""
    for name in context:
        if name not in _KEYS:
            raise InvalidRecord(f"an agent has no field {str(name)[:40]!r}; there are {', '.join(_KEYS)}")
    name = context.get("name", context.get("agent_id"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRecord("name must be a word of at most 64 letters, digits, _, . and -, such as tool-maker")
    prompt = context.get("system_prompt")
    if not isinstance(prompt, str) or not prompt.strip() or len(prompt) > LONGEST_PROMPT:
        raise InvalidRecord(f"system_prompt must be text of 1 to {LONGEST_PROMPT} characters")
    told = context.get("context", {})
    if not isinstance(told, Mapping):
        raise InvalidRecord('context must be an object such as {"token_budget": 2000, "excluded_tags": ["draft"]}')
    model, enabled = context.get("model", ""), context.get("enabled", True)
    if not isinstance(model, str) or not isinstance(enabled, bool):
        raise InvalidRecord("model must be text, and enabled true or false")
    triggers, contexts = _subscriptions(context.get("subscriptions", ()))
    return AgentDefinition(
        name,
        prompt,
        model,
        _texts(context, "tools", MOST_TOOLS),
        triggers,
        contexts,
        int(_number(told, "token_budget", USUAL_TOKENS, MOST_TOKENS)),
        frozenset(_texts(told, "excluded_schemas", MOST_TOOLS)),
        frozenset(_texts(told, "excluded_tags", MOST_TOOLS)),
        _tier(context.get("tier")),
        None if context.get("permissions") is None else frozenset(_texts(context, "permissions", MOST_TOOLS)),
        None if context.get("max_calls") is None else int(_number(context, "max_calls", 1, 10_000)),
        _number(context, "deadline_s", USUAL_DEADLINE_S, LONGEST_DEADLINE_S),
        enabled,
    )


def check_agent(context: Mapping[str, Any], now: float) -> None:  # noqa: ARG001 - other checks need the time
    """Raises InvalidRecord for an agent that could not be run."""
    read_agent(context)


def read_blacklist(contexts: Iterable[Mapping[str, Any]]) -> Blacklist:
    """What `context.blacklist.v1` records leave out together. What cannot be read in one is passed over."""
    schemas: set[str] = set()
    tags: set[str] = set()
    for context in contexts:
        schemas.update(_names(context.get("excluded_schemas"), "schema_name"))
        tags.update(_names(context.get("excluded_tags"), "tag"))
    return Blacklist(frozenset(schemas), frozenset(tags))


def deadline_of(request: Record, definition: AgentDefinition) -> float:
    """When the work for a request must be done: what it says, and no longer than the agent may take.

    It counts from the version that woke the agent: a record may be updated long after it was created.
    """
    asked: Any = request.context.get("deadline_s")
    usable = isinstance(asked, (int, float)) and not isinstance(asked, bool) and 0 < asked <= LONGEST_DEADLINE_S
    return request.updated_at + min(definition.deadline_s, float(asked) if usable else LONGEST_DEADLINE_S)


def _names(value: Any, field: str) -> list[str]:
    """Names that are listed as texts, or as objects with a reason beside the name."""
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    found = [item.get(field) if isinstance(item, Mapping) else item for item in items]
    return [name for name in found if isinstance(name, str) and name]


def _is_of(schema_name: str, names: Iterable[str]) -> bool:
    """Whether a type is one of these, named with its version, without it, or by its beginning and a star."""
    family = schema_name.rpartition(".v")[0] or schema_name
    return any(
        name in (schema_name, family) or (name.endswith("*") and schema_name.startswith(name[:-1])) for name in names
    )


def _subscriptions(asked: Any) -> tuple[tuple[AgentSubscription, ...], tuple[AgentSubscription, ...]]:
    """The triggers, and what is shown, the most important first."""
    listed = asked.get("selectors", ()) if isinstance(asked, Mapping) else asked
    if not isinstance(listed, (list, tuple)) or len(listed) > MOST_SUBSCRIPTIONS:
        raise InvalidRecord(f"subscriptions must be a list of at most {MOST_SUBSCRIPTIONS} selectors")
    triggers: list[AgentSubscription] = []
    contexts: list[AgentSubscription] = []
    for one in listed:
        if not isinstance(one, Mapping) or one.get("role", "trigger") not in ("trigger", "context"):
            raise InvalidRecord("a subscription is a selector whose role is trigger or context")
        (triggers if one.get("role", "trigger") == "trigger" else contexts).append(_subscription(one))
    if any(one.selector.is_all for one in triggers):
        raise InvalidRecord("an agent that every record wakes would never rest; name a schema or tags")
    return tuple(triggers), tuple(sorted(contexts, key=lambda one: -one.priority))


def _subscription(asked: Mapping[str, Any]) -> AgentSubscription:
    selector = read_selector({name: value for name, value in asked.items() if name not in _OWN_KEYS})
    kinds = asked.get("on", ("created",))
    allowed = (ChangeKind.CREATED, ChangeKind.UPDATED)
    if not isinstance(kinds, (list, tuple)) or not kinds or any(kind not in allowed for kind in kinds):
        raise InvalidRecord("on must be a list of created and updated")
    fetch = asked.get("fetch", {})
    if not isinstance(fetch, Mapping):
        raise InvalidRecord('fetch must be an object such as {"limit": 3}')
    limit = 1 if fetch.get("method") == "latest" else int(_number(fetch, "limit", 5, MOST_FETCHED))
    priority = asked.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidRecord("priority must be a whole number; what has a greater one is shown first")
    return AgentSubscription(selector, frozenset(map(ChangeKind, kinds)), limit, priority)


def _texts(context: Mapping[str, Any], name: str, most: int) -> tuple[str, ...]:
    value = context.get(name, ())
    if (
        not isinstance(value, (list, tuple))
        or len(value) > most
        or not all(isinstance(one, str) and one for one in value)
    ):
        raise InvalidRecord(f"{name} must be a list of at most {most} texts")
    return tuple(dict.fromkeys(value))


def _number(context: Mapping[str, Any], name: str, default: float, most: float) -> float:
    value = context.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise InvalidRecord(f"{name} must be a number above 0, at most {most:g}")
    return float(value)


def _tier(value: Any) -> Tier | None:
    if value is None:
        return None
    try:
        return Tier[str(value).upper()]
    except KeyError:
        raise InvalidRecord(f"tier must be one of {', '.join(tier.name.lower() for tier in Tier)}") from None
