"""What providers and the servers that imitate them really send: half calls, repeated text, several answers at once."""

from typing import Any

import pytest

from toolwire.protocol.chat import Reply
from toolwire.wire.replies.reply import StreamParser, parse_reply

from .test_native import ADD, completion

SUM = {"a": 40, "b": 2}
NOTE = {"type": "function", "function": {"name": "note", "parameters": {"properties": {"text": {"type": "string"}}}}}


def streamed(events: list[Any], provider: str) -> Reply:
    parser = StreamParser(tools=[ADD, NOTE], provider=provider)
    for event in events:
        parser.feed(event)
    return parser.finish()


def codes(reply: Reply) -> list[str]:
    return [problem.code for problem in reply.problems]


def part(call: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [{"functionCall": call}]}, "finishReason": reason}]}


def chunk(delta: dict[str, Any], reason: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason} | more]}


def item_done(at: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


@pytest.mark.parametrize("ending", [[], [{"candidates": [{"finishReason": "MAX_TOKENS"}]}]])
def test_a_gemini_call_that_was_to_continue_is_not_made_with_half_a_text(ending: list[Any]) -> None:
    piece = {"jsonPath": "$.text", "stringValue": "buy mi", "willContinue": True}
    reply = streamed(
        [part({"name": "note", "willContinue": True}), part({"partialArgs": [piece], "willContinue": True}), *ending],
        "gemini",
    )

    assert (reply.calls, codes(reply)) == ((), ["truncated"])


def test_a_context_that_is_full_cuts_a_call_off_as_a_token_limit_does() -> None:
    use = {"type": "tool_use", "id": "t", "name": "add", "input": {}}
    message = {"type": "message", "content": [use], "stop_reason": "model_context_window_exceeded"}

    reply = parse_reply(message, tools=[ADD])

    assert (reply.calls, codes(reply)) == ((), ["truncated"])


def test_a_stream_that_breaks_off_before_the_arguments_makes_no_call() -> None:
    use = {"type": "tool_use", "id": "t", "name": "add", "input": {}}
    events = [{"type": "content_block_start", "index": 0, "content_block": use}]

    reply = streamed(events, "anthropic")

    assert (reply.calls, codes(reply)) == ((), ["truncated"])
    assert parse_reply(events, tools=[ADD], provider="anthropic") == reply


def test_a_message_that_repeats_what_was_streamed_is_not_read_twice() -> None:
    """Observed with servers that put all they have said so far into every chunk."""
    reply = streamed(
        [
            chunk({"content": "Good "}, message={"content": "Good "}),
            chunk({"content": "day."}, message={"content": "Good day."}),
            chunk({}, "stop", message={"content": "Good day."}),
        ],
        "openai",
    )

    assert reply.content == "Good day."


def test_a_message_in_place_of_a_delta_is_read() -> None:
    assert streamed([chunk({}, "stop", message={"content": "Good day."})], "openai").content == "Good day."


def test_of_several_answers_in_one_stream_the_first_is_read() -> None:
    reply = streamed([chunk({"content": "a"}), chunk({"content": "X"}, index=1), chunk({"content": "b"})], "openai")

    assert reply.content == "ab"


def test_items_that_come_only_whole_are_read() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 40, "b": 2}'}
    said = {"type": "message", "content": [{"type": "output_text", "text": "Adding."}]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "easy"}]}
    output: list[dict[str, Any]] = [thought, said, call]
    last = {"type": "response.completed", "response": {"status": "completed", "output": output}}

    reply = streamed([*(item_done(at, item) for at, item in enumerate(output)), last], "openai_responses")

    assert (reply.reasoning, reply.content) == ("easy", "Adding.")
    assert [call.arguments for call in reply.calls] == [SUM]


def test_an_item_without_its_place_is_found_by_its_id() -> None:
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "add", "arguments": ""}
    delta = {"type": "response.function_call_arguments.delta", "item_id": "fc", "delta": '{"a": 40, "b": 2}'}

    reply = streamed([{"type": "response.output_item.added", "item": item}, delta], "openai_responses")

    assert [call.arguments for call in reply.calls] == [SUM]


def test_a_tool_that_bedrock_runs_itself_is_no_call() -> None:
    use = {"toolUseId": "t", "name": "nova_grounding", "type": "server_tool_use", "input": {}}
    answer = {"output": {"message": {"content": [{"toolUse": use}, {"text": "Found."}]}}, "stopReason": "end_turn"}

    reply = parse_reply(answer, tools=[ADD])

    assert (reply.calls, reply.content) == ((), "Found.")


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("[]", [{}]),
        ('[{"text": "x"}, {"text": "y"}]', [{"text": "x"}, {"text": "y"}]),
        ('\ufeff{"text": "x"}', [{"text": "x"}]),
        ('{"properties": {"text": "x"}}', [{"text": "x"}]),
    ],
)
def test_arguments_in_odd_wrappings_are_read(written: str, arguments: list[Any]) -> None:
    reply = parse_reply(completion(written, name="note"), tools=[NOTE])

    assert [call.arguments for call in reply.calls] == arguments


def test_a_name_behind_geminis_namespace_and_a_colon_is_known() -> None:
    assert parse_reply(part({"name": "default_api:add", "args": SUM}, "STOP"), tools=[ADD]).calls[0].name == "add"


def test_a_text_that_repeats_a_native_call_with_numbers_as_words_is_the_same_call() -> None:
    response = completion('{"a": 40, "b": 2}')
    echo = '<tool_call>{"name": "add", "arguments": {"a": "40", "b": "2"}}</tool_call>'
    response["choices"][0]["message"]["content"] = echo

    assert len(parse_reply(response, tools=[ADD]).calls) == 1
