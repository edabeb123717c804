"""A client's conversation, put together piece by piece: what belongs to one reply or one set of results is joined."""

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from toolwire.protocol.calls import Block, ErrorText, Text, ToolCall, ToolError, ToolResult
from toolwire.protocol.chat import Message, Note, Reply, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import OUTCOMES, Code, Status
from toolwire.wire.encode.losses import Loss
from toolwire.wire.lenient.arguments import NotRead, read_arguments

_FAILURE = "Error ("
_NAMELESS = "a tool"


class Transcript:
    """Collects messages in order. Ids of calls are made unique; a result finds the newest call that it can answer."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self._done: list[Message] = []
        self._reply: _OpenReply | None = None
        self._results: list[ToolResult] = []
        self._calls: dict[str, ToolCall] = {}
        self._waiting: dict[str, list[ToolCall]] = {}
        self._newest: dict[str, ToolCall] = {}

    def lose(self, where: str, what: str) -> None:
        self.losses.append(Loss(where, what))

    def user(self, parts: Iterable[Block]) -> None:
        self._close()
        self._done.append(UserMessage.of(parts))

    def note(self, text: str) -> None:
        self._close()
        self._done.append(Note(text))

    def reply(self) -> "_OpenReply":
        """The reply that is being written, a new one if there is none."""
        if self._reply is None:
            self._close()
            self._reply = _OpenReply()
        return self._reply

    def end_reply(self) -> None:
        """What follows belongs to another message, even if it is the same speaker's."""
        self._close()

    def call(self, where: str, name: str, written: Any, alias: str | None, raw: Any = None) -> None:
        """One call of the reply that is being written."""
        read = read_arguments(written, finished=True)
        fault = f"the arguments of {name[:64]!r} could not be read: {read.why}" if isinstance(read, NotRead) else ""
        arguments: Mapping[str, Any] = {} if isinstance(read, NotRead) else read.objects[0]
        if fault:
            self.lose(where, fault)
        calls = self.reply().calls
        call = ToolCall(
            name, arguments, self._unique(alias), alias or None, position=len(calls), raw=raw if fault else None,
            fault=fault,
        )  # fmt: skip
        calls.append(call)
        self._calls[call.id] = call
        self._waiting.setdefault(alias or name, []).append(call)
        self._newest[alias or name] = call

    def result(self, alias: str, content: tuple[Block, ...], *, failed: bool, name: str = "") -> None:
        """One result, told by the id of its call (or by the name of its tool, where an API knows no ids)."""
        if self._reply is not None:
            self._close()
        waiting = self._waiting.get(alias)
        call = waiting.pop(0) if waiting else self._newest.get(alias)
        called = call.name if call else name or _NAMELESS
        self._results.append(_result(call.id if call else alias, called, content, failed=failed))

    def messages(self) -> tuple[Message, ...]:
        self._close()
        return tuple(self._done)

    def _unique(self, alias: str | None) -> str:
        if alias and alias not in self._calls:
            return alias
        return next(
            found for n in count(len(self._calls) + 1) if (found := f"{alias or 'call'}~{n}") not in self._calls
        )

    def _close(self) -> None:
        if self._reply is not None:
            self._done.append(self._reply.closed())
            self._reply = None
        if self._results:
            self._done.append(ResultsMessage(tuple(self._results)))
            self._results = []


class _OpenReply:
    """A reply that is being written."""

    __slots__ = ("_items", "_provider", "calls", "content", "reasoning")

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[ToolCall] = []
        self._items: list[Any] = []
        self._provider = ""

    def keep(self, provider: str, item: Mapping[str, Any]) -> None:
        """An item that this provider wants back unchanged."""
        self._provider = provider
        self._items.append(dict(item))

    def closed(self) -> Reply:
        carry = {"provider": self._provider, "items": self._items} if self._items else None
        reason = "tool_calls" if self.calls else "stop"
        return Reply(
            "".join(self.content), "\n".join(self.reasoning), tuple(self.calls), finish_reason=reason, carry=carry
        )


def _result(call_id: str, name: str, content: tuple[Block, ...], *, failed: bool) -> ToolResult:
    """A result as the client tells it; one that failed here before is known by the words we wrote for it."""
    first = content[0].text if content and isinstance(content[0], Text) else ""
    if error := _our_words(first):
        said: tuple[Block, ...] = (ErrorText(error.message, error.code), *content[1:])
        return ToolResult(call_id, name, OUTCOMES[error.code].status, said, error=error)
    return ToolResult(call_id, name, Status.FAILED if failed else Status.SUCCESS, content)


def _our_words(text: str) -> ToolError | None:
    """The error behind `Error (code): sentence`, the form in which every dialect writes a failure."""
    if not text.startswith(_FAILURE):
        return None
    code, found, message = text[len(_FAILURE) :].partition("): ")
    return ToolError.of(Code(code), message) if found and code in _CODES else None


_CODES = frozenset(code.value for code in Code)
