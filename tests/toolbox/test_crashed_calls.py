"""A call that changes files and whose process dies: afterwards it has happened once, and the model is told so."""

import asyncio
import hashlib
import os
import time
from itertools import count
from pathlib import Path

import pytest

from tests import forked
from toolwire import Agent, Grant, SqliteStore, Status, Tier
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import ResultsMessage
from toolwire.protocol.files import Change
from toolwire.protocol.outcomes import Code
from toolwire.testing import ScriptedModel
from toolwire.toolbox import LocalFiles, edit_tool

DYING = """
import asyncio, os, sys
from pathlib import Path
from toolwire import Agent, Grant, SqliteStore, Tier
from toolwire.testing import ScriptedModel, call
from toolwire.toolbox import LocalFiles, edit_tool

workspace, home, left = sys.argv[1], sys.argv[2], int(sys.argv[3])

def sync(descriptor):
    global left
    left -= 1
    if left < 0:
        os._exit(9)
    os.fsync(descriptor)

async def main():
    grant = Grant(tier=Tier.RUN, permissions=frozenset({"file_read", "file_write"}), roots=(workspace,),
                  confirmed=frozenset({"*"}))
    model = ScriptedModel(call("edit", path="a.txt", old_text="a", new_text="aa"), "done")
    async with await SqliteStore.at(Path(home)) as store:
        await Agent(model, [edit_tool(LocalFiles(sync))], store=store, grant=grant).ask("go")

asyncio.run(main())
"""


@pytest.mark.requirement("record.journal")
@pytest.mark.parametrize("steps", range(5))
async def test_an_edit_whose_process_dies_takes_effect_once_and_the_turn_goes_on(
    tmp_path: Path, workspace: Path, steps: int
) -> None:
    """The protocol demands it of transactional tools. Doing it twice would leave three letters."""
    home = tmp_path / "home"
    await die_in_an_edit(workspace, home, steps)
    result = await resumed(workspace, home)
    assert result.status is Status.SUCCESS, result.text
    assert result.structured["replacements"] == 1
    assert (workspace / "a.txt").read_text() == "aa"


async def test_a_call_without_a_result_is_remembered_until_its_note_is_removed(tmp_path: Path, workspace: Path) -> None:
    """However many changes come after it. Without the mark that notes are gone, the second edit would be made again."""
    early, late = tmp_path / "early", tmp_path / "late"
    for home in (early, late):
        await die_in_an_edit(workspace, home, steps=4)
        assert (workspace / "a.txt").read_text() == "aa"
    change_often(workspace, 4_200)
    result = await resumed(workspace, early)
    assert result.status is Status.SUCCESS, result.text
    assert (workspace / "a.txt").read_text() == "aa"

    long_ago = time.time() - 40 * 86_400
    done = workspace / ".toolwire" / "changes" / "done"
    for number, note in enumerate(sorted(done.iterdir(), key=lambda path: path.stat().st_mtime_ns)):
        os.utime(note, (long_ago + number, long_ago + number))
    change_often(workspace, 1, first=next(n for n in count() if digest(f"late/{n}").startswith("00")), prefix="late")
    assert len(list(done.iterdir())) == 4_096
    result = await resumed(workspace, late)
    assert (result.status, result.error and result.error.code) == (Status.FAILED, Code.OUTCOME_UNKNOWN), result.text
    assert (workspace / "a.txt").read_text() == "aa"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def change_often(workspace: Path, times: int, *, first: int = 0, prefix: str = "other") -> None:
    files = LocalFiles(sync=lambda _: None)
    for number in range(first, first + times):
        files.change(str(workspace), [Change("b.txt", b"b")], key=f"{prefix}/{number}", note="{}")


async def die_in_an_edit(workspace: Path, home: Path, steps: int) -> None:
    """A process that is gone after so many steps of its edit, without a result on record."""
    (workspace / "a.txt").write_text("a")
    died = await asyncio.to_thread(forked.run_python, "-c", DYING, str(workspace), str(home), str(steps))
    assert died.returncode == 9


async def resumed(workspace: Path, home: Path) -> ToolResult:
    """The result of the edit after another process has gone on with the turn."""
    async with await SqliteStore.at(home) as store:
        [left] = await store.turns(state="interrupted")
        grant = Grant(Tier.RUN, frozenset({"file_read", "file_write"}), (str(workspace),), confirmed=frozenset({"*"}))
        agent = Agent(ScriptedModel("done"), [edit_tool(LocalFiles())], store=store, grant=grant)
        answer = await agent.resume(left.id)
    [result] = [
        one for message in answer.turn.messages if isinstance(message, ResultsMessage) for one in message.results
    ]
    return result
