"""The same requests through the gateway and LiteLLM's proxy, in turns: `python -m benchmarks.gateway_litellm LITELLM`.

LiteLLM lives in an environment of its own (`uv venv E && VIRTUAL_ENV=E uv pip install 'litellm[proxy]'`). It does not
start without a master key, so the gateway is given a token too, and both check one for each request. LiteLLM passes
leaked calls on as the text that they are.
"""

import argparse
import asyncio
import json
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from benchmarks.gateway import CASES, TARGET_US, Upstream, measured, read_message, started
from toolwire.gateway.server import listen

SHARE = 0.1
START_S = 60.0


def free_port() -> int:
    with listen("127.0.0.1", 0) as sock:
        return int(sock.getsockname()[1])


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a server that may still be starting."""
    async with asyncio.timeout(START_S):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", port, limit=2**24)
            except OSError:
                await asyncio.sleep(0.2)


@asynccontextmanager
async def asking(port: int, key: str, body: bytes) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """What asks once, on one connection."""
    reader, writer = await connected(port)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()

    async def ask() -> None:
        writer.write(head + body)
        assert b" 200 " in (await read_message(reader))[:20]

    try:
        yield ask
    finally:
        writer.close()


@asynccontextmanager
async def litellm(command: str, base: str, key: str) -> AsyncIterator[tuple[int, int]]:
    """LiteLLM's proxy in front of an upstream; gives its process and port."""
    served = {"model_name": "m", "litellm_params": {"model": "openai/m", "api_base": base, "api_key": "unused"}}
    port, quiet = free_port(), asyncio.subprocess.DEVNULL
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(json.dumps({"model_list": [served]}))  # JSON is YAML
        process = await asyncio.create_subprocess_exec(
            command, "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False",
            stdout=quiet, stderr=quiet,
            env=os.environ | {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "*"},
        )  # fmt: skip
        try:
            yield process.pid, port
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


async def compared(
    ours: tuple[int, int], theirs: tuple[int, int], key: str, body: bytes, requests: int, repetitions: int
) -> tuple[list[float], list[float]]:
    """CPU for each request of both, measured in turns."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(repetitions):
        for (process, port), times in zip((ours, theirs), found, strict=True):
            async with asking(port, key, body) as ask:
                times.extend(await measured(ask, process, requests, 1))
    return found


async def run(command: str, requests: int, repetitions: int) -> bool:
    """Whether the gateway stayed within both targets."""
    upstream, key = Upstream(), f"sk-{secrets.token_hex(24)}"
    behind = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=2**24)
    address = f"http://127.0.0.1:{behind.sockets[0].getsockname()[1]}"
    within = True
    async with (
        started("toolwire", "serve", "--upstream", address, "--port", "0", "--token-env", "GATE", GATE=key) as ours,
        litellm(command, f"{address}/v1", key) as theirs,
    ):
        print(f"{'CPU for one request, us':<40}{'gateway':>8}{'LiteLLM':>9}{'share':>8}")
        for name, (body, upstream.answer) in CASES.items():
            if b'"stream": false' in body:
                we, they = map(median, await compared(ours, theirs, key, body, requests, repetitions))
                print(f"{name:<40}{we:>8.0f}{they:>9.0f}{we / they:>8.3f}", flush=True)
                within = within and we <= TARGET_US and we / they <= SHARE
    behind.close()
    return within


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", help="the litellm command of its own environment")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    sys.exit(0 if asyncio.run(run(options.command, options.requests, options.repetitions)) else 1)


if __name__ == "__main__":
    main()
