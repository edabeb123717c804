"""Work that is handed to agents as turns of their own, and taken up by whichever process runs turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Grant, MemoryStore, SqliteStore, Tier, tool
from toolwire.assemble.turn_runner import RanTurn, TurnRunner
from toolwire.define.conformance import report
from toolwire.errors import StoreUnavailable, Suspended
from toolwire.hub.canceling import cancel_turn
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import ResultsMessage
from toolwire.protocol.policy import Autonomy
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import ForTurn, Until
from toolwire.record.contract import Store
from toolwire.testing import FrozenClock, ScriptedModel, call
from toolwire.toolbox.agents.delegation import SubAgents
from toolwire.toolbox.agents.orchestration_tools import orchestration_tools
from toolwire.toolbox.agents.workers import SubAgentProfile

GRANT = Grant(Tier.RUN, frozenset({"session"}), confirmed=frozenset({"*"}), autonomy=Autonomy.FULL, max_calls=40)
JOIN = call(
    "fork_join",
    tasks=[{"target_strategy": "new", "target_ref": "", "instruction": text} for text in ("one", "two", "three")],
)


class Office:
    """A boss with one kind of worker, over a store; `runner` is a process that runs what is ready."""

    def __init__(self, store: Store) -> None:
        self.store, self.ran, self.clock = store, list[RanTurn](), FrozenClock(2e9)
        self.grants: list[Grant] = []

    def boss(self, *script: Any, grant: Grant = GRANT) -> Agent:
        sub_agents = SubAgents(self.store, [SubAgentProfile("hand", "works", GRANT, self._hand)])
        tools = orchestration_tools(sub_agents, self.clock)
        boss = Agent(ScriptedModel(*script), tools, grant=grant, store=self.store, suspends=True, name="boss")
        boss.runtime.clock = self.clock
        return boss

    def _hand(self, grant: Grant, *script: Any) -> Agent:
        @tool
        def look() -> str:
            """Look."""
            return "seen"

        self.grants.append(grant)
        return Agent(ScriptedModel(*script), [look], grant=grant, store=self.store, name="hand")

    async def run(self, says: dict[str, Any], *boss: Any) -> None:
        """Run all that is ready: workers answer their instruction with what `says` has for it."""

        @asynccontextmanager
        async def opened(turn: Turn) -> AsyncIterator[Agent]:
            if turn.agent == "boss":
                yield self.boss(*boss)
            else:
                yield self._hand(GRANT, says[turn.question])

        await TurnRunner(self.store, opened, tell=self.ran.append, clock=self.clock).run_until_idle()

    async def hands(self) -> list[tuple[str, str, str]]:
        turns = [turn for turn in await self.store.turns() if turn.agent == "hand"]
        return sorted((turn.question, turn.state, turn.answer) for turn in turns)


@pytest.fixture(params=["memory", "sqlite"])
async def office(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Office]:
    store: Store = MemoryStore() if request.param == "memory" else await SqliteStore.at(tmp_path)
    yield Office(store)
    await store.close_store()


async def results(store: Store, turn_id: str) -> list[ToolResult]:
    kept = await store.turn(turn_id)
    return [one for said in kept.events if isinstance(said, ResultsMessage) for one in said.results]


def test_the_tools_are_sound() -> None:
    assert [report(each) for each in orchestration_tools(SubAgents(MemoryStore(), ()))] == [[]] * 6


@pytest.mark.feature("F175")
@pytest.mark.parametrize(
    "made",
    [
        call("delegate_async", target_strategy="new", target_ref="hand", instruction="Count."),
        call("launch_principal", profile_name="hand", instruction="Count."),
    ],
)
async def test_delegated_work_is_kept_as_a_turn_and_done_by_any_process(office: Office, made: Any) -> None:
    answer = await office.boss(made, "It is handed over.").ask("Have it counted")
    before = await office.hands()
    await office.run({"Count.": "Three."})

    [result] = await results(office.store, answer.turn_id)
    child = await office.store.turn(result.structured["agent_turn_id"])
    assert (answer.text, result.structured["accepted"]) == ("It is handed over.", True)
    assert (before, await office.hands()) == ([("Count.", "interrupted", "")], [("Count.", "ended", "Three.")])
    assert child.opening.thread == result.structured["session"]


@pytest.mark.feature("F175")
async def test_asking_an_expert_waits_for_its_turn_whoever_runs_it(office: Office) -> None:
    boss = office.boss(call("ask_expert", expert_profile="hand", question="How many?", include_history=True))
    with pytest.raises(Suspended) as waiting:
        await boss.ask("Count all")
    [child] = [turn for turn in await office.store.turns() if turn.agent == "hand"]
    await office.run({child.question: "Three."}, "They are three.")

    [result] = await results(office.store, waiting.value.turn_id)
    assert waiting.value.waits == (ForTurn(child.id),)
    assert "Count all" in child.question
    assert (result.structured["answer"], result.structured["status"], result.untrusted) == ("Three.", "success", True)
    assert [ran.answer.text for ran in office.ran if ran.answer is not None] == ["Three.", "They are three."]


@pytest.mark.feature("F175")
async def test_fork_join_waits_for_all_its_tasks_and_no_longer(office: Office) -> None:
    with pytest.raises(Suspended) as waiting:
        await office.boss(JOIN).ask("Do all")
    turns = {turn.id for turn in await office.store.turns() if turn.agent == "hand"}
    await office.run({"one": "1", "two": "2", "three": "3"}, "All done.")

    *children, until = waiting.value.waits
    [result] = await results(office.store, waiting.value.turn_id)
    told = result.structured
    assert {wait.turn_id for wait in children if isinstance(wait, ForTurn)} == turns
    assert isinstance(until, Until)
    assert (told["status"], [one["summary"] for one in told["results"]]) == ("success", ["1", "2", "3"])
    assert office.ran[-1].answer is not None
    assert office.ran[-1].answer.text == "All done."


async def test_a_fork_join_that_is_made_again_after_a_crash_begins_nothing_twice(office: Office) -> None:
    with pytest.raises(Suspended) as waiting:
        await office.boss(JOIN).ask("Do all")
    for _ in range(2):
        with pytest.raises(Suspended) as again:
            await office.boss().resume(waiting.value.turn_id)
        assert again.value.waits == waiting.value.waits

    assert len(await office.hands()) == 3


@pytest.mark.parametrize(
    ("made", "tasks"),
    [
        (JOIN, ["one", "three", "two"]),
        (call("ask_expert", expert_profile="hand", question="one"), ["one"]),
        (call("delegate_async", target_strategy="new", target_ref="hand", instruction="one"), ["one"]),
        (call("launch_principal", profile_name="hand", instruction="one"), ["one"]),
    ],
)
async def test_a_store_that_is_away_for_a_moment_does_not_let_a_turn_go_on_without_its_tasks(
    made: Any, tasks: list[str]
) -> None:
    class Away(MemoryStore):
        asked = 0

        async def reserve_share(self, *args: Any, **more: Any) -> Any:
            self.asked += 1
            if self.asked == len(tasks):
                raise StoreUnavailable("the store is away")
            return await super().reserve_share(*args, **more)

    office = Office(Away())
    with pytest.raises(Suspended) as waiting:
        await office.boss(made).ask("Do all")
    [wait] = waiting.value.waits
    office.clock.advance(2)
    await office.run({"one": "1", "two": "2", "three": "3"}, "All done.")

    [result] = await results(office.store, waiting.value.turn_id)
    assert isinstance(wait, Until)
    assert result.ok, result.error
    assert [(question, state) for question, state, _ in await office.hands()] == [(one, "ended") for one in tasks]


async def test_a_task_is_given_where_another_project_has_a_turn_of_the_same_name(office: Office) -> None:
    other = office.boss()
    other.project = "other"
    for boss in (office.boss(), other):
        await boss.begin("Do all", turn_id="one")
    with pytest.raises(Suspended):
        await office.boss(JOIN).resume("one")

    assert len(await office.hands()) == 3


async def test_tasks_that_have_not_ended_when_the_time_is_over_are_canceled(office: Office) -> None:
    with pytest.raises(Suspended) as waiting:
        await office.boss(JOIN).ask("Do all")
    [one] = [turn for turn in await office.store.turns() if turn.question == "one"]
    await office._hand(GRANT, "1").resume(one.id)
    office.clock.advance(901)
    await office.boss("Some are late.").resume(waiting.value.turn_id)

    [result] = await results(office.store, waiting.value.turn_id)
    statuses = [one["status"] for one in result.structured["results"]]
    assert (result.structured["status"], statuses) == ("partial", ["success", "timeout", "timeout"])
    assert {state for _, state, _ in await office.hands()} == {"ended"}


async def test_tasks_that_a_living_process_runs_when_the_time_is_over_count_as_late(office: Office) -> None:
    with pytest.raises(Suspended) as waiting:
        await office.boss(JOIN).ask("Do all")
    [one] = [turn for turn in await office.store.turns() if turn.question == "one"]
    running = await office.store.resume(one.id)  # as a runner does that is not done with it
    office.clock.advance(901)
    await office.boss("All are late.").resume(waiting.value.turn_id)

    [result] = await results(office.store, waiting.value.turn_id)
    assert result.ok, result.error
    assert [one["status"] for one in result.structured["results"]] == ["timeout"] * 3
    assert {question: state for question, state, _ in await office.hands()} == {
        "one": "running", "two": "ended", "three": "ended",
    }  # fmt: skip
    await office.store.release(running.opening)


async def test_with_fail_fast_one_failure_cancels_the_other_tasks(office: Office) -> None:
    tasks = [{"target_strategy": "new", "target_ref": "hand", "instruction": text} for text in ("one", "two")]
    with pytest.raises(Suspended) as waiting:
        await office.boss(call("fork_join", tasks=tasks, fail_fast=True)).ask("Do all")
    [one] = [turn for turn in await office.store.turns() if turn.question == "one"]
    await cancel_turn(office.store, one.id, 5.0)
    await office.boss("It failed.").resume(waiting.value.turn_id)

    [result] = await results(office.store, waiting.value.turn_id)
    assert result.structured["status"] == "failed"
    assert {state for _, state, _ in await office.hands()} == {"ended"}


async def test_canceling_the_one_that_waits_cancels_its_tasks(office: Office) -> None:
    with pytest.raises(Suspended) as waiting:
        await office.boss(JOIN).ask("Do all")
    await cancel_turn(office.store, waiting.value.turn_id, 5.0)

    assert {turn.state for turn in await office.store.turns()} == {"ended"}


@pytest.mark.feature("F175")
async def test_a_provisioned_agent_is_reused_and_remembers(office: Office) -> None:
    answer = await office.boss(
        call("provision_agent", action="ensure", agent_id="ada", profile_name="hand", display_name="Ada"),
        call("provision_agent", action="ensure", agent_id="ada"),
        call("provision_agent", action="create", agent_id="ada"),
        call("provision_agent", action="derive", agent_id="bob", derived_from="ada"),
        call("provision_agent", action="derive", agent_id="eve", derived_from="nobody"),
        call("delegate_async", target_strategy="reuse", target_ref="ada", instruction="Count."),
        "Done.",
    ).ask("Go")
    first, same, twice, derived, lost, work = await results(office.store, answer.turn_id)
    await office.run({"Count.": "Three."})

    said = [getattr(message, "text", "") for message in await office.store.thread(first.structured["session"])]
    assert first.structured == same.structured
    assert (twice.ok, derived.structured["profile"], lost.ok) == (False, "hand", False)
    assert work.structured["session"] == first.structured["session"]
    assert "Ada" in said[0]
    assert said[2] == "Count."


async def test_what_agents_are_given_gets_smaller_and_never_deeper_than_allowed(office: Office) -> None:
    narrow = Grant(Tier.WALK, frozenset({"session"}), confirmed=frozenset({"*"}), max_calls=10)
    answer = await office.boss(
        call("delegate_async", target_strategy="new", target_ref="hand", instruction="Count."), "Done.", grant=narrow
    ).ask("Go")
    [result] = await results(office.store, answer.turn_id)
    child = (await office.store.turn(result.structured["agent_turn_id"])).opening
    deep = office.boss(
        call("delegate_async", target_strategy="new", target_ref="hand", instruction="Dig."), "ProxyRefusal."
    )
    refused = await deep.ask("Go", thread="sub/root/3/x")

    assert (child.grant.tier, child.grant.max_calls) == (Tier.WALK, 5)
    [told] = await results(office.store, refused.turn_id)
    assert (told.ok, "deep" in told.text) == (False, True)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (call("delegate_async", target_strategy="new", target_ref="nobody", instruction="x"), "no agent"),
        (call("delegate_async", target_strategy="reuse", target_ref="nothing", instruction="x"), "nothing"),
        (call("delegate_async", target_strategy="clone", target_ref="hand", instruction="x"), "target_strategy"),
        (call("fork_join", tasks=[]), "tasks"),
        (
            call("fork_join", tasks=[{"target_strategy": "reuse", "target_ref": "a", "instruction": "x"}] * 2),
            "twice",
        ),
    ],
)
async def test_an_order_that_cannot_be_carried_out_is_refused_and_begins_nothing(
    office: Office, made: Any, words: str
) -> None:
    answer = await office.boss(made, "ProxyRefusal.").ask("Go")

    [result] = await results(office.store, answer.turn_id)
    assert (result.ok, words in result.text) == (False, True)
    assert await office.hands() == []


async def test_a_model_reads_later_what_came_of_a_call_that_runs_on_its_own(office: Office) -> None:
    done = asyncio.Event()

    @tool(after_execution="detach")
    async def bake() -> str:
        """Bake."""
        await done.wait()
        return "bread"

    def baker(*script: Any, name: str = "baker") -> Agent:
        tools = [bake, *orchestration_tools(SubAgents(office.store, ()))]
        return Agent(ScriptedModel(*script), tools, grant=GRANT, store=office.store, name=name)

    first = baker(call("bake"), "Fine.")
    began = await first.ask("Bake!")
    [card] = await office.store.calls(turn_id=began.turn_id)
    reads = call("call_result", call_id=card.call.id)
    early = await baker(reads, "Not yet.").ask("And?")
    done.set()
    while (await office.store.calls(turn_id=began.turn_id))[0].result is None:  # noqa: ASYNC110 -- a store is asked
        await asyncio.sleep(0)
    await first.runtime.close()
    late = await baker(reads, "Bread.").ask("And now?")
    others = await baker(reads, "ProxyRefusal.", name="thief").ask("Mine?")

    told = [(await results(office.store, one.turn_id))[-1] for one in (early, late, others)]
    assert [one.structured and one.structured["status"] for one in told] == ["running", "success", None]
    assert (told[1].structured["result"], told[1].untrusted) == ("bread", True)
