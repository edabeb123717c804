"""A call that changes files and whose process dies: afterwards it has happened once, and the model is told so."""

import asyncio
import sys
from pathlib import Path

import pytest

from toolwire import Agent, Grant, SqliteStore, Status, Tier
from toolwire.protocol.chat import ResultsMessage
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
    (workspace / "a.txt").write_text("a")
    home = tmp_path / "home"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, str(workspace), str(home), str(steps))
    async with asyncio.timeout(60):
        assert await child.wait() == 9
    async with await SqliteStore.at(home) as store:
        [left] = await store.turns(state="interrupted")
        grant = Grant(Tier.RUN, frozenset({"file_read", "file_write"}), (str(workspace),), confirmed=frozenset({"*"}))
        agent = Agent(ScriptedModel("done"), [edit_tool(LocalFiles())], store=store, grant=grant)
        answer = await agent.resume(left.id)
    [result] = [
        one for message in answer.turn.messages if isinstance(message, ResultsMessage) for one in message.results
    ]
    assert result.status is Status.SUCCESS, result.text
    assert result.structured["replacements"] == 1
    assert (workspace / "a.txt").read_text() == "aa"
