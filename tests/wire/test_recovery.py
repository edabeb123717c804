"""Slips that real models make around one tool, `add(a, b)`: which of them still run, and what is said about them."""

import json
from typing import Any

import pytest

from toolwire.protocol.chat import Reply
from toolwire.wire.reply import StreamParser, parse_reply

from .test_native import ADD, completion

SUM = {"a": 40, "b": 2}
CALL = json.dumps({"name": "add", "arguments": SUM})
DEEPSEEK = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
    + json.dumps(SUM)
    + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
QWEN = """<tool_call>
<function=add>
<parameter=a>
40
</parameter>
<parameter=b>
2
</parameter>
</function>
</tool_call>"""
CLAUDE = """<function_calls>
<invoke name="add">
<parameter name="a">40</parameter>
<parameter name="b">2</parameter>
</invoke>
</function_calls>"""
BREADCRUMB = {
    "action": "create",
    "breadcrumb": {
        "schema_name": "agent.response.v1",
        "context": {
            "message": "Adding",
            "tool_requests": [{"tool": "add", "input": SUM, "requestId": "add-001", "return_to_llm": True}],
        },
    },
}
RUNS: dict[str, Any] = {
    "n00": completion('{"a": 40, "b": 2}'),
    "n01": completion('{"a": 40, "b": 2,}'),
    "n02": completion("{'a': 40, 'b': 2}"),
    "n03": completion('{"a": 40, "b": 2'),
    "n04": completion('"{\\"a\\": 40, \\"b\\": 2}"'),
    "n05": completion('{"a": "40", "b": "2"}'),
    "n06": completion('{"a": 40, "b": 2}', name="Add"),
    "n07": completion('{"a": 40, "b": 2}', name="functions.add"),
    "n09": completion('{"arguments": {"a": 40, "b": 2}}'),
    "n10": completion('{"a": 40, "b": 2}', alias=""),
    "n14": completion('```json\n{"a": 40, "b": 2}\n```'),
    "t01": f"I will add.\n<tool_call>\n{CALL}\n</tool_call>",
    "t02": QWEN,
    "t03": f"<tool_use>{CALL}</tool_use>",
    "t04": f"<function_call>{CALL}</function_call>",
    "t05": f"```json\n{CALL}\n```",
    "t06": CALL,
    "t07": f"[TOOL_CALLS][{CALL}]",
    "t08": '<|python_tag|>{"name": "add", "parameters": {"a": 40, "b": 2}}',
    "t09": DEEPSEEK,
    "t10": CLAUDE,
    "t11": json.dumps(BREADCRUMB),
    "t12": f"<tools>{CALL}</tools>",
}


def codes(reply: Reply) -> set[str]:
    return {problem.code for problem in reply.problems}


@pytest.mark.feature("F100")
@pytest.mark.parametrize("slip", RUNS)
def test_a_slip_that_leaves_no_doubt_still_runs(slip: str) -> None:
    reply = parse_reply(RUNS[slip], tools=[ADD])

    assert [(call.name, call.arguments, call.fault) for call in reply.calls] == [("add", SUM, "")]


@pytest.mark.parametrize("slip", ["n01", "n02", "n03", "n04", "n05", "n06", "n07", "n09", "n14"])
def test_what_was_repaired_is_said(slip: str) -> None:
    assert "repaired" in codes(parse_reply(RUNS[slip], tools=[ADD]))


@pytest.mark.parametrize("slip", [name for name in RUNS if name.startswith("t")])
def test_the_same_text_one_character_at_a_time_gives_the_same_reply(slip: str) -> None:
    parser = StreamParser(tools=[ADD])
    for character in RUNS[slip]:
        parser.feed(character)

    assert parser.finish() == parse_reply(RUNS[slip], tools=[ADD])


def test_a_cut_off_call_does_not_run_when_the_length_limit_cut_it() -> None:
    reply = parse_reply(completion('{"a": 40, "b": 2', reason="length"), tools=[ADD])

    assert (reply.calls, codes(reply)) == ((), {"truncated"})


def test_an_invented_tool_is_kept_so_that_the_model_can_be_told() -> None:
    reply = parse_reply(completion('{"a": 40, "b": 2}', name="sum_numbers"), tools=[ADD])

    assert [call.name for call in reply.calls] == ["sum_numbers"]
    assert "unknown_tool" in codes(reply)


@pytest.mark.parametrize("written", ['{"a": 40, "b": 2, "note": "x"}', '{"a": 40}'])
def test_arguments_that_do_not_fit_are_kept_as_written_and_reported(written: str) -> None:
    reply = parse_reply(completion(written), tools=[ADD])

    assert reply.calls[0].arguments == json.loads(written)
    assert "invalid_arguments" in codes(reply)


def test_two_native_calls_with_one_id_stay_two_calls_with_that_alias() -> None:
    """We chose it: telling repeats apart needs the record, which belongs to the runtime."""
    response = completion('{"a": 40, "b": 2}')
    response["choices"][0]["message"]["tool_calls"] *= 2

    assert [call.alias for call in parse_reply(response, tools=[ADD]).calls] == ["call_1", "call_1"]
