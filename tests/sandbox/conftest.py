"""Boxes to run commands in, and workspaces to run them on."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from toolwire.execute.sandbox.contract import Report
from toolwire.execute.sandbox.engines import engines, local_sandbox
from toolwire.execute.sandbox.ops import STRENGTH, Sandbox

ENGINES = tuple(reversed(STRENGTH))


@cache
def report(name: str) -> Report:
    """What an engine can do on this machine. A test of a missing one tests that it is refused."""
    return engines()[name].probe()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def box() -> Sandbox:
    """The sandbox as everyone gets it: bubblewrap, and nothing less."""
    return local_sandbox()


@pytest.fixture
def boxed_by() -> Callable[[str], Sandbox]:
    """A sandbox of one's choice, as an operator would set it."""
    return lambda engine: local_sandbox(floor=engine, default=engine)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def facts(path: Path) -> os.stat_result:
    return path.stat()
