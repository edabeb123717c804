"""Options that every chat API has under another name: which tool must be called, where to stop, how to sample."""

from collections.abc import Mapping
from typing import Any

from toolwire.wire.names import WireName
from toolwire.wire.outbound import Json

_TO_OPENAI = {"auto": "auto", "any": "required"}
_TO_ANTHROPIC = {"auto": {"type": "auto"}, "any": {"type": "any"}}


def carry_over(extras: Mapping[str, Any], target: str, wire_name: WireName) -> tuple[Json, frozenset[str]]:
    """The options of a client's request in the upstream's words, and the names of those that were understood."""
    found: Json = {}
    choice = _choice(extras.get("tool_choice"))
    if choice and target != "ollama":
        found["tool_choice"] = _written(choice[0], wire_name(choice[1]), target)
    stop = _stops(extras)
    if stop:
        found["stop_sequences" if target == "anthropic" else "stop"] = stop
    if isinstance(top_p := extras.get("top_p"), int | float):
        found["top_p"] = top_p
    understood = {"stop", "stop_sequences"} if stop else set()
    understood |= {name for name in ("tool_choice", "top_p") if name in found}
    return found if target != "ollama" else {"options": found} if found else {}, frozenset(understood)


def _choice(given: Any) -> tuple[str, str] | None:
    """How a client wants tools to be called: a mode, or one tool by name. Not calling any is said elsewhere."""
    match given:
        case "auto" | {"type": "auto"}:
            return "auto", ""
        case "required" | {"type": "any"}:
            return "any", ""
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function" | "tool", "name": str(name)}:
            return "one", name
        case _:
            return None


def _written(mode: str, name: str, target: str) -> Any:
    if target == "anthropic":
        return _TO_ANTHROPIC.get(mode) or {"type": "tool", "name": name}
    return _TO_OPENAI.get(mode) or {"type": "function", "function": {"name": name}}


def _stops(extras: Mapping[str, Any]) -> list[str]:
    given = extras.get("stop", extras.get("stop_sequences"))
    listed = [given] if isinstance(given, str) else given
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
