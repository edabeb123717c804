"""What a `tool.catalog.v1` record says: every tool that is or was there, with its state."""

from collections.abc import Iterable, Mapping
from typing import Any

from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.tools import Effect, Tool

TOOL_CATALOG = "tool.catalog.v1"
MOST_TOOLS = 1000
FORGOTTEN_S = 30 * 24 * 3600.0
"""A tool that was not seen for so long is no longer listed."""

HINTS: Mapping[str, Any] = {"include": ["activeTools", "compact"]}
"""Models are shown the lines, not the definitions."""

_ACTIVE, _INACTIVE = "active", "inactive"
_TIMES = frozenset({"lastSeen", "lastSeenAt"})


def catalogue_context(
    active: Iterable[Tool],
    inactive: Iterable[Tool],
    earlier: Mapping[str, Any],
    *,
    now: float,
    at: str,
    workspace: str,
    compact: str,
) -> dict[str, Any]:
    """The context of the record: tools that can be called now, those that are there but cannot, and those that were.

    `now` is the time in seconds and `at` the same as text.
    """
    listed = {tool.name: _entry(tool, _ACTIVE, now, at) for tool in active}
    for tool in inactive:
        listed.setdefault(tool.name, _entry(tool, _INACTIVE, now, at))
    for entry in earlier.get("tools", ()):
        if entry["name"] not in listed and now - entry.get("lastSeenAt", 0.0) < FORGOTTEN_S:
            listed[entry["name"]] = {**entry, "status": _INACTIVE}
    entries = [*listed.values()][:MOST_TOOLS]
    return {
        "workspace": workspace,
        "tools": entries,
        "totalTools": len(entries),
        "activeTools": sum(entry["status"] == _ACTIVE for entry in entries),
        "lastUpdated": at,
        "compact": compact,
    }


def differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two contexts differ in more than the times at which tools were seen."""
    return bool(_without_times(one) != _without_times(other))


def oldest_sight(context: Mapping[str, Any]) -> float:
    """When the active tools were last seen, at the earliest."""
    seen = [entry.get("lastSeenAt", 0.0) for entry in context.get("tools", ()) if entry["status"] == _ACTIVE]
    return min(seen, default=0.0)


def _entry(tool: Tool, status: str, now: float, at: str) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "category": tool.category,
        "version": tool.version,
        "inputSchema": dict(tool.input_schema),
        "outputSchema": dict(tool.output_schema) if tool.output_schema else {"type": "object"},
        "examples": [{"input": dict(example)} for example in tool.examples],
        "capabilities": {
            "async": tool.after_execution is AfterExecution.DETACH,
            "timeout": tool.timeout_s,
            "retries": tool.effect in (Effect.PURE, Effect.IDEMPOTENT),
        },
        "status": status,
        "lastSeen": at,
        "lastSeenAt": now,
    }


def _without_times(context: Mapping[str, Any]) -> Any:
    tools = [{key: value for key, value in entry.items() if key not in _TIMES} for entry in context.get("tools", ())]
    return {key: value for key, value in context.items() if key != "lastUpdated"} | {"tools": tools}
