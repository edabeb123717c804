"""Calls in tags: what a parameter's text means."""

import json
from typing import Any

import pytest

from toolwire.protocol.chat import CallDelta, Reply, TextDelta
from toolwire.wire.replies.reply import StreamParser, parse_reply

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


OWN_ENDS = [
    f"cat <<E{END}\nE",
    "echo '</parameter></function></tool_call>' done",
    "a </parameter> b </function></tool_call> c",
    f"one{END}\n\ntwo{END}\nthree",
]


@pytest.mark.parametrize("value", OWN_ENDS)
@pytest.mark.parametrize("size", [0, 1, 4])
def test_B4_a_value_with_the_end_tags_of_its_own_format_goes_up_to_the_last_of_them(value: str, size: int) -> None:
    text = f"<tool_call>\n<function=Bash>\n<parameter=command>\n{value}{END}"
    reply, shown, arguments = _streamed(text, size or len(text))

    assert reply == parse_reply(text, [tool("Bash", "command")])
    assert [(call.arguments, call.fault) for call in reply.calls] == [({"command": value}, "")]
    assert (shown.strip(), reply.content) == ("", "")
    assert json.dumps({"command": value}, separators=(",", ":")).startswith(arguments)


def _streamed(text: str, size: int) -> tuple[Reply, str, str]:
    parser = StreamParser([tool("Bash", "command")])
    deltas = [delta for at in range(0, len(text), size) for delta in parser.feed(text[at : at + size])]
    words = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    return parser.finish(), words, "".join(delta.arguments for delta in deltas if isinstance(delta, CallDelta))


AMBIGUOUS = [
    f"cat <<E\n<tool_call>\n<function=Bash>\n<parameter=command>\nls{END}\nE",
    f"cat <<E{END}\n{'many words ' * 40}",
]


@pytest.mark.parametrize("value", AMBIGUOUS)
def test_a_value_that_may_end_in_several_places_is_never_run_cut_short(value: str) -> None:
    text = f"<tool_call>\n<function=Bash>\n<parameter=command>\n{value}{END}"
    reply = parse_reply(text, [tool("Bash", "command")])

    assert [call.arguments for call in reply.calls if not call.fault] == []


def test_two_calls_in_tags_and_words_behind_them_are_two_calls() -> None:
    one = f"<tool_call>\n<function=Bash>\n<parameter=command>\nls{END}"
    reply = parse_reply(f"{one}\n{one}\nThat ends with </tool_call>.", [tool("Bash", "command")])

    assert [(call.arguments, call.fault) for call in reply.calls] == [({"command": "ls"}, "")] * 2
