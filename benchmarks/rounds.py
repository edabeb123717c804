"""Rounds of durable calls in a process of their own: asked for in lines of JSON, answered in the same way."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median

Call = Callable[[int], Awaitable[object]]


async def serve_rounds(call: Call) -> None:
    """Make the calls that each line asks for, `{"calls": 100, "in_flight": 1}`, until there are no more lines."""
    await call(0)
    print(json.dumps({"ready": True}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        print(json.dumps(await _round(call, asked["calls"], asked["in_flight"])), flush=True)


async def _round(call: Call, calls: int, in_flight: int) -> dict[str, float]:
    left, taken = iter(range(calls)), []

    async def make() -> None:
        for number in left:
            began = time.perf_counter()
            await call(number)
            taken.append((time.perf_counter() - began) * 1000)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(make() for _ in range(in_flight)))
    seconds = time.perf_counter() - began
    return {
        "p50_ms": median(taken),
        "p99_ms": sorted(taken)[int(calls * 0.99)],
        "per_s": calls / seconds,
        "cpu_ms": (time.process_time() - cpu) * 1000 / calls,
    }
