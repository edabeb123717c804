"""Requests that were written one by one, as people talk, for tools that come as apps.

`data/spoken/*.txt`: an app (`== name`), its tools (`tool name — purpose`, then `in` and their inputs), and requests
(`> request`, then the arguments). See `training/README.md`. A value that stands in a request word for word may give
way to another one, so that no request is learned by heart.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from training.families import Family, Role, frame_of, seed_tools
from training.slots import FORMATS, slotted
from training.values import DATA, Draw, choices

TAG = "spoken"
BUILT_IN = 0.45
_KINDS = {"integer": "int", "number": "number", "boolean": "bool", "array": "list text", "object": "object"}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


@dataclass(frozen=True, slots=True)
class Said:
    """A request, and the arguments of the calls it asks for."""

    text: str
    calls: tuple[Mapping[str, Any], ...]


@dataclass(slots=True)
class Talked:
    """A tool of an app, and what people said to get it called."""

    name: str
    purpose: str
    app: str
    roles: dict[str, Role] = field(default_factory=dict)
    asks: list[Said] = field(default_factory=list)

    @property
    def seed(self) -> str:
        return "" if self.purpose else self.name


@cache
def talked() -> tuple[Talked, ...]:
    paths = sorted((DATA / "spoken").glob("*.txt"))
    return tuple(tool for path in paths for tool in tools_in(path.stem, path.read_text(encoding="utf-8")))


def tools_in(file: str, text: str) -> Iterator[Talked]:
    """The tools of a file and their requests."""
    app, said, tool = file, "", None
    for line in filter(None, text.splitlines()):
        if line.startswith("== "):
            app = f"{file}/{line[3:]}"
        elif line.startswith("tool "):
            if tool:
                yield tool
            name, _, purpose = line[5:].partition(" — ")
            tool = Talked(name, purpose, app)
        elif line.startswith("in ") and tool:
            tool.roles = dict(_roles(json.loads(line[3:])))
        elif line.startswith("> "):
            said = line[2:]
        elif tool:
            tool.asks.append(Said(said, tuple(json.loads(part) for part in line.split(" ;; "))))
    if tool:
        yield tool


def _roles(inputs: Mapping[str, Any], outer: str = "", must_too: bool = True) -> Iterator[tuple[str, Role]]:
    """The inputs as roles; those of an object inside are dotted."""
    for starred, kind in inputs.items():
        name, must = f"{outer}{starred.rstrip('*')}", starred.endswith("*") and must_too
        if isinstance(kind, dict):
            yield from _roles(kind, f"{name}.", must)
            continue
        listed = isinstance(kind, list)
        word, _, about = (kind[0] if listed else kind).partition(": ")
        yield name, Role((name,), f"list {_kind(word)}" if listed else _kind(word), must, about or _format(word), name)


def _kind(word: str) -> str:
    if "|" in word:
        return "; ".join(f"{choice}={choice}" for choice in word.split("|"))
    return {"string": "text", "HH:MM": "text", "YYYY-MM-DD": "text"}.get(word, word)


def _format(word: str) -> str:
    return word if word in FORMATS else ""


@cache
def _asked(built_in: bool, app: str, held: bool | None) -> tuple[tuple[Talked, Said], ...]:
    able = [tool for tool in talked() if (tool.app == app if app else bool(tool.seed) == built_in)]
    every = [(tool, said) for tool in able for said in tool.asks]
    single = [(tool, said) for tool, said in every if len(said.calls) == 1]
    kept = [pair for pair in single if held is None or frame_of(pair[1].text, pair[0].name).held == held]
    return tuple(kept or single)


def pick(rng: Draw, known: Mapping[str, Family], app: str = "", *, held: bool | None) -> Family:
    """The family of a tool (of that app), with one way to ask for it; `known` are the built-in tools' own."""
    tool, said = rng.choice(_asked(rng.random() < BUILT_IN, app, held))
    family = family_of(tool, said.calls, known)
    frame, family.slots = slotted(said.text, dict(flat(said.calls[0], family.roles)), family.roles, rng)
    family.frames = [frame]
    return family


@cache
def doubles() -> tuple[tuple[Talked, Said], ...]:
    """Requests that take several calls of one tool."""
    return tuple((tool, said) for tool in talked() for said in tool.asks if len(said.calls) > 1)


def others(rng: Draw, app: str, count: int) -> list[Family]:
    """Tools that could stand beside those of an app: first of the same one, then of others."""
    invented = [tool for tool in talked() if not tool.seed]
    same = [tool for tool in invented if tool.app == app]
    near = rng.sample(same, rng.randint(min(2, len(same)), len(same)))
    return [_family(tool) for tool in [*near, *rng.sample(invented, min(len(invented), count))]]


def _family(tool: Talked) -> Family:
    name = " ".join(word.lower() for word in _WORDS.findall(tool.name))
    own = f"{tool.app}/{name}"
    return Family(own, [name], [tool.purpose], tool.roles, group=own, tags=frozenset({"outside", TAG}), app=tool.app)


def family_of(tool: Talked, given: Iterable[Mapping[str, Any]], known: Mapping[str, Family]) -> Family:
    """The family of a tool; a built-in one has its own, to which comes every input that is given."""
    if not tool.seed:
        return _family(tool)
    inputs = seed_tools()[tool.name]["input_schema"].get("properties", {})
    base, roles = known[tool.name], dict(known[tool.name].roles)
    for name in {name: None for arguments in given for name in arguments}:
        if name not in roles or ("=" in roles[name].kind and "enum" not in inputs[name]):
            kind = _KINDS.get(inputs[name].get("type"), "text")
            roles[name] = replace(roles[name], kind=kind) if name in roles else Role((name,), kind, False)
    return replace(base, roles=roles, tags=base.tags | {TAG})


def choices_of(tool: Talked) -> set[str]:
    """Every value of its inputs that is one of few."""
    if tool.seed:
        inputs = seed_tools()[tool.name]["input_schema"].get("properties", {})
        return {str(choice) for schema in inputs.values() for choice in schema.get("enum", ())}
    return {choice for role in tool.roles.values() if "=" in role.kind for choice in choices(role.kind)}


def flat(arguments: Mapping[str, Any], roles: Mapping[str, Role], outer: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in arguments.items():
        role = f"{outer}{name}"
        if role in roles:
            yield role, value
        else:
            yield from flat(value, roles, f"{role}.")
