"""Real models behind the gateway, asked with the real SDKs: the embedded one, and llama.cpp's own server."""

from collections.abc import Iterator
from typing import Any

import pytest
import xllamacpp  # type: ignore[import-untyped]  # it ships no types

from tests.gateway.clients import KINDS, RESPONSES, Kind
from tests.gateway.stand import NAME, Stand
from tests.gateway.test_passing import each_api, whole_and_streamed
from toolwire.models.opening import open_model
from toolwire.models.weights import weights_of
from toolwire.protocol.chat import ChatModel


@pytest.fixture(scope="module")
def embedded() -> ChatModel:
    return open_model("local:smollm2")


@each_api
@whole_and_streamed
@pytest.mark.feature("F266")
async def test_the_embedded_model_calls_a_tool_for_any_client(
    stand: Stand, embedded: ChatModel, kind: Kind, stream: bool
) -> None:
    gate = await stand.gate(model=embedded)

    field, question = "input" if kind is RESPONSES else "messages", "Read the temperature of the kitchen."
    got = await kind.ask(gate, stream=stream, more={field: [{"role": "user", "content": question}]})

    assert [name for name, _ in got.calls] == [NAME]
    assert isinstance(got.calls[0][1]["room"], str)
    assert got.ending == kind.endings["calls"]
    assert got.ids[0]
    assert gate.log[0].tally.calls == 1


@each_api
async def test_the_embedded_model_streams_what_it_would_say_at_once(
    stand: Stand, embedded: ChatModel, kind: Kind
) -> None:
    gate = await stand.gate(model=embedded)

    whole = await kind.ask(gate, stream=False, tools=False)
    streamed = await kind.ask(gate, stream=True, tools=False)

    assert whole.text.strip()
    assert streamed.text.strip() == whole.text.strip()
    assert (whole.calls, whole.ending) == ([], streamed.ending)


async def test_the_embedded_model_is_listed_and_ready(stand: Stand, embedded: ChatModel) -> None:
    gate = await stand.gate(model=embedded)

    async with gate.openai() as client:
        listed = [model.id async for model in client.models.list()]
    async with gate.http() as plain:
        ready = await plain.get("/readyz")

    assert listed == ["local:smollm2"]
    assert ready.json() == {"status": "ready"}


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """llama.cpp's own HTTP server, which speaks all three APIs."""
    params = xllamacpp.CommonParams()
    params.model.path = str(weights_of("smollm2").fetch())
    params.model_alias = {"smollm2"}
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.use_jinja = True
    params.verbosity = 0
    server = xllamacpp.Server(params)
    yield str(server.listening_address)
    del server


BRIEF: dict[str, dict[str, Any]] = {
    "openai": {"max_tokens": 8, "temperature": 0.0},
    "anthropic": {"max_tokens": 8, "extra_body": {"temperature": 0.0}},
    "openai_responses": {"max_output_tokens": 8, "temperature": 0.0},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("dialect", ["auto", "openai"])
@whole_and_streamed
async def test_a_real_server_answers_any_client_through_the_gateway(
    stand: Stand, server_url: str, kind: Kind, dialect: str, stream: bool
) -> None:
    gate = await stand.gate(dialect, url=server_url)

    got = await kind.ask(gate, stream=stream, tools=False, more=BRIEF[kind.name])

    own_word = "completed" if kind is RESPONSES and dialect == "auto" else kind.endings["length"]
    assert got.text
    assert got.ending == own_word  # llama.cpp calls a response complete that it cut off
    assert gate.log[0].status == 200


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_real_stream_with_tools_on_offer_says_the_same_as_the_whole_answer(
    stand: Stand, server_url: str, kind: Kind
) -> None:
    gate = await stand.gate(url=server_url)

    whole = await kind.ask(gate, stream=False, more=BRIEF[kind.name])
    streamed = await kind.ask(gate, stream=True, more=BRIEF[kind.name])

    assert streamed.text.strip() == whole.text.strip()
    assert streamed.calls == whole.calls
    assert streamed.ending == whole.ending
