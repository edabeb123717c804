"""Public fakes, for testing tools and agents without a model, a clock or a network."""

from collections.abc import Callable, Iterable
from typing import Any

from toolwire.errors import ModelError
from toolwire.protocol.calls import Allowed, Problem, Text, ToolCall, ToolResult
from toolwire.protocol.chat import CallDelta, Delta, Reply, Request, TextDelta, Usage
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Status
from toolwire.toolbox.disk.memory_files import MemoryFiles

__all__ = [
    "FrozenClock",
    "Line",
    "MemoryFiles",
    "RecordedExecutor",
    "ScriptedModel",
    "call",
    "says",
]

Line = str | Reply | ToolCall | list[ToolCall] | ModelError


def call(name: str, alias: str | None = None, /, **arguments: Any) -> ToolCall:
    """A call as a model would make it: `call("add", a=1, b=2)`."""
    return ToolCall(name, arguments, alias=alias)


def says(text: str, *calls: ToolCall, problems: Iterable[Problem] = (), usage: Usage | None = None) -> Reply:
    """A reply with text and calls."""
    reason = "tool_calls" if calls else "stop"
    return Reply(text, calls=calls, problems=tuple(problems), finish_reason=reason, usage=usage or Usage())


class ScriptedModel:
    """A model that says what it was told to: text, a call, a list of calls, a whole reply, or raises an error.

    `requests` keeps everything it was asked. A script that runs out is a `ModelError`, so a test that asks too
    often fails with a sentence.
    """

    def __init__(
        self, *script: Line | Callable[[Request], Line], name: str = "scripted:test", most_tools: int | None = None
    ) -> None:
        self.name = name
        self.most_tools = most_tools
        self.requests: list[Request] = []
        self._script = list(script)

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        self.requests.append(request)
        if len(self.requests) > len(self._script):
            raise ModelError(f"the script has {len(self._script)} lines, and the model was asked once more")
        line = self._script[len(self.requests) - 1]
        reply = _reply(line(request) if callable(line) and not isinstance(line, Reply) else line)
        if on_delta:
            _show(reply, on_delta)
        return reply

    async def close(self) -> None:
        """Nothing to let go of."""


class RecordedExecutor:
    """An executor that runs nothing: it notes the ids of the calls it gets and answers with a fixed text."""

    def __init__(self, text: str = "done") -> None:
        self.runs: list[str] = []
        self._text = text

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        self.runs.append(context.call_id)
        return ToolResult(allowed.call.id, allowed.call.name, Status.SUCCESS, (Text(self._text),))

    async def close(self) -> None:
        """Nothing to let go of."""


class FrozenClock:
    """A clock that moves only when told to."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def _reply(line: Line) -> Reply:
    match line:
        case ModelError():
            raise line
        case Reply():
            return line
        case ToolCall():
            return says("", line)
        case list():
            return says("", *line)
        case _:
            return says(line)


def _show(reply: Reply, on_delta: Callable[[Delta], None]) -> None:
    if reply.content:
        on_delta(TextDelta(reply.content))
    for place, one in enumerate(reply.calls):
        on_delta(CallDelta(place, one.name))
