"""What can be asked behind the gateway, and whether it answers: `/v1/models` and `/readyz`."""

import asyncio
import time
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolwire.gateway.apis import CHAT, NATIVE
from toolwire.gateway.exchange import ByModel, ByUpstream
from toolwire.gateway.faults import Fault, Rejected, of_answer, too_late
from toolwire.gateway.flow import read_answer_object
from toolwire.gateway.openapi import OBJECT, TEXT, DescribedRoute, Operation, record
from toolwire.gateway.upstream import NO_PAGE, UpstreamClient
from toolwire.wire.encode.outbound import Json

READY_S = 5.0
LIST_S = 30.0
_REMEMBERED_S = 2.0
_PAGES = ("limit", "after_id", "before_id")


class Listing:
    """Asks the upstream which models it has; one of our own models is the only one of its list."""

    def __init__(self, source: ByUpstream | ByModel) -> None:
        self._source = source
        self._looked_at = float("-inf")
        self._trouble = ""

    def routes(self) -> list[DescribedRoute]:
        states = record({"reason": TEXT}, status={"enum": ["ready", "unavailable"]})
        return [
            DescribedRoute(
                "/v1/models", self.models, "GET", Operation({200: OBJECT}, query=dict.fromkeys(_PAGES, TEXT))
            ),
            DescribedRoute("/v1/models/{name:path}", self.model, "GET", Operation({200: OBJECT})),
            DescribedRoute("/readyz", self.ready, "GET", Operation({200: states, 503: states})),
        ]

    async def models(self, request: Request) -> Response:
        """The models, in a form that OpenAI's and Anthropic's clients both read. Raises Rejected."""
        return JSONResponse(await self._list(request))

    async def model(self, request: Request) -> Response:
        """One model of the list. Raises Rejected."""
        name = request.path_params["name"]
        listed = (await self._list(request)).get("data")
        for model in listed if isinstance(listed, list) else ():
            if isinstance(model, dict) and model.get("id") == name:
                return JSONResponse(model)
        raise Rejected(Fault(404, "model_not_found", f"there is no model {name[:80]!r} here"))

    async def _list(self, request: Request) -> Json:
        dialect = "anthropic" if "anthropic-version" in request.headers else "openai"
        if isinstance(self._source, ByModel):
            return _listed([self._source.model.name])
        spoken = self._source.client.upstream.dialect
        headers = self._source.keys(dict(request.headers), "anthropic" if spoken == "anthropic" else dialect)
        try:
            async with asyncio.timeout(LIST_S):
                return await _asked(self._source.client, headers, dialect, _page(request))
        except TimeoutError:
            raise Rejected(too_late(self._source.client.place)) from None

    async def ready(self, _: Request) -> Response:
        """Whether the upstream answers at all; asked at most every two seconds, however often people look."""
        now = time.monotonic()
        if now - self._looked_at > _REMEMBERED_S:
            self._looked_at, self._trouble = now, await self._look()
        if self._trouble:
            return JSONResponse({"status": "unavailable", "reason": self._trouble}, 503)
        return JSONResponse({"status": "ready"})

    async def _look(self) -> str:
        if isinstance(self._source, ByModel):
            return ""
        client = self._source.client
        try:
            async with asyncio.timeout(READY_S):
                await _asked(client, client.headers({}, client.upstream.dialect, forward_keys=False), "openai")
        except TimeoutError:
            return "the upstream does not answer in time"
        except Rejected as refused:
            # One that wants a key from its clients is up.
            return "" if refused.fault.status in (401, 403) else refused.fault.message
        return ""


def _page(request: Request) -> dict[str, str]:
    """Which part of a long list is wanted: Anthropic's SDK turns pages as long as there are more."""
    return {name: value for name, value in request.query_params.items() if name in _PAGES}


async def _asked(
    client: UpstreamClient, headers: dict[str, str], dialect: str, page: Mapping[str, str] = NO_PAGE
) -> Json:
    native = client.upstream.dialect == NATIVE.name
    path = (NATIVE if native else CHAT).models_path
    async with client.send("GET", path, headers, page=NO_PAGE if native else page) as incoming:
        if incoming.status != 200:
            body = await incoming.beginning()
            raise Rejected(of_answer(client.place, incoming.status, incoming.headers, body, dialect))
        data = read_answer_object(await incoming.whole(), client.place, dialect)
    if not native:
        return data
    models = data.get("models")
    named = [model.get("name") for model in models if isinstance(model, dict)] if isinstance(models, list) else []
    return _listed([name for name in named if isinstance(name, str)])


def _listed(names: list[str]) -> Json:
    ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
    return {"object": "list", "data": [_model(name) for name in names], "has_more": False} | ends


def _model(name: str) -> Json:
    described = {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 0, "owned_by": "toolwire"} | described
