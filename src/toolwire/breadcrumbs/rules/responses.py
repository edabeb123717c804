"""Results and replies as records: `tool.response.v1` and `agent.response.v1` of the universal envelope.

They are views of the calls and turns that a store keeps, so no one can write or forge them. The id of one says which
call or which reply of which turn it is, and is the same each time. The session of a record is the thread of its turn.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.protocol.breadcrumbs import Record, RecordQuery
from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import Message, Reply, ResultsMessage, untrusted_sources
from toolwire.protocol.policy import inherits_taint
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Delivery
from toolwire.protocol.turns import WORKFLOW_MODEL, Turn

TOOL_RESPONSE, AGENT_RESPONSE = "tool.response.v1", "agent.response.v1"
RESPONSE_SCHEMAS = frozenset((TOOL_RESPONSE, AGENT_RESPONSE))
SESSION = "session:"
"""How the tag begins that says to which session a record belongs."""

_CALL, _REPLY = "call", "reply"
_LONGEST_TITLE = 80
_LONGEST_SESSION = 150
_MOST_ORIGINS = 5


class CallName(NamedTuple):
    """Which result a record shows."""

    turn_id: str
    call_id: str


class ReplyName(NamedTuple):
    """Which reply of a turn a record shows; the first is number 1."""

    turn_id: str
    number: int


def call_record_id(turn_id: str, call_id: str) -> str:
    """The id under which a result is read as a record."""
    return f"{_CALL}~{_escape(turn_id)}~{_escape(call_id)}"


def reply_record_id(turn_id: str, number: int) -> str:
    """The id under which a reply of a turn is read as a record."""
    return f"{_REPLY}~{_escape(turn_id)}~{number}"


def read_response_id(record_id: str) -> CallName | ReplyName | None:
    """What an id names, if it is one of a result or reply."""
    match record_id.split("~"):
        case ["call", turn_id, call_id] if turn_id and call_id:
            return CallName(_unescape(turn_id), _unescape(call_id))
        case ["reply", turn_id, number] if turn_id and number.isascii() and number.isdecimal() and len(number) < 10:
            return ReplyName(_unescape(turn_id), int(number))
        case _:
            return None


def _escape(part: str) -> str:
    """A part of an id, in characters that stand for themselves in addresses: an id is written there as it is."""
    return quote(part, safe="").replace("~", "%7E").replace("%", "!")


def _unescape(part: str) -> str:
    return unquote(part.replace("!", "%"))


def session_tags(thread: str) -> tuple[str, ...]:
    """The tag of a thread; none for a turn that belongs to no thread."""
    if not thread:
        return ()
    if len(thread) <= _LONGEST_SESSION and thread.isprintable() and thread == thread.strip():
        return (f"{SESSION}{thread}",)
    # Not every name of a thread can be a tag.
    return (f"{SESSION}sha256-{sha256(thread.encode(errors='backslashreplace')).hexdigest()[:32]}",)


def with_session(tags: Iterable[str], thread: str) -> tuple[str, ...]:
    """Tags as a turn of this thread may write them: with its own session and no other, each once."""
    own = (tag for tag in tags if not tag.startswith(SESSION))
    return tuple(dict.fromkeys((*own, *session_tags(thread))))


def author_of(agent: str) -> str:
    """The author of what an agent's calls and replies have made."""
    return Caller(agent, Role.MODEL).author


def tool_response(card: CallCard, thread: str = "") -> Record | None:
    """The result of a call as a record; None while it has none."""
    call, result = card.call, card.result
    if result is None:
        return None
    request_id = call.alias or call.id
    context: dict[str, Any] = {
        "request_id": request_id,
        "tool": result.name,
        "status": "error" if result.is_failure else "success",
        "output": None if result.is_failure else _output(result),
        "error": _error(result),
        **_circumstances(card, result),
    }
    tags = ("tool:response", f"request:{request_id}", *session_tags(thread))
    return Record(
        call_record_id(card.turn_id, call.id),
        card.project,
        TOOL_RESPONSE,
        f"Response of {result.name}",
        tags,
        context,
        created_by=author_of(card.agent),
        created_at=card.created_at,
        updated_by=author_of(card.agent),
        updated_at=card.created_at + (result.queued_ms + result.elapsed_ms) / 1000,
        turn_id=card.turn_id,
        call_id=call.id,
        origins=(result.origins or (f"tool:{result.name}",)) if result.untrusted else (),
    )


def _output(result: ToolResult) -> Any:
    """An object, even where the tool said only words."""
    return result.structured if isinstance(result.structured, dict) else {"result": result.text}


def _error(result: ToolResult) -> str | None:
    if not result.is_failure:
        return None
    return result.error.message if result.error else result.text


def _circumstances(card: CallCard, result: ToolResult) -> dict[str, Any]:
    """What we know beyond the fields of the envelope."""
    more: dict[str, Any] = {
        "outcome": str(result.status),
        "code": str(result.error.code) if result.error else None,
        "retryable": result.error.retryable if result.error else False,
        "call_id": card.call.id,
        "record_id": card.record_id,
        "elapsed_ms": result.elapsed_ms,
        "delivery": result.delivery or str(Delivery.MODEL),
        "untrusted": result.untrusted,
    }
    if result.truncated:
        more |= {"truncated": True, "handle": result.handle}
    if result.exit_code is not None:
        more["exit_code"] = result.exit_code
    return more


def agent_responses(opening: Turn, events: Sequence[Any]) -> list[Record]:
    """The replies of a turn as records, the first first. The steps of a workflow are no replies of a model."""
    if opening.model == WORKFLOW_MODEL:
        return []
    found: list[Record] = []
    origins = dict.fromkeys(_read_before(opening))
    for event in events:
        if isinstance(event, Reply):
            found.append(_agent_response(opening, len(found) + 1, event, tuple(islice(origins, _MOST_ORIGINS))))
        elif isinstance(event, ResultsMessage):
            origins |= dict.fromkeys(_untrusted([event]))
    return found


def _read_before(opening: Turn) -> Iterator[str]:
    """The untrusted content that a turn was begun with."""
    yield from _untrusted(opening.messages)
    if opening.tainted or inherits_taint(opening.grant.rules):
        yield f"turn:{opening.id}"


def _untrusted(messages: Iterable[Message]) -> Iterator[str]:
    for source in untrusted_sources(messages):
        yield from source.uris or (f"tool:{source.name}",)


def _agent_response(opening: Turn, number: int, reply: Reply, origins: tuple[str, ...]) -> Record:
    context = {
        "message": reply.content,
        "tool_requests": [_request(call) for call in reply.calls],
        "model": reply.model or opening.model,
        "step": number,
    }
    return Record(
        reply_record_id(opening.id, number),
        opening.project,
        AGENT_RESPONSE,
        _title(reply.content),
        ("agent:response", *session_tags(opening.thread)),
        context,
        created_by=author_of(opening.agent),
        created_at=opening.started_at,
        updated_by=author_of(opening.agent),
        updated_at=opening.started_at,
        turn_id=opening.id,
        origins=origins,
    )


def _title(message: str) -> str:
    first = message.strip().partition("\n")[0]
    return (first if len(first) <= _LONGEST_TITLE else f"{first[: _LONGEST_TITLE - 1]}…") or "Response"


def _request(call: ToolCall) -> dict[str, Any]:
    options = call.options
    request: dict[str, Any] = {
        "tool": call.name,
        "input": dict(call.arguments),
        "requestId": call.alias or call.id,
        "return_to_llm": options is None or options.delivery is not Delivery.USER,
    }
    if options is not None and options.config_id:
        request["config_id"] = options.config_id
    if options is not None and options.dependencies:
        request["dependencies"] = list(options.dependencies)
    return request


def fits(record: Record, query: RecordQuery) -> bool:
    """Whether a query finds a record that it is asked about, leaving its reader aside."""
    tags = set(record.tags)
    return (
        query.schema_name in ("", record.schema_name)
        and (not query.any_tags or not tags.isdisjoint(query.any_tags))
        and tags.issuperset(query.all_tags)
        and query.created_by in ("", record.created_by)
        and (query.since is None or record.created_at >= query.since)
        and (query.until is None or record.created_at < query.until)
        and _has_words(record, query.text)
    )


def _has_words(record: Record, text: str) -> bool:
    if not text:
        return True
    found = " ".join(_words([record.title, record.tags, record.context])).casefold()
    return all(word in found for word in text.casefold().split())


def _words(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _words(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _words(item)
    elif value is not None:
        yield str(value)
