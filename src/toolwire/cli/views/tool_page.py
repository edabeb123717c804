"""One tool in full, for people."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from toolwire.cli.terminal.json_output import encode_json
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean, one_line
from toolwire.decide.policy import ruling
from toolwire.protocol.policy import Verdict
from toolwire.protocol.skills import SkillTool
from toolwire.protocol.tools import Grant, Tool

_DEEPEST = 4


def show_tool_page(screen: Screen, tool: Tool, withheld: str, entry: SkillTool | None) -> None:
    """Everything about a tool: whether it is offered, what it takes and gives, and examples."""
    metadata = {} if entry is None else entry.metadata
    screen.out.print(Text.assemble((clean(tool.name), "bold"), "  ", (f"version {clean(tool.version)}", "dim")))
    screen.prose(tool.description)
    screen.out.print()
    screen.pairs(
        {
            "offered": f"no, it {withheld}" if withheld else "yes",
            "tier": tool.tier.name.lower(),
            "needs": ", ".join(sorted(tool.needs)) or "nothing",
            "effect": tool.effect.value,
            "time": f"{tool.timeout_s:g} s, at most {tool.max_timeout_s:g} s",
            "asks first": "yes, unless the grant confirms it"
            if ruling(tool, {}, Grant()).verdict is Verdict.ASK
            else "no",
            "touches": ", ".join((*(f"reads {r}" for r in tool.reads), *(f"writes {w}" for w in tool.writes))) or "-",
            **{name: str(metadata[name]) for name in ("skill", "binary", "sandbox") if name in metadata},
        }
    )
    _show_fields(screen, "takes", tool.input_schema)
    if tool.output_schema is not None:
        _show_fields(screen, "gives", tool.output_schema)
    if entry is None:
        for example in tool.examples:
            screen.say(f"example  {encode_json(example).decode()}")
        return
    for shown in entry.examples:
        screen.say(f"example  {encode_json(shown.arguments).decode()} gives {encode_json(shown.output).decode()}")
        screen.prose(shown.explanation)


def _show_fields(screen: Screen, title: str, schema: Any) -> None:
    """The top of a schema as a table; the whole of it is in `--json`."""
    properties = schema.get("properties") or {}
    required = set(schema.get("required", ()))
    screen.out.print(Text(f"\n{title}", "bold"))
    if not properties:
        screen.say(_type_of(schema, schema))
        return
    rows = [row for name, field in properties.items() for row in _rows(name, field, schema, required)]
    screen.table(("field", "type", "required" if title == "takes" else "always", "meaning"), rows)


def _rows(
    name: str, field: Any, root: Any, required: set[str], around: tuple[Any, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """A field, and below it the fields that it consists of; those of a type `around` it are shown already."""
    field = _resolve(field, root)
    last = name.rpartition(".")[2].removesuffix("[]")
    yield name, _type_of(field, root), "yes" if last in required else _default_of(field), _describe(field)
    inner, mark = _inner(field, root)
    fields = inner.get("properties", {})
    if len(around) < _DEEPEST and not any(fields is each for each in around):
        for key, each in fields.items():
            yield from _rows(f"{name}{mark}.{key}", each, root, set(inner.get("required", ())), (*around, fields))


def _inner(field: Any, root: Any) -> tuple[Any, str]:
    """The object in a field: itself, the items of a list, or the only branch that is not null."""
    if not isinstance(field, dict):
        return {}, ""
    branches = [_resolve(each, root) for each in field.get("anyOf") or field.get("oneOf") or ()]
    objects = [each for each in branches if isinstance(each, dict) and each.get("type") != "null"]
    if len(objects) == 1:
        return _inner(objects[0], root)
    if field.get("type") == "array":
        items, mark = _inner(_resolve(field.get("items"), root), root)
        return items, f"[]{mark}"
    return field, ""


def _resolve(schema: Any, root: Any) -> Any:
    """A schema with the definition that it refers to in its place."""
    for _ in range(_DEEPEST):
        if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
            break
        found = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
        own = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**found, **own} if isinstance(found, dict) else own
    return schema


def _type_of(schema: Any, root: Any = None) -> str:
    schema = _resolve(schema, root)
    if not isinstance(schema, dict):
        return "anything"
    if "enum" in schema:
        return one_line(" | ".join(encode_json(value).decode() for value in schema["enum"]), 60)
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type_of(schema.get('items'), root)}"
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    branches = schema.get("anyOf") or schema.get("oneOf") or []
    return str(kind) if kind else " or ".join(_type_of(branch, root) for branch in branches[:6]) or "anything"


def _default_of(schema: Any) -> str:
    if isinstance(schema, dict) and "default" in schema:
        return one_line(f"no ({encode_json(schema['default']).decode()})", 40)
    return "no"


def _describe(schema: Any) -> str:
    return str(schema.get("description", "")) if isinstance(schema, dict) else ""
