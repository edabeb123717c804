"""Tools made from families: names in many styles, other names for inputs, other words for the purpose."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from toolwire.protocol.tools import Tool
from training.families import Family, Role, seed_tools
from training.values import DATA, Draw, schema_of

EXTRAS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("verbose", {"type": "boolean"}),
    ("timeout", {"type": "integer"}),
    ("format", {"type": "string", "enum": ["json", "text"]}),
    ("dry_run", {"type": "boolean"}),
    ("locale", {"type": "string"}),
    ("limit", {"type": "integer"}),
    ("page", {"type": "integer"}),
    ("note", {"type": "string"}),
    ("tags", {"type": "array", "items": {"type": "string"}}),
    ("options", {"type": "object"}),
)


@dataclass(frozen=True, slots=True)
class Made:
    """A tool of a catalogue, the family it comes from, and what its inputs are called by the family's roles."""

    tool: Tool
    family: Family
    inputs: Mapping[str, str]

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, in the order of the schema; a dotted input lies inside an object."""
        arguments: dict[str, Any] = {}
        for role, name in self.inputs.items():
            if role in values:
                outer, _, inner = name.partition(".")
                if inner:
                    arguments.setdefault(outer, {})[inner] = values[role]
                else:
                    arguments[name] = values[role]
        return arguments


def make(family: Family, rng: Draw, need: frozenset[str] = frozenset(), *, plain: bool = False) -> Made:
    """A tool of that family that takes at least what is needed. `plain` is the built-in tool as it is."""
    if family.seed and (plain or not family.names):
        return _built_in(family)
    roles = [role for role in family.roles.values() if role.must or role.name in need or rng.random() < 0.6]
    if rng.random() < 0.1:
        rng.shuffle(roles)
    style = rng.choice(STYLES)
    inputs = {role.name: _input_name(role, style, rng) for role in roles}
    properties, required = _properties(roles, inputs)
    if rng.random() < 0.15:
        name, schema = rng.choice(EXTRAS)
        if name not in properties:
            properties[name] = dict(schema)
    schema = {"type": "object", "properties": properties, "required": required}
    return Made(Tool(_tool_name(family, style, rng), _purpose(family, rng), schema), family, inputs)


def _built_in(family: Family) -> Made:
    tool = seed_tools()[family.seed]
    inside = [role for role in family.roles if "." in role]
    inputs = {name: name for name in (*tool["input_schema"]["properties"], *inside)}
    return Made(Tool(tool["name"], tool["description"], tool["input_schema"]), family, inputs)


def _properties(roles: list[Role], inputs: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for role in roles:
        outer, _, inner = inputs[role.name].partition(".")
        if not inner:
            properties[outer] = _schema(role)
        else:
            nested = properties.setdefault(outer, {"type": "object", "properties": {}, "required": []})
            nested["properties"][inner] = _schema(role)
            if role.must:
                nested["required"].append(inner)
        if role.must and outer not in required:
            required.append(outer)
    return properties, required


def _schema(role: Role) -> dict[str, Any]:
    return schema_of(role.kind) | ({"description": role.about} if role.about else {})


STYLES = ("snake", "snake", "snake", "kebab", "camel", "flat")


def styled(text: str, style: str) -> str:
    """`send email` as send_email, send-email, sendEmail or sendemail."""
    parts = text.replace("_", " ").split(" ")
    match style:
        case "kebab":
            return "-".join(parts)
        case "camel":
            return parts[0] + "".join(part.capitalize() for part in parts[1:])
        case "flat":
            return "".join(parts)
    return "_".join(parts)


@cache
def reserved() -> frozenset[str]:
    """Names that only the evaluation uses, as `bare` gives them."""
    return frozenset(map(bare, (DATA / "reserved.txt").read_text(encoding="utf-8").splitlines()))


def bare(name: str) -> str:
    """The name without what styles differ in."""
    return "".join(filter(str.isalnum, name)).lower()


def _tool_name(family: Family, style: str, rng: Draw) -> str:
    free = [name for name in family.names if bare(name) not in reserved()]
    name = styled(rng.choice(free or family.names), style)
    if rng.random() < 0.06 or not free:
        name = f"{rng.choice(['app', 'my', 'acme', 'core', 'home', 'svc', 'x'])}{rng.choice('_.-')}{name}"
    return name


def _input_name(role: Role, style: str, rng: Draw) -> str:
    name = role.label or (role.name if rng.random() < 0.45 else rng.choice(role.names))
    return ".".join(styled(part, "camel" if style == "camel" else "snake") for part in name.split("."))


def _purpose(family: Family, rng: Draw) -> str:
    purpose = rng.choice(family.purposes)
    if rng.random() < 0.2:
        purpose = purpose[:1].lower() + purpose[1:]
    return purpose + rng.choice(["", ".", ""])
