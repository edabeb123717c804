"""The gateway as an ASGI application: routes, what every request goes through, and what a client may list."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolwire.assemble.turn_service import TurnService
from toolwire.errors import SettingsError
from toolwire.gateway.approvals import ApprovalDesk, Approvals
from toolwire.gateway.asked import ChatRequest, ToolLists, read_asked
from toolwire.gateway.calls import Ids
from toolwire.gateway.cards import CardAccess, CardRoutes
from toolwire.gateway.exchange import ByModel, ByUpstream, Exchange
from toolwire.gateway.faults import Fault, Rejected, error_body
from toolwire.gateway.flow import EventSender, Send, while_connected
from toolwire.gateway.guard import Receive, read_body
from toolwire.gateway.listing import Listing
from toolwire.gateway.log import Log, RequestEntry, silent
from toolwire.gateway.middleware import OPEN_PATHS, RequestMiddleware, Scope
from toolwire.gateway.openapi import OBJECT, TEXT, ApiPage, DescribedRoute, Operation, record
from toolwire.gateway.passthrough import PATHS as PASSTHROUGH_PATHS
from toolwire.gateway.passthrough import PassthroughRoute
from toolwire.gateway.record_access import RecordAccess
from toolwire.gateway.record_events import RecordEvents
from toolwire.gateway.records import RecordRoutes
from toolwire.gateway.registry import Registry, RegistryAccess
from toolwire.gateway.settings import LOOPBACK, USUAL_ACCESS, USUAL_BOUNDS, Access, TransferLimits, Upstream
from toolwire.gateway.translate import AnswerHead
from toolwire.gateway.turns import Turns
from toolwire.gateway.upstream import UpstreamClient
from toolwire.lazy import lazy_module
from toolwire.protocol.chat import ChatModel

if TYPE_CHECKING:
    from toolwire.gateway import observing
    from toolwire.gateway.observing import GatewayTelemetry
else:
    observing = lazy_module("toolwire.gateway.observing")  # needs an extra

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
PATHS = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic", "/v1/responses": "openai_responses"}


def new_call_id() -> str:
    """A call id that every provider accepts: nine letters and digits."""
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in secrets.token_bytes(9))


def make_app(
    upstream: Upstream | None = None,
    model: ChatModel | None = None,
    *,
    access: Access = USUAL_ACCESS,
    bounds: TransferLimits = USUAL_BOUNDS,
    log: Log = silent,
    desk: ApprovalDesk | None = None,
    turns: TurnService | None = None,
    registry: RegistryAccess | None = None,
    cards: CardAccess | None = None,
    records: RecordAccess | None = None,
    background: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    close: Callable[[], Awaitable[None]] | None = None,
    telemetry: "GatewayTelemetry | None" = None,
) -> Starlette:
    """A gateway in front of an upstream server or of one of our own models. Raises SettingsError without either.

    With a `desk`, people with a token can answer there what calls wait for; with `turns`, they can run the agent of
    a project; with a `registry`, they can register its tools; with `cards`, services read and write cards; with
    `records`, clients with a role share records. What runs in the `background` begins and ends with the server, and at
    the end `close` is called.

    With `telemetry`, requests are spans, and there are metrics at `/metrics`: for every client if it listens on this
    machine only, else for those with a token.
    """
    source = _source_of(upstream, model, access, bounds)
    routes = _routes(source, bounds)
    routes += Approvals(desk, bounds).routes() if desk is not None else []
    routes += Turns(turns, bounds).routes() if turns is not None else []
    routes += Registry(registry, bounds).routes() if registry is not None else []
    routes += CardRoutes(cards, bounds).routes() if cards is not None else []
    events = RecordEvents(records, bounds) if records is not None else None
    routes += events.routes() if events is not None else []
    routes += RecordRoutes(records, bounds).routes() if records is not None else []
    routes.append(ApiPage(routes).route())
    observed: dict[str, Any] = {"log": log} if telemetry is None else _observed(telemetry, routes, access, log)
    guarded = Middleware(
        RequestMiddleware, access=access, dialects=PATHS | PASSTHROUGH_PATHS, mint=new_request_id, **observed
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with turns.running() if turns is not None else nullcontext(), background():
            yield
        await (source.client.close() if isinstance(source, ByUpstream) else source.model.close())
        if desk is not None and desk.close is not None:
            await desk.close()
        if close is not None:
            await close()

    handlers = {HTTPException: _no_route}
    served = Starlette(routes=routes, middleware=[guarded], exception_handlers=handlers, lifespan=lifespan)
    served.state.end_streams = partial(_end_streams, turns, events)
    return served


def _end_streams(turns: TurnService | None, events: RecordEvents | None) -> None:
    if turns is not None:
        turns.log.close()
    if events is not None:
        events.feed.close()


def _source_of(
    upstream: Upstream | None, model: ChatModel | None, access: Access, bounds: TransferLimits
) -> ByUpstream | ByModel:
    if upstream is not None and model is None:
        return ByUpstream(UpstreamClient(upstream, bounds), bounds, forward_keys=not access.tokens)
    if model is not None and upstream is None:
        return ByModel(model, bounds)
    raise SettingsError("a gateway stands in front of one thing: an upstream or a model")


def _routes(source: ByUpstream | ByModel, bounds: TransferLimits) -> list[DescribedRoute]:
    """What every gateway serves."""
    lists = ToolLists()
    chats = {path: Chat(source, dialect, lists, bounds) for path, dialect in PATHS.items()}
    passed = {path: PassthroughRoute(source, path, bounds) for path in PASSTHROUGH_PATHS}
    asked = Operation({200: OBJECT}, OBJECT, streams=True, summary="As the API of this name; calls are repaired.")
    as_it_is = replace(asked, summary="Passed on as it is.")
    return [
        *(DescribedRoute(path, chat, "POST", asked) for path, chat in chats.items()),
        *(DescribedRoute(path, route, "POST", as_it_is) for path, route in passed.items()),
        DescribedRoute("/healthz", _healthy, "GET", Operation({200: record(status={"enum": ["ok"]})})),
        *Listing(source).routes(),
    ]


def _observed(telemetry: "GatewayTelemetry", routes: list[DescribedRoute], access: Access, log: Log) -> dict[str, Any]:
    """What the middleware needs to tell of requests; the page with metrics is added to the routes."""
    if telemetry.metrics is not None:
        page = observing.MetricsPage(telemetry.metrics, telemetry.read)
        routes.append(DescribedRoute(observing.PATH, page.show, "GET", Operation({200: TEXT}, media="text/plain")))
    observer = observing.RequestObserver(telemetry, routes)

    def log_and_count(entry: RequestEntry) -> None:
        log(entry)
        observer.count(entry)

    is_open = access.host in LOOPBACK
    open_paths = OPEN_PATHS | {observing.PATH} if is_open else OPEN_PATHS
    return {"log": log_and_count, "observe": observer, "open_paths": open_paths}


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


class Chat:
    """One chat API: reads what a client sends and sees to its answer, as long as the client waits for it."""

    def __init__(self, source: ByUpstream | ByModel, dialect: str, lists: ToolLists, bounds: TransferLimits) -> None:
        self._source = source
        self._dialect = dialect
        self._lists = lists
        self._bounds = bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        entry = scope["toolwire.entry"]
        headers = scope["toolwire.headers"]
        body = await read_body(receive, headers, self._bounds)
        asked = read_asked(body, self._dialect, self._lists)
        entry.model, entry.stream = asked.model, asked.stream
        envelope = AnswerHead(secrets.token_hex(12), asked.model, int(time.time()))
        exchange = Exchange(asked, headers, entry, envelope, _ids(asked), send, EventSender(send))
        try:
            async with asyncio.timeout(self._bounds.whole_s + self._bounds.idle_s):
                await while_connected(self._source.answer(exchange), receive, lambda: entry.answered)
        except TimeoutError:
            raise Rejected(Fault(504, "timeout", "the answer took too long, or was not read")) from None


def _ids(asked: ChatRequest) -> Ids:
    return Ids(asked.taken, new_call_id, single=asked.single)


def _healthy(_: Request) -> Response:
    """Whether the gateway itself runs."""
    return JSONResponse({"status": "ok"})


def _no_route(request: Request, error: Exception) -> Response:
    """A path or method that is not served, in the client's dialect."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    served = "; ".join([*(f"POST {path}" for path in PATHS), "GET /v1/models"])
    where = f"{request.method} {request.url.path[:80]}"
    fault = Fault(status, "not_served", f"{where} is not served here; {served} are. GET /openapi.json lists all routes")
    dialect = "anthropic" if "anthropic-version" in request.headers else "openai"
    return JSONResponse(error_body(fault, dialect), status)
