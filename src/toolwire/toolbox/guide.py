"""How to reach into the output of tools: which fields there are, by family of tools."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolwire.protocol.tools import Tool

DEEPEST = 4


def output_guide(tools: Iterable[Tool]) -> str:
    """One paragraph for each category, one line for each field: its path, the tool, and what it holds."""
    families: dict[str, list[str]] = {}
    for tool in tools:
        lines = [f"- {path} ({tool.name}): {meaning}" for path, meaning in _fields(tool.output_schema or {}, "output")]
        families.setdefault(tool.category or "other", []).extend(lines)
    return "\n\n".join("\n".join([f"{family} tools:", *lines]) for family, lines in families.items())


def _fields(schema: Mapping[str, Any], path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    if depth == DEEPEST:
        return
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field.get("description", "")
        inner, place = field, f"{path}.{name}"
        if isinstance(field.get("items"), Mapping):
            inner, place = field["items"], f"{place}[0]"
        yield from _fields(inner, place, depth + 1)
