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

from training.families import Family, Frame, Role, frame_of, seed_tools
from training.values import DATA, Draw, choices, common, draw

TAG = "spoken"
BUILT_IN = 0.45
OTHER_TEXT = 0.3
OTHER_NUMBER = 0.5
LONGEST = 40
FEW_WORDS = 3
MANY = 2
NAMES = ("person", "madeup", "surname", "company", "place")
_KINDS = {"integer": "int", "number": "number", "boolean": "bool", "array": "list text", "object": "object"}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_NUMBER = re.compile(r"(?<![\w.{])\d+(?:\.\d+)?(?![\w.}])")
_MARKED = re.compile(r"[@/\\#<>{}\[\]|`*]|[a-z]\.[a-z]")


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
    return word if word in ("HH:MM", "YYYY-MM-DD") else ""


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
    family.frames, family.slots = _frames(said, family, rng)
    return family


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


def _frames(said: Said, family: Family, rng: Draw) -> tuple[list[Frame], dict[str, str]]:
    """The request with slots for what stands in it word for word; each is filled as it was, or by another value."""
    fixed = dict(flat(said.calls[0], family.roles))
    if _MARKED.search(said.text):
        return [Frame("{all}", fixed, False)], {"all": just(said.text)}
    found = _Slots(said.text, list(_leaves(fixed)), rng)
    for role in sorted(fixed, key=lambda role: -len(str(fixed[role]))):
        if role == "expression" and not _place(fixed[role]).search(found.text):
            fixed[role] = found.sum(fixed[role])
            continue
        if "=" in family.roles[role].kind or not re.fullmatch(r"[\w.]+", role):
            continue
        if isinstance(fixed[role], list):
            fixed[role] = [found.item(f"{role}.{place}", item) for place, item in enumerate(fixed[role])]
        elif found.slot(role, fixed[role], keep=_is_kept(family.roles[role])) != fixed[role]:
            del fixed[role]
    return [Frame(found.text, fixed, False)], found.kinds


def _is_kept(role: Role) -> bool:
    """Whether another value would make no sense: a date, a time, a sum."""
    return role.name == "expression" or bool(_format(role.about))


class _Slots:
    """A request whose values become slots."""

    def __init__(self, text: str, values: list[Any], rng: Draw) -> None:
        self.text, self.rng = text, rng
        self.kinds: dict[str, str] = {}
        # Where a number was derived from what was said, another number would make it wrong.
        self.exact = all(_place(value).search(text) for value in values if type(value) in (int, float))

    def slot(self, name: str, value: Any, *, keep: bool = False) -> Any:
        """`{name}` if the value stands in the request, which has a slot there from now on; else the value."""
        if type(value) not in (str, int, float) or not value or not _place(value).search(self.text):
            return value
        self.text = _place(value).sub(f"{{{name}}}", self.text)
        self.kinds[name] = just(value if keep else self._other(value))
        return f"{{{name}}}"

    def item(self, name: str, value: Any) -> Any:
        """As `slot`; numbers in lists stay as they are."""
        return self.slot(name, value) if isinstance(value, str) else value

    def sum(self, expression: str) -> str:
        """The expression with slots for numbers that stand once in it and once in the request."""
        for place, number in enumerate(dict.fromkeys(_NUMBER.findall(expression))):
            value = json.loads(number)
            where = _place(value)
            if str(value) == number and len(where.findall(self.text)) == 1 == _NUMBER.findall(expression).count(number):
                name = f"number.{place}"
                self.text = where.sub(f"{{{name}}}", self.text)
                self.kinds[name] = just(_other_number(value, self.rng) if self.rng.random() < OTHER_NUMBER else value)
                expression = re.sub(rf"(?<![\w.{{]){re.escape(number)}(?![\w.}}])", f"{{{name}}}", expression)
        return expression

    def _other(self, value: Any) -> Any:
        if isinstance(value, str):
            return other_text(value, self.rng) if self.rng.random() < OTHER_TEXT and len(value) <= LONGEST else value
        if not self.exact or type(value) is not int or value < MANY or self.rng.random() > OTHER_NUMBER:
            return value
        return _other_number(value, self.rng)


def _place(value: Any) -> re.Pattern[str]:
    """Where the value stands as a word or number of its own, and in no slot."""
    if isinstance(value, str):
        return re.compile(rf"(?<![\w{{.]){re.escape(value)}(?![\w}}]|\.\w)")
    return re.compile(rf"(?<![\w.,:/{{-]){re.escape(json.dumps(value))}(?![\w:/}}-]|[.,]\d)")


def other_text(value: str, rng: Draw) -> str:
    """Something else of the same kind, as far as its letters tell."""
    parts = value.split(" ")
    if _MARKED.search(value) or re.search(r"\d[:-]\d", value):
        return value
    if any(char.isdigit() for char in value):
        return re.sub(r"\d", lambda digit: rng.choice("123456789"), value)
    if all(part[:1].isupper() for part in parts):
        return str(draw(rng.choice(NAMES), rng)[1])
    if len(parts) <= FEW_WORDS and value.islower():
        return " ".join(common(rng) for _ in range(rng.randint(1, len(parts))))
    return value


def _other_number(value: Any, rng: Draw) -> Any:
    if value < MANY:
        return value
    if isinstance(value, float):
        return round(value * rng.uniform(0.5, 2), len(str(value).partition(".")[2]))
    other = rng.randint(max(MANY, value // 2), value * 2)
    if value % 5 == 0 and other > 5:
        other -= other % 5
    return min(other, 100) if value <= 100 else other


def flat(arguments: Mapping[str, Any], roles: Mapping[str, Role], outer: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in arguments.items():
        role = f"{outer}{name}"
        if role in roles:
            yield role, value
        else:
            yield from flat(value, roles, f"{role}.")


def _leaves(fixed: Mapping[str, Any]) -> Iterator[Any]:
    for value in fixed.values():
        yield from value if isinstance(value, list) else [value]


def just(value: Any) -> str:
    """The kind of which there is but this one value."""
    return f"just {json.dumps(value, ensure_ascii=False)}"
