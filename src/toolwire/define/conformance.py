"""What a careful author would still improve about a tool."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from toolwire.define.arguments import Checker
from toolwire.define.references import subschemas
from toolwire.define.schemas import compile_schema
from toolwire.errors import DefinitionError
from toolwire.protocol.tools import Tool

Level = Literal["error", "warning"]

LONGEST_DESCRIPTION = 1_024
SHORTEST_DESCRIPTION = 10
_PROVIDER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# A property has a type when any of these says what may be there.
_TYPES = ("type", "$ref", "enum", "const", "anyOf", "oneOf", "allOf")


class SkillFinding(Struct, frozen=True):
    """One remark on a tool: how grave, where in its definition, and what to do."""

    level: Level
    where: str
    message: str


def report(tool: Tool) -> list[SkillFinding]:
    """Everything that keeps a tool from conforming, errors first; an empty list is what one wants."""
    found = [*_name(tool), *_description(tool), *_schemas(tool), *_examples(tool), *_timeouts(tool)]
    return sorted(found, key=lambda finding: finding.level)


def _name(tool: Tool) -> Iterator[SkillFinding]:
    if not _PROVIDER_NAME.fullmatch(tool.name):
        yield SkillFinding(
            "error", "name", f"{tool.name!r} must be 1 to 64 letters, digits, '_' or '-' to suit every provider"
        )


def _description(tool: Tool) -> Iterator[SkillFinding]:
    length = len(tool.description)
    if not length:
        yield SkillFinding("error", "description", "is empty; say what the tool does and when to use it")
    elif length < SHORTEST_DESCRIPTION:
        yield SkillFinding("warning", "description", "is too short to tell a model when to use the tool")
    elif length > LONGEST_DESCRIPTION:
        yield SkillFinding(
            "warning", "description", f"has {length} characters; some providers take {LONGEST_DESCRIPTION}"
        )


def _schemas(tool: Tool) -> Iterator[SkillFinding]:
    yield from _schema(tool.input_schema, "input_schema")
    if tool.input_schema.get("type") != "object":
        yield SkillFinding("error", "input_schema", 'must have "type": "object"')
    if tool.output_schema is None:
        yield SkillFinding("warning", "output_schema", "is missing; annotate what the function returns")
    else:
        yield from _schema(tool.output_schema, "output_schema")


def _schema(schema: Mapping[str, Any], where: str) -> Iterator[SkillFinding]:
    try:
        compile_schema(schema, where)
    except DefinitionError as wrong:
        yield SkillFinding("error", where, str(wrong))
        return
    if schema.get("properties") and "required" not in schema:
        yield SkillFinding("warning", where, "has no required list; write [] if nothing is required")
    for path, inner in subschemas(schema):
        properties = inner.get("properties")
        if isinstance(properties, Mapping) and properties:
            yield from _properties(properties, f"{where}{path}")


def _properties(properties: Mapping[str, Any], where: str) -> Iterator[SkillFinding]:
    for name, schema in properties.items():
        place = f"{where}/properties/{name}"
        if not isinstance(schema, Mapping) or not any(keyword in schema for keyword in _TYPES):
            yield SkillFinding("error", place, "has no type")
        if not isinstance(schema, Mapping) or not schema.get("description"):
            yield SkillFinding("warning", place, "has no description")


def _examples(tool: Tool) -> Iterator[SkillFinding]:
    if not tool.examples:
        return
    try:
        checker = Checker(tool)
    except DefinitionError:  # reported with the schema
        return
    for index, example in enumerate(tool.examples):
        checked = checker.check(example)
        for remark in (*checked.faults, *checked.notes):
            yield SkillFinding("error", f"examples[{index}]", remark)


def _timeouts(tool: Tool) -> Iterator[SkillFinding]:
    if not 0 < tool.timeout_s <= tool.max_timeout_s:
        yield SkillFinding("error", "timeout_s", "must be above zero and no more than max_timeout_s")
    elif tool.max_timeout_s > 3_600:
        yield SkillFinding("warning", "max_timeout_s", "is more than an hour; a model will not wait for that")
