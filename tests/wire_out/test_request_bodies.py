"""What each provider is sent. The whole bodies are files in tests/golden/requests/."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.protocol.calls import Image, Text, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Note, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.wire.encode import anthropic, mistral, openai_chat
from toolwire.wire.encode.outbound import CallIds, Json
from toolwire.wire.encode.request import Dialect, RequestEncoder, encode_request
from toolwire.wire.formats.registry import DIALECTS

from .conversation import CAMERA, CONVERSATION, IN_ATTIC, IN_KITCHEN, PICTURE, THERMOMETER

GOLDEN = Path(__file__).parent.parent / "golden" / "requests"


@dataclass(frozen=True)
class Speaker:
    dialect: Dialect

    def frame(self, request: Request) -> dict[str, Any]:
        return self.dialect.frame(request, "the-model")

    def body(self, request: Request) -> Any:
        return json.loads(RequestEncoder(self.dialect).encode(request, self.frame(request)))

    def messages(self, request: Request) -> list[Any]:
        found: list[Any] = self.body(request)[self.dialect.messages_field]
        return found


SPEAKERS = {name: Speaker(dialect) for name, dialect in DIALECTS.items()}


def without_escapes(body: Any) -> str:
    """All of a body as one text to search in: some dialects put JSON into JSON, so every backslash is taken out."""
    return json.dumps(body).replace("\\", "")


@pytest.fixture(params=SPEAKERS)
def speaker(request: pytest.FixtureRequest) -> Speaker:
    return SPEAKERS[request.param]


@pytest.mark.feature("F072", "F073", "F074", "F075", "F076", "F078")
def test_a_conversation_is_written_as_the_golden_body_says(speaker: Speaker) -> None:
    golden = json.loads((GOLDEN / f"{speaker.dialect.name}.json").read_text("utf-8"))

    assert speaker.body(CONVERSATION) == golden


def test_the_bytes_and_the_value_of_a_body_agree(speaker: Speaker) -> None:
    frame = speaker.frame(CONVERSATION)

    assert speaker.body(CONVERSATION) == encode_request(speaker.dialect, CONVERSATION, frame)


@given(cuts=st.lists(st.integers(0, len(CONVERSATION.messages)), max_size=6))
@pytest.mark.parametrize("name", SPEAKERS)
def test_a_conversation_that_grew_step_by_step_reads_like_one_written_at_once(name: str, cuts: list[int]) -> None:
    """The encoder keeps what it wrote; any order of lengths, also going back, must give the same body."""
    speaker = SPEAKERS[name]
    encoder = RequestEncoder(speaker.dialect)
    frame = speaker.frame(CONVERSATION)

    for cut in [*cuts, len(CONVERSATION.messages)]:
        shorter = replace(CONVERSATION, messages=CONVERSATION.messages[:cut])
        assert json.loads(encoder.encode(shorter, frame)) == encode_request(speaker.dialect, shorter, frame)


def test_a_changed_history_of_the_same_length_is_written_anew(speaker: Speaker) -> None:
    encoder = RequestEncoder(speaker.dialect)
    first = Request((UserMessage("one"),), conversation="c")
    other = Request((UserMessage("two"),), conversation="c")

    encoder.encode(first, {"model": "m"})

    assert b"two" in encoder.encode(other, {"model": "m"})


def test_conversations_do_not_mix(speaker: Speaker) -> None:
    encoder = RequestEncoder(speaker.dialect, conversations=2)
    for name in ("a", "b", "c", "a"):
        body = encoder.encode(Request((UserMessage(f"I am {name}"),), conversation=name), {"model": "m"})
        assert f"I am {name}".encode() in body
        assert body.count(b"I am") == 1


@pytest.mark.feature("F084")
def test_a_message_is_encoded_once_while_its_conversation_grows() -> None:
    written: list[Message] = []

    def counting(message: Message, ids: Any) -> list[dict[str, Any]]:
        written.append(message)
        return openai_chat.encode_message(message, ids)

    encoder = RequestEncoder(replace(openai_chat.DIALECT, encode_message=counting))
    for end in range(1, len(CONVERSATION.messages) + 1):
        encoder.encode(replace(CONVERSATION, messages=CONVERSATION.messages[:end]), {"model": "m"})

    assert written == list(CONVERSATION.messages)


@pytest.mark.parametrize("frame", [{}, {"temperature": 0.5}, {"extra": {"order": ["a"]}}], ids=["bare", "flat", "deep"])
def test_each_body_has_the_frame_that_it_was_asked_for(frame: Json) -> None:
    """What was written for the last frame is used again only where that is the same; one may be changed in place."""
    encoder = RequestEncoder(openai_chat.DIALECT)

    for each in ({"model": "m"}, frame, frame, {"model": "m"}, {"model": "n"}):
        frame.get("extra", {"order": []})["order"].append("b")
        assert json.loads(encoder.encode(CONVERSATION, each)) == encode_request(openai_chat.DIALECT, CONVERSATION, each)


@pytest.mark.feature("F084")
def test_a_tool_list_is_encoded_once_for_all_conversations() -> None:
    lists: list[object] = []

    def counting(tools: Any) -> list[dict[str, Any]]:
        lists.append(tools)
        return openai_chat.encode_tools(tools)

    encoder = RequestEncoder(replace(openai_chat.DIALECT, encode_tools=counting))
    for name in ("a", "b"):
        encoder.encode(Request((UserMessage("hi"),), (THERMOMETER, CAMERA), conversation=name), {"model": "m"})
    encoder.encode(Request((UserMessage("hi"),), (CAMERA, THERMOMETER), conversation="a"), {"model": "m"})

    assert len(lists) == 2


@pytest.mark.feature("F009")
def test_the_provider_reads_its_own_call_ids_back() -> None:
    body = SPEAKERS["openai"].body(CONVERSATION)
    calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    answers = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]

    assert calls[:2] == ["call_a", "call_b"]
    assert answers == calls


@pytest.mark.feature("F009")
def test_an_id_that_a_client_gives_to_all_calls_is_replaced_soon() -> None:
    """A history may be of any client. Trying all ids that came before would take minutes here."""
    ids = CallIds()
    chosen = {ids.claim(ToolCall("look", {}, id="same", alias="same")) for _ in range(20_000)}

    assert len(chosen) == 20_000


def test_an_id_that_the_provider_gave_twice_is_replaced_by_ours_the_second_time() -> None:
    body = SPEAKERS["openai"].body(CONVERSATION)
    ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]

    assert ids == ["call_a", "call_b", "018f-3"]


@pytest.mark.parametrize(
    ("dialect", "alias"),
    [
        (openai_chat.DIALECT, "x" * 41),
        (anthropic.DIALECT, "functions.read:0"),
        (mistral.DIALECT, "call_a"),
        (openai_chat.DIALECT, ""),
    ],
)
def test_an_id_that_the_provider_would_refuse_is_not_sent(dialect: Dialect, alias: str) -> None:
    call = replace(PICTURE, alias=alias, id="0190a7f0-2f1f-7c3e-9d55-0242ac120002" * 2)
    answer = ToolResult(call.id, call.name, Status.SUCCESS, (Text("ok"),))
    request = Request((UserMessage("go"), Reply(calls=(call,)), ResultsMessage((answer,))))

    body = json.dumps(encode_request(dialect, request, {}))

    assert call.id not in body
    assert not alias or alias not in body
    (sent,) = {part.split('"')[0] for part in body.split('_id": "')[1:]}
    assert len(sent) == 9
    assert sent.isalnum()


def test_a_call_whose_result_was_lost_is_answered_in_words(speaker: Speaker) -> None:
    """Providers refuse a conversation in which a call has no result."""
    request = Request((UserMessage("go"), Reply(calls=(IN_KITCHEN, IN_ATTIC)), UserMessage("and?")))

    assert json.dumps(speaker.body(request)).count("no result of this call was kept") == 2


def test_results_are_sent_in_the_order_of_the_calls(speaker: Speaker) -> None:
    answers = tuple(
        ToolResult(call.id, call.name, Status.SUCCESS, (Text(f"from {call.id}"),)) for call in (IN_ATTIC, IN_KITCHEN)
    )
    request = Request((UserMessage("go"), Reply(calls=(IN_KITCHEN, IN_ATTIC)), ResultsMessage(answers)))

    body = json.dumps(speaker.body(request))

    assert 0 < body.index("from 018f-1") < body.index("from 018f-2")


def test_a_result_without_a_call_becomes_a_word_to_the_model(speaker: Speaker) -> None:
    stray = ToolResult("018f-9", "read_temperature", Status.SUCCESS, (Text("19"),))
    body = speaker.body(Request((UserMessage("go"), ResultsMessage((stray,)))))

    assert {message["role"] for message in body[speaker.dialect.messages_field]} == {"user"}
    assert "A result of read_temperature came on its own: 19" in json.dumps(body)


def test_structured_output_is_sent_when_there_are_no_words(speaker: Speaker) -> None:
    answer = ToolResult(IN_KITCHEN.id, IN_KITCHEN.name, Status.SUCCESS, structured={"celsius": 21})
    body = speaker.body(Request((UserMessage("go"), Reply(calls=(IN_KITCHEN,)), ResultsMessage((answer,)))))

    assert '{"celsius":21}' in without_escapes(body)


def test_the_error_sentence_reaches_the_model_even_when_the_content_does_not_say_it(speaker: Speaker) -> None:
    failed = replace(ToolResult.failed(IN_KITCHEN, Code.TIMEOUT, "took longer than 5 s"), content=(Text("half"),))
    body = speaker.body(Request((UserMessage("go"), Reply(calls=(IN_KITCHEN,)), ResultsMessage((failed,)))))

    assert "Error (timeout): took longer than 5 snhalf" in without_escapes(body)


def test_anthropic_is_told_which_results_failed_and_sees_no_picture_in_them() -> None:
    broken = replace(ToolResult.failed(PICTURE, Code.UNAVAILABLE, "lens cap"), content=(Image("AAAA"),))
    body = SPEAKERS["anthropic"].body(Request((UserMessage("go"), Reply(calls=(PICTURE,)), ResultsMessage((broken,)))))

    (block,) = body["messages"][-1]["content"]
    assert block["is_error"] is True
    assert isinstance(block["content"], str)


def test_anthropic_never_reads_empty_content() -> None:
    request = Request((UserMessage(" "), Reply(), Note("go on"), Reply(content="\n"), UserMessage("well?")))
    body = SPEAKERS["anthropic"].body(request)

    assert [message["role"] for message in body["messages"]] == ["user"]
    assert [block["text"] for block in body["messages"][0]["content"]] == ["(nothing)", "go on", "well?"]


@pytest.mark.parametrize(
    "odd",
    [{"half": "\ud83d"}, {"big": 2**70}, MappingProxyType({"frozen": frozenset({"b", "a"})}), {"é\udc00": ["\x00"]}],
)
def test_odd_arguments_still_make_a_valid_body(speaker: Speaker, odd: Any) -> None:
    call = ToolCall("read_temperature", odd, id="c1")
    body = speaker.body(Request((UserMessage("go \udcff"), Reply(calls=(call,)))))

    assert "\\ud83d" not in json.dumps(body, ensure_ascii=False)


def test_arguments_nested_beyond_reason_are_an_error_and_not_a_crash(speaker: Speaker) -> None:
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = [deep]
    request = Request((Reply(calls=(ToolCall("t", {"deep": deep}, id="c1"),)),), conversation="c")
    encoder = RequestEncoder(speaker.dialect)

    with pytest.raises(ValueError, match="cannot be written as JSON"):
        encoder.encode(request, {"model": "m"})
    assert json.loads(encoder.encode(Request((UserMessage("hi"),), conversation="c"), {"model": "m"}))[
        speaker.dialect.messages_field
    ]


def test_a_message_that_cannot_be_written_is_not_taken_for_written() -> None:
    """After the error, the conversation is written anew: what was encoded of it stands at no certain place."""
    encoder = RequestEncoder(openai_chat.DIALECT, kept_bytes=200)
    first = UserMessage("one")
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    odd = Reply(calls=(ToolCall("x", {"n": deep}, id="c1"),))

    encoder.encode(Request((first,), conversation="c"), {"model": "m"})
    with pytest.raises(ValueError, match="JSON"):
        encoder.encode(Request((first, odd), conversation="c"), {"model": "m"})
    whole = Request((first, UserMessage("two " * 100)), conversation="c")

    for request in (whole, whole, Request((), conversation="c"), replace(whole, conversation=""), whole):
        body = json.loads(encoder.encode(request, {"model": "m"}))
        assert body == encode_request(openai_chat.DIALECT, request, {"model": "m"})
