"""Replies in the providers' own formats."""

from typing import Any

import pytest

from toolwire.protocol.chat import CallDelta, Usage
from toolwire.wire.replies.reply import StreamParser, parse_reply

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


def completion(arguments: Any, name: str = "add", alias: Any = "call_1", reason: str = "tool_calls") -> dict[str, Any]:
    call = {"id": alias, "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}
    return {"model": "m", "choices": [{"message": message, "finish_reason": reason}], "usage": usage}


@pytest.mark.feature("F088")
@pytest.mark.feature("F101")
def test_a_native_call_comes_with_its_wire_id_usage_and_finish_reason() -> None:
    reply = parse_reply(completion('{"a": 40, "b": 2}'), tools=[ADD])

    [call] = reply.calls
    assert (call.name, call.arguments, call.alias, call.id) == ("add", {"a": 40, "b": 2}, "call_1", "")
    assert reply.usage == Usage(11, 7, 4)
    assert (reply.finish_reason, reply.model) == ("tool_calls", "m")


@pytest.mark.feature("F099")
@pytest.mark.parametrize("written", ['{"a": 40, "b": 2}', {"a": 40, "b": 2}, '"{\\"a\\": 40, \\"b\\": 2}"'])
def test_arguments_may_be_text_an_object_or_text_in_text(written: Any) -> None:
    assert parse_reply(completion(written), tools=[ADD]).calls[0].arguments == {"a": 40, "b": 2}


def test_arguments_beyond_reading_give_a_call_with_a_fault() -> None:
    """We chose it: the model hears why, the tool never runs."""
    reply = parse_reply(completion("a is forty, b is two"), tools=[ADD])

    assert reply.calls[0].fault
    assert [problem.code for problem in reply.problems] == ["malformed"]


def test_a_call_cut_off_by_the_length_limit_is_reported_and_never_made() -> None:
    reply = parse_reply(completion('{"a": 40, "b": 2', reason="length"), tools=[ADD])

    assert reply.calls == ()
    assert [problem.code for problem in reply.problems] == ["truncated"]


@pytest.mark.feature("F103")
def test_argument_fragments_are_shown_as_they_come_and_joined_at_the_end() -> None:
    parser = StreamParser(tools=[ADD])
    entries = [
        {"index": 0, "id": "call_1", "function": {"name": "add", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a": 4'}},
        {"index": 0, "function": {"arguments": '0, "b": 2}'}},
    ]
    shown = [delta for entry in entries for delta in parser.feed({"choices": [{"delta": {"tool_calls": [entry]}}]})]

    assert shown == [CallDelta(0, "add"), CallDelta(0, "", '{"a": 4'), CallDelta(0, "", '0, "b": 2}')]
    assert parser.finish().calls[0].arguments == {"a": 40, "b": 2}


@pytest.mark.feature("F087")
def test_thinking_is_kept_apart_and_its_signature_goes_back_unchanged() -> None:
    blocks = [
        {"type": "thinking", "thinking": "Forty and two.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "AAAA"},
        {"type": "text", "text": "Adding."},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 40, "b": 2}},
    ]
    reply = parse_reply({"type": "message", "content": blocks, "stop_reason": "tool_use"}, tools=[ADD])

    assert (reply.reasoning, reply.content) == ("Forty and two.", "Adding.")
    assert reply.carry == {"provider": "anthropic", "items": blocks[:2]}


def test_a_streamed_signature_is_kept_like_a_whole_one() -> None:
    parser = StreamParser()
    for event in (
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
    ):
        parser.feed(event)

    assert parser.finish().carry == {
        "provider": "anthropic",
        "items": [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}],
    }
