"""What `view=llm` shows over HTTP, whatever the hints of a record are."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.breadcrumbs.test_llm_hints import DATA, catalogue, one
from tests.gateway.record_gateway import NOTE, RECORDS, Gateway, gateway_for, told
from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import RUNTIME

DEFINITION = {
    "schema_name": "schema.def.v1",
    "context": {"defines_schema": "note.v1"},
    "llm_hints": {"include": ["colour"]},
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_for(tmp_path) as found:
        yield found
        found.service.close()


async def views(gateway: Gateway, record_id: str) -> tuple[Any, Any, str]:
    """The context of the record as it is and as models see it, and the note about that."""
    raw, llm = [
        (await gateway["ANN"].get(f"{RECORDS}/{record_id}{view}")).json() for view in ("?view=raw", "?view=llm")
    ]
    assert raw == (await gateway["ANN"].get(f"{RECORDS}/{record_id}")).json(), "raw is what is read by default"
    return raw["context"], llm["context"], llm.get("note", "")


async def test_hints_of_a_record_come_before_those_of_its_type(gateway: Gateway) -> None:
    assert (await gateway["ADA"].post(RECORDS, json=DEFINITION)).status_code == 201
    context = {"colour": "red", "size": 3, "parts": [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}]}
    plain = await gateway.created(context=context)
    assert await views(gateway, plain["id"]) == (context, {"colour": "red"}, "")
    own = await gateway.created(context=context, llm_hints={"exclude": ["parts[*].weight", "colour"]})
    shown = {"size": 3, "parts": [{"name": "a"}, {"name": "b"}]}
    assert await views(gateway, own["id"]) == (context, shown, "")
    everything = await gateway.created(context=context, llm_hints={})
    assert await views(gateway, everything["id"]) == (context, context, "")


@pytest.mark.feature("F206", "F207", "F208")
async def test_the_definition_of_the_seed_is_taken_as_it_is_and_renders_its_catalogue(gateway: Gateway) -> None:
    definition = json.loads((DATA / "tool-catalog-v1.json").read_text(encoding="utf-8"))
    assert (await gateway["ADA"].post(RECORDS, json=definition)).status_code == 201
    record = await gateway.service.create(NewRecord("tool.catalog.v1", context=catalogue()), RUNTIME)
    raw, llm, note = await views(gateway, record.id)
    assert (raw, note) == (catalogue(), "")
    printed = (DATA / "catalogue.txt").read_text(encoding="utf-8")
    tools = printed.partition("ALL details")[0]
    assert llm["formatted"].startswith(tools)


@pytest.mark.threat("T218")
async def test_a_record_with_hints_that_explode_is_readable_and_so_are_all_others(gateway: Gateway) -> None:
    bombs = [one("jq", "def f: f; f"), one("template", "{{#each a}}"), one("extract", "$..[")]
    made = [await gateway.created(context={"a": [1]}, llm_hints=hints) for hints in bombs]
    kind = await gateway.created(context={"a": [1, 2]}, llm_hints=one("jq", ".a | length"))
    found = await asyncio.gather(*(views(gateway, record["id"]) for record in (*made, kind)))
    assert [shown[:2] for shown in found[:-1]] == [({"a": [1]}, {"a": [1]})] * 3
    assert all(note.startswith("llm_hints were not applied: ") for _, _, note in found[:-1])
    assert found[-1] == ({"a": [1, 2]}, {"x": 2}, "")


async def test_hints_that_cannot_be_read_are_refused_when_they_are_written(gateway: Gateway) -> None:
    eval_rule = {"transform": {"x": {"type": "eval", "code": "1"}}}
    unreadable: list[Any] = [{"exclude": ["a[b]"]}, {"transforms": {}}, eval_rule]
    for hints in unreadable:
        refused = await gateway["ANN"].post(RECORDS, json={**NOTE, "llm_hints": hints})
        assert told(refused) == (400, "bad_record")
        assert "llm_hints" in refused.json()["error"]["message"]
    kept = await gateway.created()
    patch = {"llm_hints": {"mode": "sometimes"}}
    refused = await gateway["ANN"].patch(f"{RECORDS}/{kept['id']}", json=patch, headers={"if-match": "1"})
    assert told(refused) == (400, "bad_record")
