"""Types of records: definitions, what they check, and which types are reserved."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.record_gateway import NOTE, RECORDS, Gateway, gateway_for, told
from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.rules.schemas import RESERVED
from toolwire.breadcrumbs.service import RecordService
from toolwire.errors import Conflict, NotPermitted
from toolwire.protocol.breadcrumbs import Record
from toolwire.record.memory import MemoryStore

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "size": {"type": "integer"}},
    "required": ["colour"],
    "additionalProperties": False,
}
DEFINITION: dict[str, Any] = {
    "schema_name": "schema.def.v1",
    "title": "Notes",
    "tags": ["system:bootstrap", "defines:something.else"],
    "context": {"defines_schema": "note.v1", "json_schema": SCHEMA},
    "llm_hints": {"include": ["colour"]},
}
MODEL = Caller("helper", Role.MODEL, "turn-1", "call-1")


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_for(tmp_path) as found:
        yield found


@pytest.mark.feature("F068")
async def test_a_definition_holds_every_record_of_its_type_to_its_schema(gateway: Gateway) -> None:
    before = await gateway.created(context={"anything": 1})
    defined = await gateway["ADA"].post(RECORDS, json=DEFINITION)
    assert defined.json()["tags"] == ["defines:note.v1", "system:bootstrap"]

    kept = await gateway.created(context={"colour": "red", "size": 3})
    for wrong, place in (({"colour": "blue"}, "colour"), ({"size": 1}, "colour"), ({"colour": "red", "a": 1}, "'a'")):
        refused = await gateway["ANN"].post(RECORDS, json={**NOTE, "context": wrong})
        assert told(refused) == (400, "bad_record")
        assert place in refused.json()["error"]["message"]
    patch = {"context": {"size": "large"}}
    refused = await gateway["ANN"].patch(f"{RECORDS}/{kept['id']}", json=patch, headers={"if-match": "1"})
    assert told(refused) == (400, "bad_record")
    assert (await gateway["ANN"].get(f"{RECORDS}/{kept['id']}")).json() == kept
    assert (await gateway["ANN"].get(f"{RECORDS}/{before['id']}")).json() == before
    view = await gateway["ANN"].get(f"{RECORDS}/{kept['id']}?view=llm")
    assert view.json()["context"] == {"colour": "red"}, "hints of the type hold for records without their own"


async def test_a_repeated_request_gets_its_first_answer_whatever_its_type_says_by_now(gateway: Gateway) -> None:
    key, past = {"idempotency-key": "k"}, {**NOTE, "context": {"colour": "blue"}}
    first = await gateway["ANN"].post(RECORDS, json=past, headers=key)
    defined = await gateway["ADA"].post(RECORDS, json=DEFINITION, headers=key)
    again = await gateway["ANN"].post(RECORDS, json=past, headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert (await gateway["ADA"].post(RECORDS, json=DEFINITION, headers=key)).json() == defined.json()

    other = {**NOTE, "context": {"colour": "pink"}}
    assert told(await gateway["ANN"].post(RECORDS, json=other, headers=key)) == (409, "record_conflict")
    assert told(await gateway["ANN"].post(RECORDS, json=past, headers={"idempotency-key": "new"})) == (
        400,
        "bad_record",
    )


async def test_of_two_definitions_at_the_same_moment_one_is_kept() -> None:
    class Slow(MemoryStore):
        """Others get on between a look and what follows from it."""

        async def records(self, *given: Any, **named: Any) -> Any:
            found = await super().records(*given, **named)
            await asyncio.sleep(0)
            return found

    service = RecordService(Slow(), "acme")
    new = [NewRecord("schema.def.v1", title, context=DEFINITION["context"]) for title in ("One", "Other")]
    made = await asyncio.gather(
        service.create(new[0], Caller("ada", Role.ADMIN)),
        service.create(new[1], Caller("eva", Role.ADMIN), key="k"),
        return_exceptions=True,
    )
    assert [type(one) for one in made] == [Record, Conflict]


async def test_a_definition_that_is_written_anew_counts_and_one_for_another_type_is_in_no_ones_way(
    gateway: Gateway,
) -> None:
    first = (await gateway["ADA"].post(RECORDS, json=DEFINITION)).json()
    blue = {**NOTE, "context": {"colour": "blue"}}
    assert told(await gateway["ANN"].post(RECORDS, json=blue)) == (400, "bad_record")
    await gateway["ADA"].delete(f"{RECORDS}/{first['id']}")
    loose = {**DEFINITION, "context": {"defines_schema": "note.v1", "json_schema": {"type": "object"}}}
    again = (await gateway["ADA"].post(RECORDS, json=loose)).json()
    assert (await gateway["ANN"].post(RECORDS, json=blue)).status_code == 201

    moved = {"context": {"defines_schema": "letter.v1"}}
    place = f"{RECORDS}/{again['id']}"
    assert (await gateway["ADA"].patch(place, json=moved, headers={"if-match": "1"})).status_code == 200
    assert (await gateway["ADA"].post(RECORDS, json=DEFINITION)).status_code == 201
    assert told(await gateway["ANN"].post(RECORDS, json=blue)) == (400, "bad_record")


async def test_a_changed_or_deleted_definition_counts_at_once(gateway: Gateway) -> None:
    defined = (await gateway["ADA"].post(RECORDS, json=DEFINITION)).json()
    place = f"{RECORDS}/{defined['id']}"
    blue = {**NOTE, "context": {"colour": "blue"}}
    assert told(await gateway["ANN"].post(RECORDS, json=blue))[0] == 400
    patch = {"context": {"json_schema": {"properties": {"colour": {"enum": ["blue"]}}}}}
    assert (await gateway["ADA"].patch(place, json=patch, headers={"if-match": "1"})).status_code == 200
    assert (await gateway["ANN"].post(RECORDS, json=blue)).status_code == 201
    assert told(await gateway["ANN"].post(RECORDS, json=NOTE))[0] == 400
    assert (await gateway["ADA"].delete(place)).status_code == 204
    assert (await gateway["ANN"].post(RECORDS, json=NOTE)).status_code == 201


async def test_a_type_has_one_definition(gateway: Gateway) -> None:
    first = await gateway["ADA"].post(RECORDS, json=DEFINITION, headers={"idempotency-key": "boot"})
    assert told(await gateway["ADA"].post(RECORDS, json={**DEFINITION, "title": "Others"})) == (409, "record_conflict")
    again = await gateway["ADA"].post(RECORDS, json=DEFINITION, headers={"idempotency-key": "boot"})
    assert (again.status_code, again.content) == (201, first.content)
    other = {**DEFINITION, "context": {**DEFINITION["context"], "defines_schema": "task.v1"}}
    task = (await gateway["ADA"].post(RECORDS, json=other)).json()
    taken = await gateway["ADA"].patch(
        f"{RECORDS}/{task['id']}", json={"context": {"defines_schema": "note.v1"}}, headers={"if-match": "1"}
    )
    assert told(taken) == (409, "record_conflict")


BROKEN: dict[str, Any] = {
    "no name": {"json_schema": SCHEMA},
    "a name in capitals": {"defines_schema": "Note.v1"},
    "a schema that is text": {"defines_schema": "note.v1", "json_schema": "object"},
    "an unknown type": {"defines_schema": "note.v1", "json_schema": {"type": "objekt"}},
    "a pattern that is broken": {"defines_schema": "note.v1", "json_schema": {"properties": {"a": {"pattern": "("}}}},
    "a pattern that explodes": {
        "defines_schema": "note.v1",
        "json_schema": {"properties": {"a": {"pattern": "((a{1,500}){1,500}){1,500}"}}},
    },
    "a reference to the network": {"defines_schema": "note.v1", "json_schema": {"$ref": "http://127.0.0.1:9/a.json"}},
    "a reference that leads nowhere": {"defines_schema": "note.v1", "json_schema": {"$ref": "#/$defs/a"}},
    "references that unfold": {
        "defines_schema": "note.v1",
        "json_schema": {
            "$ref": "#/$defs/a0",
            "$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 4} for n in range(12)} | {"a12": {}},
        },
    },
    "a schema under another name": {"defines_schema": "note.v1", "schema": {"type": "object"}, "llm_hints": {}},
    "nothing about the type": {"defines_schema": "note.v1", "description": "Notes"},
    "hints that are text": {"defines_schema": "note.v1", "llm_hints": "short"},
}


@pytest.mark.parametrize("context", BROKEN.values(), ids=BROKEN.keys())
async def test_a_definition_that_is_broken_is_refused_when_it_is_written(gateway: Gateway, context: Any) -> None:
    answer = await gateway["ADA"].post(RECORDS, json={"schema_name": "schema.def.v1", "context": context})
    assert told(answer) == (400, "bad_record"), answer.text
    assert (await gateway["ANN"].post(RECORDS, json=NOTE)).status_code == 201


async def test_T232_a_definition_cannot_make_checks_take_long(gateway: Gateway) -> None:
    """A pattern that backtracks, and a schema that doubles the work with each level, are bounded in steps."""
    branches = [{"properties": {"t": {"$ref": "#/$defs/tree"}}, "required": [name]} for name in ("one", "two")]
    schema = {
        "properties": {"a": {"pattern": "^(?=(a+)+$)x"}, "tree": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"anyOf": branches}},
    }
    body = {"schema_name": "schema.def.v1", "context": {"defines_schema": "note.v1", "json_schema": schema}}
    assert (await gateway["ADA"].post(RECORDS, json=body)).status_code == 201
    tree: dict[str, Any] = {}
    for _ in range(40):
        tree = {"t": tree}
    for context in ({"a": "a" * 5_000 + "b"}, {"tree": tree}):
        answer = await gateway["ANN"].post(RECORDS, json={**NOTE, "context": context})
        assert told(answer) == (400, "bad_record"), answer.text


async def test_T232_control_a_pattern_with_look_around_is_checked(gateway: Gateway) -> None:
    schema = {"properties": {"a": {"pattern": "^(?=.*[0-9])[a-z0-9]+$"}}}
    body = {"schema_name": "schema.def.v1", "context": {"defines_schema": "note.v1", "json_schema": schema}}
    assert (await gateway["ADA"].post(RECORDS, json=body)).status_code == 201
    assert (await gateway["ANN"].post(RECORDS, json={**NOTE, "context": {"a": "abc1"}})).status_code == 201
    assert told(await gateway["ANN"].post(RECORDS, json={**NOTE, "context": {"a": "abc"}}))[0] == 400


async def test_unknown_types_are_kept_unless_the_settings_are_strict(gateway: Gateway, tmp_path: Path) -> None:
    assert (await gateway["ANN"].post(RECORDS, json=NOTE)).status_code == 201
    async with gateway_for(tmp_path, strict=True) as strict:
        refused = await strict["ANN"].post(RECORDS, json=NOTE)
        assert told(refused) == (400, "bad_record")
        assert "schema.def.v1" in refused.json()["error"]["message"]
        await strict["ADA"].post(RECORDS, json=DEFINITION)
        assert (await strict["ANN"].post(RECORDS, json=NOTE)).status_code == 201


_POWER = sorted(RESERVED)


@pytest.mark.parametrize("family", _POWER)
async def test_T233_a_model_writes_no_reserved_type_in_any_version_or_spelling(gateway: Gateway, family: str) -> None:
    for name in (f"{family}.v1", f"{family}.v2", family):
        with pytest.raises(NotPermitted):
            await gateway.service.create(NewRecord(name, context={"defines_schema": "note.v1"}), MODEL)
    row = (await gateway.store.audit_log(project="acme"))[-1]
    assert (row.event, row.agent, row.turn_id, row.call_id, row.status) == (
        "record_refused", "agent:helper", "turn-1", "call-1", "denied",
    )  # fmt: skip
    assert (await gateway["ADA"].get(RECORDS)).json()["data"] == []


async def test_T233_a_model_changes_and_deletes_no_reserved_record(gateway: Gateway) -> None:
    defined = (await gateway["ADA"].post(RECORDS, json=DEFINITION)).json()
    changes: list[dict[str, Any]] = [{"context": {"json_schema": {}}}, {"tags": []}]
    for change in changes:
        with pytest.raises(NotPermitted):
            await gateway.service.patch(defined["id"], change, 1, MODEL)
    with pytest.raises(NotPermitted):
        await gateway.service.delete(defined["id"], MODEL)
    assert told(await gateway["ANN"].delete(f"{RECORDS}/{defined['id']}")) == (403, "not_permitted")
    assert (await gateway["ADA"].get(f"{RECORDS}/{defined['id']}")).json() == defined


async def test_T233_no_one_writes_what_is_a_view_of_turns_and_calls(gateway: Gateway) -> None:
    for name in ("tool.response.v1", "agent.response.v1"):
        assert told(await gateway["ADA"].post(RECORDS, json={**NOTE, "schema_name": name})) == (403, "not_permitted")
        with pytest.raises(NotPermitted):
            await gateway.service.create(NewRecord(name), RUNTIME)


async def test_T233_control_a_model_writes_notes_and_an_admin_definitions(gateway: Gateway) -> None:
    kept = await gateway.service.create(NewRecord("note.v1", "A note"), MODEL)
    assert (kept.created_by, kept.turn_id, kept.call_id) == ("agent:helper", "turn-1", "call-1")
    assert (await gateway["ADA"].post(RECORDS, json=DEFINITION)).status_code == 201


async def test_an_agent_with_the_name_of_a_token_is_not_its_owner(gateway: Gateway) -> None:
    hidden = await gateway.created(visibility="private")
    found = await gateway.service.changes(0, Caller("ANN", Role.MODEL))
    assert found == ([], 1)
    assert (await gateway.service.changes(0, Caller("ANN", Role.WRITER)))[0][0].value.record.id == hidden["id"]
