"""The OpenAI-compatible client against a real server with a real, very small model: llama.cpp on loopback."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import xllamacpp  # type: ignore[import-untyped]  # it ships no types
from msgspec.structs import replace

from toolwire.errors import ModelRefused
from toolwire.models.http_chat import HttpChat
from toolwire.models.openai import OpenAIChat
from toolwire.models.opening import open_model
from toolwire.models.weights import weights_of
from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import Delta, Note, Reply, Request, ResultsMessage, TextDelta, UserMessage
from toolwire.protocol.outcomes import Status

from .conftest import QUESTION

BOUND_S = 60
BRIEF = replace(QUESTION, max_tokens=6, temperature=0.0)


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    params = xllamacpp.CommonParams()
    params.model.path = str(weights_of("smollm2").fetch())
    params.model_alias = {"smollm2"}
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.use_jinja = True
    params.verbosity = 0
    params.api_keys = ["the-right-key"]
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


@pytest.fixture
async def model(server_url: str) -> AsyncIterator[HttpChat]:
    model = open_model("llamacpp:smollm2", base_url=server_url, api_key="the-right-key", environ={})
    assert isinstance(model, OpenAIChat)
    yield model
    await model.close()


async def ask(model: HttpChat, request: Request) -> Reply:
    async with asyncio.timeout(BOUND_S):
        return await model.ask(request)


@pytest.mark.feature("F266")
async def test_a_real_model_with_tools_on_offer_answers_and_counts_its_tokens(model: HttpChat) -> None:
    reply = await ask(model, BRIEF)

    assert reply.content
    assert reply.usage.output_tokens == 6
    assert reply.usage.input_tokens > 10
    assert reply.finish_reason == "length"


@pytest.mark.feature("F266")
async def test_a_real_stream_says_the_same_and_counts_the_same(model: HttpChat) -> None:
    shown: list[Delta] = []
    whole = await ask(model, BRIEF)
    async with asyncio.timeout(BOUND_S):
        streamed = await model.ask(BRIEF, shown.append)

    assert streamed.content == whole.content
    assert "".join(delta.text for delta in shown if isinstance(delta, TextDelta)) == streamed.content
    assert len(shown) > 3
    assert replace(streamed.usage, cached_tokens=0) == replace(whole.usage, cached_tokens=0)


@pytest.mark.feature("F264")
async def test_a_real_server_takes_a_whole_conversation_with_calls_results_and_notes(model: HttpChat) -> None:
    call = ToolCall("read_temperature", {"room": "kitchen"}, id="0190a7f0", alias="call_1")
    answer = ToolResult(call.id, call.name, Status.SUCCESS, (Text("21.5"),))
    messages = (*BRIEF.messages, Reply(calls=(call,)), ResultsMessage((answer,)), Note("Answer now."))

    reply = await ask(model, replace(BRIEF, messages=messages, tools_off=True))

    assert reply.content
    assert reply.calls == ()


async def test_a_wrong_key_is_refused_by_a_real_server(server_url: str) -> None:
    model = OpenAIChat("smollm2", server_url, "the-wrong-key")

    with pytest.raises(ModelRefused, match="refused the key") as raised:
        await ask(model, Request((UserMessage("hi"),)))
    assert "the-wrong-key" not in str(raised.value)
    await model.close()


async def test_the_models_of_a_real_server_can_be_listed(model: HttpChat) -> None:
    async with asyncio.timeout(BOUND_S):
        assert "smollm2" in await model.models()
