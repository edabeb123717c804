"""Restate: a service whose handler makes one step. `… serve PORT` is the service, `… call INGRESS` answers rounds."""

import asyncio
import sys

import httpx
import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from benchmarks.rounds import serve_rounds

IN_FLIGHT = 64
durable = restate.Service("durable")


async def work(number: int) -> str:
    return f"done {number}"


@durable.handler()
async def run(context: restate.Context, number: int) -> str:
    result: str = await context.run_typed("work", work, number=number)
    return result


async def serve_service(port: int) -> None:
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.errorlog = None
    await serve(restate.app([durable]), config)


async def call_service(ingress: str) -> None:
    limits = httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
    async with httpx.AsyncClient(base_url=ingress, limits=limits, timeout=60.0) as client:

        async def call(number: int) -> None:
            response = await client.post("/durable/run", json=number)
            assert response.json() == f"done {number}", response.text

        await serve_rounds(call)


if __name__ == "__main__":
    role, place = sys.argv[1:]
    asyncio.run(serve_service(int(place)) if role == "serve" else call_service(place))
