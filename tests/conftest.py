"""Fixtures that every test may use."""

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from _pytest.pathlib import rm_rf
from hypothesis import Phase, settings

from tests import cpu_table, workers
from tests.postgres_server import PostgresServer, postgres_server, shared
from tests.run_folders import MEMORY, own_folder, sweep

# The engine reads it when it is loaded, and a test that imports it by itself may be the first to do so. Threads that
# wait spinning take four times the CPU as soon as tests run side by side.
os.environ["OMP_WAIT_POLICY"] = "passive"

# To make a failing example small takes up to five minutes where each try opens stores or processes, so that is done on
# demand: `pytest --hypothesis-profile=shrink TEST`. The failure shows how to run its example again.
_FOUND = (Phase.explicit, Phase.reuse, Phase.generate, Phase.target)
settings.register_profile("suite", deadline=None, max_examples=50, phases=_FOUND, print_blob=True, database=None)
settings.register_profile("shrink", deadline=None, max_examples=100, phases=tuple(Phase))
settings.register_profile("thorough", deadline=None, max_examples=2_000, phases=tuple(Phase))
settings.load_profile("suite")

_LOCK = pytest.StashKey[IO[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    cpu_table.pytest_addoption(parser)
    workers.pytest_addoption(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give each run a folder of its own: runs of two checkouts, or two at once, neither share nor clean up files."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script: commands would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cpu_table.pytest_configure(config)
    workers.pytest_configure(config)
    if config.option.basetemp is None:
        for parent in (Path(tempfile.gettempdir()), MEMORY):
            sweep(parent)
        config.stash[workers.OWN_FOLDER], config.stash[_LOCK] = own_folder(Path(tempfile.gettempdir()))
        config.option.basetemp = str(config.stash[workers.OWN_FOLDER] / "run")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing behind. `--basetemp` names a folder that stays."""
    if (base := config.stash.get(workers.OWN_FOLDER, None)) is not None:
        rm_rf(base)
        config.stash[_LOCK].close()


def pytest_collection() -> None:
    """What is collected stays, so looking for garbage on the way would find none."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that fails is run again by its name: none may show where an object lies in memory."""
    if odd := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"give ids= to parametrize: these names differ in every run: {odd[:5]}")


def pytest_collection_finish() -> None:
    """Thousands of tests and all that they import stay to the end, so no look for garbage need go over them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)  # a twentieth of the time of tests; a worker has memory enough for the garbage
    gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of a worker; each store takes a schema of its own."""
    with postgres_server() as server, shared(server):
        yield server


@pytest.fixture(autouse=True, scope="session")
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The key with which state folders are signed is made for the tests, and not in the home of who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
