"""Which calls count: native first, then marked blocks, then JSON that fits a tool; a mention is never a call."""

import json
from typing import Any

import pytest

from toolwire.protocol.chat import Reply
from toolwire.protocol.tools import Tool
from toolwire.wire.replies.reply import parse_reply

from .test_native import ADD, completion

SUM = {"a": 40, "b": 2}
CALL = json.dumps({"name": "add", "arguments": SUM})


def read(text: str, *tools: Any) -> Reply:
    return parse_reply(text, tools=tools or (ADD,))


def codes(reply: Reply) -> set[str]:
    return {problem.code for problem in reply.problems}


def with_text(text: str) -> dict[str, Any]:
    response = completion(json.dumps(SUM))
    response["choices"][0]["message"]["content"] = text
    return response


@pytest.mark.contrast("T7")
@pytest.mark.feature("F089")
@pytest.mark.feature("F090")
@pytest.mark.parametrize("tag", ["tool_use", "tools", "function_call", "tool_call"])
def test_json_in_a_tag_is_a_call_and_leaves_the_visible_text(tag: str) -> None:
    reply = read(f"Adding.\n<{tag}>{CALL}</{tag}>\nOne moment.")

    assert [call.arguments for call in reply.calls] == [SUM]
    assert reply.content.split() == ["Adding.", "One", "moment."]


@pytest.mark.feature("F091")
def test_plain_json_is_a_call_only_when_it_fits_an_offered_tool() -> None:
    stranger = json.dumps({"name": "Debate 4", "arguments": {"for": ["cheaper"]}})

    assert [call.name for call in read(CALL).calls] == ["add"]
    assert (read(stranger).calls, read(stranger).content) == ((), stranger)


@pytest.mark.feature("F092")
@pytest.mark.parametrize("text", ["I will use the add tool with 40 and 2.", "Let me call add(a, b) for that."])
def test_a_mere_mention_is_no_call_but_is_reported_so_that_the_model_can_be_asked(text: str) -> None:
    reply = read(text)

    assert (reply.calls, reply.content) == ((), text)
    assert "mentioned" in codes(reply)


def test_an_answer_that_merely_contains_a_tools_name_is_not_reported() -> None:
    assert codes(read("You can add salt to taste.")) == set()


@pytest.mark.threat("T8")
@pytest.mark.feature("F094")
@pytest.mark.feature("F096")
def test_a_call_in_text_that_repeats_a_native_one_is_the_same_call() -> None:
    reply = parse_reply(with_text(f"Doing it. <tool_call>{CALL}</tool_call>"), tools=[ADD])

    assert [(call.format, call.arguments) for call in reply.calls] == [("native", SUM)]
    assert reply.content == "Doing it."


@pytest.mark.contrast("T8")
@pytest.mark.feature("F095")
def test_a_different_call_in_text_is_kept_after_the_native_ones() -> None:
    other = json.dumps({"name": "add", "arguments": {"a": 1, "b": 1}})
    reply = parse_reply(with_text(f"<tool_call>{other}</tool_call>"), tools=[ADD])

    assert [call.format for call in reply.calls] == ["native", "hermes"]
    assert [call.position for call in reply.calls] == [0, 1]


def test_two_equal_calls_in_one_source_are_two_calls() -> None:
    assert len(read(f"<tool_call>{CALL}</tool_call>" * 2).calls) == 2


@pytest.mark.feature("F098")
def test_text_without_calls_comes_back_unchanged() -> None:
    text = "  Two lines,\n\tand <b>some</b> {braces}.\n"

    assert read(text).content == text


@pytest.mark.threat("T10")
@pytest.mark.feature("F115")
@pytest.mark.parametrize("wrap", ["<tool_call>{}</tool_call>", "[TOOL_CALLS][{}]", "```json\n{}\n```", "{}"])
def test_no_format_can_call_a_tool_that_was_not_offered(wrap: str) -> None:
    locked = json.dumps({"name": "erase_disk", "arguments": {}})

    assert read(wrap.replace("{}", locked)).calls == ()


QUOTED = [
    "To add, the client sends\n\n```json\n{}\n```\n\nand waits.",
    "For example:\n\n```json\n{}\n```",
    "The format is `<tool_call>{}</tool_call>`.",
    "```xml\n<tool_call>{}</tool_call>\n```\nThat is how Qwen writes it.",
    "It would look like this:\n{}\nNothing has been run.",
]


@pytest.mark.threat("T7")
@pytest.mark.parametrize("template", QUOTED)
def test_a_quoted_call_is_text(template: str) -> None:
    text = template.replace("{}", CALL)

    assert (read(text).calls, read(text).content) == ((), text)


@pytest.mark.threat("T7")
def test_an_echoed_definition_is_no_call() -> None:
    definition = json.dumps(ADD)

    assert read(f"<tools>{definition}</tools>").calls == ()


@pytest.mark.feature("F011")
@pytest.mark.feature("F012")
def test_a_call_in_text_has_no_id_and_keeps_its_original() -> None:
    [call] = read(f"<tool_call>{CALL}</tool_call>").calls

    assert (call.id, call.alias) == ("", None)
    assert CALL in call.raw


@pytest.mark.feature("F104")
def test_the_original_response_is_kept() -> None:
    response = completion(json.dumps(SUM))

    assert parse_reply(response, tools=[ADD]).raw is response


def test_tools_may_be_tool_values() -> None:
    tool = Tool("add", "Add two numbers.", ADD["function"]["parameters"])  # type: ignore[index]

    assert [call.arguments for call in read(CALL, tool).calls] == [SUM]


def test_an_sdk_object_is_read_like_the_json_it_stands_for() -> None:
    class Response:
        def model_dump(self) -> dict[str, Any]:
            return completion(json.dumps(SUM))

    assert [call.arguments for call in parse_reply(Response(), tools=[ADD]).calls] == [SUM]


@pytest.mark.feature("F097")
def test_a_block_of_prose_in_a_tag_stays_text() -> None:
    assert read("<tools>not json</tools>").content == "<tools>not json</tools>"
