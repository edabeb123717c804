"""Complete arguments of a native call with something behind them: they are read, and what follows is reported."""

import json
from typing import Any

import pytest

from toolwire.protocol.chat import Reply
from toolwire.wire.replies.reply import StreamParser, parse_reply

from .test_native import ADD

TAILS = [
    "<|im_end|>", "</s>", "\n</tool_call>", "\n```", " Done.", "<|eot_id|>", "<｜tool▁call▁end｜>", "}</tool_call>",
    "\n</tool_call>\n\nShall I go on?", "[/TOOL_CALLS]", ".", "<|im_end|", '\n</function>\n</tool_call><|im_end|>',
    "\n\nI called \"add\" for you.", "</s></s>\n",
]  # fmt: skip
ENDINGS = ["tool_calls", "stop", "length", None]


def read(arguments: str, ending: str | None, *, stream: bool) -> Reply:
    entry = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    if not stream:
        choice: dict[str, Any] = {"index": 0, "message": {"content": None, "tool_calls": [entry]}}
        return parse_reply({"choices": [choice | {"finish_reason": ending}]}, [ADD], "openai")
    parser = StreamParser([ADD], "openai")
    begun = entry | {"function": {"name": "add", "arguments": ""}}
    parser.feed({"choices": [{"delta": {"tool_calls": [begun]}}]})
    for letter in arguments:
        parser.feed({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": letter}}]}}]})
    parser.feed({"choices": [{"delta": {}, "finish_reason": ending}]})
    return parser.finish()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("tail", TAILS)
def test_a_tail_behind_complete_arguments_is_reported(tail: str, ending: str | None, stream: bool) -> None:
    reply = read('{"a": 40, "b": 2}' + tail, ending, stream=stream)

    assert [(call.name, call.arguments, call.fault) for call in reply.calls] == [("add", {"a": 40, "b": 2}, "")]
    assert [problem.code for problem in reply.problems] == ["repaired"]
    assert tail.strip(" \n}")[:10] in reply.problems[0].message.replace("\\n", "\n")


@pytest.mark.parametrize("tail", ["<|im_end|>", "</s>", "\n```"])
@pytest.mark.parametrize(
    "arguments", ["{'a': 40, 'b': 2,}", json.dumps('{"a": 40, "b": 2}'), '```json\n{"a": 40, "b": 2}']
)
def test_an_end_token_is_left_out_behind_arguments_with_a_slip(arguments: str, tail: str) -> None:
    reply = read(arguments + tail, "tool_calls", stream=False)

    assert [(call.arguments, call.fault) for call in reply.calls] == [({"a": 40, "b": 2}, "")]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": 40}, "b": 2}',
        '{"a": 40}"b": 2}',
        '{"a": "40"} or so", "b": 2}',
        '{"a": 40} ["b", 2]',
        '{"a": 40, "a": 41}</s>',
        "<|im_end|>",
    ],
)
def test_what_may_be_the_rest_of_the_arguments_is_no_tail(arguments: str) -> None:
    """An object that ended too early must not run without what followed it."""
    reply = read(arguments, "tool_calls", stream=False)

    assert [bool(call.fault) for call in reply.calls] == [True]


@pytest.mark.parametrize("ending", ["stop", "length"])
def test_arguments_that_are_cut_off_do_not_run_because_a_tag_stands_at_their_end(ending: str) -> None:
    reply = read('{"a": 40, "b": "see </b>', ending, stream=False)

    assert [call for call in reply.calls if call.arguments == {"a": 40}] == []


def test_glued_arguments_are_two_calls_with_a_tail_too() -> None:
    reply = read('{"a": 1, "b": 2}{"a": 3, "b": 4}</s>', "tool_calls", stream=False)

    assert [call.arguments for call in reply.calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
