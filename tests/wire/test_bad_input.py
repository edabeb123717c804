"""Hostile and broken input: a typed reply, bounded work, never an exception."""

import json
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from toolwire.protocol.chat import Reply
from toolwire.wire.replies.reply import StreamParser, parse_reply

from .adversaries import CALL, GENERATORS, TOOLS
from .fuzzing import broken_response, broken_text
from .test_native import ADD, completion

PROVIDERS = ["auto", "openai", "openai_responses", "anthropic", "gemini", "ollama", "bedrock", "cohere", "mistral"]


def codes(reply: Reply) -> set[str]:
    return {problem.code for problem in reply.problems}


def steps(work: Callable[[], object]) -> int:
    """How many calls, of Python and of C, a piece of work makes: the same on every machine."""
    count = 0

    def tally(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tally)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def stream(text: str, size: int = 64) -> Reply:
    parser = StreamParser(TOOLS)
    for at in range(0, len(text), size):
        parser.feed(text[at : at + size])
    return parser.finish()


@pytest.mark.threat("T1")
@pytest.mark.feature("F218")
@pytest.mark.parametrize("name", GENERATORS)
def test_four_times_the_hostile_text_takes_about_four_times_the_steps(name: str) -> None:
    small, large = (GENERATORS[name](size) for size in (6_000, 24_000))
    parse_reply(large, TOOLS)

    allowance = 60_000  # the work that is allowed before it depends on the size
    assert steps(lambda: parse_reply(large, TOOLS)) <= 5 * steps(lambda: parse_reply(small, TOOLS)) + allowance


def native_calls(many: int, *, ids: int) -> dict[str, Any]:
    """A response with so many different calls under so many ids."""
    written = [{"name": "put_config", "arguments": json.dumps({"key": "k", "value": [at]})} for at in range(many)]
    calls = [{"id": f"c{at % ids}", "type": "function", "function": each} for at, each in enumerate(written)]
    return {"choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": calls}}]}


@pytest.mark.threat("T1")
@pytest.mark.parametrize("ids", [1, 10_000])
def test_four_times_the_native_calls_take_about_four_times_the_steps(ids: int) -> None:
    small, large = native_calls(200, ids=ids), native_calls(800, ids=ids)
    parse_reply(small, TOOLS)

    assert steps(lambda: parse_reply(large, TOOLS)) <= 5 * steps(lambda: parse_reply(small, TOOLS))
    assert len(parse_reply(large, TOOLS).calls) == 800


@pytest.mark.threat("T15")
@pytest.mark.parametrize("name", GENERATORS)
def test_a_hostile_stream_gives_the_same_reply_as_the_whole(name: str) -> None:
    text = GENERATORS[name](4_000)

    assert repr(stream(text)) == repr(parse_reply(text, TOOLS))


@pytest.mark.feature("F267")
def test_thousands_of_broken_texts_give_a_reply_each_and_streams_agree() -> None:
    dice = random.Random(20310211)
    for _ in range(3_000):
        text = broken_text(dice)
        reply = parse_reply(text, TOOLS)
        assert repr(stream(text, dice.randrange(1, 40))) == repr(reply), text


@pytest.mark.feature("F267")
def test_thousands_of_broken_responses_give_a_reply_each() -> None:
    dice = random.Random(4242)
    for _ in range(3_000):
        response, provider = broken_response(dice), dice.choice(PROVIDERS)
        parser = StreamParser(TOOLS, provider)
        for piece in response if isinstance(response, list) else [response]:
            parser.feed(piece)
        parser.finish()
        parse_reply(response, TOOLS, provider)


DEEP = '{"name": "put_config", "arguments": {"key": "k", "value": ' + "[" * 100_000 + "]" * 100_000 + "}}"


@pytest.mark.threat("T2")
def test_a_hundred_thousand_levels_are_refused() -> None:
    reply = parse_reply(f"<tool_call>{DEEP}</tool_call>", TOOLS)

    assert (reply.calls, codes(reply)) == ((), {"malformed"})


@pytest.mark.threat("T2", "T3")
@pytest.mark.parametrize("written", ['{"a": ' + "9" * 100_000 + ', "b": 1}', "[" * 100_000, '{"a": 1e999, "b": 2}'])
def test_numbers_and_nesting_beyond_reason_give_a_call_with_a_fault(written: str) -> None:
    reply = parse_reply(completion(written), tools=[ADD])

    assert reply.calls[0].fault
    assert "malformed" in codes(reply)


@pytest.mark.threat("T3", "T5")
@pytest.mark.parametrize("written", ['{"a": NaN, "b": 2}', '{"a": "\\ud800", "b": 2}', '{"a": "\\u0000", "b": 2}'])
def test_values_that_are_no_integers_are_reported(written: str) -> None:
    assert codes(parse_reply(completion(written), tools=[ADD])) & {"invalid_arguments", "malformed"}


def test_an_integer_of_thirty_digits_keeps_them_all() -> None:
    reply = parse_reply(completion('{"a": 123456789012345678901234567890, "b": 2}'), tools=[ADD])

    assert reply.calls[0].arguments["a"] == 123456789012345678901234567890


TWICE = [
    completion('{"a": 1, "a": 40, "b": 2}'),
    completion('{"a": 1, "a" : 40, "b": 2}'),
    completion('{"\\u0061": 1, "a": 40, "b": 2}'),
    completion("{'a': 1, 'a': 40, 'b': 2}"),
    completion('{"a": 1, "b": {"c": ":\\"", "d": 1, "d": "\\":"}}'),
    '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2, "a": 40}}</tool_call>',
    '<tool_call>{"name": "nope", "arguments": {"a": 1, "b": 2}, "name": "add"}</tool_call>',
    '```json\n{"name": "add", "arguments": {"a": 1, "b": 2, "a": 40}}\n```',
    '{"name": "add", "arguments": {"a": 1, "b": 2, "a": 40}}',
    '[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2, "a": 40}',
    'Action: add\nAction Input: {"a": 1, "b": 2, "a": 40}',
    "<|tool_call>call:add{a:1,b:2,a:40}<tool_call|>",
    "<function=add><parameter=a>1</parameter><parameter=b>2</parameter><parameter=a>40</parameter></function>",
    "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key><arg_value>2</arg_value>"
    "<arg_key>a</arg_key><arg_value>40</arg_value></tool_call>",
]


@pytest.mark.threat("T4")
@pytest.mark.parametrize("response", TWICE)
def test_a_call_with_a_key_that_stands_twice_is_answered_and_never_run(response: Any) -> None:
    """We chose it: a check of the first key must not be led past by the last one."""
    reply = parse_reply(response, tools=[ADD])

    assert "stands twice" in reply.calls[0].fault
    assert (len(reply.calls), codes(reply)) == (1, {"malformed"})


@pytest.mark.threat("T4")
def test_what_only_looks_like_a_key_inside_a_text_is_not_counted() -> None:
    written = '{"a": 1, "b": 2, "note": "{\\"a\\": 1, \\"a\\" : 2}: \\\\"}'

    assert parse_reply(completion(written), tools=[ADD]).calls[0].fault == ""


@pytest.mark.threat("T13")
def test_too_many_calls_are_cut_off_with_a_word() -> None:
    reply = parse_reply(f"<tool_call>{CALL}</tool_call>" * 10_000, TOOLS)

    assert len(reply.calls) == 4_096
    assert codes(reply) == {"too_many_calls"}


@pytest.mark.threat("T1")
def test_ten_million_characters_of_opening_tags_stay_text() -> None:
    text = "<tool_call>" * 909_091

    reply = parse_reply(text, TOOLS)

    assert (reply.calls, reply.content) == ((), text)


@pytest.mark.threat("T5")
def test_bytes_that_are_not_text_are_read_as_far_as_they_are() -> None:
    reply = parse_reply(b"\xff\xfe " + f"<tool_call>{CALL}</tool_call>".encode(), TOOLS)

    assert [call.name for call in reply.calls] == ["city_time"]


class Endless:
    """An object that contains itself."""

    def __init__(self) -> None:
        self.choices = [self]
        self.message = self


@pytest.mark.parametrize("response", [None, 5, [], [1], {}, Endless(), object(), "", "\x00", b""])
def test_what_is_no_response_gives_an_empty_reply(response: Any) -> None:
    assert parse_reply(response, TOOLS).calls == ()


@pytest.mark.parametrize(
    "written",
    [
        '<tool_call>\n{"name":"count","arguments":{"n":%s}}\n</tool_call>',
        '```json\n{"name":"count","arguments":{"n":%s}}\n```',
        '{"name":"count","arguments":{"n":%s}}',
        "<function=count><parameter=n>%s</parameter></function>",
        "[count(n=%s)]",
    ],
)
@pytest.mark.parametrize("number", [2**63, 2**64 + 1, 10**20 + 7, 10**300 + 1])
def test_an_integer_of_any_length_keeps_all_its_digits(written: str, number: int) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "count", "parameters": schema}}]
    [call] = parse_reply(written % number, tools=tools).calls
    assert call.arguments == {"n": number}
    assert isinstance(call.arguments["n"], int)
