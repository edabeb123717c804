"""Results of calls over HTTP, as records that can be read and not written."""

from pathlib import Path

import pytest

from tests.gateway.record_gateway import RECORDS, gateway_for
from toolwire import Agent, tool
from toolwire.testing import ScriptedModel, call


@tool(name="double")
def double(n: int) -> dict[str, int]:
    """Double a number."""
    return {"result": n * 2}


@pytest.mark.feature("F147", "F148", "F203")
async def test_a_result_is_listed_by_its_request_and_read_by_its_id(tmp_path: Path) -> None:
    async with gateway_for(tmp_path) as gateway:
        model = ScriptedModel(call("double", "double-1", n=4), "Done.")
        await Agent(model, [double], store=gateway.store, project="acme").ask("Go", thread="abc")
        listed = (await gateway["ANN"].get(f"{RECORDS}?tag=request:double-1")).json()["data"]
        [found] = listed
        assert found["tags"] == ["tool:response", "request:double-1", "session:abc"]
        read = await gateway["ANN"].get(f"{RECORDS}/{found['id']}")
        assert (read.status_code, read.json()["context"]["output"]) == (200, {"result": 8})
        for_models = await gateway["ANN"].get(f"{RECORDS}/{found['id']}?view=llm")
        assert for_models.json()["context"]["request_id"] == "double-1"
        place = f"{RECORDS}/{found['id']}"
        assert (await gateway["ADA"].patch(place, json={"title": "x"}, headers={"if-match": "1"})).status_code == 403
        assert (await gateway["ADA"].delete(place)).status_code == 403
        assert (await gateway["EVE"].get(place)).status_code == 404


async def test_a_list_by_request_has_records_of_every_kind_to_its_last_page(tmp_path: Path) -> None:
    async with gateway_for(tmp_path) as gateway:
        model = ScriptedModel(*[call("double", "double-1", n=n) for n in range(2)], "Done.")
        await Agent(model, [double], store=gateway.store, project="acme").ask("Go", thread="abc")
        for title in ("a", "b", "c"):
            await gateway.created(schema_name="note.v1", title=title, tags=["request:double-1"], visibility="public")
        pages, cursor = list[list[str]](), ""
        while not pages or cursor:
            page = (await gateway["ANN"].get(f"{RECORDS}?tag=request:double-1&limit=2{cursor}")).json()
            pages.append([row["title"] or row["schema_name"] for row in page["data"]])
            cursor = "" if page["next"] is None else f"&before={page['next']}"
        for_reader = (await gateway["EVE"].get(f"{RECORDS}?any_tag=request:double-1")).json()["data"]
        results = (await gateway["ANN"].get(f"{RECORDS}?tag=request:double-1&tag=tool:response")).json()["data"]

    assert [len(page) for page in pages] == [2, 2, 1]
    assert [title for page in pages for title in page][2:] == ["c", "b", "a"]
    assert {row["schema_name"] for row in results} == {"tool.response.v1"}
    assert {row["schema_name"] for row in for_reader} == {"note.v1"}
