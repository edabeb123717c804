"""`python -m tests.mutation [MODULE …] [--sample N]`: how many mutants of these modules the tests kill.

Tests are collected and tried once, so that it is known which of them reach which line. Then each mutant gets a fork of
this process in which those tests run, the quickest first, until one fails.
"""

import argparse
import importlib
import os
import random
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.mutants import Mutant, apply, mutants

# What is mutated, and the tests that concern it.
_AGENT = ("tests/loop/test_agent.py", "tests/loop/test_approvals.py")
_LOOP = (*_AGENT, *(f"tests/loop/test_{name}.py" for name in ("step", "step_edges", "too_many_calls", "taint")))
SUBJECTS: dict[str, Sequence[str]] = {
    "loop.step": ("tests/loop/test_step.py", "tests/loop/test_step_edges.py"),
    "decide.ladder": ("tests/decide", *_AGENT),
    "decide.policy": ("tests/decide", *_AGENT),
    "decide.matching": ("tests/decide",),
    "decide.patterns": ("tests/decide", "tests/loop/test_patterns.py"),
    "record.ledger": tuple(
        f"tests/record/test_{name}.py"
        for name in ("leases", "store_calls", "store_turns", "store_approvals", "store_waits", "projects", "taken_back")
    ),
    "hub.judging": (*_LOOP, "tests/execute"),
    "hub.approvals": (*_LOOP, "tests/execute"),
    "hub.allowance": (*_LOOP, "tests/loop/test_budgets.py", "tests/execute"),
    "hub.journey": (*_LOOP, "tests/execute"),
}
LIMIT_S = 20
_MOST_TESTS = 400
"""A mutant that so many tests did not notice survives."""

_LONG_EXPRESSION = 12

Item = pytest.Item


class Runner:
    """Runs mutants instead of the tests that pytest has collected."""

    def __init__(self, names: Sequence[str], sample: int) -> None:
        self.names, self.sample, self.bad = names, sample, 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        subjects = {name: importlib.import_module(f"toolwire.{name}") for name in self.names}
        reached = _reached(session.items, [str(module.__file__) for module in subjects.values()])
        for name, module in subjects.items():
            self._try(name, module, reached)
        return True

    def _try(self, name: str, module: ModuleType, reached: "Reached") -> None:
        path = Path(str(module.__file__))
        found = sorted(mutants(path.read_text(encoding="utf-8")), key=lambda mutant: mutant.line)
        if self.sample and len(found) > self.sample:
            found = sorted(random.Random(name).sample(found, self.sample), key=lambda mutant: mutant.line)
        killed, lived = 0, []
        for mutant in found:
            items = _items(reached, str(path), mutant.line)
            match _fate(mutant, module, items[:_MOST_TESTS]):
                case "killed":
                    killed += 1
                case "lived":
                    lived.append(mutant)
        counted = killed + len(lived)
        sys.stderr.write(f"{name}: {killed} of {counted} killed, {100 * killed / max(counted, 1):.1f} %\n")
        for mutant in lived:
            sys.stderr.write(f"  {path.name}:{mutant.line}: {mutant.before[:100]!r} -> {mutant.after[:100]!r}\n")


Reached = defaultdict[tuple[str, int], list[tuple[float, Item]]]


def _items(reached: Reached, path: str, line: int) -> list[Item]:
    """The tests that come to a line, the quickest first. The line of a long expression may be one further up."""
    found = next((pairs for back in range(_LONG_EXPRESSION) if (pairs := reached.get((path, line - back)))), [])
    return [item for _, item in sorted(found, key=lambda pair: pair[0])]


def _reached(items: Sequence[Item], files: Sequence[str]) -> Reached:
    """Which tests come to which lines of these files, and how long each of them takes."""
    found: Reached = defaultdict(list)
    wanted = frozenset(files)
    for item in items:
        lines: set[tuple[str, int]] = set()

        def in_frame(frame: FrameType, event: str, _: Any, lines: set[tuple[str, int]] = lines) -> Any:
            if frame.f_code.co_filename not in wanted:
                return None
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return in_frame

        began = time.monotonic()
        sys.settrace(in_frame)
        try:
            passed = _passes(item)
        finally:
            sys.settrace(None)
        if passed:
            for line in lines:
                found[line].append((time.monotonic() - began, item))
    return found


def _passes(item: Item) -> bool:
    return all(report.passed for report in runtestprotocol(item, log=False, nextitem=None))


def _fate(mutant: Mutant, module: ModuleType, items: Sequence[Item]) -> str:
    """What became of a mutant: `killed`, `lived`, or `same` where it changes nothing that runs."""
    hear, say = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(hear)
        os.setsid()
        os.write(say, _tried(mutant, module, items).encode())
        os._exit(0)
    os.close(say)
    told = os.read(hear, 10).decode() if select.select([hear], [], [], LIMIT_S)[0] else ""
    os.close(hear)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return told or "killed"  # it ran too long, or ended the process


def _tried(mutant: Mutant, module: ModuleType, items: Sequence[Item]) -> str:
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    if not apply(mutant, module):
        return "same"
    return "lived" if all(map(_passes, items)) else "killed"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=list(SUBJECTS), metavar="MODULE")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants of each module, chosen by its name")
    options = parser.parse_args(words)
    for name in options.modules:
        tests = SUBJECTS[name]
        pytest.main(["-q", "-p", "no:xdist", "-p", "no:randomly", *tests], plugins=[Runner([name], options.sample)])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
