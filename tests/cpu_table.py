"""`pytest --cpu-table`: which files, tests and fixtures take how much CPU, with that of the processes they start.

CPU and not wall time, since a busy machine changes only the latter. Commands that run in forks (`tests.forked`) are
counted as their server waits for them, so the last one may be counted with the test that comes next; so are the
processes of a PostgreSQL server, one for each connection.
"""

import os
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import forked, postgres_server

_TICKS = os.sysconf("SC_CLK_TCK")
_PHASES = ("setup", "call", "teardown")
_NAME = "cpu_table"


def cpu_s() -> float:
    """The CPU time of this process and of all that it, or a server of it, has waited for."""
    times = os.times()
    return (
        times.user
        + times.system
        + times.children_user
        + times.children_system
        + sum(map(_of_server, [*forked.server_pids(), *postgres_server.server_pids()]))
    )


def _of_server(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


class CpuTable:
    """Sums by file, test and fixture. A fixture's time is without that of the fixtures that it asks for."""

    def __init__(self) -> None:
        self.sums: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._inner = [0.0]
        self._began = cpu_s()

    @contextmanager
    def _measured(self, *keys: tuple[str, str]) -> Iterator[None]:
        began = cpu_s()
        yield
        taken = cpu_s() - began
        for key in keys:
            self.sums[key] += taken

    def _phase(self, phase: str, item: pytest.Item) -> Any:
        file, _, test = item.nodeid.partition("::")
        return self._measured((file, phase), ("test", f"{file}::{test.partition('[')[0]}"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        with self._phase("setup", item):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        with self._phase("call", item):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        with self._phase("teardown", item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        began = cpu_s()
        self._inner.append(0.0)
        try:
            return (yield)
        finally:
            taken = cpu_s() - began
            self.sums["fixture", f"{fixturedef.baseid}::{fixturedef.argname}"] += taken - self._inner.pop()
            self._inner[-1] += taken

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        with self._measured(("", "collection")):
            return (yield)

    def pytest_sessionfinish(self) -> None:
        self.sums["", "whole"] = cpu_s() - self._began

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        for line in self._lines(config.getoption(_NAME)):
            terminalreporter.write_line(line)

    def _lines(self, most: int) -> Iterator[str]:
        """The whole, then so many rows of files, tests and fixtures, the most expensive first."""
        yield f"CPU: {self.sums['', 'whole']:.1f} s, of which collection {self.sums['', 'collection']:.1f} s"
        files: defaultdict[str, float] = defaultdict(float)
        for (first, second), taken in self.sums.items():
            if second in _PHASES:
                files[first] += taken
        yield f"{'all':>8}{'setup':>8}{'call':>8}{'teardown':>9}  file"
        for file, taken in _highest(files, most):
            setup, call, teardown = (self.sums[file, phase] for phase in _PHASES)
            yield f"{taken:8.2f}{setup:8.2f}{call:8.2f}{teardown:9.2f}  {file}"
        for kind in ("test", "fixture"):
            yield f"{'all':>8}  {kind}"
            named = {second: taken for (first, second), taken in self.sums.items() if first == kind}
            yield from (f"{taken:8.2f}  {name}" for name, taken in _highest(named, most))


def restart(config: pytest.Config) -> None:
    """Begin again in a worker: what was measured before it was forked is not its own."""
    if (table := config.pluginmanager.get_plugin(_NAME)) is not None:
        table.__init__()


def sums(config: pytest.Config) -> dict[tuple[str, str], float]:
    """What a worker has measured, for `add`. What it took as a whole is counted when it is waited for."""
    table = config.pluginmanager.get_plugin(_NAME)
    return {} if table is None else {key: taken for key, taken in table.sums.items() if key[0]}


def add(config: pytest.Config, measured: Mapping[tuple[str, str], float]) -> None:
    if (table := config.pluginmanager.get_plugin(_NAME)) is not None:
        for key, taken in measured.items():
            table.sums[key] += taken


def _highest(sums: Mapping[str, float], most: int) -> list[tuple[str, float]]:
    return sorted(sums.items(), key=lambda pair: -pair[1])[:most]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-table",
        dest=_NAME,
        nargs="?",
        type=int,
        const=25,
        default=0,
        metavar="ROWS",
        help="show which files, tests and fixtures took how much CPU, child processes included",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(_NAME):
        config.pluginmanager.register(CpuTable(), _NAME)
