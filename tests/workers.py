"""`pytest --workers N`: collect once, then run the tests in forks of the process that has collected them.

To collect takes 14 s of CPU and 450 MB. Processes that are started anew, as those of pytest-xdist, each do it again.
"""

import atexit
import os
import random
import signal
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.pathlib import rm_rf

from tests import cpu_table

OWN_FOLDER = pytest.StashKey[Path]()
"""A folder that is removed with the run."""
_NAME = "workers"
_MOST_AT_ONCE = 8
_LONG = (
    "tests/test_wheel.py",
    "tests/sandbox/test_conformance.py",
    "tests/test_benchmarks.py",
    "tests/simulation/",
    "tests/local/",
    "tests/fleet/",
    "tests/loop/test_budgets.py",
    "tests/gateway/test_floods.py",
    "tests/gateway/test_real_models.py",
    "tests/test_ordinary_tasks.py",
)
"""What has tests of many seconds begins first, so that none of them is still at work when all others are done."""


class _Shares:
    """Deals out tests, by their places. A worker gets those of one file, since they share what is set up for it."""

    def __init__(self, items: Sequence[pytest.Item], workers: int) -> None:
        files = defaultdict[str, deque[int]](deque)
        for place, item in enumerate(items):
            files[item.nodeid.partition("::")[0]].append(place)
        self._fresh = deque(files[name] for name in sorted(files, key=_begins))
        self._begun = dict[int, deque[int]]()
        self._share = 2 * workers

    def next_of(self, worker: int) -> list[int]:
        """The next tests for a worker: of its file, of one that no worker has begun, or of the one with most left."""
        if not (file := self._begun.get(worker)):
            file = self._fresh.popleft() if self._fresh else max(self._begun.values(), key=len, default=deque())
            self._begun[worker] = file
        return [file.popleft() for _ in range(min(len(file), max(1, min(_MOST_AT_ONCE, len(file) // self._share))))]

    def give_back(self, places: Sequence[int]) -> None:
        if places:
            self._fresh.appendleft(deque(places))

    def clear(self) -> None:
        self._fresh.clear()
        self._begun.clear()

    def __bool__(self) -> bool:
        return bool(self._fresh) or any(self._begun.values())


def _begins(name: str) -> int:
    return next((place for place, long in enumerate(_LONG) if name.startswith(long)), len(_LONG))


class _Worker:
    """What the process that deals out the tests knows of a worker: those that it has not told of are its own."""

    def __init__(self, pid: int, number: int, connection: "Connection[Any, Any]") -> None:
        self.pid = pid
        self.number = number
        self.connection = connection
        self.dealt = deque[int]()


class Workers:
    """Takes the place of the loop that runs one test after the other."""

    def __init__(self, config: pytest.Config, count: int) -> None:
        self._config = config
        self._count = count
        self._started = 0
        self._workers = dict["Connection[Any, Any]", _Worker]()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly or len(session.items) < 2:
            return None
        shares = _Shares(session.items, self._count)
        try:
            for _ in range(min(self._count, len(session.items))):
                self._fork(session)
            while self._workers:
                for ready in wait(list(self._workers)):
                    assert isinstance(ready, Connection)
                    self._hear(session, self._workers[ready], shares)
                if session.shouldfail or session.shouldstop:
                    shares.clear()
        finally:
            self._end_all()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _fork(self, session: pytest.Session) -> None:
        here, there = Pipe()
        self._started += 1
        if (pid := os.fork()) == 0:
            for other in (here, *self._workers):
                other.close()  # who holds the end of another would keep it waiting for one who deals out no more
            _work(session, there, self._started)
        there.close()
        self._workers[here] = _Worker(pid, self._started, here)

    def _hear(self, session: pytest.Session, worker: _Worker, shares: _Shares) -> None:
        try:
            told = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            self._crashed(session, worker, shares)
            return
        match told:
            case "more":
                places = shares.next_of(worker.number)
                worker.dealt.extend(places)
                worker.connection.send(places)
            case {"ended": sums}:
                cpu_table.add(self._config, sums)
                self._forget(worker)
            case reports:
                for one in reports:
                    report = self._config.hook.pytest_report_from_serializable(config=self._config, data=one)
                    self._config.hook.pytest_runtest_logreport(report=report)
                worker.dealt.popleft()

    def _crashed(self, session: pytest.Session, worker: _Worker, shares: _Shares) -> None:
        """Tell that the test at work has failed, and let another worker run those that were to come."""
        status = os.waitstatus_to_exitcode(self._forget(worker))
        if worker.dealt:
            item = session.items[worker.dealt.popleft()]
            how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
            said = f"the worker that ran this test ended by {how}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
            self._config.hook.pytest_runtest_logreport(report=report)
        shares.give_back(worker.dealt)
        if shares:
            self._fork(session)

    def _forget(self, worker: _Worker) -> int:
        del self._workers[worker.connection]
        worker.connection.close()
        return os.waitpid(worker.pid, 0)[1]

    def _end_all(self) -> None:
        for worker in list(self._workers.values()):
            os.kill(worker.pid, signal.SIGINT)
            self._forget(worker)


class _Telling:
    """Tells how each test went, in the place of the terminal. One message for each: two wake two processes twice."""

    def __init__(self, config: pytest.Config, connection: "Connection[Any, Any]") -> None:
        self._config = config
        self._connection = connection
        self._reports: list[Any] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._reports.append(told)
        if report.when == "teardown":
            self._connection.send(self._reports)
            self._reports = []


def _work(session: pytest.Session, connection: "Connection[Any, Any]", number: int) -> NoReturn:
    """Be a process of its own, and run what is dealt out."""
    code = 1
    try:
        _become_worker(session.config, number)
        session.config.pluginmanager.register(_Telling(session.config, connection), "telling")
        try:
            for item, following in _with_following(session.items, connection):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail or session.shouldstop:
                    break
        finally:  # servers end, too, where the one who deals out is gone or the run is interrupted
            session.config.hook.pytest_sessionfinish(session=session, exitstatus=pytest.ExitCode.OK)
            atexit._run_exitfuncs()
            _leave_nothing(session.config)
        connection.send({"ended": cpu_table.sums(session.config)})
        code = 0
    finally:
        os._exit(code)


def _become_worker(config: pytest.Config, number: int) -> None:
    manager = config.pluginmanager
    capture: Any = manager.get_plugin("capturemanager")
    capture.stop_global_capturing()  # its files are those of the process that was forked
    capture.start_global_capturing()
    manager.unregister(name="terminalreporter")
    manager.unregister(name=_NAME)
    cpu_table.restart(config)
    random.seed()
    base = Path(config.option.basetemp) / str(number)
    base.mkdir(parents=True, exist_ok=True)
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = base


def _leave_nothing(config: pytest.Config) -> None:
    """Remove the files of this worker while others are still at work, unless the folder of the run stays."""
    if OWN_FOLDER in config.stash:
        rm_rf(config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]


def _with_following(
    items: Sequence[pytest.Item], connection: "Connection[Any, Any]"
) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each test with the one after it, which says what may stay set up."""
    dealt = deque[int]()
    there_is_more = True
    while there_is_more or dealt:
        if there_is_more and len(dealt) < 2:
            connection.send("more")
            dealt.extend(more := connection.recv())
            there_is_more = bool(more)
            continue
        yield items[dealt.popleft()], items[dealt[0]] if dealt else None


def _count(said: str) -> int:
    """Two for each core, since tests wait a good part of their time: for boxes, servers, processes."""
    return max(2, len(os.sched_getaffinity(0)) * 2) if said == "auto" else int(said)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers",
        type=_count,
        default=0,
        metavar="N",
        help="run the tests in N processes, or `auto`: two for each core",
    )


def pytest_configure(config: pytest.Config) -> None:
    if (count := config.getoption("--workers")) > 1:
        config.pluginmanager.register(Workers(config, count), _NAME)
