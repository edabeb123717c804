"""What single providers demand beyond the shape of their messages."""

from typing import Any

import pytest
from msgspec.structs import replace

from toolwire.protocol.calls import Text, ToolResult
from toolwire.protocol.chat import Note, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Status
from toolwire.wire.encode import bedrock, cohere, gemini, mistral, openai_responses
from toolwire.wire.encode.request import Dialect, RequestEncoder, encode_request
from toolwire.wire.replies.reply import parse_reply

from .conversation import CAMERA, IN_ATTIC, IN_KITCHEN, THERMOMETER

ANSWERS = ResultsMessage(
    tuple(ToolResult(call.id, call.name, Status.SUCCESS, (Text("20"),)) for call in (IN_KITCHEN, IN_ATTIC))
)


def said(reply: Reply, dialect: Dialect) -> Any:
    """What is sent of a reply when its results follow."""
    request = Request((UserMessage("go"), reply, ANSWERS), (THERMOMETER, CAMERA))
    return encode_request(dialect, request, {})[dialect.messages_field][1]


def minted(reply: Reply) -> Reply:
    """What the runtime does to every reply: its calls get ids of their own."""
    return replace(reply, calls=tuple(replace(call, id=f"c{n}") for n, call in enumerate(reply.calls)))


def test_gemini_gets_each_signature_back_on_the_part_that_it_signed() -> None:
    parts = [
        {"text": "I will look."},
        {"functionCall": {"name": "read_temperature", "args": {"room": "kitchen"}, "id": "g1"},
         "thoughtSignature": "AA"},
        {"functionCall": {"name": "read_temperature", "args": {"room": "attic"}, "id": "g2"}},
    ]  # fmt: skip
    answer = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}

    reply = minted(parse_reply(answer, (THERMOMETER,), "gemini"))

    assert said(reply, gemini.DIALECT)["parts"] == parts


@pytest.mark.parametrize(
    ("model", "stands_in"),
    [("gemini-2.5-pro", False), ("gemini-3-pro-preview", True), ("models/gemini-3.1-flash", True), ("gemma-3", False)],
)
def test_gemini_models_that_want_signatures_get_a_stand_in_on_calls_of_others(model: str, stands_in: bool) -> None:
    parts = said(Reply(calls=(IN_KITCHEN, IN_ATTIC)), gemini.dialect_for(model))["parts"]

    assert [part.get("thoughtSignature") == gemini.UNSIGNED for part in parts] == [stands_in, False]


def test_sealed_reasoning_goes_back_before_the_calls_it_led_to_and_open_reasoning_does_not() -> None:
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2Vj"}
    open_one = {"type": "reasoning", "id": "rs_2", "summary": []}
    call = {"type": "function_call", "call_id": "c1", "name": "read_temperature", "arguments": '{"room":"kitchen"}'}
    answer = {"object": "response", "status": "completed", "output": [sealed, open_one, {"id": "fc", **call}]}

    reply = minted(parse_reply(answer, (THERMOMETER,), "openai_responses"))

    request = Request((UserMessage("go"), reply))
    assert encode_request(openai_responses.DIALECT, request, {})["input"][1:3] == [sealed, call]


def test_bedrock_gets_its_signed_reasoning_back_whole_or_streamed() -> None:
    block = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}}
    use = {"toolUse": {"toolUseId": "t1", "name": "take_picture", "input": {}}}
    whole = {"output": {"message": {"role": "assistant", "content": [block, use]}}, "stopReason": "tool_use"}
    streamed = Reply(
        calls=parse_reply(whole, (CAMERA,), "bedrock").calls,
        carry={"provider": "bedrock", "items": [{"type": "reasoning", "text": "Hm.", "signature": "c2ln"}]},
    )

    for reply in (minted(parse_reply(whole, (CAMERA,), "bedrock")), minted(streamed)):
        request = Request((UserMessage("go"), reply))
        assert encode_request(bedrock.DIALECT, request, {})["messages"][1]["content"] == [block, use]


@pytest.mark.parametrize(
    "dialect", [gemini.DIALECT, openai_responses.DIALECT, bedrock.DIALECT], ids=lambda one: one.name
)
def test_what_one_provider_signed_is_not_sent_to_another(dialect: Dialect) -> None:
    items = [{"type": "thinking", "thinking": "Two rooms.", "signature": "c2ln"}]
    reply = Reply(calls=(IN_KITCHEN, IN_ATTIC), carry={"provider": "anthropic", "items": items})

    assert "c2ln" not in str(said(reply, dialect))


def test_mistral_hears_a_word_of_the_model_between_results_and_a_user_also_when_the_history_grows() -> None:
    messages = (UserMessage("go"), Reply(calls=(IN_KITCHEN, IN_ATTIC)), ANSWERS, Note("Last step."))
    encoder = RequestEncoder(mistral.DIALECT)
    for end in range(1, 5):
        body = encoder.encode(Request(messages[:end], conversation="c"), {})

    roles = [part.split(b'"')[0] for part in body.split(b'"role":"')[1:]]
    assert roles == [b"user", b"assistant", b"tool", b"tool", b"assistant", b"user"]


def test_what_cohere_said_before_its_calls_is_its_plan() -> None:
    message = said(Reply("First the kitchen.", calls=(IN_KITCHEN, IN_ATTIC)), cohere.DIALECT)

    assert message["tool_plan"] == "First the kitchen."
    assert "content" not in message


@pytest.mark.parametrize("dialect", [gemini.DIALECT, bedrock.DIALECT, cohere.DIALECT], ids=lambda one: one.name)
def test_nothing_empty_is_sent_to_providers_that_refuse_it(dialect: Dialect) -> None:
    request = Request((UserMessage(" "), Reply(), Note("go on"), Reply(content="\n"), UserMessage("well?")))
    messages = encode_request(dialect, request, {})[dialect.messages_field]

    assert {message["role"] for message in messages} == {"user"}
    assert "(nothing)" in str(messages)
