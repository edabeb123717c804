"""The report behind `toolwire tools validate`."""

from typing import Annotated, Any

import pytest
from msgspec.structs import replace

from toolwire.define.conformance import report
from toolwire.define.functions import tool
from toolwire.protocol.tools import Tool


@tool(examples=[{"path": "a.txt"}], category="file")
def read(path: Annotated[str, "Where the file is."], lines: Annotated[int, "How many lines."] = 10) -> list[str]:
    """Read the first lines of a file."""
    return [path] * lines


def test_a_well_made_tool_has_nothing_to_report() -> None:
    assert report(read) == []


WITHOUT_REQUIRED = {"type": "object", "properties": {"a": {"type": "null", "description": "Nothing."}}}
WITHOUT_TYPE = {"type": "object", "properties": {"path": {"description": "Where."}}, "required": []}
WITHOUT_DESCRIPTION = {"type": "object", "properties": {"path": {"type": "string"}}, "required": []}


@pytest.mark.feature("F044")
@pytest.mark.feature("F045")
@pytest.mark.parametrize(
    ("change", "level", "where", "words"),
    [
        ({"name": "fs.read"}, "error", "name", "1 to 64 letters"),
        ({"description": ""}, "error", "description", "is empty"),
        ({"description": "x" * 2_000}, "warning", "description", "2000 characters"),
        ({"output_schema": None}, "warning", "output_schema", "is missing"),
        ({"input_schema": {"type": "array"}}, "error", "input_schema", '"type": "object"'),
        ({"input_schema": {"type": "object", "required": [1]}}, "error", "input_schema", "not a valid JSON Schema"),
        ({"output_schema": WITHOUT_REQUIRED}, "warning", "output_schema", "no required list"),
        ({"input_schema": WITHOUT_TYPE}, "error", "input_schema/properties/path", "has no type"),
        ({"input_schema": WITHOUT_DESCRIPTION}, "warning", "input_schema/properties/path", "has no description"),
        ({"examples": ({"lines": 3},)}, "error", "examples[0]", "missing 'path'"),
        ({"examples": ({"path": "a", "lines": "3"},)}, "error", "examples[0]", "read as 3"),
        ({"timeout_s": 50.0}, "error", "timeout_s", "no more than max_timeout_s"),
        ({"max_timeout_s": 10_000.0}, "warning", "max_timeout_s", "more than an hour"),
    ],
)
def test_each_shortcoming_is_reported_where_it_is(change: dict[str, Any], level: str, where: str, words: str) -> None:
    found = report(replace(read, **change))
    assert [(level, where)] == [(each.level, each.where) for each in found if words in each.message]


def test_errors_come_before_warnings() -> None:
    levels = [each.level for each in report(Tool("a b", "Short."))]
    assert levels == ["error", "warning", "warning"]
