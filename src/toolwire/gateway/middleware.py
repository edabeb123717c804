"""What every request goes through: an id, the guard, the log, and an answer even when the fault is ours."""

import logging
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from starlette.types import ASGIApp

from toolwire.gateway.connections import HELD, GuardedProtocol
from toolwire.gateway.faults import Fault, Rejected, error_body
from toolwire.gateway.flow import Send, send_whole
from toolwire.gateway.guard import (
    ClientGone,
    Receive,
    check_origin,
    check_service,
    check_token,
    is_about_cards,
    request_id,
)
from toolwire.gateway.log import Log, RequestEntry
from toolwire.gateway.settings import Access
from toolwire.wire.encode.outbound import to_json

Scope = MutableMapping[str, Any]

Observe = Callable[[RequestEntry, dict[str, str]], AbstractContextManager[None]]
"""What a request is answered in. It may change the headers that the rest of the gateway sees."""

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
CLIENT_GONE = 499
UNREAD = frozenset({401, 403, 408, 413, 415})  # told before the body was read, which may be without end
_log = logging.getLogger("toolwire.gateway")
_NOTHING: AbstractContextManager[None] = nullcontext()


def headers_of(scope: Scope) -> dict[str, str]:
    """The request's headers, names in lower case; of repeated ones the last."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def unobserved(_entry: RequestEntry, _headers: dict[str, str]) -> AbstractContextManager[None]:
    """Nothing is told."""
    return _NOTHING


class RequestMiddleware:
    """Stands before all routes. Whatever happens behind it, the client gets an answer and the log gets a line."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        log: Log,
        dialects: Mapping[str, str],
        mint: Callable[[], str],
        observe: Observe = unobserved,
        open_paths: frozenset[str] = OPEN_PATHS,
    ) -> None:
        self._app = app
        self._access = access
        self._log = log
        self._dialects = dialects
        self._mint = mint
        self._observe = observe
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = scope["toolwire.headers"] = headers_of(scope)
        entry = RequestEntry(request_id(headers, self._mint), scope["method"], scope["path"][:200])
        scope["toolwire.entry"] = entry
        begun = time.perf_counter()
        try:
            with self._observe(entry, headers):
                await self._through(scope, receive, _Noted(send, entry), headers)
        finally:
            entry.elapsed_ms = (time.perf_counter() - begun) * 1000
            self._log(entry)

    async def _through(self, scope: Scope, receive: Receive, noted: "_Noted", headers: Mapping[str, str]) -> None:
        entry = noted.entry
        try:
            check_origin(self._access, headers)
            connection: GuardedProtocol | None = scope.get(HELD)
            if entry.path not in self._open_paths:
                caller = self._identify(scope, headers)
                if connection is not None and caller:
                    connection.admit(caller)
                elif connection is not None:
                    receive = _admitting(receive, connection)
            await self._app(scope, receive, noted)
        except Rejected as refused:
            await self._refuse(noted, refused.fault)
        except ClientGone:
            entry.status, entry.code = CLIENT_GONE, "client_gone"
        except Exception:
            _log.exception("request %s failed", entry.id)
            await self._refuse(noted, Fault(500, "internal_error", "the gateway itself failed; its log says why"))

    def _identify(self, scope: Scope, headers: Mapping[str, str]) -> str:
        """The name of the caller, which is in the scope from now on: as a client, or as a service. Raises Rejected."""
        if self._access.services and is_about_cards(scope["path"]):
            service = scope["toolwire.service"] = check_service(self._access, headers)
            return f"service {service.name}"
        caller = scope["toolwire.caller"] = check_token(self._access, headers)
        return caller

    async def _refuse(self, noted: "_Noted", fault: Fault) -> None:
        noted.entry.code = fault.code
        if noted.entry.status:
            return  # the answer has begun: all that is left is to end the connection, which the server does
        dialect = self._dialects.get(noted.entry.path, "openai")
        headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in fault.headers.items()]
        if fault.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if fault.status in UNREAD:
            headers.append((b"connection", b"close"))
        await send_whole(noted, fault.status, to_json(error_body(fault, dialect)), headers)


def _admitting(receive: Receive, connection: GuardedProtocol) -> Receive:
    """Where anyone may ask, a request counts once all of it is there. Raises Rejected where all places are taken."""

    async def admitted() -> MutableMapping[str, Any]:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            connection.admit("")
        return message

    return admitted


class _Noted:
    """Passes messages on, notes the status, and adds the request's id."""

    def __init__(self, send: Send, entry: RequestEntry) -> None:
        self._send = send
        self.entry = entry

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.entry.status = message["status"]
            own = self.entry.id.encode()
            added = [(b"x-request-id", own), (b"request-id", own), (b"x-content-type-options", b"nosniff")]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        elif not message.get("more_body", False):
            self.entry.answered = True
        await self._send(message)
