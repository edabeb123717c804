"""The settings by dotted key: what each one allows, in words, and how its text form is read."""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, get_args, get_origin

from msgspec import Struct

from toolwire.settings.choices import OneOf
from toolwire.settings.schema import (
    AgentSettings,
    BusServiceSettings,
    DeviceSettings,
    Profile,
    ServiceSettings,
    Settings,
)
from toolwire.settings.sections import AfterValidator, FieldKind, Section, SettingField

NAMED: Mapping[str, type[Section]] = {
    "profiles": Profile, "agents": AgentSettings, "services": ServiceSettings, "bus_services": BusServiceSettings,
    "devices": DeviceSettings,
}  # fmt: skip
"""Sections of which there are several, each by a name of the user's choosing."""

SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class Key(Struct, frozen=True):
    """One setting. An alias stands for the key `alias_of`, its value divided by `divisor`.

    `allowed_words` says what is allowed, or reads it from a table.
    """

    name: str
    type: str
    allowed_words: str | OneOf
    default: Any
    meaning: str
    optional: bool = False
    alias_of: str = ""
    divisor: int = 1

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        return self.allowed_words.in_words() if isinstance(self.allowed_words, OneOf) else self.allowed_words

    def read_text(self, text: str) -> Any:
        """The value that a variable or flag means by `text`; text that means nothing stays as it is."""
        if self.optional and text.lower() == "none":
            return None
        match self.type:
            case "true or false":
                return SWITCHES.get(text.lower(), text)
            case "whole number":
                return _number(text, int)
            case "number":
                return _number(text, float)
            case "list of words":
                return _words(text)
            case _:
                return text


def _number(text: str, kind: type[int] | type[float]) -> int | float | str:
    try:
        return kind(text[:64])
    except ValueError:
        return text


def _words(text: str) -> Any:
    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return [word.strip() for word in text.split(",") if word.strip()]


@cache
def known_keys() -> dict[str, Key]:
    """Every key by its dotted name; the name of a profile or an agent is written NAME. Aliases come last."""
    keys = {key.name: key for key in _keys_of(Settings, "")}
    for alias, target, divisor in _ALIASES:
        keys[alias] = _alias(alias, keys[target], divisor)
    return keys


# The names of EvoClaw's own configuration, so that such a file can be kept.
_ALIASES = (
    ("orchestrator.tool_loop_enabled", "loop.enabled", 1),
    ("orchestrator.max_tool_iterations", "loop.iterations", 1),
    ("orchestrator.tool_error_limit", "loop.consecutive_failures", 1),
    ("orchestrator.default_tool_timeout_ms", "tools.timeout_s", 1000),
    ("orchestrator.tools.skills_path", "tools.skills_path", 1),
    ("orchestrator.tools.enable_sandboxing", "tools.enable_sandboxing", 1),
    ("orchestrator.tools.sandbox_engine", "tools.sandbox_engine", 1),
)


def _alias(name: str, target: Key, divisor: int) -> Key:
    meaning = f"Another name of {target.name}"
    if divisor == 1:
        return Key(name, target.type, target.allowed_words, target.default, f"{meaning}.", alias_of=target.name)
    default = int(target.default * divisor)
    meaning = f"{meaning}, times {divisor}."
    return Key(name, "whole number", "a whole number", default, meaning, alias_of=target.name, divisor=divisor)


def _keys_of(section: type[Section], prefix: str) -> Iterator[Key]:
    for name, field in section.fields.items():
        dotted = prefix + (field.alias or name)
        kind = section.kinds[name]
        if dotted in NAMED:
            yield from _keys_of(NAMED[dotted], f"{dotted}.NAME.")
        elif isinstance(kind, type) and issubclass(kind, Section):
            yield from _keys_of(kind, f"{dotted}.")
        else:
            yield _key(dotted, FieldKind.of(kind), field)


def _key(name: str, kind: FieldKind, field: SettingField) -> Key:
    word, allowed = _in_words(kind, field)
    default = None if field.is_required else field.default
    return Key(name, word, allowed, default, field.description, kind.optional)


def _in_words(found: FieldKind, field: SettingField) -> tuple[str, str | OneOf]:
    for each in found.validators:
        if isinstance(each, AfterValidator) and isinstance(each.judge, OneOf):
            return "one of", each.judge
    kind = found.kind
    if get_origin(kind) is Literal:
        return "one of", "one of " + ", ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "list of words", "a list of words"
    if kind is bool:
        return "true or false", "true or false"
    if kind in {int, float}:
        word = "whole number" if kind is int else "number"
        return word, f"a {word}{_bounds(field)}"
    return "text", "text in quotes"


def _bounds(field: SettingField) -> str:
    bounds = (("at least", field.ge), ("more than", field.gt), ("at most", field.le))
    return "".join(f", {word} {bound}" for word, bound in bounds if bound is not None)


def pattern_of(path: tuple[str, ...]) -> str:
    """The dotted key with the name of a profile or an agent replaced by NAME."""
    if path[0] in NAMED and len(path) > 1:
        path = (path[0], "NAME", *path[2:])
    return ".".join(path)


@cache
def known_sections() -> frozenset[str]:
    """Every dotted prefix of a key."""
    return frozenset(
        ".".join(parts[:end]) for parts in (name.split(".") for name in known_keys()) for end in range(1, len(parts))
    )


def nearest_keys(name: str) -> list[str]:
    """Up to three known keys or sections that someone who wrote `name` may have meant, the likeliest first."""
    name = pattern_of(tuple(name[:128].split(".")))
    section, _, last = name.rpartition(".")
    same_end = [key for key in known_keys() if key.rpartition(".")[2] == last]
    near = _alike_in(section, last) or get_close_matches(name, [*known_keys(), *sorted(known_sections())], n=3)
    return list(dict.fromkeys([*same_end, *near]))[:3]


def _alike_in(section: str, last: str) -> list[str]:
    """Keys of one section whose last word looks like this one; a section they share makes no two words alike."""
    inside = {key.rpartition(".")[2]: key for key in known_keys() if key.rpartition(".")[0] == section}
    return [inside[word] for word in get_close_matches(last, inside, n=3)]


def describe() -> list[tuple[str, str, str, str]]:
    """Every setting as (key, what is allowed, default, meaning), in the order of the reference."""
    return [(key.name, key.allowed, _shown(key.default), key.meaning) for key in known_keys().values()]


def _shown(default: Any) -> str:
    match default:
        case None:
            return "unset"
        case bool():
            return str(default).lower()
        case tuple():
            return json.dumps(list(default))
        case str():
            return json.dumps(default)
        case _:
            return str(default)
