"""Runs subjects, each repetition in a fresh process, round after round, so that a busy moment meets all of them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import orjson

from benchmarks import starting
from benchmarks.subjects import LOOPS, OTHERS, PEERS

Figures = dict[str, float]

ROOT = Path(__file__).parent.parent
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
GROUPS = ("loops", "durable", "starting", "checks")
LONGEST_S = 600


@dataclass(slots=True)
class Collected:
    """Figures by subject, one set for each repetition, and what went wrong with peers."""

    figures: dict[str, list[Figures]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement of one subject. Only a peer may fail."""

    subject: str
    measure: Callable[[], Figures]


def collect(jobs: Iterable[Job], repetitions: int, tell: Callable[[str], None]) -> Collected:
    """Do every job as often as asked. Raises CalledProcessError when one of ours fails."""
    collected, jobs = Collected(), list(jobs)
    for number in range(1, repetitions + 1):
        tell(f"round {number} of {repetitions}")
        for place, figures in _round(jobs, collected):
            kept = collected.figures.setdefault(jobs[place].subject, [])
            if len(kept) < number:
                kept.append({})
            kept[-1] |= figures
    return collected


def _round(jobs: list[Job], collected: Collected) -> Iterator[tuple[int, Figures]]:
    for place, job in enumerate(jobs):
        if job.subject in collected.failures:
            continue
        try:
            yield place, job.measure()
        except subprocess.SubprocessError as error:
            if job.subject not in PEERS:
                raise
            collected.figures.pop(job.subject, None)
            collected.failures[job.subject] = _last_line(error)


def jobs(groups: Iterable[str], seconds: float, *, peers: bool) -> Iterator[Job]:
    """Everything to measure, our own first."""
    chosen = set(groups)
    others = {"durable": "durable", "durable_floor": "durable", "validating": "checks", "translation": "checks"}
    yield from (_job(name, seconds) for name in OTHERS if others[name] in chosen)
    if "loops" in chosen:
        yield from (_job(name, seconds) for name in LOOPS)
    if "starting" in chosen:
        ours = [name for name in starting.IMPORTS if name not in PEERS]
        yield from (Job(name, partial(starting.import_figures, sys.executable, name)) for name in ours)
        yield Job("toolwire", lambda: {"help_ms": starting.help_ms()})
        yield Job("interpreter", lambda: {"help_ms": starting.nothing_ms()})
        for name in starting.CALLS:
            yield Job("toolwire", partial(starting.call_figures, name))
        yield Job("interpreter", starting.no_call_figures)
    if peers:
        yield from _peer_jobs(chosen, seconds)


def _peer_jobs(chosen: set[str], seconds: float) -> Iterator[Job]:
    python = str(PEERS_PYTHON)
    for name in PEERS:
        if "loops" in chosen:
            yield _job(name, seconds, python)
        if "starting" in chosen:
            yield Job(name, partial(starting.import_figures, python, name))


def _job(name: str, seconds: float, python: str = sys.executable) -> Job:
    return Job(name, partial(measured, name, seconds, python))


def measured(name: str, seconds: float, python: str = sys.executable) -> Figures:
    """One repetition of a subject in a process of its own."""
    command = [python, "-W", "ignore", "-m", "benchmarks.subjects", name, "--seconds", str(seconds)]
    quiet = os.environ | {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, check=True, timeout=LONGEST_S)
    figures: Figures = orjson.loads(done.stdout.splitlines()[-1])
    return figures


def _last_line(error: subprocess.SubprocessError) -> str:
    words = getattr(error, "stderr", b"") or str(error).encode()
    return (words if isinstance(words, bytes) else words.encode()).decode(errors="replace").strip().splitlines()[-1]
