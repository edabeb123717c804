"""A project that was moved or restored: one command adopts its record, and says what comes with it."""

import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.stage import Ran, Stage
from toolwire.cli.entry.exits import Exit

ERASER = """
from toolwire import tool

@tool(requires_confirmation=True)
def erase(path: str) -> str:
    "Erase a file for good."
    return "erased " + path
"""


@pytest.fixture
def project(stage: Stage) -> Stage:
    """A project with a finished call, one that waits, and a pattern that is allowed beforehand."""
    home = stage.folder / "home"
    stage.environ = {"HOME": str(home), "TOOLWIRE_TRUST": ""}
    stage.folder = stage.folder / "old place"
    stage.folder.mkdir()
    home.mkdir()
    stage.settings('[tools]\nmodules = ["mine:erase"]\n')
    stage.module("mine", ERASER)
    assert stage.run("trust").code == Exit.DONE
    assert stage.run("call", "calculator", "expression=1+1").code == Exit.DONE
    for path in ("docs/a", "b"):
        assert stage.run("call", "erase", f"path={path}").code == Exit.WAITING
    [_, first] = stage.run("approvals", "--json").json
    assert stage.run("approve", first["id"], "--pattern", "path is docs/*").code == Exit.DONE
    return stage


def printed_command(ran: Ran) -> list[str]:
    assert ran.code == Exit.USAGE
    [line] = [line for line in ran.err.splitlines() if "run: toolwire " in line]
    return shlex.split(line.partition("run: toolwire ")[2])


def moved(stage: Stage) -> None:
    place = stage.folder.with_name("new place")
    shutil.move(stage.folder, place)
    stage.folder = place
    assert stage.run("trust").code == Exit.DONE  # its settings


def test_a_moved_project_is_adopted_with_the_command_that_is_printed(project: Stage) -> None:
    moved(project)
    refused = project.run("call", "calculator", "expression=1+1")
    assert "If it is yours and you moved or restored it" in refused.err
    adopted = project.run(*printed_command(refused))
    assert adopted.code == Exit.DONE
    assert "is yours now" in adopted.out
    assert "turns: 3, of which 2 can be resumed" in adopted.out
    assert "pending approvals: 1" in adopted.out
    assert "allowed erase with 'path is docs/*'" in adopted.out
    assert "toolwire approve ID --revoke" in adopted.out
    assert project.run("call", "calculator", "expression=1+1").code == Exit.DONE


def test_a_call_that_was_approved_for_the_old_folder_does_not_run_in_the_new_one(project: Stage) -> None:
    """Its paths would mean other files. It is ended, and asked about anew."""
    moved(project)
    assert project.run(*printed_command(project.run("call", "calculator", "expression=1+1"))).code == Exit.DONE
    assert project.run("approve").code == Exit.DONE

    resumed = project.run("call", "--resume")

    assert resumed.code == Exit.USAGE
    assert "not all folders that it was approved for are granted now" in resumed.err
    to_end = resumed.err.partition("To end the turn instead: ")[2].splitlines()[0]
    assert project.run(*shlex.split(to_end)[1:]).code == Exit.DONE
    assert "has ended" in project.run("call", "--resume", shlex.split(to_end)[-1]).err


def test_a_restored_store_is_adopted_too(project: Stage, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(project.folder / ".toolwire", backup)
    shutil.rmtree(project.folder / ".toolwire")
    assert project.run("call", "calculator", "expression=1+1").code == Exit.DONE
    moved(project)
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        (project.folder / ".toolwire" / name).unlink(missing_ok=True)
        if (backup / name).exists():
            shutil.copy(backup / name, project.folder / ".toolwire" / name)
    assert project.run(*printed_command(project.run("call", "calculator", "expression=1+1"))).code == Exit.DONE
    assert project.run("call", "calculator", "expression=1+1").out != ""
    assert len(project.run("approvals", "--json").json) == 1


def test_without_the_command_nothing_in_it_counts(project: Stage) -> None:
    moved(project)
    for words in (["call", "erase", "path=docs/b"], ["approve"], ["call", "--resume"]):
        assert project.run(*words).code == Exit.USAGE
