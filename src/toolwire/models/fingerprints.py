"""The print of a request: enough to recognise it, and to say where another one differs."""

import hashlib
from collections.abc import Iterator
from typing import Any

import orjson

from toolwire.errors import ModelRefused
from toolwire.protocol.chat import Message, Note, Reply, Request, ResultsMessage, UserMessage
from toolwire.wire.codecs.stored import write_message
from toolwire.wire.encode.outbound import Json, to_json, words

EXCERPT = 60


def fingerprint(request: Request) -> Json:
    """A request as JSON: digests of its parts, with excerpts of its messages.

    Ids and times are left out: they are new in every run. Raises ModelRefused for what JSON cannot hold.
    """
    try:
        parts = {
            "system": _digest(request.system),
            "settings": [request.tools_off, request.max_tokens, request.temperature],
            "tools": {tool.name: _digest([tool.description, tool.input_schema]) for tool in request.tools},
            "messages": [_message(message) for message in request.messages],
        }
        read_back: Json = orjson.loads(to_json(parts))
    except ValueError as wrong:
        raise ModelRefused(f"this conversation cannot be recorded: it {wrong}") from None
    return read_back


def differences(recorded: Json, wanted: Json) -> Iterator[str]:
    """What is not the same in two prints, in words; at most the first difference of each part."""
    if recorded.get("system") != wanted["system"]:
        yield "the system text is another"
    if recorded.get("settings") != wanted["settings"]:
        yield f"tools off, maximum tokens and temperature were {recorded.get('settings')} and are {wanted['settings']}"
    yield from _tool_differences(_dict(recorded.get("tools")), wanted["tools"])
    yield from _message_differences(_list(recorded.get("messages")), wanted["messages"])


def _tool_differences(recorded: Json, wanted: Json) -> Iterator[str]:
    for said, names in (("missing", recorded.keys() - wanted.keys()), ("new", wanted.keys() - recorded.keys())):
        if names:
            yield f"{said} tools: {', '.join(sorted(names))}"
    if changed := sorted(name for name in recorded.keys() & wanted.keys() if recorded[name] != wanted[name]):
        yield f"changed tools: {', '.join(changed)}"


def _message_differences(recorded: list[Any], wanted: list[Any]) -> Iterator[str]:
    for number, (then, now) in enumerate(zip(recorded, wanted, strict=False), 1):
        if then != now:
            yield f"message {number} was {_shown(then)} and is {_shown(now)}"
            return
    if len(recorded) != len(wanted):
        yield f"it has {len(wanted)} messages where {len(recorded)} were recorded"


def _message(message: Message) -> list[str]:
    match message:
        case UserMessage(text, ()):
            return ["user", _digest(text), _excerpt(text)]
        case UserMessage(text):
            return ["user", _digest(write_message(message)), _excerpt(text)]
        case Note(text):
            return ["note", _digest(text), _excerpt(text)]
        case Reply(content, _, calls):
            asked = [[call.name, call.arguments] for call in calls]
            return ["reply", _digest([content, asked]), _excerpt(content or to_json(asked).decode())]
        case ResultsMessage(results):
            said = [[result.name, words(result)] for result in results]
            return ["results", _digest(said), _excerpt("; ".join(text for _, text in said))]


def _digest(value: Any) -> str:
    return hashlib.sha256(to_json(value)).hexdigest()[:16]


def _excerpt(text: str) -> str:
    line = " ".join(text[: EXCERPT * 4].split())
    return line if len(line) <= EXCERPT else f"{line[:EXCERPT]}…"


def _shown(message: Any) -> str:
    match message:
        case [str(kind), _, str(excerpt)]:
            return f"{kind} {excerpt!r}"
        case _:
            return "unreadable"


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
