"""Changes of records as server-sent events, each once and in order: `/v1/records/events`.

The id of an event is the cursor of the change feed, so a stream is resumed wherever it broke off, by any process that
serves the store. Nothing is held for a client but its cursor: one that does not read is not sent anything, and its
connection is ended after a while.
"""

import logging
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolwire.breadcrumbs.feed import ChangeFeed
from toolwire.breadcrumbs.record_json import record_object
from toolwire.breadcrumbs.rules.callers import Caller
from toolwire.breadcrumbs.rules.deliveries import for_matching
from toolwire.breadcrumbs.rules.schemas import type_family
from toolwire.breadcrumbs.rules.selectors import fits, read_selector
from toolwire.breadcrumbs.rules.subscriptions import RecordSubscription, read_kinds, read_subscription
from toolwire.breadcrumbs.service import RecordService
from toolwire.breadcrumbs.webhooks import redeliver
from toolwire.errors import InvalidRecord, ToolwireError
from toolwire.gateway.events_response import EventsResponse
from toolwire.gateway.frames import named_frame
from toolwire.gateway.openapi import COUNT, EVENTS, FLAG, TEXT, DescribedRoute, Operation, list_of, record
from toolwire.gateway.query import MOST_CURSOR, read_cursor
from toolwire.gateway.record_access import PATHS, RecordAccess, require_known_query
from toolwire.gateway.responses import json_response
from toolwire.gateway.settings import TransferLimits
from toolwire.protocol.breadcrumbs import RecordChange
from toolwire.record.contract import Numbered
from toolwire.wire.encode.outbound import to_json
from toolwire.wire.lenient.arguments import read_json

LONGEST_SELECTOR = 16 * 1024
_AT_ONCE = 16
"""So many changes are read at once: each may be as large as a record can be."""
_log = logging.getLogger("toolwire.records")
_SELECTED_BY = ("schema_name", "tag", "any_tag", "all")


class RecordEvents:
    """The route, under both names of records."""

    def __init__(self, access: RecordAccess, bounds: TransferLimits) -> None:
        self._access = access
        self._keep_alive_s = bounds.keep_alive_s
        self.feed = ChangeFeed(self._newest)
        access.doorbells.append(self.feed.ring)

    def routes(self) -> list[DescribedRoute]:
        query = {
            "selector": TEXT, "subscription": TEXT, "schema_name": TEXT, "tag": list_of(TEXT), "any_tag": list_of(TEXT),
            "all": FLAG, "kind": list_of(TEXT), "after": COUNT,
        }  # fmt: skip
        events = Operation({200: TEXT}, query=query, media=EVENTS)
        keys = Operation({200: record(keys=list_of(TEXT))})
        accepted = Operation({202: None})
        return [
            route
            for path in PATHS
            for route in (
                DescribedRoute(f"{path}/events", self.events, "GET", events),
                DescribedRoute(f"{path}/{{id}}/signing-keys", self.signing_keys, "GET", keys),
                DescribedRoute(f"{path}/{{id}}/redeliver", self.redeliver, "POST", accepted),
            )
        ]

    async def events(self, request: Request) -> Response:
        """Changes of records that the caller may read, as they happen; `Last-Event-ID` or `after=` resumes a stream.

        Which records is said by `selector`, a JSON object; by `schema_name`, `tag` (all of them) and `any_tag` (one of
        them); by `all=true`; or by a `subscription`. Each `kind` is created, updated, deleted or expired.
        """
        caller = self._access.require_caller(request)
        require_known_query(request, ("selector", "subscription", *_SELECTED_BY, "kind", "after"))
        async with self._access.service() as records:
            after = _last_event(request)
            wanted = await _wanted(request, records, caller)
            newest = await records.last_change()
            # A cursor that is not reached yet comes from another store: from there, nothing would ever be new.
            cursor = newest if after is None or after > newest else after
            missed = b"" if not after else await _missed(records, caller, after, cursor)
        return EventsResponse(lambda: self._frames(wanted, caller, cursor, missed))

    async def signing_keys(self, request: Request) -> Response:
        """What deliveries of one's own subscription are signed with, the newest key first: one of them fits."""
        caller = self._access.require_caller(request)
        async with self._access.service() as records:
            return json_response({"keys": await records.signing_keys(request.path_params["id"], caller)})

    async def redeliver(self, request: Request) -> Response:
        """Have a dead letter (`webhook.dead_letter.v1`) of one's own delivered after all."""
        caller = self._access.require_caller(request)
        async with self._access.service() as records:
            await redeliver(records, request.path_params["id"], caller)
        return Response(status_code=202)

    async def _frames(
        self, wanted: RecordSubscription, caller: Caller, cursor: int, missed: bytes = b""
    ) -> AsyncIterator[bytes]:
        told = cursor
        if missed:
            yield missed
        while not self.feed.is_closed:
            try:
                async with self._access.open_service() as records:
                    changes, behind = await records.changes(cursor, caller, limit=_AT_ONCE)
            except ToolwireError as lost:  # the client comes again and says where it was
                _log.warning("a stream of changes ends: %s", lost)
                return
            for change in changes:
                if change.value.kind in wanted.kinds and fits(wanted.selector, for_matching(change.value.record)):
                    told = change.cursor
                    yield _frame(change)
            is_news, cursor = behind != cursor, behind
            if not is_news and not await self.feed.wait(cursor, self._keep_alive_s) and not self.feed.is_closed:
                yield _still_here(cursor if cursor > told else 0)
                told = cursor

    async def _newest(self) -> int:
        async with self._access.open_service() as records:
            return await records.last_change()


async def _missed(records: RecordService, caller: Caller, after: int, cursor: int) -> bytes:
    """What a client is told first whose place in the feed is no longer kept, or was never reached: it reads anew."""
    _, oldest = await records.changes(0, caller, limit=1)
    if after == cursor and after >= oldest:
        return b""
    body = {"event": "missed", "after": after, "oldest": oldest}
    return f"id: {cursor}\n".encode() + named_frame("record.missed", to_json(body))


async def _wanted(request: Request, records: RecordService, caller: Caller) -> RecordSubscription:
    """What the address asks for. Raises InvalidRecord, and NotFound for a subscription that the caller may not see."""
    asked = request.query_params
    said = [name for name in ("selector", "subscription") if name in asked]
    if any(name in asked for name in _SELECTED_BY):
        said.append("filters")
    if len(said) != 1:
        raise InvalidRecord(
            "say which records: by selector, by subscription, by schema_name, tag and any_tag, or with all=true for "
            "every one; one of these ways at a time"
        )
    kinds = read_kinds(asked.getlist("kind") or None)
    if said == ["subscription"]:
        kept = await records.read(asked["subscription"], caller)
        if type_family(kept.schema_name) != "subscription":
            raise InvalidRecord(f"record {kept.id} is not a subscription")
        found = read_subscription(kept.context)
        return RecordSubscription(found.selector, found.kinds & kinds)
    return RecordSubscription(
        read_selector(_selector(asked["selector"]) if said == ["selector"] else _filters(request)), kinds
    )


def _selector(text: str) -> Any:
    if len(text) > LONGEST_SELECTOR:
        raise InvalidRecord(f"a selector has at most {LONGEST_SELECTOR} characters")
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        raise InvalidRecord('selector must be a JSON object such as {"any_tags": ["urgent"]}') from None


def _filters(request: Request) -> dict[str, Any]:
    asked = request.query_params
    found: dict[str, Any] = {}
    if "all" in asked:
        found["all"] = asked["all"] == "true"
    if "schema_name" in asked:
        found["schema_name"] = asked["schema_name"]
    for name, ours in (("tag", "all_tags"), ("any_tag", "any_tags")):
        if tags := asked.getlist(name):
            found[ours] = tags
    return found


def _last_event(request: Request) -> int | None:
    text = request.headers.get("last-event-id", "")
    if not text:
        return read_cursor(request, "after")
    if not (text.isascii() and text.isdecimal() and len(text) <= 16 and int(text) <= MOST_CURSOR):
        raise InvalidRecord("Last-Event-ID is the id of an event of this stream, which is a number")
    return int(text)


def _frame(change: Numbered[RecordChange]) -> bytes:
    """One change. What ends with its use is not shown: being told of it would be a use that is not counted."""
    kind, at, changed = change.value.kind, change.value.at, change.value.record
    body = {"event": kind.value, "at": at, "record": record_object(changed, context=changed.uses_left is None)}
    return f"id: {change.cursor}\n".encode() + named_frame(f"record.{kind}", to_json(body))


def _still_here(cursor: int) -> bytes:
    """A sign of life. With a cursor, a client that comes again need not be told what did not fit anyway."""
    return f"id: {cursor}\n: still here\n\n".encode() if cursor else b": still here\n\n"
