"""What a turn does about a call once that has ended: go on with the result, or end with it."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.loop.test_dispatched_calls import FAR, Fleet, agent, claimed, far, sent
from toolwire import Agent, Code, Limits, Tier, Tool, ToolResult, tool
from toolwire.deliver.old_form import old_form
from toolwire.errors import Suspended
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.hub.canceling import cancel_turn
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.calls import Text
from toolwire.protocol.outcomes import Status
from toolwire.protocol.records import CallCard
from toolwire.protocol.turns import EndReason
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel, call, says

SUSPEND, TERMINATE, DETACH = AfterExecution.SUSPEND, AfterExecution.TERMINATE, AfterExecution.DETACH


def control(action: Any) -> dict[str, Any]:
    return {"total": 3, "__cg_control": {"after_execution": action}}


def counting(gives: Any, **more: Any) -> Tool:
    @tool(**more)
    def count() -> dict[str, Any]:
        """Count."""
        if isinstance(gives, Exception):
            raise gives
        return dict(gives)

    return count


async def events(store: Store, turn_id: str) -> list[str]:
    return [row.event for row in await store.audit_log(turn_id=turn_id)]


@pytest.mark.feature("F025")
@pytest.mark.parametrize("after", [SUSPEND, TERMINATE])
async def test_a_turn_goes_on_with_a_result_or_ends_with_it(store: Store, after: AfterExecution) -> None:
    model = ScriptedModel(call("count"), "It is three.")
    answer = await Agent(model, [counting({"total": 3}, after_execution=after)], store=store).ask("Count!")

    ends = after is TERMINATE
    assert len(model.requests) == (1 if ends else 2)
    assert (answer.text == "It is three.") is not ends
    assert answer.value == ({"total": 3} if ends else None)
    assert answer.reason is (EndReason.DELIVERED if ends else EndReason.ANSWERED)


@pytest.mark.feature("F028")
@pytest.mark.parametrize("text_call", [False, True])
async def test_the_deliverable_of_a_terminating_tool_is_on_record(store: Store, text_call: bool) -> None:
    made = replace(call("count"), format="hermes") if text_call else call("count")
    agent = Agent(ScriptedModel(says("", made)), [counting({"total": 3}, after_execution=TERMINATE)], store=store)
    answer = await agent.ask("Count!")

    kept = await store.turn(answer.turn_id)
    [card] = await store.calls(turn_id=answer.turn_id)
    [summary] = await store.turns()
    assert kept.ending is not None
    assert (kept.ending.value, kept.ending.call_id) == ({"total": 3}, card.call.id)
    assert (summary.value, summary.answer) == (kept.ending.value, answer.text)
    assert answer.status is Status.SUCCESS


@pytest.mark.feature("F026")
@pytest.mark.parametrize("declares", [True, False])
@pytest.mark.parametrize(("registered", "said"), [(SUSPEND, "terminate"), (TERMINATE, "suspend"), (SUSPEND, "explode")])
async def test_a_result_says_what_its_turn_does_only_where_the_tool_declares_it(
    store: Store, declares: bool, registered: AfterExecution, said: str
) -> None:
    one = counting(control(said), after_execution=registered, controls_turn=declares)
    answer = await Agent(ScriptedModel(call("count"), "Read."), [one], store=store).ask("Count!")

    heeded = declares and said != "explode"
    ends = (said if heeded else registered) == "terminate"
    assert answer.reason is (EndReason.DELIVERED if ends else EndReason.ANSWERED)
    assert ("turn_controlled" if heeded else "turn_control_ignored") in await events(store, answer.turn_id)
    if ends:
        assert answer.value == {"total": 3}
        assert "__cg_control" not in answer.text


@pytest.mark.feature("F027")
@pytest.mark.parametrize(
    ("override", "reported", "registered", "ends"),
    [
        ("suspend", TERMINATE, TERMINATE, False),
        ("terminate", SUSPEND, SUSPEND, True),
        (None, TERMINATE, SUSPEND, True),
        (None, SUSPEND, TERMINATE, False),
        (None, None, TERMINATE, True),
        (None, None, SUSPEND, False),
    ],
)
async def test_the_override_counts_before_the_report_and_the_report_before_the_registry(
    store: Store, override: str | None, reported: AfterExecution | None, registered: AfterExecution, ends: bool
) -> None:
    fleet, one = Fleet(), far(after_execution=registered, controls_turn=True)
    turn_id = await sent(store, fleet, one)
    held = await claimed(store, turn_id)
    await store.close(held, launched(held, control(override) if override else {"total": 3}, reported), [])
    answer = await agent(store, fleet, one, "Done.").resume(turn_id)

    assert (answer.text == "Done.") is not ends
    assert answer.value == ({"total": 3} if ends else None)


def launched(card: CallCard, value: Any, reported: AfterExecution | None = None) -> ToolResult:
    texts = (Text(str(value)),)
    return ToolResult(
        card.call.id, "launch", Status.SUCCESS, texts, structured=value, after_execution=reported
    )  # fmt: skip


@pytest.mark.feature("F029")
@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.CANCELED, Code.EXECUTION_FAILED])
async def test_a_terminating_tool_that_did_not_succeed_returns_to_the_model(store: Store, code: Code) -> None:
    fleet, one = Fleet(), far(after_execution=TERMINATE)
    turn_id = await sent(store, fleet, one)
    held = await claimed(store, turn_id)
    await store.close(held, replace(ToolResult.failed(held.call, code, "no luck"), after_execution=TERMINATE), [])
    model = ScriptedModel("I could not.")
    answer = await changed_model(agent(store, fleet, one), model).resume(turn_id)

    assert answer.text == "I could not."
    assert "no luck" in str(model.requests[0].messages)


def changed_model(one: Agent, model: ScriptedModel) -> Agent:
    one.model = model
    return one


async def test_a_failing_terminating_tool_in_this_process_returns_to_the_model(store: Store) -> None:
    one = counting(ValueError("no luck"), after_execution=TERMINATE)
    answer = await Agent(ScriptedModel(call("count"), "I could not."), [one], store=store).ask("Count!")

    assert (answer.text, answer.reason) == ("I could not.", EndReason.ANSWERED)


@pytest.mark.feature("F028")
async def test_one_terminating_result_among_several_ends_the_turn_after_all_have_ended(store: Store) -> None:
    ran: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    one = counting({"total": 3}, after_execution=TERMINATE)
    model = ScriptedModel([call("look"), call("count"), call("nothing")])
    answer = await Agent(model, [look, one], store=store).ask("Both!")

    assert (answer.value, ran, len(model.requests)) == ({"total": 3}, ["look"], 1)
    assert all(card.result is not None for card in await store.calls(turn_id=answer.turn_id))


async def test_several_terminating_results_are_delivered_in_the_order_of_their_calls(store: Store) -> None:
    @tool(after_execution=TERMINATE)
    def report(part: int) -> dict[str, int]:
        """Report."""
        return {"part": part}

    model = ScriptedModel([call("report", part=1), call("report", part=2)])
    answer = await Agent(model, [report], store=store).ask("Report!")

    assert answer.value == [{"part": 1}, {"part": 2}]


@pytest.mark.feature("F145")
async def test_a_turn_whose_calls_run_elsewhere_ends_when_the_last_result_has_come(store: Store) -> None:
    """A terminating call and one that is still running: the turn waits for both, then ends without the model."""
    fleet, one = Fleet(), far(after_execution=TERMINATE)
    with pytest.raises(Exception, match="waits"):
        await agent(store, fleet, one, [call("launch", site="a"), call("launch", site="b")]).ask("Launch!")
    [summary] = await store.turns()
    first, second = [
        await store.claim(card, [], owner="worker", until=FAR) for card in await store.calls(turn_id=summary.id)
    ]
    await store.close(second, launched(second, {"site": "b"}), [])
    with pytest.raises(Exception, match="waits"):
        await agent(store, fleet, one).resume(summary.id)
    await store.close(first, launched(first, {"site": "a"}), [])
    answer = await agent(store, fleet, one).resume(summary.id)

    assert answer.value == [{"site": "a"}, {"site": "b"}]


@pytest.mark.parametrize("path", ["answer", "terminate", "iterations", "budget", "cancel"])
async def test_every_end_of_a_turn_leaves_a_deliverable_on_record(store: Store, path: str) -> None:
    one = counting({"total": 3}, after_execution=TERMINATE if path == "terminate" else SUSPEND)
    limits = {"iterations": Limits(iterations=1), "budget": Limits(tokens=0)}.get(path, Limits())
    script: list[Any] = ["Three."] if path in ("answer", "iterations") else [call("count"), "Three."]
    asking = Agent(ScriptedModel(*script), [one], store=store, limits=limits)
    if path == "cancel":
        turn = await asking.begin("Count!")
        await cancel_turn(store, turn.id, 5.0)
        turn_id, status = turn.id, Status.CANCELED
    else:
        answer = await asking.ask("Count!")
        turn_id, status = answer.turn_id, answer.status

    ending = (await store.turn(turn_id)).ending
    assert ending is not None
    assert ending.answer
    assert ending.status is status
    expected = {"answer": Status.SUCCESS, "terminate": Status.SUCCESS, "cancel": Status.CANCELED}
    assert status is expected.get(path, Status.PARTIAL)


@pytest.mark.feature("F191")
async def test_calls_know_their_step_and_a_turn_resumes_at_the_step_where_it_was(store: Store) -> None:
    """Two steps are done and the third waits: it is the third that goes on, and the next call is of the fourth."""
    ran: list[int] = []

    @tool
    def look(number: int) -> str:
        """Look."""
        ran.append(number)
        return f"seen {number}"

    fleet, one = Fleet(), far()
    tools, executor = [look, one], Router(InProcessExecutor(), edge=fleet)
    first = ScriptedModel(call("look", number=1), call("look", number=2), call("launch"))
    with pytest.raises(Suspended) as waiting:
        await Agent(first, tools, store=store, executor=executor).ask("Go!")
    turn_id = waiting.value.turn_id
    [(_, context)] = fleet.sent
    *_, third = await store.calls(turn_id=turn_id)
    held = await store.claim(third, [], owner="worker", until=FAR)
    await store.close(held, launched(held, "up"), [])
    second = ScriptedModel(call("look", number=4), "Done.")
    await Agent(second, tools, store=store, executor=executor).resume(turn_id)

    cards = await store.calls(turn_id=turn_id)
    assert [card.step for card in cards] == [1, 2, 3, 4]
    assert context.step_id == third.step_id == f"step_{turn_id}_3"
    assert len({card.step_id for card in cards}) == 4
    assert ran == [1, 2, 4]


@pytest.mark.feature("F153")
@pytest.mark.parametrize(
    ("name", "arguments", "error_type"),
    [
        ("nothing", {}, "not_found"),
        ("work", {"how": []}, "invalid_params"),
        ("guarded", {}, "permission_denied"),
        ("slow", {}, "timeout"),
        ("work", {"how": "badly"}, "execution_failed"),
    ],
)
async def test_every_kind_of_error_has_its_error_type(
    store: Store, name: str, arguments: dict[str, Any], error_type: str
) -> None:
    @tool
    def work(how: str) -> str:
        """Work."""
        raise ValueError(how)

    @tool(tier=Tier.RUN)
    def guarded() -> str:
        """Work."""
        return "never"

    @tool(timeout_s=0.01)
    async def slow() -> str:
        """Work."""
        await asyncio.Event().wait()
        return "never"

    result = await Agent(ScriptedModel(), [work, guarded, slow], store=store).call(name, arguments)

    assert old_form(result)["error_type"] == error_type
