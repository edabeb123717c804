"""`python -m tests.mutation [MODULE …]`: how many mutants of these modules the tests kill.

Tests are collected and tried once, so that it is known which of them reach which line. Then each mutant gets a fork of
this process in which those tests run, the quickest first, until one fails. A package stands for all of its modules,
and `stale` for those that have changed since they were measured.
"""

import argparse
import importlib
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation import coverage, subjects, tables, trial
from tests.mutation.mutants import Mutant, mutants


class Runner:
    """Runs mutants instead of the tests that pytest has collected."""

    def __init__(self, names: Sequence[str], sample: int, seed: int) -> None:
        self.names, self.sample, self.seed = names, sample, seed
        self.sources = {name: tables.source_digest(name) for name in names}
        self.figures: list[tables.Figure] = []
        self.explained = {one.key: one for one in tables.survivors()}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        loaded = {name: importlib.import_module(f"toolwire.{name}") for name in self.names}
        covered = coverage.measure(session.items, [str(module.__file__) for module in loaded.values()])
        failed = len(session.items) - len(covered.took)
        unfit = trial.unfit(list(covered.took))
        covered.drop(unfit)
        _say(f"{len(covered.took)} tests; left out: {failed} that fail, {len(unfit)} that fail in a fork")
        for name, module in loaded.items():
            self._try(name, module, covered)
        return True

    def _try(self, name: str, module: ModuleType, covered: coverage.Coverage) -> None:
        killers: dict[str, coverage.Item] = {}
        killed, hung, lived = 0, 0, []
        for mutant in self._mutants(name, module):
            items = covered.tests(str(module.__file__), mutant.line)
            if (likely := killers.get(mutant.function)) in items:
                items.insert(0, items.pop(items.index(likely)))
            fate = trial.run(mutant, module, items)
            if fate.killer is not None:
                killers[mutant.function] = fate.killer
            killed += fate.word in ("killed", "hung")
            hung += fate.word == "hung"
            if fate.word == "survived":
                lived.append(mutant)
        self._report(name, killed, hung, lived)

    def _mutants(self, name: str, module: ModuleType) -> list[Mutant]:
        found = list(mutants(Path(str(module.__file__)).read_text(encoding="utf-8")))
        if self.sample and len(found) > self.sample:
            found = random.Random(f"{self.seed} {name}").sample(found, self.sample)
        return sorted(found, key=lambda mutant: mutant.line)

    def _report(self, name: str, killed: int, hung: int, lived: Sequence[Mutant]) -> None:
        keys: list[tuple[str, ...]] = [(name, mutant.function, mutant.before, mutant.after) for mutant in lived]
        explained = sum(key in self.explained for key in keys)
        figure = tables.Figure(name, killed + len(lived), killed, explained, self.sources[name])
        self.figures.append(figure)
        if not self.sample:
            tables.keep([figure])
        _say(
            f"{name}: {killed} of {figure.mutants} killed ({hung} by hanging), {explained} survivors explained, "
            f"{figure.percent:.1f} % of the rest"
        )
        for mutant, key in zip(lived, keys, strict=True):
            if key not in self.explained:
                _say("\t".join((f"  :{mutant.line}", *key)))
        if not self.sample:
            for key in self.explained:
                if key[0] == name and key not in keys:
                    _say("\t".join(("  explained, but killed or gone:", *key)))


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", default=subjects.DEFAULT, metavar="MODULE")
    parser.add_argument("--tests", action="append", default=[], help="the tests to run, instead of the usual ones")
    parser.add_argument("--sample", type=int, default=0, help="at most so many mutants of each module")
    parser.add_argument("--seed", type=int, default=0, help="which ones; the same seed takes the same sample")
    options = parser.parse_args(words)
    if not subjects.modules(options.modules):
        _say("no module has changed since it was measured")
        return 0
    measured: list[tables.Figure] = []
    for tests, names in subjects.by_tests(options.modules, options.tests).items():
        runner = Runner(names, options.sample, options.seed)
        pytest.main(["-q", *tests], plugins=[runner])
        measured += runner.figures
    return int(not measured or any(figure.percent < tables.LIMIT for figure in measured))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
