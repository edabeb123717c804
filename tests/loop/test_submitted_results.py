"""Turns that must end with a tool: `submit_result` and any other that `Limits.must_end_with` names."""

from typing import Any

import pytest
from msgspec.structs import replace

from toolwire import Agent, Limits, tool
from toolwire.errors import DefinitionError
from toolwire.hub.submitting import FIELDS, submit_result_tool
from toolwire.loop.limits import MOST_REMINDERS
from toolwire.protocol.chat import Note, Request
from toolwire.protocol.outcomes import Status
from toolwire.protocol.tools import InProcess
from toolwire.protocol.turns import EndReason
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel, call, says

PRICE = {
    "type": "object",
    "properties": {"price": {"type": "number"}, "currency": {"enum": ["EUR", "USD"]}},
    "required": ["price", "currency"],
    "additionalProperties": False,
}
GOOD = {"price": 3.5, "currency": "EUR"}


def submits(result: Any) -> Any:
    return call("submit_result", result=result)


def notes(request: Request) -> list[str]:
    return [message.text for message in request.messages if isinstance(message, Note)]


@pytest.mark.feature("F030")
@pytest.mark.feature("F262")
@pytest.mark.parametrize("text_call", [False, True])
async def test_a_turn_ends_with_the_result_that_its_model_submits(store: Store, text_call: bool) -> None:
    made = replace(submits(GOOD), format="hermes") if text_call else submits(GOOD)
    model = ScriptedModel(says("", made))
    answer = await Agent(model, [], store=store, result_schema=PRICE).ask("What is the price?")

    kept = (await store.turn(answer.turn_id)).ending
    assert (answer.value, answer.status, len(model.requests)) == (GOOD, Status.SUCCESS, 1)
    assert kept is not None
    assert kept.value == GOOD


@pytest.mark.feature("F262")
async def test_a_result_without_a_schema_of_its_own_is_a_list_of_fields(store: Store) -> None:
    result = {"fields": [{"name": "price", "value": 3.5}]}
    from_seed = Agent(ScriptedModel(submits({"fields": []}), submits(result)), [], store=store, result_schema=FIELDS)

    assert (await from_seed.ask("What is the price?")).value == result


async def test_a_result_that_does_not_fit_its_schema_is_refused_and_can_be_submitted_again(store: Store) -> None:
    model = ScriptedModel(submits({"price": "much"}), submits(GOOD))
    answer = await Agent(model, [], store=store, result_schema=PRICE).ask("What is the price?")

    told = str(model.requests[1].messages[-1])
    assert (answer.value, "currency" in told) == (GOOD, True)


async def test_submit_result_must_be_the_only_call_of_its_step(store: Store) -> None:
    ran: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    model = ScriptedModel([call("look"), submits(GOOD)], submits(GOOD))
    answer = await Agent(model, [look], store=store, result_schema=PRICE).ask("What is the price?")

    assert (answer.value, ran) == (GOOD, ["look"])
    assert "only call of its step" in str(model.requests[1].messages[-1])


async def test_a_model_that_answers_in_words_is_reminded_and_then_the_turn_has_failed(store: Store) -> None:
    model = ScriptedModel(*["It is 3.50."] * (MOST_REMINDERS + 1))
    answer = await Agent(model, [], store=store, result_schema=PRICE).ask("What is the price?")

    assert (answer.reason, answer.status) == (EndReason.MUST_END_WITH, Status.FAILED)
    assert "submit_result" in answer.text
    assert "It is 3.50." in answer.text
    assert [len(notes(request)) for request in model.requests] == [0, 1, 2]
    assert "submit_result" in notes(model.requests[1])[0]


async def test_a_model_that_hears_the_reminder_ends_the_turn(store: Store) -> None:
    model = ScriptedModel("It is 3.50.", submits(GOOD))
    answer = await Agent(model, [], store=store, result_schema=PRICE).ask("What is the price?")

    assert answer.value == GOOD


async def test_on_the_last_step_only_the_required_tool_is_offered(store: Store) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel(call("look"), submits(GOOD))
    limits = Limits(iterations=2)
    answer = await Agent(model, [look], store=store, result_schema=PRICE, limits=limits).ask("What is the price?")

    last = model.requests[1]
    assert answer.value == GOOD
    assert ([one.name for one in last.tools], last.tools_off) == (["submit_result"], False)
    assert "last step" in notes(last)[-1]


@pytest.mark.parametrize("line", ["It is 3.50.", submits({"price": "much"}), call("look")])
async def test_a_model_that_never_submits_on_the_last_step_ends_the_turn_as_failed(store: Store, line: Any) -> None:
    @tool
    def look() -> str:
        """Look."""
        raise AssertionError("must not run on the last step")

    model = ScriptedModel(*[line] * (MOST_REMINDERS + 1))
    limits = Limits(iterations=1)
    answer = await Agent(model, [look], store=store, result_schema=PRICE, limits=limits).ask("What is the price?")

    assert answer.reason is EndReason.MUST_END_WITH
    assert len(model.requests) == MOST_REMINDERS + 1


@pytest.mark.parametrize("says", ["", " "])
async def test_a_model_that_says_nothing_for_ever_does_not_keep_its_turn_running(store: Store, says: str) -> None:
    model = ScriptedModel(*[says] * 100)
    answer = await Agent(model, [], store=store, result_schema=PRICE).ask("What is the price?")

    assert answer.reason is EndReason.MUST_END_WITH
    assert len(model.requests) < 20


async def test_a_turn_that_must_end_with_some_tool_ends_with_its_result_and_with_no_other(store: Store) -> None:
    @tool
    def book(seat: int) -> dict[str, int]:
        """Book."""
        return {"seat": seat}

    @tool(after_execution="terminate")
    def leave() -> str:
        """Leave."""
        return "gone"

    model = ScriptedModel(call("leave"), call("book", seat=3))
    answer = await Agent(model, [book, leave], store=store, limits=Limits(must_end_with=("book",))).ask("Book!")

    assert (answer.value, answer.reason) == ({"seat": 3}, EndReason.DELIVERED)


async def test_a_turn_that_is_not_offered_what_it_must_end_with_fails_at_once(store: Store) -> None:
    model = ScriptedModel()
    answer = await Agent(model, [], store=store, limits=Limits(must_end_with=("book",))).ask("Book!")

    assert (answer.reason, model.requests) == (EndReason.MUST_END_WITH, [])
    assert "book" in answer.text


async def test_reminders_are_counted_over_a_crash(store: Store) -> None:
    with pytest.raises(Exception, match="script"):
        await Agent(ScriptedModel("StreamedText."), [], store=store, result_schema=PRICE).ask("What is the price?")
    [turn] = await store.turns()
    model = ScriptedModel(*["StreamedText."] * MOST_REMINDERS)
    answer = await Agent(model, [], store=store, result_schema=PRICE).resume(turn.id)

    assert answer.reason is EndReason.MUST_END_WITH
    assert (await store.turn(turn.id)).opening.limits.must_end_with == ("submit_result",)


def test_submit_result_runs_where_the_turn_runs() -> None:
    assert isinstance(submit_result_tool(PRICE).target, InProcess)


def test_a_schema_that_is_wrong_is_said_to_be() -> None:
    with pytest.raises(DefinitionError, match="JSON Schema"):
        Agent(ScriptedModel(), [], result_schema={"type": "nothing"})
