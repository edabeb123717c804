"""A command in a fork is as good as one in a new interpreter, and where it would not be, it is not forked."""

import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests import forked
from tests.cli.stage import Ran, Stage, scripted

COMMANDS = ["--version", "", "tools list --json", "tools show calculator", "ask", "show --help", "nonsense"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_forked_command_says_and_ends_as_a_new_one_does(command: str, tmp_path: Path) -> None:
    stage, words = Stage(tmp_path), command.split()
    done = subprocess.run(
        stage.command(*words), cwd=tmp_path, env=stage._environ({}), input=b"", capture_output=True, check=False
    )
    assert stage.run(*words) == Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_forked_command_is_a_process_that_can_be_killed(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    with scripted("Hello.") as model:
        model.gates[1] = threading.Event()
        process = stage.start("ask", "Hi", *model.flags)
        model.wait_for_request(process)
        assert process.poll() is None
        assert Path(f"/proc/{process.pid}/cwd").readlink() == tmp_path
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
    stage.close()


def is_forked(stage: Stage, **environ: str) -> bool:
    with forked.start(stage.command("--version"), cwd=stage.folder, env=stage._environ(environ)) as process:
        process.communicate(timeout=60)
    return isinstance(process, forked.Forked)


def test_a_command_is_forked_where_nothing_speaks_against_it(tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").touch()
    (tmp_path / "my_tools.py").touch()
    assert is_forked(Stage(tmp_path))


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONWARNINGS", "LD_PRELOAD", "LC_ALL"])
def test_what_is_said_to_an_interpreter_is_said_to_a_new_one(name: str, tmp_path: Path) -> None:
    assert not is_forked(Stage(tmp_path), **{name: ""})


def test_modules_that_could_be_shadowed_are_imported_anew(tmp_path: Path) -> None:
    """A test that a file in the folder is not imported would pass wherever the true module is loaded already."""
    (tmp_path / "json.py").touch()
    assert not is_forked(Stage(tmp_path))
