"""A file that changes while a command waits for approval, and what approvals for more than one call cover."""

import asyncio
from pathlib import Path

import pytest

from toolwire import Agent, Grant, Tier, ToolResult
from toolwire.protocol.approvals import Approval, Scope
from toolwire.protocol.calls import NeedsApproval, ToolCall
from toolwire.protocol.chat import Reply
from toolwire.testing import ScriptedModel
from toolwire.toolbox.registry import ToolDependencies, tools_of


def granted(workspace: Path) -> Grant:
    return Grant(Tier.RUN, frozenset({"shell"}), roots=(str(workspace),))


def write(workspace: Path, mark: str) -> None:
    (workspace / "deploy.sh").write_text(f"touch {mark}\n", encoding="utf-8")


@pytest.mark.parametrize("scope", [Scope.ONCE, Scope.TURN, Scope.PATTERN])
@pytest.mark.parametrize("changes", [True, False])
async def test_T95_a_script_that_changes_while_it_is_asked_about_does_not_run(
    workspace: Path, scope: Scope, changes: bool
) -> None:
    write(workspace, "harmless")

    async def approve(request: NeedsApproval) -> Approval:
        assert "deploy.sh (sha256 " in request.reason
        if changes:
            write(workspace, "harmful")
        return Approval(granted=True, scope=scope, pattern="touch" if scope is Scope.PATTERN else "")

    command = "touch before; sh deploy.sh"
    async with asyncio.timeout(60):
        result = await call(workspace, command, approve)
    assert not (workspace / "harmful").exists()
    assert (workspace / "harmless").exists() is not changes
    assert ("has changed since this command was approved" in result.text) is changes


async def call(workspace: Path, command: str, approve: object) -> ToolResult:
    tools = tools_of(["shell"], ToolDependencies(home=workspace.parent / "home"))
    async with Agent(ScriptedModel(), tools, grant=granted(workspace), approve=approve) as agent:  # type: ignore[arg-type] # an approver
        return await agent.call("bash", {"command": command})


async def test_an_approval_for_the_turn_is_for_the_scripts_as_they_become(workspace: Path) -> None:
    write(workspace, "one")
    asked: list[NeedsApproval] = []

    async def approve(request: NeedsApproval) -> Approval:
        asked.append(request)
        return Approval(granted=True, scope=Scope.TURN)

    steps = [
        Reply(calls=(ToolCall("bash", {"command": text}, id=f"c{number}"),))
        for number, text in enumerate(("sh deploy.sh", "echo touch two > deploy.sh", "sh deploy.sh"))
    ]
    tools = tools_of(["shell"], ToolDependencies(home=workspace.parent / "home"))
    model = ScriptedModel(*steps, Reply("done"))
    async with asyncio.timeout(60), Agent(model, tools, grant=granted(workspace), approve=approve) as agent:
        await agent.ask("Deploy twice")
    assert len(asked) == 1
    assert (workspace / "one").exists()
    assert (workspace / "two").exists()
