"""Calls written as JSON objects: which keys name the tool, its arguments and its id, and which only wrap calls."""

from typing import Any

from msgspec import Struct

from toolwire.protocol.calls import CallOptions
from toolwire.protocol.tools import Delivery
from toolwire.wire.lenient.values import PartList, PartObject
from toolwire.wire.replies.offered import Offer, Offered

NAME_KEYS = ("name", "function", "tool", "tool_name", "function_name", "recipient_name", "action", "_name", "tool_call")
ARGUMENT_KEYS = (
    "arguments", "parameters", "input", "args", "tool_args", "tool_input", "action_input", "params", "kwargs",
)  # fmt: skip
ID_KEYS = ("id", "call_id", "tool_call_id", "toolUseId", "tool_use_id", "requestId", "request_id")
_LIST_WRAPPERS = ("tool_calls", "tool_uses", "tool_requests", "function_calls", "calls", "actions", "tool_call")
_OBJECT_WRAPPERS = (
    "function_call",
    "function",
    "tool_call",
    "command",
    "payload",
    "breadcrumb",
    "context",
    "toolUse",
    "functionCall",
)
_META = frozenset({*NAME_KEYS, *ARGUMENT_KEYS, *ID_KEYS, "type", "return_to_llm", "config_id", "index", "thought"})
PARALLEL = frozenset({"multi_tool_use.parallel", "multi_tool_use", "parallel"})
_NO_TOOL = frozenset({"no_tool", "directly-answer", "directly_answer", "Final Answer"})
_DEPTH = 6
LONGEST_CONFIG_ID = 200
MOST_DEPENDENCIES = 100


class JsonCall(Struct):
    """One call-like object: the name it gives, the tool if it was offered, its arguments and its id.

    Of a `half` one the arguments are complete, but its own end is missing.
    """

    name: str
    offer: Offer | None
    arguments: Any
    alias: str | None = None
    half: bool = False
    options: CallOptions | None = None


class Entries(Struct):
    """What an object holds: its calls, what it says to the user, and whether a call in it was cut off.

    `known` says that the call that was cut off names an offered tool; `explicit` that a key says that these are calls.
    """

    calls: list[JsonCall]
    content: str = ""
    cut: bool = False
    known: bool = False
    explicit: bool = False


def entries_in(value: Any, offered: Offered, depth: int = _DEPTH) -> Entries | None:
    """The calls that a value stands for; None when it is no call at all but data."""
    if depth <= 0:
        return None
    if isinstance(value, list):
        return _from_list(value, offered, depth)
    if not isinstance(value, dict):
        return None
    plain = plain_call(value, offered)
    if plain is not None:
        return Entries([plain])
    wrapped = _from_wrapper(value, offered, depth)
    return wrapped if wrapped is not None else _from_object(value, offered, depth)


def begins_call(value: Any) -> bool:
    """Whether an object that was cut off has only keys that calls have, or none yet."""
    return isinstance(value, PartObject) and value.keys() <= _META | {"dependencies"}


def plain_call(value: Any, offered: Offered) -> JsonCall | None:
    """The shape that nearly every call has: a known name and an object of arguments."""
    if not isinstance(value, dict):
        return None
    name, arguments = value.get("name"), value.get("arguments")
    if type(arguments) is not dict or not isinstance(name, str) or "properties" in arguments:
        return None
    offer = offered.by_name.get(name)
    if offer is None or (len(value) > 2 and "parameters" in value):
        return None
    return JsonCall(name, offer, arguments, _alias(value) if len(value) > 2 else None, isinstance(value, PartObject))


def _from_list(values: list[Any], offered: Offered, depth: int) -> Entries | None:
    found = Entries([], cut=isinstance(values, PartList))
    unknown: list[JsonCall] = []
    for value in values:
        inner = entries_in(value, offered, depth - 1)
        if inner is not None:
            found.calls += inner.calls
            found.content += inner.content
            found.cut = found.cut or inner.cut
            found.known = found.known or inner.known
        elif type(value) is dict and len(value) == 1 and isinstance(next(iter(value.values())), dict):
            unknown += [JsonCall(name, None, arguments) for name, arguments in value.items()]
        elif not isinstance(value, PartObject | PartList):
            return None
    if unknown and not any(entry.offer is not None for entry in found.calls):
        return None
    found.calls += unknown
    return found if values or found.cut else None


def _from_wrapper(value: dict[str, Any], offered: Offered, depth: int) -> Entries | None:
    """`{"tool_calls": […]}` and its kin. A message beside the calls is what the user reads."""
    for key in _LIST_WRAPPERS:
        inner = value.get(key)
        if isinstance(inner, list) and not _named(value, offered):
            found = _from_list(inner, offered, depth - 1)
            if found is None and inner:
                return None
            said = value.get("message", value.get("content"))
            found = found or Entries([])
            if isinstance(said, str):
                found.content = said + found.content
            elif not inner and key != "tool_requests":
                return None
            found.cut = found.cut or isinstance(value, PartObject)
            found.explicit = True
            return found
    for key in _OBJECT_WRAPPERS:
        inner = value.get(key)
        if isinstance(inner, dict) and not _named(value, offered):
            found = entries_in(inner, offered, depth - 1)
            if found is not None and len(found.calls) == 1 and found.calls[0].alias is None:
                found.calls[0].alias = _alias(value)
            if found is not None:
                return found
    return None


def _named(value: dict[str, Any], offered: Offered) -> bool:
    return any(isinstance(name := value.get(key), str) and offered.get(name) is not None for key in NAME_KEYS)


def _from_object(value: dict[str, Any], offered: Offered, depth: int) -> Entries | None:
    key, name = _name_of(value, offered)
    if not key:
        return _from_only_key(value, offered)
    offer = offered.get(name)
    found, arguments = _arguments_of(value, key, offer)
    if offer is None and name in PARALLEL and isinstance(arguments, dict):
        return entries_in(arguments, offered, depth - 1)
    if offer is None and name in _NO_TOOL and isinstance(value, PartObject):
        return Entries([], cut=True, known=True)
    if offer is None and name in _NO_TOOL:
        said = arguments.get("content") if isinstance(arguments, dict) else arguments
        said = value.get("content", said)
        return Entries([], said if isinstance(said, str) else "")
    if isinstance(arguments, PartObject) or (isinstance(value, PartObject) and not _given(value, key)):
        return Entries([], cut=True, known=offer is not None) if offer is not None or found else None
    if offer is None and not found:
        return None
    if is_definition(arguments, offer):
        return None
    options = _options(value) if key == "tool" else None
    return Entries([JsonCall(name, offer, arguments, _alias(value), isinstance(value, PartObject), options)])


def _given(value: dict[str, Any], name_key: str) -> bool:
    """Whether a key of its own holds the arguments."""
    return any(key in value for key in ARGUMENT_KEYS if key != name_key)


def _name_of(value: dict[str, Any], offered: Offered) -> tuple[str, str]:
    """The key that names a tool, preferring one that names an offered tool."""
    first = ("", "")
    for key in NAME_KEYS:
        name = value.get(key)
        if isinstance(name, str) and name:
            if offered.get(name) is not None:
                return key, name
            first = first if first[0] else (key, name)
    return first


def _arguments_of(value: dict[str, Any], name_key: str, offer: Offer | None) -> tuple[bool, Any]:
    """The arguments, and whether a key said so. With two candidates the one that fits the schema is taken."""
    candidates = [value[key] for key in ARGUMENT_KEYS if key in value and key != name_key]
    if len(candidates) > 1 and offer is not None:
        fitting = [item for item in candidates if isinstance(item, dict) and item.keys() <= offer.properties.keys()]
        candidates = [item for item in fitting if offer.accepts(item)] or fitting or candidates
    if candidates:
        return True, candidates[0]
    rest = {key: item for key, item in value.items() if key not in _META}
    if offer is not None and rest and rest.keys() <= offer.properties.keys():
        return True, rest
    beside = {key: item for key, item in value.items() if key != name_key}
    if offer is not None and beside and beside.keys() <= offer.properties.keys():
        return True, beside
    return False, rest


def _from_only_key(value: dict[str, Any], offered: Offered) -> Entries | None:
    """`{"tool": {arguments}}`."""
    found: list[JsonCall] = []
    for name, arguments in value.items():
        offer = offered.get(name)
        if offer is None or not isinstance(arguments, dict) or is_definition(arguments, offer):
            return None
        if isinstance(arguments, PartObject):
            return Entries(found, cut=True, known=True)
        if not (offer.required <= arguments.keys() and offer.knows(arguments)):
            return None
        found.append(JsonCall(name, offer, arguments, half=isinstance(value, PartObject)))
    return Entries(found) if found else None


def _options(value: dict[str, Any]) -> CallOptions | None:
    """What a tool request says beside its arguments: where its result goes, its configuration, what it depends on."""
    returns, config = value.get("return_to_llm"), value.get("config_id")
    delivery = (Delivery.MODEL if returns else Delivery.USER) if isinstance(returns, bool) else None
    config_id = config[:LONGEST_CONFIG_ID] if isinstance(config, str) else ""
    # Where arguments stand beside the name, as some models write them, it is one of them.
    before = _dependencies(value.get("dependencies")) if any(key in value for key in ARGUMENT_KEYS) else ()
    if delivery is None and not config_id and not before:
        return None
    return CallOptions(delivery, config_id=config_id, dependencies=before)


def _dependencies(value: Any) -> tuple[str, ...]:
    names = [str(name) for name in value if isinstance(name, str | int)] if isinstance(value, list) else []
    return tuple(dict.fromkeys(names[:MOST_DEPENDENCIES]))


def _alias(value: dict[str, Any]) -> str | None:
    alias = next((value[key] for key in ID_KEYS if value.get(key) not in (None, "")), None)
    return str(alias) if isinstance(alias, str | int) else None


def is_definition(arguments: Any, offer: Offer | None) -> bool:
    """Whether the "arguments" are a schema: a tool described, not called."""
    if not isinstance(arguments, dict) or not isinstance(arguments.get("properties"), dict):
        return False
    return arguments.get("type") == "object" and (offer is None or "properties" not in offer.properties)
