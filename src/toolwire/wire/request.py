"""Whole request bodies in any dialect: as a value, or as bytes with everything that was encoded before kept."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Message, Request, ResultsMessage
from toolwire.protocol.tools import Tool
from toolwire.wire.outbound import CallIds, Json, settle, short_id, to_json, waiting_after

KEPT_CONVERSATIONS = 64
KEPT_BYTES = 64 * 1024 * 1024
KEPT_TOOL_LISTS = 8


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one provider wants tools and messages written.

    `system` makes the first message of the system text; without it the text belongs to the frame.
    `joins_neighbours` says that messages of the same role in a row are one message.
    """

    name: str
    encode_tools: Callable[[Iterable[Tool]], list[Json]]
    encode_message: Callable[[Message, CallIds], list[Json]]
    system: Callable[[str], Json] | None = None
    joins_neighbours: bool = False
    lists_tools_when_off: bool = True
    id_fits: Callable[[str], bool] = short_id

    def offered(self, request: Request) -> tuple[Tool, ...]:
        return () if request.tools_off and not self.lists_tools_when_off else request.tools


def encode_conversation(dialect: Dialect, messages: Iterable[Message], system: str, ids: CallIds | None) -> list[Json]:
    """All messages of a conversation as JSON values, every call answered."""
    encoded, _ = _encode(dialect, messages, (), ids or CallIds(dialect.id_fits))
    return [dialect.system(system), *encoded] if dialect.system and system else encoded


def encode_request(dialect: Dialect, request: Request, frame: Json) -> Json:
    """The whole body of a request as a JSON value: its frame, tools and messages."""
    tools = dialect.encode_tools(dialect.offered(request))
    messages = encode_conversation(dialect, request.messages, request.system, None)
    return frame | ({"tools": tools} if tools else {}) | {"messages": messages}


def _encode(
    dialect: Dialect, messages: Iterable[Message], waiting: tuple[ToolCall, ...], ids: CallIds
) -> tuple[list[Json], tuple[ToolCall, ...]]:
    encoded: list[Json] = []
    for message in messages:
        if waiting or isinstance(message, ResultsMessage):
            for said in settle(message, waiting):
                encoded += dialect.encode_message(said, ids)
        else:
            encoded += dialect.encode_message(message, ids)
        waiting = waiting_after(message)
    return (_joined(encoded) if dialect.joins_neighbours else encoded), waiting


def _joined(messages: list[Json]) -> list[Json]:
    joined: list[Json] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1]["content"] += message["content"]
        else:
            joined.append(message)
    return joined


@dataclass(slots=True)
class _Kept:
    """What is known of one conversation: its messages as bytes without the outer brackets, and where it stands."""

    ids: CallIds
    body: bytearray = field(default_factory=bytearray)
    count: int = 0
    last: Message | None = None
    last_role: str = ""
    waiting: tuple[ToolCall, ...] = ()

    def begins(self, messages: tuple[Message, ...]) -> bool:
        """Whether these messages continue what is kept. Messages only grow at their end, so one look is enough."""
        return 0 < self.count <= len(messages) and messages[self.count - 1] is self.last


class RequestEncoder:
    """Writes request bodies, encoding each message and each tool list of a conversation only once.

    What is kept is bounded: the conversations used last, and their total size.
    """

    def __init__(
        self, dialect: Dialect, *, conversations: int = KEPT_CONVERSATIONS, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._dialect = dialect
        self._conversations = conversations
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0
        self._tools: OrderedDict[tuple[int, ...], tuple[tuple[Tool, ...], bytes]] = OrderedDict()

    def encode(self, request: Request, frame: Json) -> bytes:
        """The body of this request as JSON bytes. Raises ValueError when a value in it is no JSON."""
        kept = self._take(request)
        self._extend(kept, request.messages)
        parts: list[bytes | bytearray] = [to_json(frame)[:-1]]
        if tools := self._dialect.offered(request):
            parts += (b',"tools":', self._tool_list(tools))
        parts += (b',"messages":[', self._opening(request.system, bool(kept.body)), kept.body, b"]}")
        if request.conversation:
            self._put(request.conversation, kept)
        return b"".join(parts)

    def _take(self, request: Request) -> _Kept:
        kept = self._kept.pop(request.conversation, None)
        if kept is not None:
            self._size -= len(kept.body)
            if kept.begins(request.messages):
                return kept
        return _Kept(CallIds(self._dialect.id_fits))

    def _put(self, conversation: str, kept: _Kept) -> None:
        self._kept[conversation] = kept
        self._size += len(kept.body)
        while len(self._kept) > self._conversations or self._size > self._kept_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._size -= len(dropped.body)

    def _extend(self, kept: _Kept, messages: tuple[Message, ...]) -> None:
        new, kept.waiting = _encode(self._dialect, messages[kept.count :], kept.waiting, kept.ids)
        if messages:
            kept.count, kept.last = len(messages), messages[-1]
        if not new:
            return
        written = to_json(new)[1:-1]
        if self._dialect.joins_neighbours and new[0]["role"] == kept.last_role:
            # Both sides end and begin with the content list of the same role: open the old one, continue with the new.
            del kept.body[-2:]
            written = written[len(b'{"role":"","content":[') + len(kept.last_role) :]
        if kept.body:
            kept.body += b","
        kept.body += written
        kept.last_role = new[-1]["role"]

    def _opening(self, system: str, more: bool) -> bytes:
        if not system or self._dialect.system is None:
            return b""
        return to_json(self._dialect.system(system)) + (b"," if more else b"")

    def _tool_list(self, tools: tuple[Tool, ...]) -> bytes:
        key = tuple(map(id, tools))  # the tools are kept with their bytes, so no id can be given to another one
        found = self._tools.pop(key, None) or (tools, to_json(self._dialect.encode_tools(tools)))
        self._tools[key] = found
        if len(self._tools) > KEPT_TOOL_LISTS:
            self._tools.popitem(last=False)
        return found[1]
