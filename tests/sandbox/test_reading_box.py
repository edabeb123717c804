"""A command that only reads runs unasked, and its box holds it to that, whatever a repository makes git run."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from toolwire import Agent, Grant, Tier, ToolResult
from toolwire.execute.egress.caps import Audit
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.protocol.operations import Command
from toolwire.testing import ScriptedModel
from toolwire.toolbox.registry import ToolDependencies, tools_of
from toolwire.toolbox.shell.bash import bash_tool


async def run(workspace: Path, box: Sandbox, text: str, grant: Grant | None = None) -> ToolResult:
    granted = grant or Grant(tier=Tier.RUN, permissions=frozenset({"shell"}), roots=(str(workspace),))
    async with asyncio.timeout(30), Agent(ScriptedModel(), [bash_tool(box)], grant=granted) as agent:
        return await agent.call("bash", {"command": text})


@pytest.fixture
def repository(workspace: Path) -> Path:
    """A repository whose configuration makes `git status` run a program that writes."""
    for words in (["init", "-q"], ["config", "core.fsmonitor", "touch /workspace/caught; false"]):
        subprocess.run(["git", *words], cwd=workspace, check=True)
    return workspace


async def test_reading_needs_no_yes_and_writing_does(workspace: Path, box: Sandbox) -> None:
    (workspace / "a.txt").write_text("one\ntwo\n")

    assert "2 a.txt" in (await run(workspace, box, "wc -l *.txt | sort")).text
    asked = await run(workspace, box, "touch b.txt")

    assert "No approver is present" in asked.text
    assert not (workspace / "b.txt").exists()


@pytest.mark.threat("T67")
async def test_T67_what_is_kept_from_commands_is_kept_from_those_that_only_read(workspace: Path, box: Sandbox) -> None:
    for name in (".toolwire", ".ssh", ".local/state/toolwire"):
        (workspace / name).mkdir(parents=True)
        (workspace / name / "key").write_text("canary")

    reading = "cat .toolwire/key .ssh/key .local/state/toolwire/key; ls -A .toolwire .ssh .local/state/toolwire"
    result = await run(workspace, box, reading)

    assert result.ok, result.text
    assert "canary" not in result.text
    assert "key\n" not in result.structured["stdout"]
    assert (workspace / ".toolwire" / "key").read_text() == "canary"


async def test_a_program_that_git_is_made_to_run_cannot_write_when_git_is_only_asked(
    repository: Path, box: Sandbox
) -> None:
    result = await run(repository, box, "git status --short")

    assert result.ok, result.text
    assert not (repository / "caught").exists()


async def test_control_the_same_program_writes_where_the_box_lets_it(repository: Path, box: Sandbox) -> None:
    grant = Grant(Tier.RUN, frozenset({"shell"}), (str(repository),), confirmed=frozenset({"bash"}))

    await run(repository, box, "git status --short; touch other", grant)

    assert (repository / "caught").exists()


async def test_a_command_that_only_reads_gets_no_door_even_where_hosts_are_granted(
    workspace: Path, box: Sandbox
) -> None:
    opened: list[tuple[tuple[str, ...], bool]] = []

    @asynccontextmanager
    async def door(command: Command, hosts: tuple[str, ...], *, audit: Audit) -> AsyncIterator[Command]:
        opened.append((hosts, command.writable))
        yield command

    permissions = frozenset({"shell", "network"})
    grant = Grant(Tier.RUN, permissions, (str(workspace),), ("a.example",), confirmed=frozenset({"*"}))
    async with Agent(ScriptedModel(), [bash_tool(box, door)], grant=grant) as agent:
        for text in ("ls", "touch a"):
            await agent.call("bash", {"command": text})

    assert opened == [((), False), (("a.example",), True)]


def test_where_nothing_confines_commands_reading_is_asked_about_too() -> None:
    [unconfined] = [tool for tool in tools_of(["shell"], ToolDependencies(engine="none")) if tool.name == "bash"]
    [confined] = [tool for tool in tools_of(["shell"], ToolDependencies()) if tool.name == "bash"]

    assert (unconfined.reading_box, unconfined.sandbox) == (False, "none")
    assert confined.reading_box
