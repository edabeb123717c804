"""A call that needs people's word: it waits on record, runs as it was approved, or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire import Agent, Answer, Approval, Effect, Grant, MemoryStore, SqliteStore, Tier, Toolbox, ToolResult, tool
from toolwire.errors import CannotResume, Suspended
from toolwire.protocol.approvals import Scope
from toolwire.protocol.calls import NeedsApproval
from toolwire.protocol.policy import Rule, Verdict
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel, call

pytestmark = pytest.mark.feature("F126")

GRANT = Grant(tier=Tier.RUN)


class Doors:
    """Tools that note what they did."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.looked = 0

    def toolbox(self) -> Toolbox:
        @tool(tier=Tier.RUN)
        def unlock(door: int) -> str:
            """Unlock a door."""
            self.opened.append(door)
            return f"door {door} is open"

        @tool(effect=Effect.PURE)
        def look() -> str:
            """Look around."""
            self.looked += 1
            return "nobody"

        return Toolbox.of(unlock, look)


def results(answer: Answer) -> list[ToolResult]:
    return [result for message in answer.turn.messages for result in getattr(message, "results", ())]


@pytest.fixture
def doors() -> Doors:
    return Doors()


@pytest.fixture
def agent(doors: Doors) -> Callable[..., Agent]:
    def make(store: Store, *script: Any, **more: Any) -> Agent:
        given: dict[str, Any] = {"grant": GRANT, "suspends": True, **more}
        return Agent(ScriptedModel(*script), doors.toolbox(), store=store, **given)

    return make


async def test_a_turn_waits_on_record_for_approval_and_continues_in_another_process(
    agent: Callable[..., Agent], doors: Doors, tmp_path: Path
) -> None:
    async with await SqliteStore.at(tmp_path) as store:
        with pytest.raises(Suspended) as waits:
            await agent(store, [call("look"), call("unlock", door=7)]).ask("Open 7")
        assert (doors.opened, doors.looked) == ([], 1)
    async with await SqliteStore.at(tmp_path) as store:
        [asked] = await store.approvals(only_open=True)
        assert (asked.id, asked.tool, asked.arguments) == (waits.value.approvals[0], "unlock", {"door": 7})
        await store.answer(asked.id, Approval(granted=True, by="ann"))
    async with await SqliteStore.at(tmp_path) as store:
        answer = await agent(store, "Done.").resume(waits.value.turn_id)
    assert [result.text for result in results(answer)] == ["nobody", "door 7 is open"]
    assert (doors.opened, doors.looked) == ([7], 1)


async def test_a_turn_that_is_resumed_too_early_waits_on(agent: Callable[..., Agent], doors: Doors) -> None:
    store = MemoryStore()
    with pytest.raises(Suspended) as first:
        await agent(store, call("unlock", door=1)).ask("Open")
    with pytest.raises(Suspended) as second:
        await agent(store).resume(first.value.turn_id)
    assert (first.value.approvals, doors.opened) == (second.value.approvals, [])


@pytest.mark.parametrize(
    ("word", "told"),
    [
        (Approval(granted=False, by="bob", reason="not at night"), "The user did not allow 'unlock': not at night"),
        (Approval(granted=True, by="bob", arguments={"door": "x"}), "Invalid arguments for 'unlock'"),
    ],
)
async def test_a_no_or_wrong_arguments_go_back_to_the_model(
    agent: Callable[..., Agent], doors: Doors, word: Approval, told: str
) -> None:
    store = MemoryStore()
    with pytest.raises(Suspended) as waits:
        await agent(store, call("unlock", door=1)).ask("Open")
    await store.answer(waits.value.approvals[0], word)
    answer = await agent(store, "Sorry.").resume(waits.value.turn_id)
    assert results(answer)[0].text.startswith(told)
    assert doors.opened == []


async def test_an_approver_may_change_the_arguments(agent: Callable[..., Agent], doors: Doors) -> None:
    async def approve(request: NeedsApproval) -> Approval:
        return Approval(granted=True, arguments={"door": 2})

    await agent(MemoryStore(), call("unlock", door=1), "Done.", approve=approve).ask("Open")
    assert doors.opened == [2]


async def test_an_approval_for_the_turn_is_requested_once(agent: Callable[..., Agent], doors: Doors) -> None:
    asked: list[int] = []

    async def approve(request: NeedsApproval) -> Approval:
        asked.append(request.allowed.arguments["door"])
        return Approval(granted=True, scope=Scope.TURN)

    both = (call("unlock", door=1), call("unlock", door=2), "Done.")
    store = MemoryStore()
    await agent(store, *both, approve=approve).ask("Open")
    assert (asked, doors.opened) == ([1], [1, 2])
    await agent(store, *both, approve=approve).ask("Open again")
    assert asked == [1, 1]


@pytest.mark.threat("T65")
async def test_an_approval_past_its_time_is_a_no(doors: Doors) -> None:
    now = [1000.0]
    store = MemoryStore(clock=lambda: now[0], monotonic=lambda: now[0])
    first = Agent(ScriptedModel(call("unlock", door=1)), doors.toolbox(), store=store, grant=GRANT, suspends=True)
    first.runtime.clock, first.runtime.approval_s = (lambda: now[0]), 60.0
    with pytest.raises(Suspended) as waits:
        await first.ask("Open")
    now[0] += 61
    later = Agent(ScriptedModel("Too late."), doors.toolbox(), store=store, grant=GRANT, suspends=True)
    answer = await later.resume(waits.value.turn_id)
    assert "No one approved 'unlock' in time" in results(answer)[0].text
    assert doors.opened == []


TWO = Grant(tier=Tier.RUN, rules=(Rule(Verdict.ASK, frozenset({"unlock"}), quorum=2),))


async def approved_by_one(agent: Callable[..., Agent], store: MemoryStore) -> tuple[str, str]:
    """A turn whose call needs two approvers and has one, and the approval that it waits for."""
    with pytest.raises(Suspended) as waits:
        await agent(store, call("unlock", door=1), grant=TWO).ask("Open")
    [asked] = waits.value.approvals
    await store.answer(asked, Approval(granted=True, by="ann"))
    return waits.value.turn_id, asked


async def test_what_the_policy_names_needs_several_approvers(agent: Callable[..., Agent], doors: Doors) -> None:
    store = MemoryStore()
    turn_id, asked = await approved_by_one(agent, store)
    with pytest.raises(Suspended):
        await agent(store, grant=TWO).resume(turn_id)
    await store.answer(asked, Approval(granted=True, by="bob"))
    await agent(store, "Done.", grant=TWO).resume(turn_id)
    assert doors.opened == [1]


@pytest.mark.threat("T65")
async def test_several_approvers_agree_to_the_same_arguments_or_to_nothing(
    agent: Callable[..., Agent], doors: Doors
) -> None:
    store = MemoryStore()
    turn_id, asked = await approved_by_one(agent, store)
    await store.answer(asked, Approval(granted=True, by="bob", arguments={"door": 99}))
    with pytest.raises(Suspended):
        await agent(store, grant=TWO).resume(turn_id)
    await store.answer(asked, Approval(granted=True, by="ann", arguments={"door": 99}))
    await agent(store, "Done.", grant=TWO).resume(turn_id)
    assert doors.opened == [99]


@pytest.mark.threat("T65")
async def test_one_of_several_approvers_cannot_approve_the_whole_turn(
    agent: Callable[..., Agent], doors: Doors
) -> None:
    store = MemoryStore()
    turn_id, asked = await approved_by_one(agent, store)
    await store.answer(asked, Approval(granted=True, by="bob", scope=Scope.TURN))
    with pytest.raises(Suspended):
        await agent(store, call("unlock", door=2), "Done.", grant=TWO).resume(turn_id)
    assert doors.opened == [1]


@pytest.mark.threat("T65")
async def test_arguments_that_an_approver_chose_need_the_same_quorum(agent: Callable[..., Agent], doors: Doors) -> None:
    async def approve(request: NeedsApproval) -> Approval:
        return Approval(granted=True, arguments={"door": 99})

    rules = (Rule(Verdict.ASK, frozenset({"unlock"}), argument="door", pattern="99", quorum=2),)
    grant = Grant(tier=Tier.RUN, rules=rules)
    answer = await agent(MemoryStore(), call("unlock", door=1), "ProxyRefusal.", grant=grant, approve=approve).ask(
        "Open"
    )
    assert doors.opened == []
    assert "2 approvals are needed" in results(answer)[0].text


async def test_what_was_denied_since_does_not_run_when_a_turn_is_resumed(
    agent: Callable[..., Agent], doors: Doors
) -> None:
    """The protocol demands it: a grant that is taken back after a call was accepted counts when it would run."""
    store = MemoryStore()
    with pytest.raises(Suspended) as waits:
        await agent(store, call("unlock", door=1)).ask("Open")
    await store.answer(waits.value.approvals[0], Approval(granted=True))
    denying = replace(GRANT, rules=(Rule(Verdict.DENY, frozenset({"unlock"})),))
    answer = await agent(store, "ProxyRefusal.", grant=denying).resume(waits.value.turn_id)
    assert doors.opened == []
    assert "not allowed" in results(answer)[0].text


@pytest.mark.threat("T65")
async def test_an_approval_holds_only_for_the_tool_it_was_requested_for(
    agent: Callable[..., Agent], doors: Doors
) -> None:
    store = MemoryStore()
    with pytest.raises(Suspended) as waits:
        await agent(store, call("unlock", door=1)).ask("Open")
    await store.answer(waits.value.approvals[0], Approval(granted=True))
    [unlock, look] = doors.toolbox()
    newer = Toolbox.of(replace(unlock, version="2"), look)
    later = Agent(ScriptedModel("ProxyRefusal."), newer, store=store, grant=GRANT, suspends=True)
    with pytest.raises(CannotResume, match="has version 2 now"):
        await later.resume(waits.value.turn_id)
    assert doors.opened == []


async def test_the_first_answer_decides(agent: Callable[..., Agent], doors: Doors) -> None:
    store = MemoryStore()

    async def approve(request: NeedsApproval) -> Approval:
        [asked] = await store.approvals(only_open=True)
        await store.answer(asked.id, Approval(granted=False, by="bob", reason="I was first"))
        return Approval(granted=True, by="ann")

    answer = await agent(store, call("unlock", door=1), "ProxyRefusal.", approve=approve).ask("Open")
    assert "I was first" in results(answer)[0].text
    assert doors.opened == []


async def test_without_anyone_to_ask_and_no_waiting_a_call_is_refused_at_once(
    agent: Callable[..., Agent], doors: Doors
) -> None:
    store = MemoryStore()
    answer = await agent(store, call("unlock", door=1), "ProxyRefusal.", suspends=False).ask("Open")
    assert "No approver is present" in results(answer)[0].text
    assert await store.approvals() == []
