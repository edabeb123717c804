"""CPU that the gateway adds to a request: `python -m benchmarks.gateway`.

The gateway runs as its own process, between a client and an upstream that answers at once; both are this process.
What is counted is the CPU time of the gateway's process alone, read from the kernel before and after. The floor is
the least that such a process can do with the same server and client libraries: pass the bytes on and back. `own` is
what toolwire itself does, measured alone.

`python -m benchmarks.gateway_litellm` puts the same requests through LiteLLM's proxy.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.cpu import cpu_us
from toolwire.gateway.app import new_call_id
from toolwire.gateway.asked import ToolLists, read_asked
from toolwire.gateway.calls import Ids, Tally
from toolwire.gateway.same_openai import OpenAIStream, repair
from toolwire.gateway.server import address_of, listen, server_of
from toolwire.models.payloads import DONE, EventData

TARGET_US = 1000.0
LEAKED = 'Let me look.\n<tool_call>\n{"name": "tool_7", "arguments": {"query": "the kitchen"}}\n</tool_call>'
NATIVE = {"id": "call_1", "type": "function", "function": {"name": "tool_7", "arguments": '{"query": "the kitchen"}'}}


def tools(count: int) -> list[Any]:
    schema = {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}}
    described = [{"name": f"tool_{at}", "description": "Find something.", "parameters": schema} for at in range(count)]
    return [{"type": "function", "function": function} for function in described]


def asked(count: int, messages: int, *, stream: bool = False) -> bytes:
    said = [{"role": "user" if at % 2 == 0 else "assistant", "content": "word " * 40} for at in range(messages)]
    return json.dumps({"model": "m", "messages": said, "tools": tools(count), "stream": stream}).encode()


def whole(message: Any, ending: str = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": ending}
    usage = {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return framed("application/json", json.dumps(head | {"choices": [choice], "usage": usage}).encode())


def streamed(pieces: list[str]) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas: list[Any] = [({"content": piece}, None) for piece in pieces]
    chunks = [
        head | {"choices": [{"index": 0, "delta": delta, "finish_reason": ending}]}
        for delta, ending in [*deltas, ({}, "stop")]
    ]
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    return framed("text/event-stream", body + b"data: [DONE]\n\n")


def framed(kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


CASES: dict[str, tuple[bytes, bytes]] = {
    "plain answer, no tools": (asked(0, 2), whole({"content": "It is warm."})),
    "plain answer, 15 tools": (asked(15, 10), whole({"content": "It is warm."})),
    "native call, 15 tools": (asked(15, 10), whole({"content": None, "tool_calls": [NATIVE]}, "tool_calls")),
    "leaked call, 15 tools": (asked(15, 10), whole({"content": LEAKED})),
    "leaked call, 50 tools, 40 messages": (asked(50, 40), whole({"content": LEAKED})),
    "stream of 200 pieces, 15 tools": (asked(15, 10, stream=True), streamed(["word "] * 200)),
}


class Upstream:
    """Answers every request with the same bytes, at once."""

    def __init__(self) -> None:
        self.answer = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_message(reader):
            writer.write(self.answer)
        writer.close()


async def read_message(reader: asyncio.StreamReader) -> bytes:
    """One HTTP message; empty when the connection is over."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    if b"transfer-encoding: chunked" in head.lower():
        return head + await reader.readuntil(b"\r\n0\r\n\r\n")
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    return head + await reader.readexactly(int(length.partition(b":")[2]))


def taken_us(process: int) -> float:
    """CPU time of a process so far, all its threads together."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1000


async def measured(ask: Callable[[], Awaitable[None]], process: int, requests: int, repetitions: int) -> list[float]:
    for _ in range(max(20, requests // 10)):
        await ask()
    found = []
    for _ in range(repetitions):
        before = taken_us(process)
        for _ in range(requests):
            await ask()
        found.append((taken_us(process) - before) / requests)
    return found


def own_us(body: bytes, answer: bytes) -> float:
    """CPU of what toolwire itself does: reading the request, reading and mending the answer."""
    lists = ToolLists()
    head, _, payload = answer.partition(b"\r\n\r\n")

    def whole() -> None:
        asked = read_asked(body, "openai", lists)
        repair(orjson.loads(payload), asked.tools, Ids(asked.taken, new_call_id), Tally())

    def stream() -> None:
        asked = read_asked(body, "openai", lists)
        passing = OpenAIStream(asked.tools, Ids(asked.taken, new_call_id), Tally())
        for piece in EventData(10**6).feed(payload):
            if piece != DONE:
                passing.feed(piece, orjson.loads(piece))

    return cpu_us(stream if b"event-stream" in head else whole, 0.2)


async def bare_proxy(port: int) -> None:
    """The floor: the same libraries, and nothing read, checked or logged."""
    client = httpx2.AsyncClient(trust_env=False)

    async def passed(request: Request) -> Response:
        url = f"http://127.0.0.1:{port}{request.url.path}"
        got = await client.post(url, content=await request.body(), headers={"content-type": "application/json"})
        return Response(got.content, media_type=got.headers["content-type"])

    sock = listen("127.0.0.1", 0)
    print(f"bare {address_of(sock)}/v1", flush=True)
    await server_of(Starlette(routes=[Route("/v1/chat/completions", passed, methods=["POST"])])).serve([sock])


@asynccontextmanager
async def started(*words: str, **environ: str) -> AsyncIterator[tuple[int, int]]:
    """A process of its own that prints its address; gives its id and port."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *words, stdout=asyncio.subprocess.PIPE, stderr=quiet, env=os.environ | environ
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        yield process.pid, int(line.split()[1].split(":")[2].partition("/")[0])
    finally:
        process.terminate()
        await process.wait()


async def cost(process: int, port: int, body: bytes, requests: int, repetitions: int) -> list[float]:
    """CPU for each request on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"

    async def ask() -> None:
        writer.write(head.encode() + body)
        assert b" 200 " in (await read_message(reader))[:20]

    try:
        return await measured(ask, process, requests, repetitions)
    finally:
        writer.close()


async def run(requests: int, repetitions: int) -> None:
    upstream = Upstream()
    behind = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=2**24)
    port = str(behind.sockets[0].getsockname()[1])
    address = f"http://127.0.0.1:{port}"
    async with (
        started("toolwire", "serve", "--upstream", address, "--port", "0") as ours,
        started("benchmarks.gateway", "--bare", port) as bare,
    ):
        print(f"{'CPU for one request, us':<40}{'gateway':>8}{'floor':>8}{'own':>8}   target {TARGET_US:.0f}")
        for name, (body, upstream.answer) in CASES.items():
            taken = await cost(*ours, body, requests, repetitions)
            floor = await cost(*bare, body, requests, repetitions)
            spread = f"[{min(taken):.0f}..{max(taken):.0f}], floor [{min(floor):.0f}..{max(floor):.0f}]"
            print(
                f"{name:<40}{median(taken):>8.0f}{median(floor):>8.0f}{own_us(body, upstream.answer):>8.0f}   {spread}",
                flush=True,
            )
    behind.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--bare", type=int, metavar="PORT", help="be the floor, in front of this port")
    options = parser.parse_args()
    asyncio.run(bare_proxy(options.bare) if options.bare else run(options.requests, options.repetitions))


if __name__ == "__main__":
    main()
