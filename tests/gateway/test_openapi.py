"""`/openapi.json`: the gateway's API as a document that is made of its routes."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from tests.cli.painter import TOOLS
from tests.cli.stage import Stage, scripted
from tests.gateway.test_turns import Served, served
from toolwire.assemble.project import open_project
from toolwire.assemble.turn_service import TurnService
from toolwire.breadcrumbs.rules.callers import Role
from toolwire.breadcrumbs.service import RecordService
from toolwire.gateway.app import make_app
from toolwire.gateway.approvals import ApprovalDesk
from toolwire.gateway.cards import CardAccess
from toolwire.gateway.record_access import RecordAccess
from toolwire.gateway.registry import RegistryAccess
from toolwire.gateway.settings import Access, Upstream
from toolwire.record.memory import MemoryStore

TOKEN = "first-token-123"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.module("brushwork", TOOLS)
    yield stage
    stage.close()


def app_with_everything(folder: Path) -> Starlette:
    store = MemoryStore()
    service = RecordService(store, "default")

    @asynccontextmanager
    async def open_store() -> Any:
        yield store

    @asynccontextmanager
    async def open_service() -> Any:
        yield service

    return make_app(
        Upstream("http://127.0.0.1:9"),
        access=Access(tokens=(TOKEN,), callers=("ann",)),
        desk=ApprovalDesk(open_store),
        turns=TurnService(open_project(cwd=folder, environ={})),
        registry=RegistryAccess("default", open_store, frozenset({"ann"})),
        cards=CardAccess(open_store),
        records=RecordAccess(open_service, {"ann": Role.ADMIN}),
    )


async def read_document(app: Starlette, **headers: str) -> httpx2.Response:
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.get("/openapi.json", headers=headers)


def test_every_route_is_in_the_document_and_nothing_else_is(tmp_path: Path) -> None:
    app = app_with_everything(tmp_path)
    answer = asyncio.run(read_document(app, authorization=f"Bearer {TOKEN}"))
    paths = answer.json()["paths"]
    described = {(path, method.upper()) for path, methods in paths.items() for method in methods}
    routes = [route for route in app.routes if isinstance(route, Route)]
    served = {(route.path_format, method) for route in routes for method in (route.methods or ()) if method != "HEAD"}

    assert len(routes) == len(app.routes)
    assert described == served
    assert len(served) > 20
    operations = [operation for methods in paths.values() for operation in methods.values()]
    assert all(operation["description"] and operation["responses"] for operation in operations)
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert [path for path, methods in paths.items() for one in methods.values() if one.get("security") == []] == [
        "/healthz",
        "/readyz",
    ]


def test_the_document_is_for_clients_with_a_token(tmp_path: Path) -> None:
    assert asyncio.run(read_document(app_with_everything(tmp_path))).status_code == 401


@dataclass
class Checked:
    """A client that compares all that it sends and gets with the document."""

    server: Served
    document: Mapping[str, Any]
    seen: set[tuple[str, str, int]] = field(default_factory=set)

    def send(self, method: str, template: str, body: Any = None, query: str = "", **names: str) -> Any:
        operation = self.document["paths"][template][method.lower()]
        if body is not None:
            self._require_fit(operation["requestBody"]["content"]["application/json"]["schema"], body)
        answer = self.server.http.request(method, template.format(**names) + query, json=body)
        told = operation["responses"].get(str(answer.status_code), operation["responses"]["default"])
        media = answer.headers.get("content-type", "").partition(";")[0]
        shown = answer.json() if media == "application/json" else answer.text
        if "content" in told:
            self._require_fit(told["content"][media]["schema"], shown)
        else:
            assert answer.content == b""
        self.seen.add((method, template, answer.status_code))
        return shown

    def _require_fit(self, schema: Mapping[str, Any], value: Any) -> None:
        whole = {**schema, "components": self.document["components"]}
        jsonschema_rs.validate(whole, value)


def test_what_is_sent_and_answered_fits_the_document(stage: Stage) -> None:
    script = scripted([("paint", {"colour": "red"})], "Painted.", [("paint", {"colour": "blue"})])
    with script as model, served(stage, model) as server:
        checked = Checked(server, server.get("/openapi.json"))
        turn, approval = "/v1/turns/{id}", "/v1/approvals/{id}"
        first = checked.send("POST", "/v1/turns", {"question": "Paint", "thread": "door", "agent": "cli"})["id"]
        before = server.events(first)
        checked.send("GET", turn, id=first)
        [asked] = checked.send("GET", "/v1/approvals", query="?state=open&limit=5")["data"]
        checked.send("GET", approval, id=asked["id"])
        checked.send(
            "POST", approval, {"granted": True, "digest": asked["digest"], "reason": "It may."}, id=asked["id"]
        )
        told = server.events(first, before[-1]["id"])
        checked.send("GET", f"{turn}/events", id=first)
        checked.send("GET", f"{turn}/events", query=f"?after={told[-1]['id']}", id=first)
        checked.send("POST", f"{turn}/resume", id=first)
        second = checked.send("POST", "/v1/turns", {"question": "Again", "tools": ["paint"]})["id"]
        server.events(second)
        checked.send("POST", f"{turn}/cancel", id=second)
        checked.send("GET", "/v1/turns", query="?limit=1")
        checked.send("GET", "/v1/turns", query="?after=0")
        checked.send("GET", "/v1/approvals", query="?state=all")
        checked.send("DELETE", approval, id=asked["id"])
        checked.send("GET", turn, id="nothing")
        checked.send("GET", "/healthz")
        checked.send("GET", "/readyz")
        checked.send("GET", "/openapi.json")

    statuses = {(method, path.removeprefix("/v1")): status for method, path, status in sorted(checked.seen)}
    assert statuses[("POST", "/turns")] == 202
    assert {status for method, path, status in checked.seen if path == f"{turn}/events"} == {200, 204}
    assert ("GET", turn, 404) in checked.seen
    assert ("POST", f"{turn}/resume", 409) in checked.seen
    assert json.dumps(checked.document).count("$ref") >= len(checked.document["paths"])
