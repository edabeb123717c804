"""One subject in a process of its own: `python -m benchmarks.subjects NAME` prints its figures as JSON.

A figure is CPU time of this process in microseconds for one run, unless its name says otherwise.
"""

import argparse
import asyncio
import gc
import importlib
import time
from collections.abc import Callable

import orjson

from benchmarks import durable, floors, ours, translation, validating
from benchmarks.task import ANSWER, SHAPES, WEATHER, Run, Shape, Subject

Figures = dict[str, float]

LOOPS: dict[str, Callable[[], Subject]] = {
    "bare": floors.Bare,
    "bare_safe": floors.BareSafe,
    "toolwire": lambda: ours.Ours(ours.ready, encodes=True),
    "toolwire_unencoded": lambda: ours.Ours(ours.ready, encodes=False),
    "toolwire_parsed": lambda: ours.Ours(ours.parsed, encodes=True),
}
PEERS = {
    "smolagents": "benchmarks.peers.with_smolagents",
    "pydantic-ai": "benchmarks.peers.with_pydantic_ai",
    "openai-agents": "benchmarks.peers.with_openai_agents",
    "langchain": "benchmarks.peers.with_langchain",
    "langgraph": "benchmarks.peers.with_langgraph",
}
OTHERS: dict[str, Callable[[float], Figures]] = {
    "durable": durable.figures,
    "durable_floor": durable.floor_figures,
    "validating": validating.figures,
    "translation": translation.figures,
}


def figures(name: str, seconds: float) -> Figures:
    """Measure a subject, giving each of its figures about this much time."""
    if name in OTHERS:
        return OTHERS[name](seconds)
    subject = LOOPS[name]() if name in LOOPS else peer(name)
    return asyncio.run(_loop_figures(subject, seconds))


def peer(name: str) -> Subject:
    """A peer's module, imported only in the process that measures it."""
    module: Subject = importlib.import_module(PEERS[name])
    return module


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
