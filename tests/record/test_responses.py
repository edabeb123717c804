"""Results and replies of every store, read as records of the universal envelope."""

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cli.stage import scripted
from toolwire import Agent, Grant, Tier, tool
from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.responses import Responses, asks_for_responses, is_response
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.rules.responses import CallName, ReplyName, call_record_id, read_response_id, reply_record_id
from toolwire.breadcrumbs.service import RecordService
from toolwire.errors import NotFound, NotPermitted
from toolwire.models.opening import open_model
from toolwire.protocol.breadcrumbs import RecordQuery
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel, call, says
from toolwire.toolbox.registry import ToolDependencies, tools_of


@dataclass(frozen=True, slots=True)
class _Envelope:
    """The formats of the universal envelope."""

    definition_format: str = "rcrt"
    call_parser: str = "auto"
    result_format: str = "auto"
    coach: bool = False


@tool(name="double")
def double(n: int) -> dict[str, int]:
    """Double a number."""
    if n < 0:
        raise ValueError("a number below zero")
    return {"result": n * 2}


async def run_turn(store: Store, thread: str, *numbers: int) -> str:
    requests = [call("double", f"double-{n}", n=n) for n in numbers]
    model = ScriptedModel(says("Doubling.\nThen more.", *requests), "Done.")
    return (await Agent(model, [double], store=store).ask("Go", thread=thread)).turn_id


@pytest.mark.feature("F147", "F148")
async def test_a_result_is_a_tool_response_record_under_a_stable_id(store: Store) -> None:
    turn_id = await run_turn(store, "abc", 4)
    responses = Responses(store, "default")
    [[_, found]] = await responses.listed(RecordQuery("tool.response.v1", all_tags=("request:double-4",)))
    assert found == await responses.read(found.id)
    assert is_response(found.id)
    assert (found.title, found.tags) == (
        "Response of double",
        ("tool:response", "request:double-4", "session:abc"),
    )
    seeds = {name: found.context[name] for name in ("request_id", "tool", "status", "output", "error")}
    assert seeds == {
        "request_id": "double-4", "tool": "double", "status": "success", "output": {"result": 8}, "error": None,
    }  # fmt: skip
    assert (found.turn_id, found.version, found.origins, found.created_by) == (turn_id, 1, (), "agent:agent")
    assert [one.value for one in await responses.listed(RecordQuery("tool.response.v1", created_by="agent:agent"))]
    assert await responses.listed(RecordQuery("tool.response.v1", created_by="agent")) == []


@pytest.mark.feature("F147")
async def test_a_failure_is_a_response_with_an_error_and_no_output(store: Store) -> None:
    await run_turn(store, "", -1)
    [[_, found]] = await Responses(store, "default").listed(RecordQuery(all_tags=("tool:response",)))
    assert (found.context["status"], found.context["output"]) == ("error", None)
    assert "a number below zero" in found.context["error"]
    assert (found.context["outcome"], found.context["code"]) == ("failed", "execution_failed")
    assert found.tags == ("tool:response", "request:double--1")


@pytest.mark.feature("F002", "F003")
async def test_a_reply_is_an_agent_response_record_of_its_session(store: Store) -> None:
    turn_id = await run_turn(store, "abc", 1, 2)
    responses = Responses(store, "default")
    last, first = [one.value for one in await responses.listed(RecordQuery("agent.response.v1"))]
    assert (first.title, first.tags) == ("Doubling.", ("agent:response", "session:abc"))
    assert first.context["message"] == "Doubling.\nThen more."
    assert first.context["tool_requests"] == [
        {"tool": "double", "input": {"n": n}, "requestId": f"double-{n}", "return_to_llm": True} for n in (1, 2)
    ]
    assert (last.context["message"], last.context["tool_requests"]) == ("Done.", [])
    assert await responses.read(reply_record_id(turn_id, 2)) == last
    for missing in (reply_record_id(turn_id, 3), reply_record_id("x", 1), call_record_id("x", "y")):
        with pytest.raises(NotFound, match=f"there is no record '{missing}'"):
            await responses.read(missing)


async def test_lists_of_responses_go_on_at_their_cursor_and_stay_in_a_session(store: Store) -> None:
    for thread, numbers in (("a", (1, 2, 3)), ("b", (4,)), ("a", (5,))):
        await run_turn(store, thread, *numbers)
    responses = Responses(store, "default")
    found, before = [], None
    while page := await responses.listed(RecordQuery("tool.response.v1"), limit=2, before=before):
        found += [one.value.context["request_id"] for one in page]
        before = page[-1].cursor
    assert found == [f"double-{n}" for n in (5, 4, 3, 2, 1)]
    of_b = await responses.listed(RecordQuery("tool.response.v1", all_tags=("session:b",)))
    assert [one.value.context["request_id"] for one in of_b] == ["double-4"]
    assert await Responses(store, "another").listed(RecordQuery("tool.response.v1")) == []


async def test_a_turn_reads_the_responses_of_its_own_session_only(store: Store) -> None:
    own, same, other = [await run_turn(store, thread, n) for n, thread in enumerate(("a", "a", "b"), 1)]
    responses = Responses(store, "default")
    listed = await responses.listed(RecordQuery("agent.response.v1"), within=own)
    assert {one.value.turn_id for one in listed} == {own, same}
    assert (await responses.read(reply_record_id(same, 1), within=own)).turn_id == same
    with pytest.raises(NotFound):
        await responses.read(reply_record_id(other, 1), within=own)


async def test_the_service_reads_responses_and_lets_no_one_write_them(store: Store) -> None:
    turn_id = await run_turn(store, "a", 4)
    service = RecordService(store, "default")
    admin, model = Caller("ann", Role.ADMIN), Caller("agent", Role.MODEL, turn_id)
    [[_, found]] = await service.listed(RecordQuery("tool.response.v1"), admin)
    for caller in (admin, model, RUNTIME):
        assert await service.read(found.id, caller) == found
        assert await service.history(found.id, caller) == [found]
        with pytest.raises(NotPermitted, match="cannot be written"):
            await service.patch(found.id, {"title": "forged"}, 1, caller)
        with pytest.raises(NotPermitted, match="cannot be written"):
            await service.delete(found.id, caller)
        with pytest.raises(NotPermitted, match="cannot be written"):
            await service.create(NewRecord("tool.response.v1"), caller)
    for caller in (Caller("rita", Role.READER), Caller("agent", Role.MODEL, "another"), Caller("agent", Role.MODEL)):
        with pytest.raises(NotFound):
            await service.read(found.id, caller)
        assert await service.listed(RecordQuery("tool.response.v1"), caller) == []


@pytest.mark.parametrize("turn_id", ["t_1", "a/b %5F_~!7E", "0198c5e2-7d07-7cc2-8f1a-000000000000", "ü"])
def test_the_id_of_a_response_says_which_call_or_reply_it_is(turn_id: str) -> None:
    assert read_response_id(call_record_id(turn_id, "call_7")) == CallName(turn_id, "call_7")
    assert read_response_id(reply_record_id(turn_id, 12)) == ReplyName(turn_id, 12)
    assert re.fullmatch(r"[A-Za-z0-9._~!-]+", call_record_id(turn_id, "a/b%"))


@pytest.mark.parametrize("record_id", ["", "call~~x", "call~x~", "reply~x~-1", "reply~x~1~2", "reply~x~²", "note~x~1"])
def test_other_ids_are_not_those_of_responses(record_id: str) -> None:
    assert read_response_id(record_id) is None


def test_a_list_is_about_responses_if_its_schema_or_a_tag_says_so() -> None:
    assert asks_for_responses(RecordQuery(all_tags=("request:x",)))
    assert asks_for_responses(RecordQuery(any_tags=("tool:response", "agent:response")))
    assert not asks_for_responses(RecordQuery(any_tags=("tool:response", "note")))
    assert not asks_for_responses(RecordQuery("note.v1", all_tags=("tool:response",)))
    assert not asks_for_responses(RecordQuery())


def _said(tool: str, number: str, returns: bool, **given: Any) -> str:
    wanted = {"tool": tool, "input": given, "requestId": number, "return_to_llm": returns}
    crumb = {"schema_name": "agent.response.v1", "context": {"message": f"Next: {number}", "tool_requests": [wanted]}}
    return json.dumps({"action": "create", "breadcrumb": crumb})


async def test_the_envelope_works_from_text_to_records_in_every_store(store: Store) -> None:
    """A model behind HTTP creates, finds and updates a record, and asks for a result that goes to the user."""
    service = RecordService(store, "default")
    tools = tools_of(["records", "workflow"], ToolDependencies(records=lambda: service))
    grant = Grant(Tier.WALK, frozenset({"records"}))
    note = {"schema_name": "note.v1", "title": "Notes", "context": {"words": "green tea"}}
    with scripted() as script:
        model = open_model("openai-compatible:x", base_url=script.url, api_key="", preference=_Envelope())
        script.lines += [_said("breadcrumb-create", "create-1", True, **note)]
        agent = Agent(model, [*tools, double], store=store, grant=grant)
        await agent.ask("Go", thread="abc")
        [[_, kept]] = await service.listed(RecordQuery("note.v1"), RUNTIME)
        script.requests.clear()
        script.lines[:] = [
            _said("breadcrumb-search", "search-1", True, tags=["session:abc"]),
            _said("breadcrumb-update", "update-1", True, breadcrumb_id=kept.id, updates={"context": {"n": 5}}),
            _said("double", "double-1", False, n=21),
        ]
        answer = await agent.ask("And now", thread="abc")
        await model.close()
    assert "42" in answer.text
    after = await service.read(kept.id, RUNTIME)
    assert (after.version, after.context, after.tags) == (2, {"words": "green tea", "n": 5}, ("session:abc",))
    responses = await service.listed(RecordQuery("tool.response.v1", all_tags=("session:abc",)), RUNTIME)
    assert [(one.value.context["request_id"], one.value.context["status"]) for one in responses] == [
        (number, "success") for number in ("double-1", "update-1", "search-1", "create-1")
    ]
