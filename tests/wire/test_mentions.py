"""Markers that are spoken of are text; markers that are used, however oddly, are calls."""

from typing import Any

import pytest

from toolwire.wire.replies.reply import parse_reply

from .adversaries import TOOLS


def told(text: str) -> tuple[list[tuple[str, Any]], str, list[str]]:
    reply = parse_reply(text, TOOLS)
    problems = [problem.code for problem in reply.problems]
    return [(call.name, call.arguments) for call in reply.calls], reply.content, problems


@pytest.mark.parametrize(
    "text",
    [
        'Write `<function_calls> <invoke name="ping_sensor"> </invoke> </function_calls>` to do it.',
        "Write `<tool_call> <function=ping_sensor> </function> </tool_call>` to do it.",
        '> <tool_call>{"name": "ping_sensor", "arguments": {}}</tool_call>\n\nis what you sent me.',
        "Use <function=NAME> to call.",
        "Your template lacks [TOOL_CALLS].",
    ],
)
def test_a_marker_that_is_spoken_of_stays_text(text: str) -> None:
    assert told(text) == ([], text, [])


ROME = [("city_time", {"city": "Rome"})]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "city_time", "arguments": {}, "parameters": {"city": "Rome"}}</tool_call>',
        '```json\n{"name": "city_time", "arguments": {"city": "Rome"}}\n``',
        '<function="city_time"><parameter="city">Rome</parameter></function>',
        'city_time\r\n{"city": "Rome"}',
        "Action: city_time\nAction Input: `Rome`",
    ],
)
def test_a_call_with_a_slip_around_it_is_read(text: str) -> None:
    assert told(text) == (ROME, "", [])


@pytest.mark.parametrize("text", ["Action:\n```json\n{}\n```", "{}"])
def test_the_final_answer_of_a_structured_chat_is_what_the_user_reads(text: str) -> None:
    answer = '{"action": "Final Answer", "action_input": "It is 5."}'

    assert told(text.replace("{}", answer)) == ([], "It is 5.", [])


def test_a_message_to_a_tool_without_a_body_is_a_call_without_arguments() -> None:
    text = "<|channel|>commentary to=functions.ping_sensor <|constrain|>json<|message|><|call|>"

    assert told(text) == ([("ping_sensor", {})], "", [])


def test_an_unknown_tool_beside_a_known_one_is_told_and_stays_text() -> None:
    text = '<|tools_prefix|>[{"fly_away": {"to": "x"}}, {"city_time": {"city": "Rome"}}]<|tools_suffix|>'

    assert told(text) == (ROME, '{"name":"fly_away","arguments":{"to":"x"}}', ["unknown_tool"])


def test_an_opening_marker_behind_a_closed_call_is_a_call_that_was_cut_off() -> None:
    text = '<tool_call>{"name": "city_time", "arguments": {"city": "Rome"}}</tool_call>\n<tool_call>\n'

    assert told(text) == (ROME, "", ["truncated"])
