"""Names of record types, and which of them are reserved: who may write those.

A type that gives power (a configuration with keys, an agent, a definition that other records are held to) or that
vouches for something (the result of a call) is reserved in all its versions. Every other type is for all who may write.
"""

import re
from collections.abc import Mapping
from typing import Any

from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.errors import InvalidRecord, NotPermitted
from toolwire.lazy import lazy_pattern

SCHEMA_DEF, TOOL_CONFIG = "schema.def.v1", "tool.config.v1"
LONGEST_SCHEMA_NAME = 128
NAME_PATTERN = r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)*"
_NAME = lazy_pattern(NAME_PATTERN, re.ASCII)
_VERSION = lazy_pattern(r"\.v\d+\Z", re.ASCII)

_BY_RUNTIME = frozenset({Role.RUNTIME})
_BY_ADMINS = frozenset({Role.ADMIN, Role.RUNTIME})
_BY_PEOPLE = frozenset({Role.WRITER, Role.ADMIN, Role.RUNTIME})
_NEVER: frozenset[Role] = frozenset()

RESERVED: Mapping[str, frozenset[Role]] = {
    "agent.context": _BY_RUNTIME,
    "agent.def": _BY_ADMINS,
    "agent.feed": _BY_RUNTIME,
    "agent.response": _NEVER,  # a view of what the store keeps about replies
    "context.blacklist": _BY_ADMINS,
    "delegation.response": _BY_RUNTIME,
    "delegation.task": _BY_RUNTIME,
    "schedule.definition": _BY_ADMINS,
    "schedule.sign": _BY_RUNTIME,
    "schedule.state": _BY_RUNTIME,
    "openrouter.models.catalog": _BY_RUNTIME,
    "schedule.tick": _BY_RUNTIME,
    "schema.def": _BY_ADMINS,
    "subscription": _BY_PEOPLE,
    "tool.catalog": _BY_RUNTIME,
    "tool.code": _BY_ADMINS,
    "tool.config": _BY_ADMINS,
    "tool.error": _BY_RUNTIME,
    "tool.response": _NEVER,  # a view of what the store keeps about calls
    "tool.security.policy": _BY_ADMINS,
    "tool.validation.error": _BY_RUNTIME,
    "webhook": _BY_ADMINS,
    "webhook.cursor": _BY_RUNTIME,
    "webhook.delivery": _BY_RUNTIME,
    "webhook.dead_letter": _BY_RUNTIME,
}
"""Reserved types without their version, and the roles that may write them."""

INTERNAL_TYPES = (
    "agent.feed.v1", "schedule.sign.v1", "schedule.state.v1", "webhook.cursor.v1", "webhook.delivery.v1",
)  # fmt: skip
"""What toolwire keeps for its own work. Lists for people leave it out, unless they are asked for it."""

_WHO = {
    _NEVER: "it is a view of turns and calls, which cannot be written",
    _BY_RUNTIME: "toolwire itself writes it",
    _BY_ADMINS: "admins write it (records.admins)",
    _BY_PEOPLE: "people write it, with a token in records.writers or records.admins",
}


def check_schema_name(name: Any) -> str:
    """The name of a record type as it is written. Raises `InvalidRecord`."""
    if not isinstance(name, str) or len(name) > LONGEST_SCHEMA_NAME or not _NAME.fullmatch(name):
        raise InvalidRecord(
            f"schema_name must be a name such as note.v1: words of a-z, 0-9, _ and - with dots between them, "
            f"at most {LONGEST_SCHEMA_NAME} characters"
        )
    return name


def type_family(schema_name: str) -> str:
    """The name of a type without its version: what is reserved is so in every version."""
    return _VERSION.sub("", schema_name)


def is_reserved(schema_name: str) -> bool:
    return type_family(schema_name) in RESERVED


def is_config(schema_name: str) -> bool:
    """Whether records of this type hold keys and settings of a tool, which are always secret."""
    return type_family(schema_name) == type_family(TOOL_CONFIG)


def require_may_write(schema_name: str, caller: Caller) -> None:
    """Raises `NotPermitted` where a record of this type is not for the caller to write, change or delete."""
    allowed = RESERVED.get(type_family(schema_name))
    if allowed is not None and caller.role not in allowed:
        raise NotPermitted(f"{schema_name} is reserved: {_WHO[allowed]}")


def defined_by(context: Mapping[str, Any]) -> str:
    """The type that a `schema.def.v1` record defines. Raises `InvalidRecord`."""
    if "defines_schema" not in context:
        raise InvalidRecord("context.defines_schema is missing; name the type that the definition is for")
    return check_schema_name(context["defines_schema"])


def defining_tag(schema_name: str) -> str:
    """The tag by which the definition of a type is found."""
    return f"defines:{schema_name}"
