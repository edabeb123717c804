"""Run tests against a mutant, in a fork of a process that has everything imported."""

import os
import resource
import select
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from tests.caches import clear_caches
from tests.mutation.coverage import Item, passes
from tests.mutation.mutants import Mutant, apply

CPU_LIMIT_S = 20
"""A mutant may loop for ever. CPU, so that a busy machine kills no mutant that a test would not."""

_HANGS_AFTER_S = 120
_MOST_TESTS = 400
"""A mutant that so many tests did not notice survives."""


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: `killed`, `survived`, `hung`, or `same` where it changes nothing that runs."""

    word: str
    killer: Item | None = None


def run(mutant: Mutant | None, module: ModuleType | None, items: Sequence[Item]) -> Fate:
    """Let tests loose on a mutant until one fails. Without a mutant, on the code as it is."""
    hear, say = os.pipe()
    if not (pid := os.fork()):
        os.close(hear)
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
        os.write(say, _try(mutant, module, items[:_MOST_TESTS]).encode())
        os._exit(0)
    os.close(say)
    said = os.read(hear, 20).decode() if select.select([hear], [], [], _HANGS_AFTER_S)[0] else ""
    os.close(hear)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if said.isdecimal():
        return Fate("killed", items[int(said)])
    return Fate(said or "hung")


def _try(mutant: Mutant | None, module: ModuleType | None, items: Sequence[Item]) -> str:
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    if mutant and module and not apply(mutant, module):
        return "same"
    clear_caches()
    return next((str(number) for number, item in enumerate(items) if _fails(item)), "survived")


def _fails(item: Item) -> bool:
    """Whether a test fails twice: on a busy machine, one that waits for something may fail by itself."""
    return not passes(item) and not passes(item)


def unfit(items: Sequence[Item]) -> list[Item]:
    """Tests that fail in a fork of the unchanged code: they would kill every mutant."""
    found: list[Item] = []
    for start in range(0, len(items), _MOST_TESTS):
        some = list(items[start : start + _MOST_TESTS])
        while (fate := run(None, None, some)).word != "survived":
            if fate.killer is None:
                # One of them takes too long: halve until it is found.
                found += some if len(some) == 1 else unfit(some[: len(some) // 2]) + unfit(some[len(some) // 2 :])
                break
            found.append(fate.killer)
            some = some[some.index(fate.killer) + 1 :]
    return found
