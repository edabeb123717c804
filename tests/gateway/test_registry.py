"""Registered tools over HTTP: by tokens that the settings name, for their own project, by the rules of the command."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.cli.stage import LIMIT_S
from tests.cli.stage import Stage as CliStage
from tests.gateway.stand import Stand
from tests.gateway.test_serve import address, first_line
from tests.no_tls import NO_TLS
from toolwire.gateway.app import make_app
from toolwire.gateway.registry import RegistryAccess
from toolwire.gateway.server import server_of
from toolwire.gateway.settings import Access, Upstream
from toolwire.record.contract import RegistryStore
from toolwire.record.memory import MemoryStore
from toolwire.record.projects import of_project

ADMIN, CLIENT = "token-of-the-admin", "token-of-a-client"
TOOLS = "/v1/projects/acme/tools"
ROW: dict[str, Any] = {
    "description": "Searches.",
    "target_subject": "cg.v1r4.{project_id}.{channel_id}.cmd.tool.search",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "tenant": {"type": "string"}}},
    "options": {"args": {"fixed": {"tenant": "hidden"}}},
}
Ask = Callable[..., Any]


@pytest.fixture
async def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def http(stand: Stand, store: MemoryStore) -> AsyncIterator[httpx2.AsyncClient]:
    """A gateway with two clients, of whom one may register tools of project acme."""

    @asynccontextmanager
    async def open_store() -> AsyncIterator[RegistryStore]:
        yield of_project(store, "acme")

    access = Access(tokens=(ADMIN, CLIENT), callers=("ADMIN", "CLIENT"))
    registry = RegistryAccess("acme", open_store, frozenset({"ADMIN"}))
    app = make_app(Upstream.at(stand.provider.url), access=access, registry=registry)
    headers = {"authorization": f"Bearer {ADMIN}"}
    url = await stand.serve(server_of(app))
    async with httpx2.AsyncClient(
        base_url=url, headers=headers, timeout=LIMIT_S, trust_env=False, verify=NO_TLS
    ) as client:
        yield client


async def test_tools_are_registered_listed_shown_and_removed_over_http(
    http: httpx2.AsyncClient, store: MemoryStore
) -> None:
    first = await http.put(f"{TOOLS}/web_search@1.9", json=ROW)
    again = await http.put(f"{TOOLS}/web_search@1.9", json={**ROW, "project_id": "acme", "version": "1.9"})
    await http.put(f"{TOOLS}/web_search@1.10", json=ROW)
    listed, newest = await http.get(TOOLS), await http.get(f"{TOOLS}/web_search")
    pinned = await http.get(f"{TOOLS}/web_search@1.9")

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json() == pinned.json()
    assert [row["version"] for row in listed.json()["data"]] == ["1.10", "1.9"]
    assert (newest.json()["version"], newest.json()["project_id"]) == ("1.10", "acme")
    assert (await http.delete(f"{TOOLS}/web_search")).status_code == 409
    assert (await http.delete(f"{TOOLS}/web_search@1")).status_code == 404
    assert len((await http.delete(f"{TOOLS}/web_search@1.9")).json()["data"]) == 1
    assert len((await http.delete(f"{TOOLS}/web_search")).json()["data"]) == 1
    assert (await http.get(f"{TOOLS}/web_search")).json()["error"]["code"] == "tool_not_found"
    assert {row.agent for row in await store.audit_log(project="acme")} == {"ADMIN"}


async def test_other_content_is_a_conflict_unless_it_replaces(http: httpx2.AsyncClient) -> None:
    await http.put(f"{TOOLS}/web_search@1", json=ROW)
    other = {**ROW, "description": "Searches more."}

    refused = await http.put(f"{TOOLS}/web_search@1", json=other)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "tool_conflict")
    assert (await http.put(f"{TOOLS}/web_search@1?replace=true", json=other)).status_code == 200
    assert (await http.get(f"{TOOLS}/web_search")).json()["description"] == "Searches more."


@pytest.mark.parametrize(
    ("which", "body", "status"),
    [
        ("web_search@1", b"not json", 400),
        ("web_search@1", b'{"description": "a", "description": "b"}', 400),
        ("web_search@1", b"[]", 400),
        ("web_search@1", b"{}", 400),
        ("web_search@1", {**ROW, "tool_name": "mail"}, 400),
        ("web_search@1", {**ROW, "version": "2"}, 400),
        ("web_search@newest", ROW, 400),
        ("web_search@1", {**ROW, "project_id": "other"}, 400),
        ("web_search@1", {**ROW, "target_subject": "cg.v1r4.other.public.cmd.tool.search"}, 400),
        ("web_search@1", {**ROW, "surprise": 1}, 400),
        ("web_search@1", {**ROW, "options": {"args": {"fixed": {"tenant": "x" * 300_000}}}}, 400),
        ("web_search@1", b" " * 600_000, 413),
    ],
)
async def test_a_wrong_row_is_refused_and_nothing_is_kept(
    http: httpx2.AsyncClient, which: str, body: Any, status: int
) -> None:
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = await http.put(f"{TOOLS}/{which}", **sent)
    assert (answer.status_code, bool(answer.json()["error"]["message"])) == (status, True), answer.text
    assert (await http.get(TOOLS)).json()["data"] == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_T175_a_token_changes_and_reads_no_registry_but_that_of_its_project_and_role(
    http: httpx2.AsyncClient, method: str
) -> None:
    await http.put(f"{TOOLS}/web_search@1", json=ROW)
    client = {"authorization": f"Bearer {CLIENT}"}
    for path, headers, status in (
        (f"{TOOLS}/web_search@1", client, 403),
        (f"{TOOLS}/web_search@1", {"authorization": "Bearer of-nobody"}, 401),
        ("/v1/projects/other/tools/web_search@1", {}, 404),
        ("/v1/projects/default/tools/web_search@1", {}, 404),
    ):
        answer = await http.request(method, path, json=ROW if method == "PUT" else None, headers=headers)
        assert (answer.status_code, "hidden" in answer.text) == (status, False)
    assert (await http.get(f"{TOOLS}/web_search@1")).status_code == 200


async def test_T175_control_an_admin_reads_what_models_do_not_see(http: httpx2.AsyncClient) -> None:
    await http.put(f"{TOOLS}/web_search@1", json=ROW)
    assert "hidden" in (await http.get(f"{TOOLS}/web_search")).text


def test_serve_lets_the_admins_of_the_settings_register_tools(tmp_path: Any) -> None:
    stage = CliStage(tmp_path)
    stage.settings('[registry]\nadmins = ["ADMIN"]\n[serve]\nupstream = "http://127.0.0.1:9"\nport = 0\n')
    wrong = stage.run("serve", "--token-env", "OTHER", OTHER=CLIENT)
    assert "registry.admins names ADMIN" in wrong.err
    process = stage.start("serve", "--token-env", "ADMIN", "--project", "acme", ADMIN=ADMIN)
    try:
        headers = {"authorization": f"Bearer {ADMIN}"}
        url = address(first_line(process))
        with httpx2.Client(base_url=url, headers=headers, timeout=LIMIT_S, trust_env=False, verify=NO_TLS) as http:
            assert http.put(f"{TOOLS}/web_search@1", json=ROW).status_code == 201
        assert len(stage.run("registry", "list", "--project", "acme", "--json").json) == 1
    finally:
        stage.close()
