"""Agents over HTTP: `/v1/turns` begins turns, shows them, streams their events, resumes and cancels them."""

import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response

from toolwire.assemble.event_log import LoggedEvent
from toolwire.assemble.requested_agents import UnknownAgent, UnknownModel, UnknownTool
from toolwire.assemble.turn_service import KeyReused, NewTurn, TurnService
from toolwire.define.nearest import nearest
from toolwire.errors import (
    BudgetSpent,
    DefinitionError,
    Fenced,
    ModelRefused,
    NotFound,
    StoreUnavailable,
    ToolwireError,
)
from toolwire.gateway.events_response import EventsResponse
from toolwire.gateway.faults import Fault, Rejected
from toolwire.gateway.frames import KEEP_ALIVE, named_frame
from toolwire.gateway.guard import read_body
from toolwire.gateway.openapi import (
    ANYTHING,
    COUNT,
    EVENTS,
    NUMBER,
    OBJECT,
    TEXT,
    DescribedRoute,
    Operation,
    list_of,
    or_null,
    record,
    text,
)
from toolwire.gateway.query import read_number
from toolwire.gateway.responses import json_response
from toolwire.gateway.settings import TransferLimits
from toolwire.hub.submitting import submit_result_tool
from toolwire.protocol.chat import Reply, Usage
from toolwire.protocol.tracing import read_trace
from toolwire.protocol.waits import Until, Wait
from toolwire.record.contract import KeptTurn, Place, TurnSummary
from toolwire.wire.codecs.stored import write_wait
from toolwire.wire.encode.outbound import Json, to_json
from toolwire.wire.lenient.arguments import read_json

PATH = "/v1/turns"
STATE = "turn_state"
MOST_LISTED = 200
_BODY_BYTES = 2 * 1024 * 1024
_LONGEST = {"question": 1024 * 1024, "thread": 200, "system": 100_000, "model": 200, "agent": 200}
_FIELDS = (*_LONGEST, "tools", "result_schema")
_MOST_TOOLS = 1_000
_LONGEST_KEY = 200
_STATES: Json = {"enum": ["queued", "running", "waiting", "interrupted", "ended"]}
_USAGE = record(input_tokens=COUNT, output_tokens=COUNT, cached_tokens=COUNT, cost_usd=or_null(NUMBER))

NEW_TURN: Json = {
    "type": "object",
    "properties": {
        **{name: text(most) for name, most in _LONGEST.items()},
        "tools": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": _MOST_TOOLS},
        "result_schema": OBJECT,
    },
    "required": ["question"],
    "additionalProperties": False,
}
TURN = record(
    id=TEXT, project=TEXT, agent=TEXT, thread=TEXT, model=TEXT, question=TEXT, state=_STATES, waits=list_of(OBJECT),
    reason=or_null(TEXT), answer=or_null(TEXT), value=ANYTHING, error=or_null(TEXT), usage=_USAGE, calls=COUNT,
    started_at=NUMBER,
)  # fmt: skip
TURN_ROW = record(
    id=TEXT, agent=TEXT, thread=TEXT, model=TEXT, question=TEXT, state=_STATES, reason=or_null(TEXT),
    answer=or_null(TEXT), value=ANYTHING, calls=COUNT, started_at=NUMBER, updated_at=NUMBER,
)  # fmt: skip
"""What `_view` and `_row` give, as the API's document says it."""


class Turns:
    """The routes. Nothing runs inside a request, so a client that goes away stops nothing."""

    def __init__(self, service: TurnService, bounds: TransferLimits) -> None:
        self._service = service
        self._bounds = replace(bounds, body_bytes=min(bounds.body_bytes, _BODY_BYTES))

    def routes(self) -> list[DescribedRoute]:
        pages = {"limit": COUNT, "before": COUNT, "after": COUNT}
        listed = Operation({200: record(data=list_of(TURN_ROW), next=or_null(COUNT))}, query=pages)
        events = Operation({200: TEXT, 204: None}, query={"after": TEXT}, media=EVENTS)
        shown, accepted = Operation({200: TURN}), Operation({202: TURN})
        return [
            DescribedRoute(PATH, self.begin, "POST", replace(accepted, body=NEW_TURN)),
            DescribedRoute(PATH, self.listed, "GET", listed),
            DescribedRoute(f"{PATH}/{{id}}", self.one, "GET", shown),
            DescribedRoute(f"{PATH}/{{id}}/events", self.events, "GET", events),
            DescribedRoute(f"{PATH}/{{id}}/resume", self.resume, "POST", accepted),
            DescribedRoute(f"{PATH}/{{id}}/cancel", self.cancel, "POST", shown),
        ]

    async def begin(self, request: Request) -> Response:
        """Begin a turn. With an `Idempotency-Key`, sending the same request again gives the same turn."""
        caller = _require_caller(request)
        key = request.headers.get("idempotency-key", "")
        if len(key) > _LONGEST_KEY:
            raise Rejected(_wrong(f"an Idempotency-Key has at most {_LONGEST_KEY} characters"))
        new = read_new_turn(await read_body(request.receive, request.headers, self._bounds))
        with _faults():
            trace = read_trace(request.scope["toolwire.headers"])
            turn_id = await self._service.begin(new, f"{caller}\0{key}" if key else "", trace)
            return await self._answer(turn_id, 202, location=f"{PATH}/{turn_id}")

    async def listed(self, request: Request) -> Response:
        """The newest turns first, with `before=N` those that began before that cursor; with `after=N` those that began
        after it, in the order in which they began.

        `next` is the cursor for the next request in the same direction; null where there is no older turn.
        """
        _require_caller(request)
        if {"before", "after"} <= request.query_params.keys():
            raise Rejected(_wrong("before and after are two directions; give one of them"))
        limit, after = read_number(request, "limit", 50, MOST_LISTED), read_number(request, "after", -1, 2**53)
        with _faults():
            if after < 0:
                before = read_number(request, "before", -1, 2**53)
                return json_response(await self._older(None if before < 0 else before, limit))
            rows = await self._service.store.turns_after(after, limit=limit)
        body = {"data": [_row(row.value) for row in rows], "next": rows[-1].cursor if rows else after}
        return json_response(body)

    async def _older(self, before: int | None, limit: int) -> Json:
        rows = await self._service.store.turns_before(before, limit=limit + 1)
        page, has_more = rows[:limit], len(rows) > limit
        return {"data": [_row(row.value) for row in page], "next": page[-1].cursor if has_more else None}

    async def one(self, request: Request) -> Response:
        """How a turn stands: its state, what it waits for, its answer, and what it used."""
        _require_caller(request)
        with _faults():
            return await self._answer(request.path_params["id"])

    async def resume(self, request: Request) -> Response:
        """Let a turn go on that was interrupted, or whose last attempt failed."""
        _require_caller(request)
        with _faults():
            kept = await self._service.resume(request.path_params["id"])
            return json_response(self._view(kept), 202)

    async def cancel(self, request: Request) -> Response:
        """End a turn; what it had not run yet never runs. Canceling an ended one changes nothing."""
        _require_caller(request)
        with _faults():
            await self._service.cancel(request.path_params["id"])
            return await self._answer(request.path_params["id"])

    async def events(self, request: Request) -> Response:
        """The events of a turn as server-sent events, up to where it ends or waits.

        `Last-Event-ID`, or `after=` in the address, resumes a stream, also after a restart of the server.
        A client that has seen the end gets 204, which tells an `EventSource` not to come back.
        """
        _require_caller(request)
        turn_id, last = request.path_params["id"], _last_event(request)
        with _faults():
            state = (await self._service.store.turn(turn_id)).state
            await self._service.recall_events(turn_id)
        number, is_known = self._service.log.start(turn_id, last)
        if state == "ended" and is_known and not self._service.log.read(turn_id, number)[0]:
            return Response(status_code=204)
        return EventsResponse(lambda: self._frames(turn_id, number, is_known=is_known))

    async def _frames(self, turn_id: str, number: int, *, is_known: bool) -> AsyncIterator[bytes]:
        log, missed = self._service.log, not is_known
        while True:
            events, dropped = log.read(turn_id, number)
            if missed or dropped:
                missed = False
                view = await self._state(turn_id)
                yield _state_frame(view)
                if view["state"] == "ended" and not events:
                    return
            for event in events:
                yield _frame(event)
                number = event.number + 1
                if event.ends_stream:
                    return
            if events:
                continue
            await log.wait(turn_id, number, self._bounds.keep_alive_s)
            if log.is_closed:
                return
            if not log.read(turn_id, number)[0]:
                yield KEEP_ALIVE
                view = await self._state(turn_id)
                if view["state"] == "ended":  # in another process, which tells its events to its own watchers
                    yield _state_frame(view)
                    return

    async def _state(self, turn_id: str) -> Json:
        with _faults():
            return self._view(await self._service.store.turn(turn_id))

    async def _answer(self, turn_id: str, status: int = 200, **headers: str) -> Response:
        return json_response(await self._state(turn_id), status, headers)

    def _view(self, kept: KeptTurn) -> Json:
        turn, ending = kept.opening, kept.ending
        usage = sum((said.usage for said in kept.events if isinstance(said, Reply)), Usage())
        error = self._service.error_of(turn.id)
        waits = _pending(turn.waits, kept.state)
        return {
            "id": turn.id,
            "project": turn.project,
            "agent": turn.agent,
            "thread": turn.thread,
            "model": turn.model,
            "question": turn.question,
            "state": "waiting" if error and turn.waits else _state(turn.waits, kept.state),
            "waits": [write_wait(wait) for wait in waits],
            "reason": ending.reason.value if ending else None,
            "answer": ending.answer if ending else None,
            "value": ending.value if ending else None,
            "error": error or None,
            "usage": asdict(usage),
            "calls": kept.calls,
            "started_at": turn.started_at,
        }


def read_new_turn(body: bytes) -> NewTurn:
    """What a turn is begun with, every field checked. Raises Rejected."""
    try:
        said = read_json(body.decode())
    except (ValueError, RecursionError):
        raise Rejected(_wrong("the body is not JSON")) from None
    if not isinstance(said, dict):
        raise Rejected(_wrong('the body must be an object such as {"question": "What is 23 * 19?"}'))
    for name in said:
        if name not in _FIELDS:
            near = nearest(name, _FIELDS)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(_FIELDS)}"
            raise Rejected(_wrong(f"there is no field {name[:40]!r}; {advice}"))
    question, thread, system, model, agent = (_text(said, name) for name in _LONGEST)
    if not question.strip():
        raise Rejected(_wrong("question must be text that is not empty"))
    return NewTurn(question, thread, system, _tools(said), model, _result_schema(said), agent)


def _result_schema(said: Mapping[str, Any]) -> str:
    """The schema of the result that the turn is to end with, as JSON."""
    schema = said.get("result_schema")
    if schema is None:
        return ""
    if not isinstance(schema, dict):
        raise Rejected(_wrong("result_schema must be a JSON Schema, which is an object"))
    try:
        submit_result_tool(schema)
    except DefinitionError as wrong:
        raise Rejected(_wrong(f"result_schema is not a JSON Schema: {wrong}")) from None
    return json.dumps(schema, ensure_ascii=False)


def _text(said: Mapping[str, Any], name: str) -> str:
    text = said.get(name, "")
    if not isinstance(text, str) or len(text) > _LONGEST[name]:
        raise Rejected(_wrong(f"{name} must be text of at most {_LONGEST[name]} characters"))
    return text


def _tools(said: Mapping[str, Any]) -> tuple[str, ...] | None:
    names = said.get("tools")
    if names is None:
        return None
    if not isinstance(names, list) or not 0 < len(names) <= _MOST_TOOLS or not all(isinstance(n, str) for n in names):
        raise Rejected(_wrong("tools must be a list of names of this project's tools; leave it out for all of them"))
    return tuple(dict.fromkeys(names))


def _require_caller(request: Request) -> str:
    caller: str = request.scope.get("toolwire.caller") or ""
    if not caller:
        raise Rejected(Fault(403, "agents_off", "agents run for clients with a token; start with --token-env NAME"))
    return caller


def _last_event(request: Request) -> Place | None:
    text = request.headers.get("last-event-id", "") or request.query_params.get("after", "")
    if not text:
        return None
    parts = text.split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() and len(part) <= 15 for part in parts):
        raise Rejected(_wrong('Last-Event-ID is the id of an event of this turn, such as "2.7"'))
    return int(parts[0]), int(parts[1])


def _pending(waits: Sequence[Wait], state: str) -> list[Wait]:
    """What a turn still waits for. One that was only begun is kept as waiting until a time in the past."""
    now = time.time()
    over = (isinstance(wait, Until) and wait.at <= now for wait in waits)
    return [] if state != "interrupted" else [wait for wait, is_over in zip(waits, over, strict=True) if not is_over]


def _state(waits: Sequence[Wait], state: str) -> str:
    """A turn that waits for nothing any more is queued: the next free runner takes it up."""
    if state != "interrupted" or not waits:
        return state
    return "waiting" if _pending(waits, state) else "queued"


def _row(turn: TurnSummary) -> Json:
    return {
        "id": turn.id,
        "agent": turn.agent,
        "thread": turn.thread,
        "model": turn.model,
        "question": turn.question,
        "state": _state(turn.waits, turn.state),
        "reason": turn.reason or None,
        "answer": turn.answer if turn.state == "ended" else None,
        "value": turn.value,
        "calls": turn.calls,
        "started_at": turn.started_at,
        "updated_at": turn.updated_at,
    }


def _frame(event: LoggedEvent) -> bytes:
    line = f"id: {event.id}\n".encode() if event.id else b""
    return line + named_frame(event.kind, event.body)


def _state_frame(view: Json) -> bytes:
    """How the turn stands, where events before the next one cannot be shown any more."""
    return named_frame(STATE, to_json({"event": STATE, "turn": view["id"], "missed": True, **view}))


@contextmanager
def _faults() -> Iterator[None]:
    """Errors in HTTP's words."""
    try:
        yield
    except NotFound as missing:
        raise Rejected(Fault(404, "turn_not_found", str(missing))) from None
    except KeyReused as other:
        raise Rejected(Fault(409, "idempotency_conflict", str(other))) from None
    except Fenced as fenced:
        raise Rejected(Fault(409, "turn_not_free", str(fenced))) from None
    except StoreUnavailable as lost:
        raise Rejected(Fault(503, "store_unavailable", str(lost))) from None
    except BudgetSpent as spent:
        raise Rejected(Fault(429, "budget_spent", str(spent))) from None
    except (UnknownTool, UnknownModel, UnknownAgent, ModelRefused) as wrong:
        raise Rejected(_wrong(str(wrong))) from None
    except ToolwireError as error:
        raise Rejected(Fault(503, "agent_unavailable", str(error))) from None


def _wrong(why: str) -> Fault:
    return Fault(400, "bad_request", why)
