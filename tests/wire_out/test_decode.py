"""What clients send, read into our nouns: the way back from a provider's body to a conversation."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolwire.protocol.calls import Image, Resource, Text
from toolwire.protocol.chat import Note, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.wire.decode.request import (
    CLIENT_DIALECTS,
    BadRequest,
    DecodedRequest,
    decode_request,
)
from toolwire.wire.encode import anthropic, openai_chat
from toolwire.wire.encode.request import Dialect, encode_conversation, encode_request

from .conversation import CONVERSATION, IN_ATTIC, IN_KITCHEN

GOLDEN = Path(__file__).parent.parent / "golden" / "requests"
HI = [{"role": "user", "content": "hi"}]


def read(body: Any, dialect: str = "openai") -> DecodedRequest:
    found = decode_request(body, dialect)
    assert isinstance(found, DecodedRequest), found
    return found


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_whole_body_comes_back_as_the_conversation_it_was_written_from(dialect: str) -> None:
    found = read(golden(dialect), dialect)

    asked, reply, results = found.request.messages[:3]
    assert (found.model, found.stream) == ("the-model", False)
    assert found.request.system == CONVERSATION.system
    assert found.request.tools == CONVERSATION.tools
    assert found.request.tools_off
    assert (found.request.max_tokens, found.request.temperature) == (256, 0.0)
    assert asked == CONVERSATION.messages[0]
    assert isinstance(reply, Reply)
    assert [(call.name, call.arguments, call.alias) for call in reply.calls] == [
        (call.name, call.arguments, call.alias) for call in (IN_KITCHEN, IN_ATTIC)
    ]
    assert isinstance(results, ResultsMessage)
    assert [(one.call_id, one.name, one.text, one.status) for one in results.results] == [
        ("call_a", "read_temperature", "21.5", Status.SUCCESS),
        ("call_b", "read_temperature", "there is no sensor in 'attic'; rooms: kitchen", Status.FAILED),
    ]
    assert results.results[1].error is not None
    assert results.results[1].error.code is Code.NOT_FOUND


@pytest.mark.parametrize(("dialect", "speaker"), [("openai", openai_chat.DIALECT), ("anthropic", anthropic.DIALECT)])
def test_what_was_read_is_written_again_as_it_came(dialect: str, speaker: Dialect) -> None:
    body = golden(dialect)
    if dialect == "openai":
        body["messages"] = [one for one in body["messages"] if not isinstance(one["content"], list)]
    written = encode_request(speaker, read(body, dialect).request, {})

    if dialect == "anthropic":  # texts side by side in one message are one text for us
        assert written["messages"][:2] == body["messages"][:2]
        assert written["messages"][2]["content"][:2] == body["messages"][2]["content"][:2]
    else:
        assert written["messages"] == body["messages"]


def test_signed_thinking_of_a_client_is_carried_back_to_the_same_provider() -> None:
    reply = read(golden("anthropic"), "anthropic").request.messages[1]

    assert isinstance(reply, Reply)
    assert reply.reasoning == "Two rooms."
    assert reply.carry == {
        "provider": "anthropic",
        "items": [{"type": "thinking", "thinking": "Two rooms.", "signature": "c2lnbmVk"}],
    }


def test_items_of_one_model_turn_become_one_reply_and_their_outputs_one_set_of_results() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look."}],
                 "encrypted_content": "c2Vj"}  # fmt: skip
    body = {
        "model": "m", "instructions": "Be brief.", "stream": True, "max_output_tokens": 9, "store": False,
        "tools": [{"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object"},
                   "strict": True}, {"type": "web_search"}],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Where?"}]},
            reasoning,
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": '{"at":1}'},
            {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "look", "arguments": '{"at":2}'},
            {"type": "function_call_output", "call_id": "c1", "output": "here"},
            {"type": "function_call_output", "call_id": "c2", "output": [
                {"type": "input_text", "text": "there"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA"},
                {"type": "input_image", "image_url": "https://example.org/a.png"}]},
            {"role": "developer", "content": "Soon."},
        ],
    }  # fmt: skip

    found = read(body, "openai_responses")

    asked, reply, results, note = found.request.messages
    assert asked == UserMessage("Where?")
    assert isinstance(reply, Reply)
    assert (reply.content, reply.reasoning) == ("Looking.", "Look.")
    assert [(call.alias, call.arguments) for call in reply.calls] == [("c1", {"at": 1}), ("c2", {"at": 2})]
    assert reply.carry == {"provider": "openai_responses", "items": [reasoning]}
    assert isinstance(results, ResultsMessage)
    assert results.results[1].content == (
        Text("there"),
        Image("AA", "image/png"),
        Resource("https://example.org/a.png", "image", "image/*"),
    )
    assert note == Note("Soon.")
    assert found.extras == {"store": False, "tools": [{"type": "web_search"}]}
    assert [loss.where for loss in found.losses] == ["tools"]
    assert (found.stream, found.request.system, found.request.max_tokens) == (True, "Be brief.", 9)


def test_a_plain_text_is_a_whole_input() -> None:
    found = read({"model": "m", "input": "hi"}, "openai_responses")

    assert found.request == Request((UserMessage("hi"),))


def test_fields_without_a_place_in_a_request_are_kept_as_they_came() -> None:
    body = {"model": "m", "messages": HI, "top_p": 0.9, "tool_choice": "required", "x_mine": {"a": [1]}}

    assert read(body).extras == {"top_p": 0.9, "tool_choice": "required", "x_mine": {"a": [1]}}


def test_what_cannot_be_kept_is_named() -> None:
    parts = [{"type": "text", "text": "Listen:"}, {"type": "input_audio", "input_audio": {"data": "…"}}]
    found = read({"model": "m", "messages": [{"role": "user", "content": parts}]})

    assert found.request.messages == (UserMessage("Listen:"),)
    assert [str(loss) for loss in found.losses] == ["messages[0].content[1]: a sound was left out"]


def test_later_system_messages_are_notes_and_the_first_ones_are_the_system_text() -> None:
    said = [("system", "A."), ("developer", "B."), ("user", "hi"), ("system", "C.")]
    found = read({"model": "m", "messages": [{"role": role, "content": text} for role, text in said]})

    assert found.request.system == "A.\n\nB."
    assert found.request.messages == (UserMessage("hi"), Note("C."))


def test_an_id_that_a_client_uses_twice_still_pairs_each_result_with_its_call() -> None:
    call = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    again = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_0", "content": "one"},
    ]
    messages = read({"model": "m", "messages": [*HI, *again, *again]}).request.messages

    replies = [one for one in messages if isinstance(one, Reply)]
    results = [one for one in messages if isinstance(one, ResultsMessage)]
    assert [reply.calls[0].id for reply in replies] == [one.results[0].call_id for one in results]
    assert len({reply.calls[0].id for reply in replies}) == 2


def test_legacy_functions_are_understood() -> None:
    said = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
        {"role": "function", "name": "f", "content": "ok"},
    ]

    messages = read({"model": "m", "messages": [*HI, *said]}).request.messages

    assert isinstance(messages[1], Reply)
    assert isinstance(messages[2], ResultsMessage)
    assert messages[2].results[0].call_id == messages[1].calls[0].id


def test_arguments_that_nobody_can_read_make_a_call_with_a_fault_and_not_an_error() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "see above"}}
    found = read({"model": "m", "messages": [*HI, {"role": "assistant", "tool_calls": [call]}]})

    reply = found.request.messages[1]
    assert isinstance(reply, Reply)
    assert "could not be read" in reply.calls[0].fault
    assert found.losses[0].where == "messages[1].tool_calls[0]"


def test_a_failed_result_of_a_foreign_client_keeps_its_words() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "no such file", "is_error": True}
    said = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]

    messages = read({"model": "m", "max_tokens": 9, "messages": said}, "anthropic").request.messages

    assert isinstance(messages[1], ResultsMessage)
    assert messages[1].results[0].status is Status.FAILED
    assert encode_conversation(anthropic.DIALECT, messages, "", None) == said


@pytest.mark.parametrize(
    ("dialect", "body", "field"),
    [
        ("openai", [], ""),
        ("openai", {"messages": HI}, "model"),
        ("openai", {"model": "m"}, "messages"),
        ("openai", {"model": "m", "messages": "hi"}, "messages"),
        ("openai", {"model": "m", "messages": [{"role": "robot"}]}, "messages[0].role"),
        ("openai", {"model": "m", "messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ("openai", {"model": "m", "messages": HI, "tools": [{"type": "function", "function": {}}]},
         "tools[0].function.name"),
        ("openai", {"model": "m", "messages": HI, "functions": [{"name": "f"}, {"name": "f"}]}, "tools"),
        ("openai", {"model": "m", "messages": HI, "max_tokens": True}, "max_tokens"),
        ("openai", {"model": "m", "messages": HI, "temperature": float("nan")}, "temperature"),
        ("openai", {"model": "m", "messages": HI, "stream": "yes"}, "stream"),
        ("anthropic", {"model": "m", "messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ("anthropic", {"model": "m", "messages": HI, "tools": [{"name": "f", "input_schema": []}]},
         "tools[0].input_schema"),
        ("openai_responses", {"model": "m", "input": []}, "input"),
        ("openai_responses", {"model": "m", "input": [{"role": "user", "content": [7]}]}, "input[0].content[0]"),
    ],
)  # fmt: skip
def test_a_body_that_is_no_request_is_answered_with_the_field_that_is_wrong(
    dialect: str, body: Any, field: str
) -> None:
    found = decode_request(body, dialect)

    assert isinstance(found, BadRequest)
    assert found.field == field
    assert found.message.startswith(field)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(
    "user assistant tool system text tool_use tool_result function_call function_call_output reasoning message".split()
)
KEYS = st.sampled_from(
    "role content type text tool_calls id function name arguments tool_call_id input output call_id summary".split()
)
ITEM = st.dictionaries(KEYS, WORDS | JSON | st.lists(st.dictionaries(KEYS, WORDS | JSON, max_size=4), max_size=2))


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=150, deadline=None)
@given(items=st.lists(ITEM, max_size=4), tools=JSON, dialect=st.sampled_from(CLIENT_DIALECTS))
def test_no_body_raises(items: list[Any], tools: Any, dialect: str) -> None:
    body = {"model": "m", "messages": items, "input": items, "tools": tools}

    assert isinstance(decode_request(body, dialect), DecodedRequest | BadRequest)
