"""Boxes to run commands in, and workspaces to run them on."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from toolwire.execute.sandbox.contract import EngineReport
from toolwire.execute.sandbox.engines import engines, local_sandbox
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.protocol.engines import ENGINES as STRENGTH
from toolwire.protocol.operations import Command, Listener, Output, Ran

ENGINES = tuple(reversed(STRENGTH))


@cache
def report(name: str) -> EngineReport:
    """What an engine can do on this machine. A test of a missing one shows that it is refused, and is then left out."""
    return engines()[name].probe()


def needs(engine: str) -> None:
    """Leave this test out where the engine cannot be used; the run lists at its end what it left out, and why."""
    found = report(engine)
    if not found.usable:
        pytest.skip(f"{engine} cannot be used on this machine: {found.reason} (make engines installs it on Debian)")


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


class Open:
    """No defence at all: the command as this process would run it, whoever that is, where it lies."""

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        process = await asyncio.create_subprocess_exec(
            *command.argv,
            cwd=command.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        async with asyncio.timeout(command.limits.wall_s):
            out, err = await process.communicate()
        return Ran(process.returncode, None, Output(out, b"", len(out)), Output(err, b"", len(err)))


def git(*words: str) -> None:
    subprocess.run(["git", *words], check=True, capture_output=True)
