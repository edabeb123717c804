"""The same requests through LiteLLM's proxy: `python -m benchmarks.gateway_litellm PATH/TO/litellm`.

LiteLLM lives in an environment of its own (`uv venv E && VIRTUAL_ENV=E uv pip install 'litellm[proxy]'`). It does not
start without a master key, so unlike the gateway's own run this one includes the check of a key. It passes leaked
calls on as the text that they are.
"""

import argparse
import asyncio
import json
import os
import secrets
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.gateway import CASES, Upstream, measured, read_message
from toolwire.gateway.server import listen

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


async def cost(process: int, port: int, key: str, body: bytes, requests: int, repetitions: int) -> list[float]:
    """CPU for each request on one connection."""
    reader, writer = await connected(port)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()

    async def ask() -> None:
        writer.write(head + body)
        assert b" 200 " in (await read_message(reader))[:20]

    try:
        return await measured(ask, process, requests, repetitions)
    finally:
        writer.close()


async def run(command: str, requests: int, repetitions: int) -> None:
    upstream, key, port = Upstream(), f"sk-{secrets.token_hex(24)}", free_port()
    behind = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=2**24)
    base = f"http://127.0.0.1:{behind.sockets[0].getsockname()[1]}/v1"
    served = {"model_name": "m", "litellm_params": {"model": "openai/m", "api_base": base, "api_key": "unused"}}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(json.dumps({"model_list": [served]}))  # JSON is YAML
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            command, "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False",
            stdout=quiet, stderr=quiet,
            env=os.environ | {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "*"},
        )  # fmt: skip
        try:
            print(f"{'CPU of the LiteLLM proxy for one request':<44}{'us':>8}")
            for name, (body, upstream.answer) in CASES.items():
                if b'"stream": false' in body:
                    found = await cost(process.pid, port, key, body, requests, repetitions)
                    print(f"{name:<44}{median(found):>8.0f}   [{min(found):.0f}..{max(found):.0f}]", flush=True)
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
            behind.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", help="the litellm command of its own environment")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(run(options.command, options.requests, options.repetitions))


if __name__ == "__main__":
    main()
