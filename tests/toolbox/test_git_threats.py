"""Attacks by an untrusted repository on the user who runs git in it, each with its control.

The box is a wall of its own. For T34 it is left away on purpose, so that what the git tools do themselves can be seen:
with their defences nothing that a repository names is started; without them it is.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.toolbox.conftest import Call
from tests.toolbox.git_places import ATTACKS, Open, git, started
from toolwire import Agent, Grant, Tier
from toolwire.errors import ToolFailure
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.protocol.context import Context
from toolwire.protocol.operations import Command, ExecOps, shell
from toolwire.protocol.outcomes import Code
from toolwire.testing import ScriptedModel
from toolwire.toolbox.git.inspect_tools import git as git_tools
from toolwire.toolbox.git.running import switched_off

REFUSED_BY_OPTIONS = {"textconv", "diff_command", "diff_external", "submodule"}
WISHES: list[tuple[str, dict[str, Any]]] = [
    ("git_status", {}), ("git_diff", {}), ("git_diff", {"commit": "HEAD"}), ("git_diff", {"staged": True}),
    ("git_diff", {"base": "HEAD"}), ("git_log", {}), ("git_log", {"paths": ["tea.txt"]}),
    ("git_branch", {"remotes": True}), ("git_commit", {"message": "Go on", "paths": ["tea.txt"]}),
    ("git_commit", {"message": "Take all", "all": True}),
]  # fmt: skip


def trapped(workspace: Path, attack: str) -> Path:
    """Lay the trap; the file that is there once something has stepped into it."""
    started(workspace)
    marker = workspace.parent / "marker"
    ATTACKS[attack](workspace, f"touch {marker}")
    (workspace / "tea.txt").write_text("changed\n")
    marker.unlink(missing_ok=True)
    return marker


async def everything(call: Call, ops: ExecOps, workspace: Path) -> set[str]:
    """Use every git tool; the names of those that worked."""
    context = Context(grant=Grant(roots=(str(workspace),)), timeout_s=60)
    tools = {tool.name: tool for tool in git_tools(ops)}
    worked = set()
    for name, arguments in WISHES:
        try:
            async with asyncio.timeout(30):
                await call(tools[name], context, **arguments)
            worked.add(name)
        except ToolFailure:
            continue
    return worked


@pytest.mark.parametrize("attack", ATTACKS)
async def test_T34_nothing_that_a_repository_names_is_started(call: Call, workspace: Path, attack: str) -> None:
    marker = trapped(workspace, attack)

    worked = await everything(call, Open(), workspace)

    assert not marker.exists()
    assert worked >= {"git_status", "git_log", "git_branch"}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_T34_control_without_the_defences_it_is(call: Call, workspace: Path, attack: str) -> None:
    marker = trapped(workspace, attack)

    if attack in REFUSED_BY_OPTIONS:  # of the command line, not of the environment
        git(workspace, "status")
        git(workspace, "diff")
    else:
        await everything(call, Open(defused=False), workspace)

    assert marker.exists()


async def test_T34_a_bare_repository_in_the_tree_is_not_obeyed(call: Call, granted: Context, workspace: Path) -> None:
    started(workspace)
    marker = workspace.parent / "marker"
    git(workspace, "init", "-q", "--bare", "docs")
    git(workspace / "docs", "config", "core.bare", "false")
    git(workspace / "docs", "config", "core.worktree", str(workspace))
    git(workspace / "docs", "config", "core.fsmonitor", f"touch {marker}; false")

    with pytest.raises(ToolFailure, match="bare repository"):
        await call(git_tools(Open())[0], granted, repository="docs")

    git(workspace / "docs", "status")  # the control
    assert marker.exists()


async def test_T34_looking_changes_nothing_even_where_a_program_were_started(workspace: Path) -> None:
    """The box of a tool that looks is read-only, so nothing that slipped through could change the workspace."""
    command = Command(shell("touch made || echo refused"), str(workspace), writable=False)

    ran = await local_sandbox().run(command)

    assert (ran.stdout.text, (workspace / "made").exists()) == ("refused\n", False)


def test_T34_a_configuration_with_too_many_drivers_is_not_worked_with() -> None:
    with pytest.raises(ToolFailure, match="at most 200"):
        switched_off(f"filter.f{number}.clean" for number in range(201))


HOSTILE = [
    "--output=made",
    "-c",
    "--upload-pack=touch made",
    "--",
    "-O/etc/passwd",
    "HEAD --output=made",
    "a..b",
    "x\ny",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(("name", "argument"), [("git_diff", "commit"), ("git_diff", "base"), ("git_log", "ref")])
async def test_T33_an_option_is_no_revision(
    call: Call, granted: Context, workspace: Path, name: str, argument: str, text: str
) -> None:
    started(workspace)
    tool = next(tool for tool in git_tools(Open()) if tool.name == name)

    with pytest.raises(ToolFailure) as refused:
        await call(tool, granted, **{argument: text})

    assert refused.value.code is Code.INVALID_PARAMS
    assert not (workspace / "made").exists()


async def test_T33_control_git_itself_obeys_such_an_option(workspace: Path) -> None:
    started(workspace)
    git(workspace, "log", "--output=made", "HEAD")
    assert (workspace / "made").exists()


@pytest.mark.parametrize("path", ["--output=made", "-A", ":(exclude)tea.txt", ":/", "*"])
async def test_T33_a_path_is_taken_literally(call: Call, granted: Context, workspace: Path, path: str) -> None:
    started(workspace)
    (workspace / "tea.txt").write_text("other\n")
    _, diff, log, _, commit = git_tools(Open())

    assert (await call(diff, granted, paths=[path]))["files"] == []
    assert (await call(log, granted, paths=[path]))["commits"] == []
    with pytest.raises(ToolFailure, match="did not match any file"):
        await call(commit, granted, message="Take it", paths=[path])
    assert git(workspace, "status", "--short") == "M tea.txt"


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b"])
async def test_T33_no_path_leads_out_of_the_workspace(call: Call, granted: Context, workspace: Path, path: str) -> None:
    started(workspace)
    for tool in git_tools(Open())[:3]:
        with pytest.raises(ToolFailure, match=r"outside|'\.\.'"):
            await call(tool, granted, repository=path)


async def test_T35_nothing_pushes_and_the_box_reaches_no_remote(workspace: Path) -> None:
    """What may be committed here cannot leave: there is no tool for it, and no network and no remote in the box."""
    started(workspace)
    remote = workspace.parent / "remote.git"
    git(workspace.parent, "init", "-q", "--bare", str(remote))
    git(workspace, "remote", "add", "origin", str(remote))
    grant = Grant(Tier.RUN, frozenset({"git"}), (str(workspace),), confirmed=frozenset({"*"}))

    async with Agent(ScriptedModel(), git_tools(local_sandbox()), grant=grant) as agent:
        result = await agent.call("git_push", {"remote": "origin"})
    boxed = await local_sandbox().run(Command(shell("git push origin main"), str(workspace)))

    assert result.error is not None
    assert result.error.code is Code.NOT_FOUND
    assert boxed.exit_code != 0
    assert git(remote, "for-each-ref") == ""
    git(workspace, "push", "-q", "origin", "main")  # the control
    assert git(remote, "for-each-ref") != ""
