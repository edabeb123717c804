"""One subject in a process of its own: `python -m benchmarks.subjects NAME` prints its figures as JSON.

A figure is CPU time of this process in microseconds for one run, unless its name says otherwise.
"""

import argparse
import asyncio
import gc
import importlib
import time
from typing import Any

import orjson

from benchmarks.task import ANSWER, SHAPES, WEATHER, Run, Shape, Subject

Figures = dict[str, float]

# Subjects are named, not imported: a process holds only what it measures, so nobody's garbage collector walks
# through the modules of another.
LOOPS = {
    "bare": "benchmarks.floors:BARE",
    "bare_safe": "benchmarks.floors:BARE_SAFE",
    "toolwire": "benchmarks.ours:ENCODED",
    "toolwire_unencoded": "benchmarks.ours:UNENCODED",
    "toolwire_parsed": "benchmarks.ours:PARSED",
}
PEERS = {
    "smolagents": "benchmarks.peers.with_smolagents",
    "pydantic-ai": "benchmarks.peers.with_pydantic_ai",
    "openai-agents": "benchmarks.peers.with_openai_agents",
    "langchain": "benchmarks.peers.with_langchain",
    "langgraph": "benchmarks.peers.with_langgraph",
}
OTHERS = {
    "durable": "benchmarks.durable:figures",
    "durable_floor": "benchmarks.durable:floor_figures",
    "validating": "benchmarks.validating:figures",
    "translation": "benchmarks.translation:figures",
}


def figures(name: str, seconds: float) -> Figures:
    """Measure a subject, giving each of its figures about this much time."""
    found = _at({**LOOPS, **PEERS, **OTHERS}[name])
    measured: Figures = found(seconds) if name in OTHERS else asyncio.run(_loop_figures(found, seconds))
    return measured


def _at(place: str) -> Any:
    """What stands at `module:name`, or the module itself."""
    module, _, name = place.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


async def _loop_figures(subject: Subject, seconds: float) -> Figures:
    await _run_us(subject.prepare(Shape(2)), 3)
    return {name: await _measured(subject, shape, seconds) for name, shape in SHAPES.items()}


async def _measured(subject: Subject, shape: Shape, seconds: float) -> float:
    """Run as often as the time allows; a run that takes all of it is its own measurement."""
    run, before = subject.prepare(shape), WEATHER.asked
    once_us = await _run_us(run, 1)
    assert WEATHER.asked - before == shape.tool_calls, f"{WEATHER.asked - before} calls, not {shape.tool_calls}"
    rounds = int(seconds * 1e6 / max(once_us, 1.0))
    return await _run_us(run, rounds) if rounds > 1 else once_us


async def _run_us(run: Run, rounds: int) -> float:
    gc.collect()
    began = time.process_time_ns()
    for _ in range(rounds):
        answer = await run()
    taken = time.process_time_ns() - began
    assert answer == ANSWER, answer
    return taken / rounds / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*LOOPS, *PEERS, *OTHERS])
    parser.add_argument("--seconds", type=float, default=0.3)
    options = parser.parse_args()
    print(orjson.dumps(figures(options.name, options.seconds)).decode())


if __name__ == "__main__":
    main()
