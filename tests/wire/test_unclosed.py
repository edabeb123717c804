"""Beginnings of calls: without arguments and without an end they call nothing, however many and whatever the tool."""

import re

import pytest

from toolwire.protocol.chat import Reply
from toolwire.wire.replies.reply import StreamParser, parse_reply

from .adversaries import TEXT, tool

TOOLS = [tool("now", {}, []), tool("note", {"text": TEXT}, [])]
HARMONY = "<|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>"
DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n"
# Each beginning with the end that makes it a call.
BEGINNINGS = {
    "<function=now>": "</function>",
    "<tool_call>\n<function=now>\n": "</function>\n</tool_call>",
    "<seed:tool_call><function=now>": "</function></seed:tool_call>",
    "<function=now>{": "}</function>",
    '<invoke name="now">': "</invoke>",
    '<function_calls>\n<invoke name="now">': "</invoke>\n</function_calls>",
    '<minimax:tool_call><invoke name="now">': "</invoke></minimax:tool_call>",
    '<｜DSML｜invoke name="now">': "</｜DSML｜invoke>",
    '<function name="now">': "</function>",
    "<tool_call>now": "</tool_call>",
    "<tool_call>now\n": "</tool_call>",
    "<now>": "</now>",
    "<tool_use><name>now</name>": "</tool_use>",
    '<tool_call>{"name": "now"': "}</tool_call>",
    '<tool_call>{"name": "now", "arguments": {': "}}</tool_call>",
    "[TOOL_CALLS]now": "{}",
    "[TOOL_CALLS]now[ARGS]": "{}",
    '[TOOL_CALLS] [{"name": "now"': "}]",
    '<|tool_call|>[{"name": "now"': "}]",
    '{"name": "now"': ', "arguments": {}}',
    "Action: now\n": "Observation: ",
    "now(": ")",
    "[now(": ")]",
    "```tool_code\nnow(": ")\n```",
    '```json\n{"name": "now"': ', "arguments": {}}\n```',
    "<|python_tag|>now.call(": ")",
    HARMONY: "<|call|>",
    HARMONY + "{": "}<|call|>",
    DEEPSEEK: "```json\n{}\n```<｜tool▁call▁end｜>",
    "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>": "{}<|tool_call_end|>",
    '<|open|>call tool="now"<|sep|>': "<|close|>call<|sep|>",
    "✿FUNCTION✿: now\n": "✿ARGS✿: {}",
}
REASONS = (None, "stop", "length")


def streamed(text: str, reason: str | None) -> Reply:
    parser = StreamParser(TOOLS, finish_reason=reason)
    for at in range(0, len(text), 7):
        parser.feed(text[at : at + 7])
    return parser.finish()


def runnable(reply: Reply) -> list[str]:
    return [call.name for call in reply.calls if not call.fault]


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("begin", BEGINNINGS, ids=lambda begin: begin.strip().replace("\n", " "))
def test_T97_a_call_that_only_begins_is_never_run(begin: str, reason: str | None) -> None:
    for count in (1, 2, 5, *(() if reason else (3_000,))):  # a flood is one whatever reason it has to end
        whole = parse_reply(begin * count, TOOLS, finish_reason=reason)
        parts = streamed(begin * count, reason)

        assert runnable(whole) == runnable(parts) == []
        assert whole.problems == parts.problems
    assert parse_reply(begin, TOOLS, finish_reason=reason).problems[0].code == "truncated"


@pytest.mark.contrast("T97")
@pytest.mark.parametrize("begin", BEGINNINGS, ids=lambda begin: begin.strip().replace("\n", " "))
def test_the_same_beginning_with_its_end_is_a_call(begin: str) -> None:
    text = begin + BEGINNINGS[begin]

    assert runnable(parse_reply(text, TOOLS, finish_reason="stop")) == ["now"]
    assert runnable(streamed(text, "stop")) == ["now"]


FLOODS = ['<tool_call>{"name": "now", "arguments": {', '<tool_call>{"name": "now", "arguments": {}}', "<function=now>"]


@pytest.mark.parametrize("begin", FLOODS)
def test_T97_a_flood_of_unclosed_tags_calls_nothing(begin: str) -> None:
    reply = parse_reply(begin * 150_000, TOOLS)

    assert runnable(reply) == []
    assert "truncated" in {problem.code for problem in reply.problems}
    assert len(reply.problems) < 10_000


def test_T97_control_a_reader_that_takes_the_end_of_the_text_for_an_end_tag_finds_a_call() -> None:
    lenient = re.compile(r'<tool_call>\{"name": "(\w+)".*?(?:</tool_call>|\Z)', re.DOTALL)

    assert lenient.findall(FLOODS[0]) == ["now"]


@pytest.mark.parametrize("count", [1, 3])
def test_complete_arguments_without_an_end_still_call(count: int) -> None:
    """The arguments show by themselves that they are all there."""
    for text in ('<tool_call>{"name": "note", "arguments": {"text": "a"}}', '<function=note>{"text": "a"}'):
        assert runnable(parse_reply(text * count, TOOLS)) == ["note"] * count


OPTIONAL = [tool("remove", {"path": TEXT, "dry_run": {"type": "boolean"}}, ["path"]), *TOOLS]
M3 = "]<]minimax[>["
# A call of `remove` as far as its first parameter, and how its second one goes on and everything ends.
FIRST_PARAMETERS = {
    "<function=remove><parameter=path>a</parameter>": "<parameter=dry_run>true</parameter></function>",
    "<tool_call>\n<function=remove>\n<parameter=path>\na\n</parameter>\n": (
        "<parameter=dry_run>true</parameter>\n</function>\n</tool_call>"
    ),
    '<invoke name="remove"><parameter name="path">a</parameter>': (
        '<parameter name="dry_run">true</parameter></invoke>'
    ),
    '<function name="remove"><param name="path">a</param>': '<param name="dry_run">true</param></function>',
    '<｜DSML｜invoke name="remove"><｜DSML｜parameter name="path">a</｜DSML｜parameter>': (
        '<｜DSML｜parameter name="dry_run">true</｜DSML｜parameter></｜DSML｜invoke>'
    ),
    "<tool_call>remove<arg_key>path</arg_key><arg_value>a</arg_value>": (
        "<arg_key>dry_run</arg_key><arg_value>true</arg_value></tool_call>"
    ),
    "<remove><path>a</path>": "<dry_run>true</dry_run></remove>",
    "<tool_use><name>remove</name><path>a</path>": "<dry_run>true</dry_run></tool_use>",
    f'{M3}<invoke name="remove">{M3}<path>a{M3}</path>': f"{M3}<dry_run>true{M3}</dry_run>{M3}</invoke>",
    '<|open|>call tool="remove"<|sep|><|open|>argument key="path" type="string"<|sep|>a<|close|>argument<|sep|>': (
        '<|open|>argument key="dry_run"<|sep|>true<|close|>argument<|sep|><|close|>call<|sep|>'
    ),
}


@pytest.mark.parametrize("rest", ["", "\n"])
@pytest.mark.parametrize("begin", FIRST_PARAMETERS)
def test_T97_a_call_in_tags_that_was_cut_before_an_optional_parameter_is_never_run(begin: str, rest: str) -> None:
    reply = parse_reply(begin + rest, OPTIONAL, finish_reason="length")

    assert runnable(reply) == []
    assert [problem.code for problem in reply.problems] == ["truncated"]


@pytest.mark.contrast("T97")
@pytest.mark.parametrize("begin", FIRST_PARAMETERS)
def test_a_call_in_tags_with_all_required_parameters_lacks_only_its_end(begin: str) -> None:
    """Rule R6 of the catalogue: models leave the end out, and say by their reason to stop that nothing was cut."""
    assert runnable(parse_reply(begin, OPTIONAL, finish_reason="stop")) == ["remove"]


@pytest.mark.contrast("T97")
@pytest.mark.parametrize("begin", FIRST_PARAMETERS)
def test_the_same_call_with_its_end_is_run(begin: str) -> None:
    [call] = parse_reply(begin + FIRST_PARAMETERS[begin], OPTIONAL, finish_reason="stop").calls

    assert (call.name, call.arguments) == ("remove", {"path": "a", "dry_run": True})


@pytest.mark.contrast("T97")
def test_a_call_in_tags_that_has_every_parameter_lacks_only_its_end() -> None:
    tags = "<tool_call>\n<function=note>\n<parameter=text>\na\n</parameter>\n"

    assert runnable(parse_reply(tags, TOOLS)) == ["note"]
    assert runnable(parse_reply(tags, TOOLS, finish_reason="length")) == []


@pytest.mark.parametrize("written", ["", " ", None])
@pytest.mark.parametrize(("reason", "calls"), [("length", []), ("tool_calls", ["now"])])
def test_T97_a_native_call_cut_off_before_its_arguments_is_never_run(
    written: str | None, reason: str, calls: list[str]
) -> None:
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "now", "arguments": written}}
    whole = {"choices": [{"index": 0, "finish_reason": reason, "message": {"content": None, "tool_calls": [call]}}]}
    chunk = {"choices": [{"index": 0, "finish_reason": reason, "delta": {"tool_calls": [call]}}]}
    parser = StreamParser(TOOLS, "openai")
    parser.feed(chunk)

    assert runnable(parse_reply(whole, TOOLS, "openai")) == runnable(parser.finish()) == calls
