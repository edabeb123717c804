"""What the providers' own SDKs hand to their users: read like the JSON they were made of, whole and streamed."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from tests.models.provider import Provider, provider_on_loopback, says
from toolwire.protocol.chat import Reply, Usage
from toolwire.wire.replies.reply import StreamParser, parse_reply

from .sdks import ANTHROPIC, GEMINI, OPENAI, SDKS, SIGNATURE, SUM, Sdk
from .test_native import ADD

each_sdk = pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.name)
told_or_not = pytest.mark.parametrize("told", [True, False], ids=["told", "auto"])


@pytest.fixture
async def server() -> AsyncIterator[Provider]:
    async with asyncio.timeout(10), provider_on_loopback() as server:
        yield server


def seen(reply: Reply) -> dict[str, Any]:
    """Everything but the form in which it came."""
    calls = [(call.name, call.arguments, call.alias, call.fault) for call in reply.calls]
    return asdict(replace(reply, raw=None, calls=())) | {"calls": calls}


def holds_the_answer(reply: Reply, sdk: Sdk) -> None:
    assert [(call.name, call.arguments, call.fault) for call in reply.calls] == [("add", SUM, "")]
    assert (reply.content, reply.reasoning) == ("Adding.", "Forty and two.")
    assert (reply.finish_reason, reply.usage) == (sdk.ending, Usage(*sdk.usage))
    assert reply.problems == ()
    assert (reply.carry is not None) == sdk.carried
    json.dumps(reply.carry)


@each_sdk
@told_or_not
async def test_an_answer_that_an_sdk_hands_over_is_read_like_its_json(server: Provider, sdk: Sdk, told: bool) -> None:
    server.will(sdk.whole_answer)
    provider = sdk.provider if told else "auto"

    reply = parse_reply(await sdk.ask(server.url), tools=[ADD], provider=provider)

    holds_the_answer(reply, sdk)
    assert seen(reply) == seen(parse_reply(sdk.whole, tools=[ADD], provider=sdk.provider))


@each_sdk
@told_or_not
async def test_a_stream_that_an_sdk_hands_over_is_read_like_its_events(server: Provider, sdk: Sdk, told: bool) -> None:
    server.will(sdk.streamed_answer)
    provider = sdk.provider if told else "auto"
    objects = await sdk.stream(server.url)

    parser = StreamParser(tools=[ADD], provider=provider)
    for piece in objects:
        parser.feed(piece)
    reply = parser.finish()

    holds_the_answer(reply, sdk)
    assert seen(reply) == seen(parse_reply(objects, tools=[ADD], provider=provider))
    assert seen(reply) == seen(parse_reply(sdk.events, tools=[ADD], provider=sdk.provider))


async def test_a_value_that_the_sdk_does_not_know_yet_is_read_without_a_warning(server: Provider) -> None:
    """Warnings fail this suite, as they do in programs that ask for it."""
    whole = json.loads(json.dumps(OPENAI.whole))
    whole["choices"][0]["finish_reason"] = "paused"
    server.will(says(whole))

    reply = parse_reply(await OPENAI.ask(server.url), tools=[ADD])

    assert reply.finish_reason == "paused"
    assert [call.arguments for call in reply.calls] == [SUM]


async def test_a_null_among_the_arguments_stays_a_null(server: Provider) -> None:
    whole = json.loads(json.dumps(ANTHROPIC.whole))
    whole["content"][2]["input"] = {"a": None, "b": [None]}
    server.will(says(whole))

    reply = parse_reply(await ANTHROPIC.ask(server.url))

    assert [call.arguments for call in reply.calls] == [{"a": None, "b": [None]}]


async def test_half_a_character_in_an_sdks_object_spoils_nothing(server: Provider) -> None:
    whole = json.loads(json.dumps(OPENAI.whole))
    whole["choices"][0]["message"]["content"] = "Adding \ud83d."
    server.will(says(whole))

    reply = parse_reply(await OPENAI.ask(server.url), tools=[ADD])

    assert [call.arguments for call in reply.calls] == [SUM]
    assert reply.content == "Adding \ud83d."


async def test_a_signature_that_the_sdk_holds_as_bytes_goes_back_as_the_text_it_came_as(server: Provider) -> None:
    server.will(GEMINI.whole_answer)

    reply = parse_reply(await GEMINI.ask(server.url), tools=[ADD])

    assert reply.carry == {"provider": "gemini", "items": [{"thoughtSignature": SIGNATURE, "call": 0}]}


def test_what_boto3_hands_over_as_bytes_is_carried_as_the_service_writes_it() -> None:
    """boto3 gives plain dicts, streamed ones too, in which only redacted reasoning is not JSON."""
    redacted = {"reasoningContent": {"redactedContent": b"sealed"}}
    sealed = {"provider": "bedrock", "items": [{"reasoningContent": {"redactedContent": "c2VhbGVk"}}]}
    whole = {"output": {"message": {"role": "assistant", "content": [redacted, {"text": "Hm."}]}}}
    events = [
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": redacted}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "Hm."}}},
        {"messageStop": {"stopReason": "end_turn"}},
    ]

    assert parse_reply(whole).carry == parse_reply(events).carry == sealed
