"""Folders that stand in for a missing `.toolwire` are kept from one box to the next, and nothing comes with them."""

import asyncio
from pathlib import Path

import pytest

from tests.sandbox.conftest import names
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.protocol.operations import Command, shell


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where they are kept, on the file system of the workspace."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/toolwire/open-boxes.spare"


def inodes(folder: Path) -> list[int]:
    return [path.stat().st_ino for path in folder.iterdir()] if folder.exists() else []


async def test_a_stand_in_is_kept_for_the_next_box(box: Sandbox, workspace: Path, kept: Path) -> None:
    seen = []
    for _ in range(3):
        ran = await box.run(Command(shell("mkdir -p .toolwire/x || echo refused; ls -A .toolwire"), str(workspace)))
        seen.append((ran.stdout.text, names(workspace), inodes(kept)))

    assert seen == [("refused\n", [], inodes(kept))] * 3
    assert len(inodes(kept)) == 1


async def test_a_kept_folder_with_something_in_it_is_left_where_it_is(
    box: Sandbox, workspace: Path, kept: Path
) -> None:
    await box.run(Command(("/bin/true",), str(workspace)))
    (kept / "0" / "record").touch()

    ran = await box.run(Command(shell("touch made; ls -A .toolwire"), str(workspace)))

    assert (ran.exit_code, ran.stdout.text, names(workspace)) == (0, "", ["made"])
    assert (kept / "0" / "record").exists()


async def test_what_another_program_puts_into_a_stand_in_stays(box: Sandbox, workspace: Path, kept: Path) -> None:
    opened = asyncio.Event()
    text = "echo open; until test -e go; do sleep 0.01; done; ls -A .toolwire"
    async with asyncio.timeout(20):
        running = asyncio.create_task(box.run(Command(shell(text), str(workspace)), lambda *_: opened.set()))
        await opened.wait()
        (workspace / ".toolwire" / "record").write_text("of another toolwire")
        (workspace / "go").touch()
        ran = await running

    assert ran.stdout.text == "open\n"
    assert (workspace / ".toolwire" / "record").read_text() == "of another toolwire"
    assert inodes(kept) == []
