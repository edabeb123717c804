"""Records over HTTP: `/v1/records` creates, shows, lists, patches, deletes and finds them.

The version of a record is its ETag. A patch says in `If-Match` which version it changes, so no change is lost. What may
be seen and done is decided by the service behind; here is only how it is said in HTTP.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from toolwire.breadcrumbs.new_records import LONGEST_CONTEXT, read_new_record, require_known
from toolwire.breadcrumbs.queries import FILTERS, MOST_FILTER_TAGS, read_query
from toolwire.breadcrumbs.record_json import record_object
from toolwire.breadcrumbs.rules.schemas import LONGEST_SCHEMA_NAME, NAME_PATTERN
from toolwire.breadcrumbs.service import LONGEST_KEY, LONGEST_TEXT, MOST_FOUND
from toolwire.errors import InvalidRecord
from toolwire.gateway.faults import Fault, Rejected
from toolwire.gateway.guard import read_body
from toolwire.gateway.openapi import (
    ANYTHING,
    COUNT,
    FLAG,
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
from toolwire.gateway.query import read_cursor, read_number
from toolwire.gateway.record_access import PATHS, RecordAccess, bad_record, read_record_body, require_known_query
from toolwire.gateway.responses import json_response
from toolwire.gateway.settings import TransferLimits
from toolwire.protocol.breadcrumbs import (
    LONGEST_RECORD_NAME,
    LONGEST_TAG,
    LONGEST_TITLE,
    MOST_TAGS,
    Record,
    Sensitivity,
    Visibility,
)
from toolwire.wire.encode.outbound import Json, to_json

MOST_LISTED = 200
BODY_BYTES = 2 * LONGEST_CONTEXT
ANSWER_BYTES = 4 * 1024 * 1024
"""A page of a list ends before it is larger, and its `next` goes on from there."""
_MOST_WITH_CONTEXT = 50

_FILTERED_BY = ("schema_name", "tag", "any_tag", "author", "since", "until")
_PAGED_BY = ("limit", "before")

_TAGS: Json = {"type": "array", "items": {**text(LONGEST_TAG), "minLength": 1}, "maxItems": MOST_TAGS}
_CHOICES: Json = {"visibility": {"enum": [*Visibility]}, "sensitivity": {"enum": [*Sensitivity]}}
_WRITABLE: Json = {
    "title": text(LONGEST_TITLE), "tags": _TAGS, "context": OBJECT, "llm_hints": OBJECT, **_CHOICES,
    "ttl": {"anyOf": [OBJECT, TEXT]},
}  # fmt: skip
_VERSION: Json = {"type": "string", "pattern": '^("[1-9][0-9]{0,14}"|[1-9][0-9]{0,14})$'}
_SCHEMA_NAME: Json = {**text(LONGEST_SCHEMA_NAME), "pattern": f"^{NAME_PATTERN}$"}
_PATCHED: Json = {name: or_null(schema) for name, schema in _WRITABLE.items()}
NEW_RECORD: Json = {
    "type": "object",
    "properties": {"schema_name": _SCHEMA_NAME, **_PATCHED},
    "required": ["schema_name"],
    "additionalProperties": False,
}
RECORD_PATCH: Json = {"type": "object", "properties": _PATCHED, "additionalProperties": False}
RECORD_ROW = record(
    id=TEXT, version=COUNT, schema_name=TEXT, title=TEXT, tags=list_of(TEXT), **_CHOICES, is_sealed=FLAG,
    ttl=or_null(OBJECT), expires_at=or_null(NUMBER), uses_left=or_null(COUNT), created_by=TEXT, created_at=NUMBER,
    updated_by=TEXT, updated_at=NUMBER, turn_id=or_null(TEXT), call_id=or_null(TEXT), origins=list_of(TEXT),
)  # fmt: skip
_CONTENT: Json = {"context": OBJECT, "llm_hints": or_null(OBJECT)}
RECORD: Json = {
    **RECORD_ROW,
    "properties": {**RECORD_ROW["properties"], **_CONTENT},
    "required": [*RECORD_ROW["required"], *_CONTENT],
}
LISTED_RECORD: Json = {**RECORD, "required": RECORD_ROW["required"]}
LLM_VIEW = record(
    {"note": TEXT},
    id=TEXT, version=COUNT, schema_name=TEXT, title=TEXT, tags=list_of(TEXT), updated_at=NUMBER, context=ANYTHING
)  # fmt: skip
FOUND_RECORD: Json = {
    **RECORD,
    "properties": {**RECORD["properties"], "score": NUMBER, "method": TEXT},
    "required": [*RECORD_ROW["required"], "score", "method"],
}
_SEARCH: Json = {
    "type": "object",
    "properties": {
        "text": {**text(LONGEST_TEXT), "minLength": 1},
        "nn": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND},
        "schema_name": text(LONGEST_SCHEMA_NAME),
        "any_tags": {**_TAGS, "maxItems": MOST_FILTER_TAGS},
        "all_tags": {**_TAGS, "maxItems": MOST_FILTER_TAGS},
        "created_by": text(LONGEST_RECORD_NAME),
        "since": {"anyOf": [NUMBER, TEXT]},
        "until": {"anyOf": [NUMBER, TEXT]},
    },
    "required": ["text"],
    "additionalProperties": False,
}
"""What requests hold and what `record_object` gives, as the API's document says it."""


class RecordRoutes:
    """The routes, under both of their names."""

    def __init__(self, access: RecordAccess, bounds: TransferLimits) -> None:
        self._access = access
        self._bounds = replace(bounds, body_bytes=min(bounds.body_bytes, BODY_BYTES))

    def routes(self) -> list[DescribedRoute]:
        return [route for path in PATHS for route in self._at(path)]

    def _at(self, path: str) -> list[DescribedRoute]:
        key, version = {"Idempotency-Key": text(LONGEST_KEY)}, {"If-Match": _VERSION}
        pages = {"limit": COUNT, "before": COUNT}
        times = {"since": TEXT, "until": TEXT}
        filters = {"schema_name": TEXT, "tag": list_of(TEXT), "any_tag": list_of(TEXT), "author": TEXT, **times}
        page = record(data=list_of(LISTED_RECORD), next=or_null(COUNT))
        listed = Operation(
            {200: page}, query={**filters, "text": TEXT, "include_context": FLAG, "internal": FLAG, **pages}
        )
        found = Operation({200: record(data=list_of(FOUND_RECORD))}, _SEARCH)
        asked = replace(found, body=None, query={**filters, "q": TEXT, "nn": COUNT, "include_context": FLAG})
        shown = Operation({200: {"anyOf": [RECORD, LLM_VIEW]}}, query={"view": {"enum": ["raw", "llm"]}})
        changed = Operation({200: RECORD}, RECORD_PATCH, required_headers=version, patches=True)
        one = f"{path}/{{id}}"
        return [
            DescribedRoute(path, self.create, "POST", Operation({201: RECORD}, NEW_RECORD, headers=key)),
            DescribedRoute(path, self.listed, "GET", listed),
            DescribedRoute(f"{path}/search", self.search, "POST", found),
            DescribedRoute(f"{path}/search", self.search_by_query, "GET", asked),
            DescribedRoute(one, self.show, "GET", shown),
            DescribedRoute(f"{one}/full", self.show_full, "GET", Operation({200: RECORD})),
            DescribedRoute(f"{one}/history", self.history, "GET", Operation({200: page}, query=pages)),
            DescribedRoute(one, self.patch, "PATCH", changed),
            DescribedRoute(one, self.delete, "DELETE", Operation({204: None}, headers=version)),
        ]

    async def create(self, request: Request) -> Response:
        """Create a record. With an `Idempotency-Key`, sending the same request again gives the first answer again."""
        caller = self._access.require_caller(request)
        key = request.headers.get("idempotency-key", "")
        body = await self._body(request)
        async with self._access.service() as records:
            kept = await records.create(read_new_record(body), caller, key=key)
        place = request.url.path.rstrip("/")
        return json_response(record_object(kept), 201, {**_etag(kept), "location": f"{place}/{kept.id}"})

    async def listed(self, request: Request) -> Response:
        """The newest records first, with `before=N` those that were created before that cursor.

        A record has every `tag` and one of `any_tag`, which may be given several times; `text` are words that all stand
        in it; `since` and `until` are dates or seconds since 1970 of its creation. `next` is the cursor of the next
        page, or null. What toolwire keeps for its own work is listed with `internal=true`.
        """
        caller = self._access.require_caller(request)
        require_known_query(request, (*_FILTERED_BY, *_PAGED_BY, "text", "include_context", "internal"))
        with_context, internal = _flag(request, "include_context"), _flag(request, "internal")
        limit = read_number(request, "limit", 50, _MOST_WITH_CONTEXT if with_context else MOST_LISTED)
        before = read_cursor(request, "before")
        async with self._access.service() as records:
            query = replace(read_query(_said(request)), text=request.query_params.get("text", ""))
            rows = await records.listed(query, caller, limit=limit + 1, before=before, internal=internal)
        shown = ((row.cursor, record_object(row.value, context=with_context)) for row in rows)
        return _page(shown, limit)

    async def search(self, request: Request) -> Response:
        """The `nn` records that fit best to what a text says, the best first, each with its score and the method."""
        self._access.require_caller(request)
        return await self._search(await self._body(request), request)

    async def search_by_query(self, request: Request) -> Response:
        """The same, asked with `q` and `nn` in the address; `include_context=false` leaves the content out."""
        require_known_query(request, (*_FILTERED_BY, "q", "nn", "include_context"))
        nn, with_context = read_number(request, "nn", 5, MOST_FOUND), _flag(request, "include_context", "true")
        said = {**_said(request), "text": request.query_params.get("q", ""), "nn": nn}
        return await self._search(said, request, with_context=with_context)

    async def _search(self, said: Mapping[str, Any], request: Request, *, with_context: bool = True) -> Response:
        caller = self._access.require_caller(request)
        async with self._access.service() as records:
            require_known(said, ("text", "nn", *FILTERS))
            words, nn = said.get("text"), said.get("nn", 5)
            if not isinstance(words, str):
                raise InvalidRecord("text is missing; say what the records are about")
            if type(nn) is not int or not 1 <= nn <= MOST_FOUND:
                raise InvalidRecord(f"nn is a number from 1 to {MOST_FOUND}")
            found = await records.search(words, caller, nn=nn, query=read_query(said))
        shown = (
            {**record_object(one.record, context=with_context), "score": one.score, "method": one.method}
            for one in found
        )
        return json_response({"data": _within(shown)})

    async def show(self, request: Request) -> Response:
        """A record: `view=raw` (the default) is all of it, `view=llm` what models are shown by its hints."""
        caller = self._access.require_caller(request)
        require_known_query(request, ("view",))
        view = request.query_params.get("view", "raw")
        if view not in ("raw", "llm"):
            raise Rejected(bad_record("view is raw or llm"))
        async with self._access.service() as records:
            kept = await records.read(request.path_params["id"], caller, counts=request.method != "HEAD")
            shown = record_object(kept) if view == "raw" else await records.llm_view(kept, caller)
        return json_response(dict(shown), headers=_etag(kept))

    async def show_full(self, request: Request) -> Response:
        """All of a record, whatever its hints say: the same as `view=raw`."""
        caller = self._access.require_caller(request)
        async with self._access.service() as records:
            kept = await records.read(request.path_params["id"], caller, counts=request.method != "HEAD")
        return json_response(record_object(kept), headers=_etag(kept))

    async def history(self, request: Request) -> Response:
        """The versions of a record, the newest first, with `before=N` those below that version."""
        caller = self._access.require_caller(request)
        require_known_query(request, _PAGED_BY)
        limit, before = read_number(request, "limit", 20, MOST_LISTED), read_cursor(request, "before")
        async with self._access.service() as records:
            versions = await records.history(request.path_params["id"], caller, limit=limit + 1, before=before)
        return _page(((version.version, record_object(version)) for version in versions), limit)

    async def patch(self, request: Request) -> Response:
        """Apply a JSON merge patch (RFC 7386) to the version that `If-Match` names; the answer has the new version.

        428 without `If-Match`, 412 where another version is the current one.
        """
        caller = self._access.require_caller(request)
        expected = _expected_version(request)
        if expected is None:
            why = "say in If-Match which version the patch is for: the ETag of the record, or its version"
            raise Rejected(Fault(428, "version_required", why))
        body = await self._body(request)
        async with self._access.service() as records:
            kept = await records.patch(request.path_params["id"], body, expected, caller)
        return json_response(record_object(kept), headers=_etag(kept))

    async def delete(self, request: Request) -> Response:
        """Delete a record with its history; with `If-Match` only if that is its version."""
        caller = self._access.require_caller(request)
        expected = _expected_version(request)
        async with self._access.service() as records:
            await records.delete(request.path_params["id"], caller, expected=expected)
        return Response(status_code=204)

    async def _body(self, request: Request) -> dict[str, Any]:
        return read_record_body(await read_body(request.receive, request.headers, self._bounds), BODY_BYTES)


def _etag(kept: Record) -> dict[str, str]:
    return {"etag": f'"{kept.version}"'}


def _expected_version(request: Request) -> int | None:
    """The version in `If-Match`; None without one. Raises Rejected for anything else."""
    said = request.headers.get("if-match", "").strip()
    if not said:
        return None
    number = said[1:-1] if len(said) > 2 and said[0] == said[-1] == '"' else said
    if not (number.isascii() and number.isdecimal() and len(number) <= 15 and int(number) > 0):
        raise Rejected(bad_record('If-Match is one version of the record, such as "3"'))
    return int(number)


def _said(request: Request) -> dict[str, Any]:
    """The filters in an address, as a search says them in its body."""
    asked = request.query_params
    said: dict[str, Any] = {"any_tags": asked.getlist("any_tag"), "all_tags": asked.getlist("tag")}
    names = {"schema_name": "schema_name", "author": "created_by", "since": "since", "until": "until"}
    return said | {ours: asked[name] for name, ours in names.items() if name in asked}


def _flag(request: Request, name: str, usual: str = "false") -> bool:
    said = request.query_params.get(name, usual)
    if said not in ("true", "false"):
        raise Rejected(bad_record(f"{name} is true or false"))
    return said == "true"


def _page(rows: Iterable[tuple[int, Json]], limit: int) -> Response:
    """A page of at most so many rows and bytes. There is a next one where a row is left."""
    data: list[Json] = []
    size, cursor, more = 0, 0, False
    for number, shown in rows:
        size += len(to_json(shown))
        more = len(data) >= limit or (bool(data) and size > ANSWER_BYTES)
        if more:
            break
        data.append(shown)
        cursor = number
    return json_response({"data": data, "next": cursor if more else None})


def _within(found: Iterable[Json]) -> list[Json]:
    """As many of the best ones as an answer holds."""
    kept: list[Json] = []
    size = 0
    for one in found:
        size += len(to_json(one))
        if kept and size > ANSWER_BYTES:
            break
        kept.append(one)
    return kept
