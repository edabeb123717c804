"""Searching the web, against local servers that answer in the shapes of real search engines."""

import asyncio
import json
from typing import Any

import pytest

from tests.egress.network import Answering, Heard, saying, serving
from tests.toolbox.conftest import Call
from toolwire.errors import SettingsError, ToolFailure
from toolwire.protocol.outcomes import Code
from toolwire.toolbox.web.search import NAMES, NoBackend, search_backend, search_tool

SEARXNG = {
    "query": "tea",
    "number_of_results": 0,
    "results": [
        {"url": "https://a.example/tea", "title": "Tea", "content": "All about\n tea", "engine": "one", "score": 1.0},
        {"url": "javascript:alert(1)", "title": "Bad", "content": "bad"},
        {"url": "https://b.example/", "title": "Cups\u202e", "content": None, "engine": "two"},
        "odd",
    ],
    "answers": [],
}
BRAVE = {
    "type": "search",
    "query": {"original": "tea"},
    "web": {
        "type": "search",
        "results": [{"title": "Tea", "url": "https://a.example/tea", "description": "All about tea"}],
    },
}
TAVILY = {
    "query": "tea",
    "answer": None,
    "results": [{"title": "Tea", "url": "https://a.example/tea", "content": "All about tea", "score": 0.9}],
    "response_time": 0.5,
}
TEA = {"title": "Tea", "url": "https://a.example/tea", "snippet": "All about tea"}


def answering(said: Any) -> Answering:
    return saying(json.dumps(said).encode(), "content-type: application/json")


@pytest.mark.feature("F246")
@pytest.mark.parametrize("name", NAMES)
async def test_a_search_lists_what_a_searxng_server_found(call: Call, name: str) -> None:
    async with asyncio.timeout(5), serving(answering(SEARXNG)) as server:
        backend = search_backend("searxng", url=f"http://127.0.0.1:{server.port}/")
        found = await call(search_tool(backend, name), query="green tea & cake", max_results=5)

    assert server.heard[0].line == "GET /search?q=green+tea+%26+cake&format=json HTTP/1.1"
    assert found["results"] == [TEA, {"title": "Cups", "url": "https://b.example/", "snippet": ""}]
    assert (found["query"], found["count"], found["backend"]) == ("green tea & cake", 2, "searxng")


@pytest.mark.feature("F246")
async def test_a_search_lists_what_brave_found(call: Call) -> None:
    async with asyncio.timeout(5), serving(answering(BRAVE)) as server:
        backend = search_backend("brave", url=f"http://127.0.0.1:{server.port}/res/v1/web/search", key="brave-key")
        found = await call(search_tool(backend), query="tea", max_results=3)

    assert found["results"] == [TEA]
    assert server.heard[0].line == "GET /res/v1/web/search?q=tea&count=3 HTTP/1.1"
    assert server.heard[0].headers["x-subscription-token"] == "brave-key"


@pytest.mark.feature("F246")
async def test_a_search_lists_what_tavily_found(call: Call) -> None:
    async with asyncio.timeout(5), serving(answering(TAVILY)) as server:
        backend = search_backend("tavily", url=f"http://127.0.0.1:{server.port}/search", key="tavily-key")
        found = await call(search_tool(backend), query="tea")

    assert found["results"] == [TEA]
    assert json.loads(server.heard[0].body) == {"query": "tea", "max_results": 10}
    assert server.heard[0].headers["authorization"] == "Bearer tavily-key"


async def test_no_more_results_are_given_than_were_asked_for(call: Call) -> None:
    async with asyncio.timeout(5), serving(answering(SEARXNG)) as server:
        backend = search_backend("searxng", url=f"http://127.0.0.1:{server.port}")
        found = await call(search_tool(backend), query="tea", max_results=1)

    assert found["count"] == 1


async def test_without_a_backend_the_error_says_what_to_set(call: Call) -> None:
    with pytest.raises(ToolFailure, match="give one of searxng") as failed:
        await call(search_tool(NoBackend()), query="tea")

    assert failed.value.code is Code.UNAVAILABLE


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        ("401 No", b"", "refuses the key"),
        ("429 Slow", b"", "try later"),
        ("500 Oh", b"", "try later"),
        ("404 No", b"", "HTTP 404"),
        ("200 OK", b"<html>", "did not answer in JSON"),
        ("200 OK", b"[" * 10_000, "did not answer in JSON"),
        ("302 Found", b"", "HTTP 302"),
    ],
)
async def test_a_backend_in_trouble_is_named_and_its_key_is_not(
    call: Call, status: str, body: bytes, words: str
) -> None:
    async with asyncio.timeout(5), serving(saying(body, "location: http://127.0.0.1/", status=status)) as server:
        backend = search_backend("brave", url=f"http://127.0.0.1:{server.port}/", key="brave-key")
        with pytest.raises(ToolFailure, match=words) as failed:
            await call(search_tool(backend), query="tea")

    assert "brave-key" not in str(failed.value) + repr(backend)
    assert len(server.heard) == 1


@pytest.mark.parametrize("said", [None, [], {}, {"results": 5}, {"results": [None, {}, {"url": 5}]}, {"web": []}])
@pytest.mark.parametrize("kind", ["searxng", "brave", "tavily"])
async def test_an_answer_of_another_shape_is_no_result(call: Call, kind: str, said: Any) -> None:
    async with asyncio.timeout(5), serving(answering(said)) as server:
        backend = search_backend(kind, url=f"http://127.0.0.1:{server.port}/", key="some-key")
        found = await call(search_tool(backend), query="tea")

    assert found["results"] == []


async def test_T55_a_key_goes_to_its_own_backend_and_a_redirect_does_not_take_it_along(call: Call) -> None:
    async with asyncio.timeout(5), serving(answering(BRAVE)) as other:
        elsewhere = f"location: http://127.0.0.1:{other.port}/"
        async with serving(saying(b"", elsewhere, status="302 Found")) as server:
            backend = search_backend("brave", url=f"http://127.0.0.1:{server.port}/", key="brave-key")
            with pytest.raises(ToolFailure):
                await call(search_tool(backend), query="tea")

    assert other.connections == 0
    assert server.heard[0].headers["x-subscription-token"] == "brave-key"


async def test_T55_the_control_a_client_that_keeps_its_headers_hands_the_key_over() -> None:
    async def handing_over(heard: Heard, writer: asyncio.StreamWriter) -> None:
        _, second = await asyncio.open_connection("127.0.0.1", other.port)
        lines = "".join(f"{name}: {value}\r\n" for name, value in heard.headers.items())
        second.write(f"GET / HTTP/1.1\r\n{lines}\r\n".encode())
        await second.drain()
        second.close()
        await other.reached.wait()

    async with asyncio.timeout(5), serving(answering(BRAVE)) as other, serving(handing_over) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nx-subscription-token: brave-key\r\n\r\n")
        await reader.read()
        writer.close()

    assert other.connections == 1


async def test_a_backend_cannot_be_a_metadata_service(call: Call) -> None:
    backend = search_backend("searxng", url="http://169.254.169.254/")

    with pytest.raises(ToolFailure) as failed:
        await call(search_tool(backend), query="tea")

    assert failed.value.code is Code.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("kind", "url"),
    [("searxng", ""), ("brave", ""), ("tavily", ""), ("altavista", ""), ("searxng", "file:///etc/passwd")],
)
def test_a_backend_that_is_set_wrongly_is_refused_at_once(kind: str, url: str) -> None:
    with pytest.raises(SettingsError):
        search_backend(kind, url=url)
