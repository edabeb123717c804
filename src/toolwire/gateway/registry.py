"""Registered tools over HTTP: `/v1/projects/{project}/tools` lists, shows, registers and removes them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from toolwire.assemble.registry import find_row, newest_first, remove_rows, row_object
from toolwire.define.service_rows import LARGEST_ROW, read_row
from toolwire.errors import DefinitionError
from toolwire.gateway.faults import Fault, Rejected, told_to_client
from toolwire.gateway.guard import read_body
from toolwire.gateway.openapi import FLAG, NUMBER, OBJECT, TEXT, DescribedRoute, Operation, list_of, record
from toolwire.gateway.responses import json_response
from toolwire.gateway.settings import TransferLimits
from toolwire.protocol.registrations import ToolRegistration
from toolwire.record.contract import RegistryStore
from toolwire.wire.utp.reading import read_object
from toolwire.wire.utp.violations import Violation

PATH = "/v1/projects/{project}/tools"
_BODY_BYTES = 2 * LARGEST_ROW

ROW = record(
    project_id=TEXT, tool_name=TEXT, version=TEXT, description=TEXT, parameters=OBJECT, target_subject=TEXT,
    after_execution=TEXT, options=OBJECT, digest=TEXT, created_at=NUMBER, updated_at=NUMBER,
)  # fmt: skip
"""What `row_object` gives, as the API's document says it."""


class RegistryAccess(Struct, frozen=True):
    """The project whose tools can be changed here, its store, and the names of those who may."""

    project: str
    open_store: Callable[[], AbstractAsyncContextManager[RegistryStore]]
    admins: frozenset[str]


class Registry:
    """The routes. What a row hides from models is shown here, so only `registry.admins` may look."""

    def __init__(self, access: RegistryAccess, bounds: TransferLimits) -> None:
        self._access = access
        self._bounds = replace(bounds, body_bytes=min(bounds.body_bytes, _BODY_BYTES))

    def routes(self) -> list[DescribedRoute]:
        rows = Operation({200: record(data=list_of(ROW))})
        written = Operation({200: ROW, 201: ROW}, OBJECT, {"replace": FLAG})
        return [
            DescribedRoute(PATH, self.listed, "GET", rows),
            DescribedRoute(f"{PATH}/{{which}}", self.one, "GET", Operation({200: ROW})),
            DescribedRoute(f"{PATH}/{{which}}", self.put, "PUT", written),
            DescribedRoute(f"{PATH}/{{which}}", self.remove, "DELETE", replace(rows, query={"all": FLAG})),
        ]

    async def listed(self, request: Request) -> Response:
        """All versions, the newest of each tool first."""
        self._require_admin(request)
        async with self._store() as store:
            rows = newest_first(await store.registered_tools(project=self._access.project))
        return json_response({"data": [row_object(row) for row in rows]})

    async def one(self, request: Request) -> Response:
        """`NAME` is the newest version, `NAME@1.2` the one that this pin means."""
        self._require_admin(request)
        async with self._store() as store:
            rows = await store.registered_tools(project=self._access.project)
            return json_response(row_object(find_row(rows, request.path_params["which"], self._access.project)))

    async def put(self, request: Request) -> Response:
        """Register a row under `NAME@VERSION`. The same content again changes nothing; other content is a conflict,
        unless the query says `replace=true`.
        """
        by = self._require_admin(request)
        body = await read_body(request.receive, request.headers, self._bounds)
        row = self._row(body, request.path_params["which"])
        replaces = request.query_params.get("replace") == "true"
        async with self._store() as store:
            before = await store.registered_tools(project=self._access.project)
            [kept] = await store.register_tools([row], by=by, replace=replaces)
        is_new = all((one.name, one.version) != (kept.name, kept.version) for one in before)
        return json_response(row_object(kept), 201 if is_new else 200)

    async def remove(self, request: Request) -> Response:
        """Remove `NAME@VERSION`; `NAME` alone where it has one version, or with `all=true` all of them."""
        by = self._require_admin(request)
        every = request.query_params.get("all") == "true"
        async with self._store() as store:
            gone = await remove_rows(store, request.path_params["which"], self._access.project, by=by, every=every)
        return json_response({"data": [row_object(row) for row in gone]})

    def _row(self, body: bytes, which: str) -> ToolRegistration:
        values = read_object(body, _BODY_BYTES, "the body")
        if isinstance(values, Violation):
            raise Rejected(Fault(400, "bad_row", values.message))
        name, _, version = which.partition("@")
        said: dict[str, Any] = {"tool_name": name, **({"version": version} if version else {}), **values}
        try:
            row = read_row(said, "the body", project=self._access.project).row
        except DefinitionError as wrong:
            raise Rejected(Fault(400, "bad_row", str(wrong))) from None
        if (row.name, row.version) != (name, version or row.version):
            raise Rejected(Fault(400, "bad_row", f"the address says {which[:200]}, the body {row.name}@{row.version}"))
        return row

    def _require_admin(self, request: Request) -> str:
        """The name of the caller. Raises Rejected for one who may not, and for a project that is not served here."""
        caller: str = request.scope.get("toolwire.caller") or ""
        if not caller or caller not in self._access.admins:
            why = "registered tools are changed with a token that registry.admins names"
            raise Rejected(Fault(403, "not_admin", why))
        if request.path_params["project"] != self._access.project:
            raise Rejected(Fault(404, "project_not_found", "this token belongs to another project"))
        return caller

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[RegistryStore]:
        with told_to_client("tool"):
            async with self._access.open_store() as store:
                yield store
