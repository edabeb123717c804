"""What users show: read from every client, written in every dialect, kept with the conversation."""

from typing import Any

import pytest

from toolwire.protocol.calls import Image, Resource, Text
from toolwire.protocol.chat import Request, UserMessage
from toolwire.wire.codecs.stored import read_message, write_message
from toolwire.wire.decode.request import DecodedRequest, decode_request
from toolwire.wire.encode.request import Dialect, RequestEncoder, encode_request
from toolwire.wire.formats.registry import DIALECTS

CAT = Image("aGk=", "image/png")
DOG = Resource("https://example.org/dog.png", "image", "image/*")
MAP = Image("PHN2Zz4=", "image/svg+xml")
SHOWN = UserMessage.of((Text("Which is the cat?"), CAT, Text("Or this?"), DOG))

every_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


def written(dialect: Dialect, message: UserMessage) -> Any:
    request = Request((message,))
    body = encode_request(dialect, request, dialect.frame(request, "m"))
    assert RequestEncoder(dialect).encode(request, dialect.frame(request, "m"))
    return next(one for one in body[dialect.messages_field] if one["role"] == "user")


def test_a_message_of_words_alone_is_nothing_but_its_text() -> None:
    assert UserMessage.of((Text("Look"), Text("here."))) == UserMessage("Look\n\nhere.")


def test_a_message_with_pictures_tells_in_words_that_there_are_some() -> None:
    expected = "Which is the cat?\n\n[image image/png]\n\nOr this?\n\n[image: https://example.org/dog.png]"
    assert SHOWN.text == expected


@every_dialect
def test_words_and_pictures_stay_in_their_order(dialect: Dialect) -> None:
    said = str(written(dialect, SHOWN))

    assert CAT.data in said
    assert DOG.uri in said
    assert said.index("Which is the cat?") < said.index("Or this?")
    assert dialect.name == "ollama" or said.index(CAT.data) < said.index("Or this?") < said.index(DOG.uri)


@pytest.mark.parametrize("name", ["anthropic", "bedrock"])
def test_a_picture_of_a_kind_that_a_provider_refuses_is_told_in_words(name: str) -> None:
    said = str(written(DIALECTS[name], UserMessage.of((Text("Where is it?"), MAP))))

    assert MAP.data not in said
    assert "[image image/svg+xml]" in said


@every_dialect
def test_a_picture_without_words_is_sent_without_empty_words(dialect: Dialect) -> None:
    said = written(dialect, UserMessage.of((Text(""), CAT)))

    assert "'text': ''" not in str(said)
    assert CAT.data in str(said)


CLIENTS: dict[str, list[Any]] = {
    "openai": [
        {"type": "text", "text": "Which is the cat?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
        "Or this?",
        {"type": "image_url", "image_url": "https://example.org/dog.png"},
    ],
    "anthropic": [
        {"type": "text", "text": "Which is the cat?", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        {"type": "text", "text": "Or this?"},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/dog.png"}},
    ],
    "openai_responses": [
        {"type": "input_text", "text": "Which is the cat?"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
        {"type": "input_text", "text": "Or this?"},
        {"type": "input_image", "image_url": "https://example.org/dog.png"},
    ],
}


@pytest.mark.parametrize("dialect", CLIENTS)
def test_pictures_of_every_client_are_read(dialect: str) -> None:
    asked = [{"role": "user", "content": CLIENTS[dialect]}]
    found = decode_request({"model": "m", "messages": asked, "input": asked}, dialect)

    assert isinstance(found, DecodedRequest)
    assert found.request.messages == (SHOWN,)
    assert found.losses == ()


@pytest.mark.parametrize(
    ("dialect", "part"),
    [
        ("openai", {"type": "image_url", "image_url": {"file_id": "f"}}),
        ("anthropic", {"type": "image", "source": {"type": "file", "file_id": "f"}}),
        ("openai_responses", {"type": "input_image", "file_id": "f"}),
    ],
)
def test_a_picture_that_only_its_provider_has_is_named_as_lost(dialect: str, part: Any) -> None:
    asked = [{"role": "user", "content": [part]}]
    found = decode_request({"model": "m", "messages": asked, "input": asked}, dialect)

    assert isinstance(found, DecodedRequest)
    assert found.request.messages == (UserMessage(""),)
    assert "an image was left out" in str(found.losses[0])


@pytest.mark.parametrize("message", [SHOWN, UserMessage("Only words.")])
def test_a_kept_message_comes_back_with_its_pictures(message: UserMessage) -> None:
    assert read_message(write_message(message)) == message
