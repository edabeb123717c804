"""One tool in full, for people."""

from typing import Any

from rich.text import Text

from toolwire.cli.plain import encoded
from toolwire.cli.screen import Screen
from toolwire.cli.text import clean, one_line
from toolwire.decide.policy import ruling
from toolwire.protocol.policy import Verdict
from toolwire.protocol.skills import SkillTool
from toolwire.protocol.tools import Grant, Tool


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
            screen.say(f"example  {encoded(example).decode()}")
        return
    for shown in entry.examples:
        screen.say(f"example  {encoded(shown.arguments).decode()} gives {encoded(shown.output).decode()}")
        screen.prose(shown.explanation)


def _show_fields(screen: Screen, title: str, schema: Any) -> None:
    """The top of a schema as a table; the whole of it is in `--json`."""
    properties = schema.get("properties") or {}
    required = set(schema.get("required", ()))
    screen.out.print(Text(f"\n{title}", "bold"))
    if not properties:
        screen.say(_type_of(schema))
        return
    rows = [
        (name, _type_of(field), "yes" if name in required else _default_of(field), _described(field))
        for name, field in properties.items()
    ]
    screen.table(("field", "type", "required" if title == "takes" else "always", "meaning"), rows)


def _type_of(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "anything"
    if "enum" in schema:
        return one_line(" | ".join(encoded(value).decode() for value in schema["enum"]), 60)
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type_of(schema.get('items'))}"
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    branches = schema.get("anyOf") or schema.get("oneOf") or []
    return str(kind) if kind else " or ".join(_type_of(branch) for branch in branches[:6]) or "anything"


def _default_of(schema: Any) -> str:
    if isinstance(schema, dict) and "default" in schema:
        return one_line(f"no ({encoded(schema['default']).decode()})", 40)
    return "no"


def _described(schema: Any) -> str:
    return str(schema.get("description", "")) if isinstance(schema, dict) else ""
