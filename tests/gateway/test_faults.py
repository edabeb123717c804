"""Every way in which an upstream fails: the client gets a typed error or a well-formed end, never a hang."""

import asyncio
import contextlib
import json
from typing import Any

import anthropic
import openai
import pytest

from tests.gateway.clients import CHAT, KINDS, MESSAGES, RESPONSES, Kind, chunk
from tests.gateway.stand import BOUND_S, QUICK, Gate, Stand
from tests.gateway.test_passing import each_api, whole_and_streamed
from tests.models.provider import Provider, Scripted, answer, half, says
from tests.models.spellings import SPELLINGS
from toolwire.gateway.settings import TransferLimits
from toolwire.models.openai import OpenAIChat

ERRORS = (openai.APIStatusError, anthropic.APIStatusError)
SECRET = "sk-own-0123456789"
HTML = b"<!doctype html><title>Welcome to nginx</title>"
FAILURES: dict[str, tuple[Scripted, int, str]] = {
    "a web page": (answer(HTML, kind="text/html"), 502, "web page"),
    "nothing": (answer(b""), 502, "answered with nothing"),
    "something that is no JSON": (answer(b"Internal horrors"), 502, "no chat reply"),
    "some other JSON": (says({"hello": "world"}), 502, "no chat reply"),
    "a list": (says([1, 2]), 502, "no chat reply"),
    "an error with status 200": (says({"error": {"message": "out of memory", "type": "server_error"}}), 502, "memory"),
    "an error that names its status": (says({"error": {"message": "slow down", "code": 429}}), 429, "slow down"),
    "an error as a word": (says({"error": "model requires more system memory"}), 502, "more system memory"),
    "a web page with status 503": (answer(HTML, status=503, kind="text/html"), 503, "web page"),
    "words with status 500": (answer(b"upstream connect error", status=500, kind="text/plain"), 500, "connect error"),
    "a detail": (says({"detail": "Model is loading"}, status=503), 503, "Model is loading"),
    "a redirect": (answer(b"", status=307, location="http://elsewhere.example/"), 502, "elsewhere"),
    "a wrong key": (says({"error": {"message": f"bad key {SECRET}"}}, status=401), 401, "bad key"),
    "too deep JSON": (answer(b'{"choices":' + b"[" * 100_000), 502, "no chat reply"),
    "a broken promise of length": (Scripted(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"), 502, "closed the"),
    "no HTTP at all": (Scripted(b"SSH-2.0-OpenSSH_9.6\r\n"), 502, "closed the connection"),
    "a closed connection": (Scripted(b""), 502, "closed the connection"),
    "silence": (Scripted(b"", "hang"), 504, "in time"),
    "silence after the headers": (half(b" ", kind="application/json", then="hang"), 504, "in time"),
    "more than anyone can hold": (answer(b'{"choices": "' + b"x" * 300_000 + b'"}'), 502, "more than 200000 bytes"),
}


async def refusal(kind: Kind, gate: Gate, *, stream: bool) -> Any:
    with pytest.raises(ERRORS) as raised:
        await kind.ask(gate, stream=stream)
    return raised.value


@each_api
@whole_and_streamed
@pytest.mark.parametrize("failure", FAILURES)
async def test_an_upstream_that_answers_with(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool, failure: str
) -> None:
    """… is a typed error of the client's own SDK, with a status and a sentence."""
    script, status, said = FAILURES[failure]
    upstream.will(script)

    error = await refusal(kind, await stand.gate(bounds=QUICK), stream=stream)

    assert error.status_code == status
    assert said in error.message
    assert error.request_id.startswith("req_")
    if kind is MESSAGES:
        assert error.body["type"] == "error"
        assert error.body["error"]["message"] in error.message or said in error.body["error"]["message"]


@each_api
async def test_an_error_body_in_the_clients_own_format_passes_as_it_is(
    stand: Stand, upstream: Provider, kind: Kind
) -> None:
    error = {"message": "This model's maximum context length is 4096 tokens", "type": "invalid_request_error"}
    theirs: dict[str, Any] = {"error": error | {"param": "messages", "code": "context_length_exceeded"}}
    if kind is MESSAGES:
        theirs = {"type": "error", "error": error, "request_id": "req_theirs"}
    upstream.will(says(theirs, status=400, retry_after="17"))

    async with (await stand.gate()).http() as client:
        got = await client.post(kind.path, json={"model": "m", "max_tokens": 5})

    assert (got.status_code, got.json()) == (400, theirs)
    assert got.headers["retry-after"] == "17"


@each_api
@whole_and_streamed
async def test_an_upstream_that_nobody_runs_is_named(stand: Stand, kind: Kind, stream: bool) -> None:
    error = await refusal(kind, await stand.gate("auto", url="http://127.0.0.1:9"), stream=stream)

    assert error.status_code == 502
    assert "no connection to http://127.0.0.1:9" in error.message


BREAKS: dict[str, tuple[str, str]] = {
    "closes the connection": ("close", "before its answer was complete"),
    "goes silent": ("hang", "in time"),
}


async def ended(kind: Kind, gate: Gate) -> str:
    """What a client is told at the end of a stream that broke."""
    if kind is RESPONSES:
        return (await kind.ask(gate, stream=True)).ending
    with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
        await kind.ask(gate, stream=True)
    return str(raised.value)


@each_api
@pytest.mark.parametrize("way", BREAKS)
@pytest.mark.parametrize("tools", [True, False], ids=["tools", "no tools"])
async def test_a_stream_that_breaks_half_way_ends_with_an_error_when_the_upstream(
    stand: Stand, upstream: Provider, kind: Kind, way: str, tools: bool
) -> None:
    events = kind.events(["It is ", 'warm <tool_call>{"name": "read_temperature"'], (), kind.endings["stop"])
    then, said = BREAKS[way]
    upstream.will(half(kind.framed(events[:-3]).removesuffix(b"data: [DONE]\n\n"), kind="text/event-stream", then=then))
    gate = await stand.gate(bounds=QUICK)

    assert said in await ended(kind, gate)
    assert gate.log[0].status == 200
    assert gate.log[0].code in ("upstream_cut_off", "upstream_timeout")


@each_api
async def test_an_error_in_the_middle_of_a_stream_ends_it(stand: Stand, upstream: Provider, kind: Kind) -> None:
    events = kind.events(["It is "], (), kind.endings["stop"])[:3]
    error: dict[str, Any] = {"error": {"message": "GPU fell off the bus", "type": "server_error"}}
    last = error if kind is CHAT else {"type": "error", "message": "GPU fell off the bus", **error}
    upstream.will(
        answer(kind.framed(events).removesuffix(b"data: [DONE]\n\n") + framed(last), kind="text/event-stream")
    )

    assert "GPU fell off the bus" in await ended(kind, await stand.gate(bounds=QUICK))


def framed(event: dict[str, Any]) -> bytes:
    return f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n".encode()


@each_api
@pytest.mark.parametrize("junk", [b"data: {broken\n\n", b"data: [1]\n\n", b"data: <html>\n\n"], ids=repr)
async def test_a_stream_that_turns_into_nonsense_ends_with_an_error(
    stand: Stand, upstream: Provider, kind: Kind, junk: bytes
) -> None:
    events = kind.framed(kind.events(["It is "], (), kind.endings["stop"])[:3]).removesuffix(b"data: [DONE]\n\n")
    upstream.will(answer(events + junk, kind="text/event-stream"))

    assert "answered with" in await ended(kind, await stand.gate(bounds=QUICK))


@each_api
async def test_a_stream_without_end_is_bounded(stand: Stand, upstream: Provider, kind: Kind) -> None:
    events = kind.framed(kind.events(["word "] * 4000, (), kind.endings["stop"])[:-3])
    upstream.will(half(events, kind="text/event-stream", then="hang"))

    assert "more than 200000 bytes" in await ended(kind, await stand.gate(bounds=QUICK))


async def test_a_stream_that_trickles_for_ever_is_ended(stand: Stand) -> None:
    piece = CHAT.framed([chunk({"content": "word "})]).removesuffix(b"data: [DONE]\n\n")

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        over = asyncio.ensure_future(reader.read())  # the gateway says nothing more, so this ends when it goes
        with contextlib.suppress(ConnectionError):
            while not (await asyncio.wait((over,), timeout=0.01))[0]:
                writer.write(piece)
                await writer.drain()
        over.cancel()
        writer.close()

    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(BOUND_S):
        told = await ended(CHAT, await stand.gate(url=url, bounds=TransferLimits(whole_s=0.3)))
    server.close()

    assert "in time" in told


@each_api
async def test_a_line_without_end_is_bounded(stand: Stand, upstream: Provider, kind: Kind) -> None:
    upstream.will(half(b"data: " + b"x" * 100_000, kind="text/event-stream", then="hang"))

    error = await refusal(kind, await stand.gate(bounds=QUICK), stream=True)

    assert "more than 50000 bytes" in error.message


@each_api
async def test_a_stream_that_is_complete_but_never_closed_ends(stand: Stand, upstream: Provider, kind: Kind) -> None:
    """Some servers forget the last event, or to close the connection."""
    events = kind.framed(kind.events(["It is warm."], (), kind.endings["stop"])).removesuffix(b"data: [DONE]\n\n")
    upstream.will(half(events, kind="text/event-stream", then="hang"))

    got = await kind.ask(await stand.gate(bounds=QUICK), stream=True)

    assert (got.text, got.ending) == ("It is warm.", kind.endings["stop"])


@each_api
async def test_a_client_that_wants_a_stream_gets_one_even_from_an_upstream_that_answers_whole(
    stand: Stand, upstream: Provider, kind: Kind
) -> None:
    upstream.will(kind.says("It is warm."))

    got = await kind.ask(await stand.gate(), stream=True)

    assert (got.text, got.ending) == ("It is warm.", kind.endings["stop"])


async def test_a_chat_stream_that_never_says_why_it_ended_gets_a_reason(stand: Stand, upstream: Provider) -> None:
    events = CHAT.events(['<tool_call>{"name": "read_temperature", "arguments": {"room": "hall"}}'], (), "stop")
    upstream.will(answer(CHAT.framed(events[:-2]), kind="text/event-stream"))

    got = await CHAT.ask(await stand.gate(), stream=True)

    assert (got.calls, got.ending) == ([("read_temperature", {"room": "hall"})], "tool_calls")


async def test_a_silent_upstream_does_not_leave_the_client_without_a_sign_of_life(
    stand: Stand, upstream: Provider
) -> None:
    """A model that reads a long prompt says nothing for minutes, and clients give up on silent connections."""
    upstream.will(Scripted(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", "hang"))
    gate = await stand.gate(bounds=TransferLimits(keep_alive_s=0.05))

    async with gate.http() as client, asyncio.timeout(BOUND_S):
        asked = {"model": "m", "stream": True, "messages": []}
        async with client.stream("POST", "/v1/chat/completions", json=asked) as got:
            first = await anext(got.aiter_lines())

    assert first.startswith(":")


@whole_and_streamed
async def test_the_upstream_is_let_go_when_the_client_leaves(stand: Stand, stream: bool) -> None:
    """A generation that nobody reads should stop, and most servers stop when their client leaves."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        left.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    gate = await stand.gate(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server, gate.http() as client, asyncio.timeout(BOUND_S):
        asking = asyncio.ensure_future(client.post("/v1/chat/completions", json={"model": "m", "stream": stream}))
        await asked.wait()
        asking.cancel()
        await asyncio.wait([asking])
        await left.wait()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_the_gateways_own_key_is_never_quoted(stand: Stand, upstream: Provider, kind: Kind) -> None:
    upstream.will(says({"error": {"message": f"Incorrect API key: {SECRET}", "type": "x"}}, status=401))

    async with (await stand.gate(key=SECRET)).http() as client:
        got = await client.post(kind.path, json={"model": "m"})

    assert got.status_code == 401
    assert SECRET not in got.text
    assert "Incorrect API key: ***" in got.text


@pytest.mark.parametrize("spelled", SPELLINGS)
async def test_T144_no_spelling_of_the_gateways_own_key_is_quoted(
    stand: Stand, upstream: Provider, spelled: str
) -> None:
    quoted = SPELLINGS[spelled](SECRET)
    error = {"message": f"Incorrect API key: {quoted}.", "type": "x", "param": {quoted: [quoted]}}
    upstream.will(says({"error": error}, status=401))

    async with (await stand.gate(key=SECRET)).http() as client:
        got = await client.post("/v1/chat/completions", json={"model": "m"})

    assert got.status_code == 401
    assert json.dumps(quoted)[1:-1] not in got.text
    assert "Incorrect API key: " in got.text


@each_api
@whole_and_streamed
@pytest.mark.parametrize(("asked", "passed"), [("3600", "3600"), ("120.5", "121")])
async def test_the_wait_that_a_models_provider_asks_for_is_passed_on(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool, asked: str, passed: str
) -> None:
    """With `--model` the gateway asks a provider itself; when to come back is for the client to know."""
    upstream.will(says({"error": {"message": "slow down please"}}, status=429, retry_after=asked))
    model = OpenAIChat("some-model", f"{upstream.url}/v1", SECRET)

    error = await refusal(kind, await stand.gate(model=model), stream=stream)

    await model.close()
    assert isinstance(error, (openai.RateLimitError, anthropic.RateLimitError))
    assert error.response.headers["retry-after"] == passed
