"""Whole request bodies in any dialect: as a value, or as bytes with everything that was encoded before kept."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field

from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Message, Reply, Request, ResultsMessage
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.losses import Loss
from toolwire.wire.encode.outbound import CallIds, Json, answers, settle, short_id, to_json
from toolwire.wire.encode.tool_names import WireName, any_name

KEPT_CONVERSATIONS = 64
KEPT_BYTES = 64 * 1024 * 1024
KEPT_TOOL_LISTS = 8
_FLAT = frozenset((str, int, float, bool, type(None)))


def _as_tools(encoded: list[Any]) -> Json:
    return {"tools": encoded}


def _nothing_lost(tools: Iterable[Tool]) -> tuple[Loss, ...]:  # noqa: ARG001 -- all of it can be said
    return ()


def _bare_frame(request: Request, model: str, *, stream: bool = False) -> Json:  # noqa: ARG001 -- nothing asked for
    return {"model": model, "stream": stream}


class Dialect(Struct, frozen=True):
    """How one provider wants tools and messages written.

    `system` makes the first message of the system text; without it the text belongs to the frame. `tell_tools` puts
    the tools into the system text, for models that know no other way. `place_tools` makes body fields of what
    `encode_tools` made; `write_tools` gives the same with its parts already written, where that pays; `losses` says
    what the provider's schemas cannot say.
    `joins_neighbours` says that messages of the same role in a row are one message, whose last field
    `parts_field` is a list; `bridge` is what the model says between results and a user, where one demands that.
    Formats with the same `owner` belong to one provider, whose API takes all of them. One that is `abridged` leaves out
    details of tools; it is used only where settings ask for it.
    """

    name: str
    encode_tools: Callable[[Iterable[Tool]], list[Any]]
    encode_message: Callable[[Message, CallIds], list[Json]]
    system: Callable[[str], Json] | None = None
    joins_neighbours: bool = False
    lists_tools_when_off: bool = True
    id_fits: Callable[[str], bool] = short_id
    wire_name: WireName = any_name
    frame: Callable[..., Json] = _bare_frame
    messages_field: str = "messages"
    parts_field: str = "content"
    place_tools: Callable[[list[Any]], Json] = _as_tools
    write_tools: Callable[[Iterable[Tool]], list[Any]] | None = None
    tell_tools: Callable[[str, tuple[Tool, ...]], str] | None = None
    losses: Callable[[Iterable[Tool]], tuple[Loss, ...]] = _nothing_lost
    bridge: str = ""
    owner: str = ""
    abridged: bool = False

    @property
    def prompted(self) -> bool:
        """Whether tools are told in the system text, so that any chat API can carry them."""
        return self.tell_tools is not None

    @property
    def chat(self) -> bool:
        """Whether a conversation is a list of plain chat messages, the system text first."""
        return self.system is not None

    def offered(self, request: Request) -> tuple[Tool, ...]:
        return () if request.tools_off and not self.lists_tools_when_off else request.tools

    def opening(self, system: str, tools: tuple[Tool, ...]) -> Json | None:
        """The message of the system text, where the dialect has one and there is something to say."""
        text = self.tell_tools(system, tools) if self.tell_tools and tools else system
        return self.system(text) if self.system and text else None

    def tool_fields(self, tools: tuple[Tool, ...]) -> Json:
        """The fields of a body that list the tools."""
        encoded = self.encode_tools(tools) if tools else []
        return self.place_tools(encoded) if encoded else {}


def encode_conversation(
    dialect: Dialect, messages: Iterable[Message], system: str, ids: CallIds | None, tools: tuple[Tool, ...] = ()
) -> list[Json]:
    """All messages of a conversation as JSON values, every call answered."""
    encoded, _ = _encode(dialect, messages, (), ids or CallIds(dialect.id_fits), "")
    opening = dialect.opening(system, tools)
    return [opening, *encoded] if opening else encoded


def encode_request(dialect: Dialect, request: Request, frame: Json) -> Json:
    """The whole body of a request as a JSON value: its frame, tools and messages."""
    tools = dialect.offered(request)
    messages = encode_conversation(dialect, request.messages, request.system, None, tools)
    return frame | dialect.tool_fields(tools) | {dialect.messages_field: messages}


def _encode(
    dialect: Dialect, messages: Iterable[Message], waiting: tuple[ToolCall, ...], ids: CallIds, last_role: str
) -> tuple[list[Json], tuple[ToolCall, ...]]:
    encoded: list[Json] = []
    encode = dialect.encode_message
    for message in messages:
        kind = type(message)
        if (waiting or kind is ResultsMessage) and not answers(message, waiting):
            for said in settle(message, waiting):
                encoded += encode(said, ids)
        else:
            encoded += encode(message, ids)
        waiting = message.calls if kind is Reply else ()  # type: ignore[union-attr]
    if dialect.bridge:
        encoded = _bridged(encoded, dialect.bridge, last_role)
    return (_joined(encoded, dialect.parts_field) if dialect.joins_neighbours else encoded), waiting


def _joined(messages: list[Json], parts: str) -> list[Json]:
    joined: list[Json] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1][parts] += message[parts]
        else:
            joined.append(message)
    return joined


def _bridged(messages: list[Json], bridge: str, last_role: str) -> list[Json]:
    bridged: list[Json] = []
    for message in messages:
        if last_role == "tool" and message["role"] == "user":
            bridged.append({"role": "assistant", "content": bridge})
        bridged.append(message)
        last_role = message["role"]
    return bridged


class _EncodedConversation(Struct):
    """What is known of one conversation: its messages as bytes without the outer brackets, and where it stands."""

    ids: CallIds
    conversation: str = ""
    body: bytearray = field(default_factory=bytearray)
    count: int = 0
    last: Message | None = None
    last_role: str = ""
    waiting: tuple[ToolCall, ...] = ()


class RequestEncoder:
    """Writes request bodies, encoding each message and each tool list of a conversation only once.

    What is kept is bounded: the conversations used last, and their total size. The newest one is set aside and weighed
    when another takes its place; until then its next request needs only a look.
    """

    def __init__(
        self, dialect: Dialect, *, conversations: int = KEPT_CONVERSATIONS, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._dialect = dialect
        self._conversations = conversations
        self._kept_bytes = kept_bytes
        self._newest: _EncodedConversation | None = None
        self._kept: dict[str, _EncodedConversation] = {}  # all others, the one used last stands last
        self._size = 0
        self._tools = _Recent()
        self._openings = _Recent()
        self._last: tuple[tuple[Tool, ...], str, bytes, bytes] | None = None
        self._frame: Json | None = None
        self._start = b""
        self._needs_roles = dialect.joins_neighbours or bool(dialect.bridge)
        self._label = f'"{dialect.messages_field}":['.encode()

    def encode(self, request: Request, frame: Json) -> bytes:
        """The body of this request as JSON bytes. Raises ValueError when a value in it is no JSON."""
        messages, kept = request.messages, self._newest
        # Messages only grow at their end, so one look tells whether these continue what is kept.
        if (
            kept is None
            or kept.conversation != request.conversation
            or kept.count > len(messages)
            or messages[kept.count - 1] is not kept.last
        ):
            kept = self._take(request.conversation, messages)
        if kept.count < len(messages):
            self._extend(kept, messages)
        tools, last = self._dialect.offered(request) if request.tools_off else request.tools, self._last
        if last is None or last[0] is not tools or last[1] != request.system:
            last = self._last = self._lead(tools, request.system)
        lead = last[2] if frame else last[2][1:]
        if frame != self._frame:  # nearly always it is the one of the request before
            self._begin_with(frame)
        return b"".join((self._start, lead, last[3] if kept.body else b"", kept.body, b"]}"))

    def _begin_with(self, frame: Json) -> None:
        """Write the frame. It is remembered if it is flat: what is inside of a deeper one may be changed in place."""
        self._start = to_json(frame)[:-1]
        self._frame = dict(frame) if _FLAT.issuperset(map(type, frame.values())) else None

    def _lead(self, tools: tuple[Tool, ...], system: str) -> tuple[tuple[Tool, ...], str, bytes, bytes]:
        """What stands between the frame and the messages of a conversation, and what parts it from those."""
        fields, opening = self._tool_fields(tools), self._opening(system, tools)
        lead = b"".join((b"," if fields else b"", fields, b",", self._label, opening))
        return tools, system, lead, b"," if opening else b""

    def _take(self, conversation: str, messages: tuple[Message, ...]) -> _EncodedConversation:
        """What is known of a conversation, which becomes the newest; or a new one, where nothing is known of it."""
        self._set_aside()
        kept = self._kept.pop(conversation, None)
        if kept is not None:
            self._size -= len(kept.body)
            if kept.count <= len(messages) and messages[kept.count - 1] is kept.last:
                self._newest = kept
                return kept
        return _EncodedConversation(CallIds(self._dialect.id_fits), conversation)

    def _set_aside(self) -> None:
        """Keep the newest conversation among the others, and drop the oldest of them beyond the limits."""
        newest, self._newest = self._newest, None
        if newest is not None:
            self._kept[newest.conversation] = newest
            self._size += len(newest.body)
        while self._kept and (len(self._kept) >= self._conversations or self._size > self._kept_bytes):
            self._size -= len(self._kept.pop(next(iter(self._kept))).body)

    def _extend(self, kept: _EncodedConversation, messages: tuple[Message, ...]) -> None:
        dialect, body = self._dialect, kept.body
        self._newest = None  # should a message have no JSON, nothing of it may count as written
        new, kept.waiting = _encode(dialect, messages[kept.count :], kept.waiting, kept.ids, kept.last_role)
        kept.count, kept.last = len(messages), messages[-1]
        if new:
            written = to_json(new)[1:-1]
            if dialect.joins_neighbours and new[0]["role"] == kept.last_role:
                # Both sides end and begin with the parts of the same role: open the old one, go on with the new.
                del body[-2:]
                written = written[len(f'{{"role":"{kept.last_role}","{dialect.parts_field}":[') :]
            if body:
                body += b","
            body += written
            if self._needs_roles:
                kept.last_role = new[-1].get("role", "")
        if kept.conversation and len(body) <= self._kept_bytes:
            self._newest = kept

    def _opening(self, system: str, tools: tuple[Tool, ...]) -> bytes:
        if self._dialect.system is None or not (system or self._dialect.tell_tools):
            return b""
        told = tools if self._dialect.tell_tools else ()
        return self._openings.get(told, system, lambda: self._written_opening(system, told))

    def _written_opening(self, system: str, tools: tuple[Tool, ...]) -> bytes:
        opening = self._dialect.opening(system, tools)
        return to_json(opening) if opening else b""

    def _tool_fields(self, tools: tuple[Tool, ...]) -> bytes:
        if not tools:
            return b""
        return self._tools.get(tools, "", lambda: self._written_tools(tools))

    def _written_tools(self, tools: tuple[Tool, ...]) -> bytes:
        if self._dialect.write_tools is None:
            return to_json(self._dialect.tool_fields(tools))[1:-1]
        return to_json(self._dialect.place_tools(self._dialect.write_tools(tools)))[1:-1]


class _Recent:
    """The last few things made for lists of tools. The tools are kept too, so no id can be given to another one."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[Any, ...], tuple[tuple[Tool, ...], bytes]] = OrderedDict()

    def get(self, tools: tuple[Tool, ...], words: str, make: Callable[[], bytes]) -> bytes:
        """What was made for these tools and words, made now if it was not."""
        key = (words, *map(id, tools))
        found = self._made.pop(key, None) or (tools, make())
        self._made[key] = found
        if len(self._made) > KEPT_TOOL_LISTS:
            self._made.popitem(last=False)
        return found[1]
