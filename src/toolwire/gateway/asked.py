"""What a client asked for, as far as the gateway must know it; the rest of the body is passed on unread."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from msgspec import Struct

from toolwire.gateway.faults import Fault, Rejected
from toolwire.wire.encode.outbound import Json, to_json

_KEPT_LISTS = 32
_KEPT_BYTES = 256 * 1024


class ChatRequest(Struct, frozen=True):
    """A chat request: its bytes as they came, and what decides how its answer is read.

    `tools` are those that a leaked call may name; `taken` are the call ids that the conversation already has; a
    `single` call is all that the client takes in one answer.
    """

    dialect: str
    body: bytes
    data: Json
    model: str
    stream: bool
    tools: tuple[Any, ...]
    taken: frozenset[str]
    single: bool = False


class ToolLists:
    """Gives equal tool lists as the same values, so that what the parser made of them is found again."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[Any, ...]] = OrderedDict()

    def same(self, tools: list[Any]) -> tuple[Any, ...]:
        written = to_json(tools)
        if len(written) > _KEPT_BYTES:
            return tuple(tools)
        found = self._known.pop(written, None) or tuple(tools)
        self._known[written] = found
        if len(self._known) > _KEPT_LISTS:
            self._known.popitem(last=False)
        return found


def read_asked(body: bytes, dialect: str, lists: ToolLists) -> ChatRequest:
    """Read a client's request. Raises Rejected when it is no JSON object that names a model."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as wrong:
        raise Rejected(Fault(400, "invalid_json", f"the body is no JSON: {str(wrong)[:200]}")) from None
    if not isinstance(data, dict):
        raise Rejected(Fault(400, "invalid_json", "the body must be a JSON object"))
    model = data.get("model")
    if not isinstance(model, str) or not model:
        raise Rejected(Fault(400, "missing_model", "the body must name a model: a non-empty string in 'model'"))
    offered = [tool for tool in _list(data.get("tools")) if isinstance(tool, dict)]
    tools = lists.same(offered) if offered and not _calls_off(data.get("tool_choice")) else ()
    taken = frozenset(_known_ids(data, dialect)) if tools else frozenset()
    return ChatRequest(dialect, body, data, model, data.get("stream") is True, tools, taken, one_at_a_time(data))


def one_at_a_time(options: Mapping[str, Any]) -> bool:
    """Whether a request asks for at most one call in an answer, in the words of any API."""
    choice = options.get("tool_choice")
    asked = isinstance(choice, Mapping) and choice.get("disable_parallel_tool_use") is True
    return asked or options.get("parallel_tool_calls") is False


def _calls_off(choice: Any) -> bool:
    return choice == "none" or (isinstance(choice, dict) and choice.get("type") == "none")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _known_ids(data: Json, dialect: str) -> Iterator[str]:
    """The ids of the calls in the conversation so far."""
    for item in _list(data.get("input" if dialect == "openai_responses" else "messages")):
        if not isinstance(item, dict):
            continue
        found = [item.get("call_id")] if item.get("type") == "function_call" else []
        found += [call.get("id") for call in _list(item.get("tool_calls")) if isinstance(call, dict)]
        if dialect == "anthropic":
            found += [part.get("id") for part in _list(item.get("content")) if _is_use(part)]
        yield from (one for one in found if isinstance(one, str))


def _is_use(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_use"
