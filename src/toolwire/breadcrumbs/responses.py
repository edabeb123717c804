"""Reads results and replies as records, from what a store keeps of calls and turns. Nothing is written for them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Protocol

from toolwire.breadcrumbs.rules.responses import (
    AGENT_RESPONSE,
    RESPONSE_SCHEMAS,
    SESSION,
    TOOL_RESPONSE,
    CallName,
    ReplyName,
    agent_responses,
    author_of,
    fits,
    read_response_id,
    session_tags,
    tool_response,
)
from toolwire.errors import NotFound
from toolwire.protocol.breadcrumbs import Record, RecordQuery
from toolwire.protocol.records import CallCard
from toolwire.record.contract import KeptTurn, Numbered, TurnSummary

MOST_TURNS = 5_000
"""A list looks at so many turns at most, the newest ones; older responses are found by their ids."""

_PAGE = 100
_PLACES = 1 << 20  # a cursor is the number of a turn and a place in it; no turn has as many calls
_TAGS = {"tool:response": TOOL_RESPONSE, "agent:response": AGENT_RESPONSE}


class TurnsAndCalls(Protocol):
    """What is needed of a store."""

    async def turn(self, turn_id: str, *, project: str | None = None) -> KeptTurn: ...

    async def turns_before(
        self, cursor: int | None = None, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[TurnSummary]]: ...

    async def call(self, turn_id: str, call_id: str, *, project: str = "default") -> CallCard: ...

    async def calls(
        self, *, turn_id: str | None = None, tool: str | None = None, limit: int = 50, project: str | None = None
    ) -> list[CallCard]: ...


def is_response(record_id: str) -> bool:
    """Whether an id names a result or a reply."""
    return read_response_id(record_id) is not None


def asks_for_responses(query: RecordQuery) -> bool:
    """Whether a list is about results or replies: by its schema, or by a tag that only they have."""
    if query.schema_name:
        return query.schema_name in RESPONSE_SCHEMAS
    wanted = [_is_response_tag(tag) for tag in query.all_tags]
    return any(wanted) or (bool(query.any_tags) and all(map(_is_response_tag, query.any_tags)))


def asks_by_request(query: RecordQuery) -> bool:
    """Whether such a list is about everything that answers a request: other records may have that tag, too."""
    named = (*query.all_tags, *query.any_tags)
    return not query.schema_name and _TAGS.keys().isdisjoint(query.all_tags) and any(map(_names_request, named))


def _names_request(tag: str) -> bool:
    return tag.startswith("request:")


def _is_response_tag(tag: str) -> bool:
    return tag in _TAGS or _names_request(tag)


class Responses:
    """The results and replies of a project. With `within`, a turn, only those of its session are there."""

    def __init__(self, store: TurnsAndCalls, project: str) -> None:
        self._store = store
        self._project = project

    async def read(self, record_id: str, *, within: str | None = None) -> Record:
        """A result or a reply. Raises NotFound, also for a call that has no result yet."""
        found: Record | None = None
        with suppress(NotFound):
            match read_response_id(record_id):
                case CallName(turn_id, call_id):
                    found = await self._result(turn_id, call_id, within)
                case ReplyName(turn_id, number):
                    found = await self._reply(turn_id, number, within)
        if found is None:
            raise NotFound(f"there is no record {record_id[:200]!r}")
        return found

    async def _result(self, turn_id: str, call_id: str, within: str | None) -> Record | None:
        card = await self._store.call(turn_id, call_id, project=self._project)
        thread = await self._thread(turn_id)
        if not await self._is_within(turn_id, thread, within):
            return None
        return tool_response(card, thread)

    async def _reply(self, turn_id: str, number: int, within: str | None) -> Record | None:
        kept = await self._store.turn(turn_id, project=self._project)
        if not await self._is_within(turn_id, kept.opening.thread, within):
            return None
        replies = agent_responses(kept.opening, kept.events)
        return replies[number - 1] if 1 <= number <= len(replies) else None

    async def _thread(self, turn_id: str) -> str:
        try:
            return (await self._store.turn(turn_id, project=self._project)).opening.thread
        except NotFound:  # a call of a program that keeps no turns
            return ""

    async def _is_within(self, turn_id: str, thread: str, within: str | None) -> bool:
        if within is None or within == turn_id:
            return True
        return bool(thread) and thread == await self._thread(within)

    async def listed(
        self, query: RecordQuery, *, limit: int = 50, before: int | None = None, within: str | None = None
    ) -> list[Numbered[Record]]:
        """The results and replies that fit, the newest first; with `before` those that come after that cursor."""
        session = "" if within is None else await self._thread(within)
        found: list[Numbered[Record]] = []
        async for cursor, summary in self._turns(before):
            if len(found) >= limit:
                break
            if not _may_have(summary, query) or (within is not None and not _is_of(summary, within, session)):
                continue
            for place, record in await self._of_turn(summary, query):
                number = cursor * _PLACES + place
                if (before is None or number < before) and fits(record, query):
                    found.append(Numbered(number, record))
        return found[: max(limit, 0)]

    async def _turns(self, before: int | None) -> AsyncIterator[tuple[int, TurnSummary]]:
        cursor = None if before is None else before // _PLACES + 1
        for _ in range(MOST_TURNS // _PAGE):
            page = await self._store.turns_before(cursor, limit=_PAGE, project=self._project)
            for cursor, summary in page:
                yield cursor, summary
            if len(page) < _PAGE:
                return

    async def _of_turn(self, summary: TurnSummary, query: RecordQuery) -> list[tuple[int, Record]]:
        """The records of one turn with their places, the newest first."""
        wanted = _schemas(query)
        records: list[Record] = []
        if TOOL_RESPONSE in wanted and summary.calls:
            cards = await self._store.calls(turn_id=summary.id, limit=summary.calls, project=self._project)
            records += [made for card in cards if (made := tool_response(card, summary.thread)) is not None]
        if AGENT_RESPONSE in wanted:
            kept = await self._store.turn(summary.id, project=self._project)
            records += agent_responses(kept.opening, kept.events)
        return list(enumerate(records))[::-1]


def _schemas(query: RecordQuery) -> Sequence[str]:
    """The kinds of records that a query can find."""
    if query.schema_name:
        return (query.schema_name,)
    named = {_TAGS.get(tag, TOOL_RESPONSE) for tag in query.all_tags if _is_response_tag(tag)}
    if len(named) > 1:
        return ()
    return tuple(named) or tuple({_TAGS.get(tag, TOOL_RESPONSE) for tag in query.any_tags})


def _may_have(summary: TurnSummary, query: RecordQuery) -> bool:
    """Whether a turn can have records that fit: its session and its agent are known without reading it."""
    own = session_tags(summary.thread)
    is_in_session = all(tag in own for tag in query.all_tags if tag.startswith(SESSION))
    return is_in_session and query.created_by in ("", author_of(summary.agent))


def _is_of(summary: TurnSummary, turn_id: str, thread: str) -> bool:
    return summary.id == turn_id or (bool(thread) and summary.thread == thread)
