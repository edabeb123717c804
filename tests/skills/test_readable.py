"""Folders of the host that a command may read and run from, and cannot change."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from tests.sandbox.conftest import ENGINES, needs, report
from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.protocol.operations import Command


@pytest.fixture
def programs() -> Iterator[Path]:
    """A folder that a box's user can reach, with a program that repeats its input and tries to leave a mark."""
    folder = Path(tempfile.mkdtemp(dir="/opt" if os.geteuid() == 0 else Path.home()))
    folder.chmod(0o755)
    program = folder / "repeat"
    program.write_text('#!/bin/sh\ncat\ntouch "$(dirname "$0")/mark" 2> /dev/null && echo changed\ntrue\n')
    program.chmod(0o755)
    yield folder
    rmtree(folder)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("has_workspace", [True, False])
async def test_a_program_of_a_readable_folder_runs_and_cannot_change_it(
    engine: str, has_workspace: bool, programs: Path, tmp_path: Path
) -> None:
    box = local_sandbox(floor=engine, default=engine)
    workspace = str(tmp_path) if has_workspace else ""

    command = Command((str(programs / "repeat"),), workspace, stdin=b"as given\n", readable=(str(programs),))

    if not report(engine).usable:
        with pytest.raises(SandboxUnavailable):
            await box.run(command)
        needs(engine)
    ran = await box.run(command)

    assert (ran.stdout.text, ran.stderr.text, ran.exit_code) == ("as given\n", "", 0)
    assert not (programs / "mark").exists()


async def test_what_was_not_given_is_not_there(programs: Path) -> None:
    ran = await local_sandbox().run(Command(("/bin/ls", str(programs))))
    assert ran.exit_code != 0
