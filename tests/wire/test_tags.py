"""Calls in tags: what a parameter's text means."""

import json
from typing import Any

import pytest

from toolwire.wire.reply import parse_reply

from .leaks import tool


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


FAMILIES = [
    "<tool_call>\n<function=put>\n<parameter=shelf>\nA\n</parameter>\n~<parameter=count>\n3\n</parameter>\n</function>",
    '<invoke name="put">\n<parameter name="shelf">A</parameter>\n~<parameter name="count">3</parameter>\n</invoke>',
    '<function name="put"><param name="shelf">A</param>~<param name="count">3</param></function>',
    "<tool_call>put\n<arg_key>shelf</arg_key><arg_value>A</arg_value>\n~<arg_key>count</arg_key><arg_value>3</arg_value>",
]


@pytest.mark.parametrize("marked", FAMILIES)
def test_a_text_that_ends_while_another_parameter_is_written_calls_nothing(marked: str) -> None:
    properties = {"shelf": {"type": "string"}, "count": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["shelf"]}
    tools = [{"type": "function", "function": {"name": "put", "parameters": schema}}]
    before, _, parameter = marked.partition("~")

    for end in range(1, parameter.index("3") + 1):
        reply = parse_reply(before + parameter[:end], tools)
        assert (reply.calls, [problem.code for problem in reply.problems]) == ((), ["truncated"]), parameter[:end]


END = "\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize("value", [f"cat <<E{END}\nE", "echo '</parameter></function></tool_call>' done"])
def test_a_value_that_holds_the_end_tags_of_its_own_format_is_never_run_cut_short(value: str) -> None:
    reply = parse_reply(f"<tool_call>\n<function=Bash>\n<parameter=command>\n{value}{END}", [tool("Bash", "command")])

    assert [bool(call.fault) for call in reply.calls] == [True]
    assert "end tags" in reply.calls[0].fault


def test_two_calls_in_tags_and_words_behind_them_are_two_calls() -> None:
    one = f"<tool_call>\n<function=Bash>\n<parameter=command>\nls{END}"
    reply = parse_reply(f"{one}\n{one}\nThat ends with </tool_call>.", [tool("Bash", "command")])

    assert [(call.arguments, call.fault) for call in reply.calls] == [({"command": "ls"}, "")] * 2
