"""Answers that the gateway writes itself, held to the SDKs' own types: the SDKs take anything, their users do not."""

import json
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.gateway.clients import Kind
from tests.gateway.stand import Stand
from tests.gateway.test_kept import OFFERS
from tests.gateway.test_passing import LEAKED, NATIVE
from tests.gateway.test_translating import each_pair, speaks
from tests.models.provider import Provider

WHOLE: dict[str, TypeAdapter[Any]] = {
    "openai": TypeAdapter(ChatCompletion),
    "anthropic": TypeAdapter(Message),
    "openai_responses": TypeAdapter(Response),
}
EVENTS: dict[str, TypeAdapter[Any]] = {
    "openai": TypeAdapter(ChatCompletionChunk),
    "anthropic": TypeAdapter(RawMessageStreamEvent),
    "openai_responses": TypeAdapter(ResponseStreamEvent),
}
SAID = {
    "words": ("It is warm.", [], "stop"),
    "thoughts": ("<think>Hm.</think>It is warm.", [], "stop"),
    "a call": ("I look.", [NATIVE], "calls"),
    "a leaked call": (LEAKED, [], "stop"),
    "a cut answer": ("It is", [], "length"),
}
each_answer = pytest.mark.parametrize("answer", SAID)


async def asked(stand: Stand, upstream: Provider, kind: Kind, dialect: str, answer: str, *, stream: bool) -> str:
    text, calls, ending = SAID[answer]
    upstream.will(speaks(dialect, text, calls, stream=stream, ending=ending))
    body = {"model": "m", "stream": stream, "stream_options": {"include_usage": True}} | OFFERS[kind.name]
    async with (await stand.gate(dialect)).http() as client:
        got = await client.post(kind.path, json=body)
    assert got.status_code == 200
    return got.text


@each_pair
@each_answer
async def test_a_whole_answer_is_what_the_sdks_types_say(
    stand: Stand, upstream: Provider, kind: Kind, dialect: str, answer: str
) -> None:
    got = await asked(stand, upstream, kind, dialect, answer, stream=False)

    WHOLE[kind.name].validate_json(got)


@each_pair
@each_answer
async def test_every_event_of_a_stream_is_what_the_sdks_types_say(
    stand: Stand, upstream: Provider, kind: Kind, dialect: str, answer: str
) -> None:
    got = await asked(stand, upstream, kind, dialect, answer, stream=True)

    events = [json.loads(line[6:]) for line in got.splitlines() if line.startswith("data: {")]
    assert len(events) > 2
    for event in events:
        EVENTS[kind.name].validate_python(event)
