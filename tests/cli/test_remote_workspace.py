"""`workspace.remote`: file tools and commands work on another machine, over a real SSH server."""

import asyncio
import getpass
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.stage import Ran, Stage
from tests.far_exec.conftest import Server, server
from toolwire.cli.entry.exits import Exit

__all__ = ["server"]


@pytest.fixture
def there(tmp_path: Path) -> Path:
    folder = tmp_path / "it's another; machine"
    folder.mkdir()
    (folder / "a.txt").write_text("far away\n")
    return folder


@pytest.fixture
async def stage(tmp_path: Path, server: Server, there: Path) -> AsyncIterator[Stage]:
    here = tmp_path / "here"
    here.mkdir()
    stage = Stage(here)
    path = str(there).replace(";", "%3B").replace(" ", "%20")
    stage.settings(f"""
[workspace]
remote = "ssh://{getpass.getuser()}@127.0.0.1:{server.port}{path}"
identity = "{server.identity}"
known_hosts = "{server.known_hosts}"
python = "{sys.executable}"
""")
    yield stage
    stage.close()


async def run(stage: Stage, *words: str) -> Ran:
    async with asyncio.timeout(60):
        return await asyncio.to_thread(stage.run, *words)


async def test_files_are_read_and_written_on_the_other_machine(stage: Stage, there: Path) -> None:
    read = await run(stage, "call", "read", "path=a.txt")
    written = await run(
        stage, "call", "write", "path=b.txt", "content=hello", "--tools", "coding", "--tier", "run", "--allow",
        "file_write", "-y",
    )  # fmt: skip

    assert (read.code, "far away" in read.out) == (Exit.DONE, True), read.err
    assert (written.code, (there / "b.txt").read_text()) == (Exit.DONE, "hello"), written.err
    assert not (stage.folder / "b.txt").exists()


async def test_commands_run_on_the_other_machine_and_the_record_stays_here(stage: Stage, there: Path) -> None:
    ran = await run(
        stage, "call", "bash", "command=cat a.txt; echo made > c.txt", "--tools", "shell", "--tier", "run", "--allow",
        "shell", "-y",
    )  # fmt: skip

    assert (ran.code, "far away" in ran.out, (there / "c.txt").read_text()) == (Exit.DONE, True, "made\n"), ran.err
    assert (stage.folder / ".toolwire" / "store.db").exists()
    assert not (there / ".toolwire").exists()


async def test_a_file_outside_of_the_remote_folder_cannot_be_reached(stage: Stage, there: Path) -> None:
    (there.parent / "secret.txt").write_text("not for tools")
    for path in ("../secret.txt", str(there.parent / "secret.txt"), str(stage.folder / "toolwire.toml")):
        ran = await run(stage, "call", "read", f"path={path}")
        assert (ran.code, "not for tools" in ran.out) == (Exit.FAILED, False)


async def test_a_machine_that_is_not_known_is_not_spoken_to(stage: Stage, server: Server) -> None:
    server.known_hosts.write_text("")
    read = await run(stage, "call", "read", "path=a.txt")
    ran = await run(stage, "call", "bash", "command=ls", "--tools", "shell", "--tier", "run", "--allow", "shell", "-y")

    assert (read.code, "far away" in read.out) == (Exit.FAILED, False)
    assert (ran.code, "cannot be reached by SSH" in ran.err) == (Exit.FAILED, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('remote = "host:/srv"', "must read like ssh://user@host/srv/project"),
        ('remote = "ssh://host"', "must read like ssh://user@host/srv/project"),
        ('remote = "ssh://-oProxyCommand=x/srv"', "must read like ssh://user@host/srv/project"),
        ('remote = "ssh://host/srv/../etc"', "must read like ssh://user@host/srv/project"),
        ('remote = "ssh://me:pass@host/srv"', "must not contain a password"),
        ('remot = "ssh://host/srv"', "did you mean workspace.remote"),
        ('remote = "ssh://host/srv"\n[grant]\nroots = ["src"]', "leave one out"),
        ('remote = "ssh://host/srv"\n[tools]\nworkspace_bytes = 5', "leave one out"),
    ],
)
def test_a_wrong_remote_workspace_is_answered_with_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    stage = Stage(tmp_path)
    stage.settings(f"[workspace]\n{text}\n")
    ran = stage.run("call", "read", "path=a.txt")
    assert (ran.code, said in ran.err) == (Exit.USAGE, True), ran.err
