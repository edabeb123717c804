"""Arguments of a tool that lives behind a bus: what a model may give, what is put in for it, and when.

A default is put in where the model left the argument out; null counts as given. A fixed argument always is. Both are on
the card of the call. An argument from the environment is put in where the tool runs, just before, and is on no card:
its value is a secret, and only the name of its variable is known elsewhere.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from toolwire.define.references import subschemas, targets
from toolwire.errors import DefinitionError
from toolwire.protocol.tools import BusService

VARIABLES = (
    "project_id", "channel_id", "agent_id", "agent_turn_id", "step_id", "tool_call_id", "parent_step_id", "trace_id",
    "turn_epoch", "context_box_id",
)  # fmt: skip
"""What may stand in braces in a default or fixed argument, and is known of every call."""

_MARK = re.compile(r"\{(" + "|".join(VARIABLES) + r")\}")
_DEEPEST = 64
# Where these stand, an argument can be named in places other than `properties` and `required`.
_COMPOSED = (
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentRequired",
    "dependentSchemas", "dependencies", "patternProperties", "propertyNames", "minProperties", "unevaluatedProperties",
)  # fmt: skip
_DEFINITIONS = ("$defs", "definitions")
_SHOWN_VALUES = ("default", "examples", "example")


class HiddenArgument(ValueError):
    """A model gave an argument that is not its to give."""


class MissingVariable(Exception):
    """An argument should come from the environment, and its variable is not set there."""


class FilledArguments(Struct, frozen=True):
    """Arguments for the card of a call, and which of them were put in."""

    arguments: Mapping[str, Any]
    defaults_applied: tuple[str, ...] = ()
    fixed_applied: tuple[str, ...] = ()

    @property
    def metadata(self) -> dict[str, Any]:
        """What the card says about them, in the words of the protocol."""
        said = {"tool_args_defaults_applied": self.defaults_applied, "tool_args_fixed_applied": self.fixed_applied}
        return {name: list(applied) for name, applied in said.items() if applied}


def hidden_names(target: BusService) -> frozenset[str]:
    """The arguments that a model neither sees nor gives."""
    return frozenset((*target.fixed, *target.environment))


def visible_schema(parameters: Mapping[str, Any], target: BusService, owner: str) -> dict[str, Any]:
    """The schema that a model sees. Raises `DefinitionError` where a hidden argument would shine through."""
    hidden = hidden_names(target)
    schema = dict(parameters)
    given = schema.get("properties", {})
    given_later = hidden | target.defaults.keys()
    if hidden:
        _refuse_composed(schema, hidden, owner)
        schema = {name: item for name, item in schema.items() if name not in _SHOWN_VALUES}
    schema["properties"] = {name: item for name, item in given.items() if name not in hidden}
    if "required" in schema:
        schema["required"] = [name for name in schema["required"] if name not in given_later]
    return _without_unused_definitions(schema) if hidden else schema


def refuse_hidden(target: BusService) -> Any:
    """The check of a tool's arguments by which a model that names a hidden one is refused."""
    hidden = hidden_names(target)

    def check(arguments: dict[str, Any]) -> None:
        named = sorted(hidden & arguments.keys())
        if named:
            raise HiddenArgument(f"{', '.join(named)}: not an argument of this tool; call it again without")

    return check


def fill_arguments(
    target: BusService, arguments: Mapping[str, Any], variables: Mapping[str, str | int]
) -> FilledArguments:
    """What a model gave, with defaults and fixed arguments, for the card. Raises HiddenArgument."""
    refuse_hidden(target)(dict(arguments))
    missing = {name: value for name, value in target.defaults.items() if name not in arguments}
    filled = {name: _filled(value, variables, 0) for name, value in {**missing, **target.fixed}.items()}
    return FilledArguments({**arguments, **filled}, tuple(sorted(missing)), tuple(sorted(target.fixed)))


def with_environment(
    target: BusService, arguments: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """What the tool gets: with the values of its variables. Raises MissingVariable, which names none of them."""
    missing = sorted(variable for variable in target.environment.values() if not environment.get(variable))
    if missing:
        raise MissingVariable(f"set {', '.join(missing)} where the tool runs, and start it again")
    return {**arguments, **{name: environment[variable] for name, variable in target.environment.items()}}


def environment_secrets(target: BusService, environment: Mapping[str, str]) -> dict[str, str]:
    """Values by the names of their variables, to be taken out of whatever the tool returns."""
    return {name: value for name in target.environment.values() if (value := environment.get(name))}


def has_marks(value: Any) -> bool:
    """Whether a value is filled differently for every call."""
    return any(_MARK.search(text) for text in _texts(value, 0))


def _filled(value: Any, variables: Mapping[str, str | int], depth: int) -> Any:
    """The value with variables in place of their marks. One that is only a mark becomes the variable itself."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, str):
        whole = _MARK.fullmatch(value)
        if whole:
            return variables.get(whole[1], "")
        return _MARK.sub(lambda mark: str(variables.get(mark[1], "")), value)
    if isinstance(value, Mapping):
        return {name: _filled(item, variables, depth + 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(item, variables, depth + 1) for item in value]
    return value


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list, tuple)) and depth <= _DEEPEST:
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner, depth + 1)


def _refuse_composed(schema: Mapping[str, Any], hidden: frozenset[str], owner: str) -> None:
    names = ", ".join(sorted(hidden))
    for keyword in _COMPOSED:
        if keyword in schema:
            raise DefinitionError(f"{owner} has {keyword}, by which the hidden {names} could be named; take it out")
    for _, inner in subschemas(dict(schema)):
        for target in targets(inner):
            if not target.startswith(("#/$defs/", "#/definitions/")):
                raise DefinitionError(f"{owner} refers to {target[:80]!r}; refer to #/$defs/… where {names} is hidden")


def _without_unused_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """A definition that only hidden arguments used would show them."""
    rest = {name: item for name, item in schema.items() if name not in _DEFINITIONS}
    found = {f"#/{group}/{name}": (group, name) for group in _DEFINITIONS for name in schema.get(group, {})}
    waiting, used = [rest], dict[str, tuple[str, str]]()
    for document in waiting:
        for _, inner in subschemas(document):
            for target in targets(inner):
                place = next((each for each in found if target == each or target.startswith(f"{each}/")), None)
                if place is not None and place not in used:
                    group, name = used[place] = found[place]
                    waiting.append(schema[group][name])
    for group, name in used.values():
        rest.setdefault(group, {})[name] = schema[group][name]
    return rest
