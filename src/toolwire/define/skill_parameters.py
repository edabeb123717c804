"""The parameters of a skill's tool: a JSON Schema, or a line for each parameter from which one is made."""

import re
from typing import Any

from toolwire.define.schemas import object_schema
from toolwire.define.tables import Table
from toolwire.errors import DefinitionError
from toolwire.protocol.skills import ArgumentPassing

TYPES = ("string", "integer", "number", "boolean", "array", "object")
_FLAG = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_SCHEMA_WORDS = frozenset(("properties", "$ref", "$defs", "anyOf", "oneOf", "allOf"))


def parameters_schema(table: Table) -> dict[str, Any]:
    """The schema of a `[tools.parameters]` table, in either form. Raises `DefinitionError`."""
    written = dict(table.values)
    is_schema = written.get("type") == "object" or any(isinstance(written.get(word), dict) for word in _SCHEMA_WORDS)
    return object_schema(written if is_schema else _from_lines(table), table.where)


def _from_lines(table: Table) -> dict[str, Any]:
    """`path = "string"`, `limit = "integer?"`, or a table with a type, a description and perhaps a default."""
    properties, required = {}, []
    for name, value in table.values.items():
        schema, is_required = _of_word(table, name, value) if isinstance(value, str) else _of_table(table, name)
        properties[name] = schema
        required += [name] if is_required else []
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _of_word(table: Table, name: str, word: str) -> tuple[dict[str, Any], bool]:
    return {"type": table.one_of(name, word.removesuffix("?"), TYPES)}, not word.endswith("?")


def _of_table(table: Table, name: str) -> tuple[dict[str, Any], bool]:
    line = table.table(name)
    schema = dict(line.values)
    if isinstance(schema.get("type"), str):
        line.one_of("type", schema["type"], TYPES)
    optional = schema.pop("optional", False)
    required = schema.pop("required", not optional and "default" not in schema)
    if not isinstance(required, bool):  # an object inside keeps its own list of what is required
        schema["required"], required = required, "default" not in schema and not optional
    return schema, bool(required)


def check_passing(schema: dict[str, Any], passing: ArgumentPassing, where: str) -> None:
    """Raises `DefinitionError` for a parameter whose name cannot be written as a flag, where it must be."""
    if passing is ArgumentPassing.FLAGS:
        for name in schema["properties"]:
            if not _FLAG.fullmatch(name):
                raise DefinitionError(
                    f"{where}: {name[:60]!r} cannot be a flag; name it with letters, digits, '-', '_'"
                )
