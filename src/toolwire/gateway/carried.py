"""Options that every chat API has under another name: what to call, where to stop, how to sample and to answer."""

from collections.abc import Mapping
from typing import Any

from toolwire.gateway.asked import one_at_a_time
from toolwire.wire.encode.outbound import Json
from toolwire.wire.encode.tool_names import WireName

Extras = Mapping[str, Any]
Carried = tuple[Json, set[str]]

_TO_OPENAI = {"auto": "auto", "any": "required"}
_TO_ANTHROPIC = {"auto": {"type": "auto"}, "any": {"type": "any"}}
_SAMPLING = {
    "openai": ("top_p", "seed", "frequency_penalty", "presence_penalty"),
    "anthropic": ("top_p", "top_k"),
    "ollama": ("top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"),
}


def carry_over(extras: Extras, target: str, wire_name: WireName, *, tools: bool = True) -> tuple[Json, frozenset[str]]:
    """The options of a client's request in the upstream's words, and the names of those that were understood.

    Without `tools`, what says how to call them is left out: upstreams refuse it.
    """
    parts = [_stops(extras, target), _sampling(extras, target), _shape(extras, target), _effort(extras, target)]
    if tools:
        parts.append(_calling(extras, target, wire_name))
    found: Json = {}
    understood = {"tool_choice", "parallel_tool_calls"} if not tools else set()
    for written, names in parts:
        inner = {**found.get("options", {}), **written.get("options", {})}
        found |= written | ({"options": inner} if inner else {})
        understood |= names
    return found, frozenset(understood)


def _calling(extras: Extras, target: str, wire_name: WireName) -> Carried:
    """Which tools must be called, and whether one at a time. Calling none at all is said elsewhere."""
    mode, name = _choice(extras.get("tool_choice", extras.get("function_call")))
    single = one_at_a_time(extras)
    if mode == "none":
        return {}, {"parallel_tool_calls"}
    if target == "ollama":  # it calls whatever it likes
        return {}, set()
    found: Json = {"tool_choice": _written(mode, wire_name(name), target)} if mode else {}
    understood = {*found, "parallel_tool_calls", *(["function_call"] if mode else [])}
    if single and target == "anthropic":
        found["tool_choice"] = found.get("tool_choice", {"type": "auto"}) | {"disable_parallel_tool_use": True}
    elif single:
        found["parallel_tool_calls"] = False
    return found, understood


def _choice(given: Any) -> tuple[str, str]:
    """How a client wants tools to be called: a mode, and the name of the one tool; nothing if it does not say."""
    match given:
        case "none" | {"type": "none"}:
            return "none", ""
        case "auto" | {"type": "auto"}:
            return "auto", ""
        case "required" | {"type": "any"}:
            return "any", ""
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function" | "tool", "name": str(name)}:
            return "one", name
        case {"name": str(name)}:
            return "one", name  # from the time when tools were functions
        case _:
            return "", ""


def _written(mode: str, name: str, target: str) -> Any:
    if target == "anthropic":
        return _TO_ANTHROPIC.get(mode) or {"type": "tool", "name": name}
    return _TO_OPENAI.get(mode) or {"type": "function", "function": {"name": name}}


def _stops(extras: Extras, target: str) -> Carried:
    given = extras.get("stop", extras.get("stop_sequences"))
    listed = [given] if isinstance(given, str) else given
    stop = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    if not stop:
        return {}, set()
    return _placed({"stop_sequences" if target == "anthropic" else "stop": stop}, target), {"stop", "stop_sequences"}


def _sampling(extras: Extras, target: str) -> Carried:
    found = {name: extras[name] for name in _SAMPLING[target] if isinstance(extras.get(name), int | float)}
    return _placed(found, target), set(found)


def _placed(found: Json, target: str) -> Json:
    """Ollama keeps such options in an object of their own."""
    return {"options": found} if found and target == "ollama" else found


def _shape(extras: Extras, target: str) -> Carried:
    """The form that an answer must have: any JSON object, or one that fits a schema."""
    forms = {name: _only(extras.get(name), "format") for name in ("text", "output_config")}
    form: Any
    for field, form in ({"response_format": extras.get("response_format")} | forms).items():
        match form:
            case {"type": "text"}:
                return {}, {field}
            case {"type": "json_object"} if target == "ollama":
                return {"format": "json"}, {field}
            case {"type": "json_object"} if target == "openai":
                return {"response_format": {"type": "json_object"}}, {field}
            case {"type": "json_schema", "json_schema": {"schema": Mapping()} as described}:
                return _shaped(described, target), {field}
            case {"type": "json_schema", "schema": Mapping()}:
                return _shaped({name: value for name, value in form.items() if name != "type"}, target), {field}
    return {}, set()


def _shaped(described: Mapping[str, Any], target: str) -> Json:
    match target:
        case "ollama":
            return {"format": described["schema"]}
        case "anthropic":
            return {"output_config": {"format": {"type": "json_schema", "schema": described["schema"]}}}
        case _:
            return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer"} | dict(described)}}


def _effort(extras: Extras, target: str) -> Carried:
    """How long to think, from one API of OpenAI's to the other: elsewhere a model may refuse to be told."""
    effort = _only(extras.get("reasoning"), "effort")
    if target != "openai" or not isinstance(effort, str):
        return {}, set()
    return {"reasoning_effort": effort}, {"reasoning"}


def _only(given: Any, name: str) -> Any:
    """The value of a field in an object where nothing else is set, so that nothing is forgotten."""
    if not isinstance(given, Mapping) or any(value is not None for key, value in given.items() if key != name):
        return None
    return given.get(name)
