"""A turn that waits says what for, goes on when that has come, and spends no approval on a tool that is missing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire import Agent, Approval, Grant, MemoryStore, Tier, Toolbox, tool
from toolwire.errors import CannotResume, Fenced, NotFound, Suspended
from toolwire.protocol.agents import AgentSpec, SkillSpec, ToolsSpec
from toolwire.protocol.events import EventEnvelope, TurnWaiting
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import EndReason
from toolwire.protocol.waits import ForApproval
from toolwire.testing import ScriptedModel, call

GRANT = Grant(tier=Tier.RUN)
Doing = Callable[[Agent], Any]


class Doors:
    """A tool that needs approval, and what it did."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.store = MemoryStore()

    def tool(self) -> Tool:
        @tool(tier=Tier.RUN)
        def unlock(door: int) -> str:
            """Unlock a door."""
            self.opened.append(door)
            return f"door {door} is open"

        return unlock

    def agent(self, *script: Any, tools: Toolbox | None = None, **more: Any) -> Agent:
        toolbox = Toolbox.of(self.tool()) if tools is None else tools
        return Agent(ScriptedModel(*script), toolbox, store=self.store, grant=GRANT, suspends=True, **more)


@pytest.fixture
def doors() -> Doors:
    return Doors()


async def _ask(agent: Agent) -> Any:
    return await agent.ask("Open 7")


async def _call(agent: Agent) -> Any:
    return await agent.call("unlock", {"door": 7})


async def _resume(agent: Agent, turn_id: str) -> Any:
    single = (await agent.store.turn(turn_id)).opening.kind == "call"
    return await (agent.resume_call(turn_id) if single else agent.resume(turn_id))


@pytest.mark.parametrize("begin", [_ask, _call])
async def test_a_turn_that_waits_says_what_for(doors: Doors, begin: Doing) -> None:
    seen: list[EventEnvelope] = []
    agent = doors.agent(call("unlock", door=7))
    agent.events.watch(seen.append)
    with pytest.raises(Suspended) as waits:
        await begin(agent)

    [asked] = await doors.store.approvals()
    expected = (ForApproval(asked.id),)
    assert (waits.value.waits, waits.value.approvals) == (expected, (asked.id,))
    [summary] = await doors.store.turns(state="waiting")
    assert summary.waits == expected
    assert seen[-1].event == TurnWaiting(waits.value.turn_id, expected)


@pytest.mark.parametrize("begin", [_ask, _call])
async def test_a_turn_is_ready_once_its_approval_is_given_and_no_more_when_it_has_ended(
    doors: Doors, begin: Doing
) -> None:
    agent = doors.agent(call("unlock", door=7), "Done.")
    with pytest.raises(Suspended) as waits:
        await begin(agent)
    assert await agent.ready() == []

    await doors.store.answer(waits.value.approvals[0], Approval(granted=True))
    assert [turn.id for turn in await agent.ready()] == [waits.value.turn_id]

    await _resume(agent, waits.value.turn_id)
    assert await agent.ready() == []
    assert doors.opened == [7]


def newer(doors: Doors) -> Toolbox:
    return Toolbox.of(replace(doors.tool(), version="2"))


@pytest.mark.parametrize("begin", [_ask, _call])
@pytest.mark.parametrize("word", [None, Approval(granted=True)], ids=["pending", "approved"])
@pytest.mark.parametrize("other", [lambda _: Toolbox(), newer], ids=["missing", "changed"])
async def test_an_agent_without_the_approved_tool_leaves_the_turn_and_the_approval_as_they_are(
    doors: Doors, begin: Doing, word: Approval | None, other: Callable[[Doors], Toolbox]
) -> None:
    with pytest.raises(Suspended) as waits:
        await begin(doors.agent(call("unlock", door=7)))
    turn_id, [approval] = waits.value.turn_id, waits.value.approvals
    if word is not None:
        await doors.store.answer(approval, word)

    with pytest.raises(CannotResume, match=r"'unlock' waits in it.* Nothing was run"):
        await _resume(doors.agent("Sorry.", tools=other(doors)), turn_id)

    assert (await doors.store.turn(turn_id)).opening.epoch == 1
    if word is None:
        await doors.store.answer(approval, Approval(granted=True))
    await _resume(doors.agent("Done."), turn_id)
    assert doors.opened == [7]


async def test_a_denied_call_needs_no_tool_to_end(doors: Doors) -> None:
    with pytest.raises(Suspended) as waits:
        await doors.agent(call("unlock", door=7)).ask("Open 7")
    await doors.store.answer(waits.value.approvals[0], Approval(granted=False))

    answer = await doors.agent("I may not.", tools=Toolbox()).resume(waits.value.turn_id)

    assert (answer.text, doors.opened) == ("I may not.", [])


@pytest.mark.parametrize(("digest", "runs"), [("sha256:aa", True), ("sha256:bb", False)])
async def test_an_approval_is_for_the_files_of_a_skill_as_they_were(doors: Doors, digest: str, runs: bool) -> None:
    def agent(digest: str, *script: Any) -> Agent:
        spec = AgentSpec(tools=ToolsSpec(skills=(SkillSpec("doors", "1", digest),)))
        return doors.agent(*script, tools=Toolbox.of(replace(doors.tool(), skill="doors")), spec=spec)

    with pytest.raises(Suspended) as waits:
        await agent("sha256:aa", call("unlock", door=7)).ask("Open 7")
    await doors.store.answer(waits.value.approvals[0], Approval(granted=True))

    if runs:
        await agent(digest, "Done.").resume(waits.value.turn_id)
    else:
        with pytest.raises(CannotResume, match="files of skill 'doors' have changed"):
            await agent(digest, "Done.").resume(waits.value.turn_id)
    assert doors.opened == ([7] if runs else [])


@pytest.mark.parametrize("begin", [_ask, _call])
async def test_a_waiting_turn_can_be_canceled_and_then_runs_nothing(doors: Doors, begin: Doing) -> None:
    agent = doors.agent(call("unlock", door=7))
    with pytest.raises(Suspended) as waits:
        await begin(agent)
    turn_id = waits.value.turn_id

    await agent.cancel(turn_id)
    await agent.cancel(turn_id)

    [summary] = await doors.store.turns()
    assert (summary.state, summary.reason) == ("ended", EndReason.CANCELED)
    [card] = await doors.store.calls(turn_id=turn_id)
    assert card.result is not None
    assert card.result.status is Status.CANCELED
    assert card.result.error is not None
    assert card.result.error.code is Code.CANCELED
    with pytest.raises(Fenced):
        await _resume(agent, turn_id)
    assert doors.opened == []


async def test_a_turn_that_runs_is_not_canceled_from_elsewhere(doors: Doors) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def linger() -> str:
        """Take some time."""
        running.set()
        await go_on.wait()
        return "done"

    agent = doors.agent(call("linger"), "Done.", tools=Toolbox.of(linger))
    work = asyncio.create_task(agent.ask("Wait"))
    await running.wait()
    [turn] = await doors.store.turns()
    with pytest.raises(Fenced):
        await agent.cancel(turn.id)
    go_on.set()
    assert (await work).text == "Done."


async def test_an_unknown_turn_cannot_be_canceled(doors: Doors) -> None:
    with pytest.raises(NotFound):
        await doors.agent().cancel("nowhere")
