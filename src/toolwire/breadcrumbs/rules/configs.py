"""Configurations of tools (`tool.config.v1`): for which tools and agents one is, and which of its values are secrets.

    {"toolName": "openrouter", "agents": ["cli"], "config": {"apiKey": "…", "defaultModel": "vendor/model"}}

`tools` may name several tools, and `"*"` in `agents` stands for all of them. A configuration that names no tool or no
agent is for none: a model chooses among what was bound to it, and cannot reach the keys of others.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolwire.lazy import lazy_pattern

ANY_AGENT = "*"
_SECRET = lazy_pattern(r"key|secret|token|password|passphrase|credential", re.IGNORECASE)
_DEEPEST = 16


def is_bound(context: Mapping[str, Any], tool: str, agent: str) -> bool:
    """Whether a configuration is for calls of this tool by this agent."""
    tools = {*_names(context.get("toolName")), *_names(context.get("tools"))}
    agents = set(_names(context.get("agents")))
    return tool in tools and (agent in agents or ANY_AGENT in agents)


def _names(said: Any) -> Iterator[str]:
    for name in said if isinstance(said, list) else (said,):
        if isinstance(name, str) and name:
            yield name


def settings_of(context: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration gives to its tool."""
    config = context.get("config")
    return dict(config) if isinstance(config, Mapping) else {}


def secret_values(settings: Mapping[str, Any]) -> dict[str, str]:
    """The values that must be in no result, by their names: what keys such as `apiKey` hold, and all of `secrets`."""
    return dict(_secrets(settings, "", secret=False, depth=0))


def _secrets(value: Any, path: str, *, secret: bool, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if secret and value:
            yield path, value
    elif isinstance(value, Mapping) and depth < _DEEPEST:
        for name, inner in value.items():
            named = secret or bool(_SECRET.search(str(name)))
            yield from _secrets(inner, f"{path}_{name}" if path else str(name), secret=named, depth=depth + 1)
    elif isinstance(value, list) and depth < _DEEPEST:
        for place, inner in enumerate(value):
            yield from _secrets(inner, f"{path}_{place}", secret=secret, depth=depth + 1)
