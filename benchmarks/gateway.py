"""CPU that the gateway adds to a request: `python -m benchmarks.gateway`.

The gateway runs as its own process, between a client and an upstream that answers at once; both are this process.
What is counted is the CPU time of the gateway's process alone, read from the kernel before and after.

There is no LiteLLM beside it. `docs/gateway.md` names a recorded figure for its SDK.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

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


def cpu_us(process: int) -> float:
    """CPU time of a single-threaded process so far."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1000


async def measured(ask: Callable[[], Awaitable[None]], process: int, requests: int, repetitions: int) -> list[float]:
    for _ in range(max(20, requests // 10)):
        await ask()
    found = []
    for _ in range(repetitions):
        before = cpu_us(process)
        for _ in range(requests):
            await ask()
        found.append((cpu_us(process) - before) / requests)
    return found


async def run(requests: int, repetitions: int) -> None:
    upstream = Upstream()
    behind = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=2**24)
    port = behind.sockets[0].getsockname()[1]
    command = [sys.executable, "-m", "toolwire", "serve", "--upstream", f"http://127.0.0.1:{port}", "--port", "0"]
    gateway = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert gateway.stdout is not None
    try:
        url = (await gateway.stdout.readline()).decode().split()[1]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(url.split(":")[2].partition("/")[0]), limit=2**24
        )
        print(f"{'CPU of the gateway for one request':<40}{'median us':>10}  [min..max]   target {TARGET_US:.0f}")
        for name, (body, upstream.answer) in CASES.items():
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            )

            async def ask(sent: bytes = head + body) -> None:
                writer.write(sent)
                assert b" 200 " in (await read_message(reader))[:20]

            found = await measured(ask, gateway.pid, requests, repetitions)
            print(f"{name:<40}{median(found):>10.0f}  [{min(found):.0f}..{max(found):.0f}]")
        writer.close()
    finally:
        gateway.terminate()
        await gateway.wait()
        behind.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(run(options.requests, options.repetitions))


if __name__ == "__main__":
    main()
