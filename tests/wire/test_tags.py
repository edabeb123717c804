"""Calls in tags: what a parameter's text means."""

import json
from typing import Any

import pytest

from toolwire.wire.reply import parse_reply


def keep(schema: dict[str, Any]) -> list[Any]:
    parameters = {"type": "object", "properties": {"value": schema}}
    return [{"type": "function", "function": {"name": "keep", "parameters": parameters}}]


@pytest.mark.parametrize("schema", [{"type": "object"}, {}], ids=["object", "open"])
@pytest.mark.parametrize(
    "value",
    [{"x": "null", 'a"q"1': "1"}, {"a": 'x"y', 'b"': 1}, {"k": 'a", "b": 2'}, {"deep": {"list": ["\n", "</x>"]}}],
)
def test_an_object_in_strict_json_is_what_it_says(schema: dict[str, Any], value: dict[str, Any]) -> None:
    text = (
        f"<tool_call>\n<function=keep>\n<parameter=value>\n{json.dumps(value)}\n</parameter>\n</function>\n</tool_call>"
    )

    [call] = parse_reply(text, keep(schema)).calls

    assert call.arguments == {"value": value}
