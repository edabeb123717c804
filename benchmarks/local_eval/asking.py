"""One request put to a model as the runtime would: its calls get results until it answers."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from benchmarks.local_eval.judging import avoids, call_right, computed, declines, owns_up, says
from benchmarks.local_eval.rows import Row, Wanted
from toolwire.disclose.likely import likeliest, wish_of
from toolwire.errors import ModelError
from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import ChatModel, Message, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Tool


@dataclass(slots=True)
class Played:
    """How a request went: what was called and said, what of it was right, and how long each reply took."""

    row: Row
    size: int
    shown: bool = True
    known_tools: bool = False
    called: list[ToolCall] = field(default_factory=list)
    said: str = ""
    tool: bool = True
    arguments: bool = True
    answer: bool = False
    too_many: bool = False
    seconds: list[float] = field(default_factory=list)

    @property
    def calls_right(self) -> bool:
        return self.tool and self.arguments

    @property
    def right(self) -> bool:
        return self.calls_right and self.answer

    def told(self) -> str:
        """What the model did, in one line."""
        calls = "; ".join(f"{call.name} {json.dumps(dict(call.arguments), ensure_ascii=False)}" for call in self.called)
        return f"{self.row.id} {self.row.say!r}: {calls or 'no call'} -> {self.said[:120]!r}"


class Conversation:
    """A request on its way: the messages so far and the calls that are still wanted."""

    def __init__(self, model: ChatModel, row: Row, tools: Sequence[Tool]) -> None:
        self.model = model
        self.messages: list[Message] = [*_earlier(row), UserMessage(row.say)]
        self.tools = shown(model, tools, self.messages)
        self.by_name = {tool.name: tool for tool in tools}
        seen = {tool.name for tool in self.tools}
        self.played = Played(row, len(tools), shown=all(wanted.tool in seen for wanted in row.wanted))
        self.steps = [list(step) for step in row.steps]

    async def play(self) -> Played:
        """Ask, give results and ask on, until the model answers or goes astray."""
        try:
            while await self._goes_on():
                pass
        except ModelError as error:
            self.played.tool = False
            self.played.said = f"({error})"
        self.played.answer = answer_right(self.played)
        return self.played

    async def _goes_on(self) -> bool:
        began = time.perf_counter()
        reply = await self.model.ask(Request(tuple(self.messages), self.tools, conversation=self.played.row.id))
        self.played.seconds.append(time.perf_counter() - began)
        if not reply.calls:
            self.played.said = reply.content.strip()
            self.played.tool = self.played.tool and not self.steps
            return False
        calls = tuple(
            replace(call, id=f"call-{len(self.played.called) + place}") for place, call in enumerate(reply.calls)
        )
        self.played.called += calls
        results = [self._result(call) for call in calls]
        self.steps = [step for step in self.steps if step]
        self.messages += [
            replace(reply, calls=calls),
            ResultsMessage(tuple(result for result in results if result is not None)),
        ]
        return self.played.tool

    def _result(self, call: ToolCall) -> ToolResult | None:
        """The result of a wanted call; None for one that nobody wanted."""
        if not self.steps:
            self.played.too_many = True
        wanted = self._wanted(call) if self.steps else None
        if wanted is None:
            self.played.tool = False
            return None
        right = call_right(self.by_name[call.name], wanted.arguments, call.arguments)
        self.played.arguments = self.played.arguments and right
        self.steps[0].remove(wanted)
        return result_of(call, wanted)

    def _wanted(self, call: ToolCall) -> Wanted | None:
        """The wanted call of this step that it is, or is meant to be."""
        same = [wanted for wanted in self.steps[0] if wanted.tool == call.name]
        exact = (one for one in same if call_right(self.by_name[call.name], one.arguments, call.arguments))
        return next(exact, same[0] if same else None)


def shown(model: ChatModel, tools: Sequence[Tool], messages: Sequence[Message]) -> tuple[Tool, ...]:
    """The tools that the runtime would show this model: where it knows too few, those most likely meant."""
    most: int | None = getattr(model, "most_tools", None)
    return tuple(tools) if most is None else likeliest(tools, wish_of(messages), most)


def result_of(call: ToolCall, wanted: Wanted) -> ToolResult:
    """What the tool answers: what the row says, or for a calculator what comes out."""
    match wanted.result:
        case None:
            value = computed(str(call.arguments.get("expression", "")))
            if value is None:
                return ToolResult.failed(call, Code.INVALID_PARAMS, "the expression cannot be computed")
            return _success(call, {"result": int(value) if value.is_integer() else value})
        case {"error": str(message)}:
            return ToolResult.failed(call, Code.EXECUTION_FAILED, message)
    return _success(call, wanted.result)


def _success(call: ToolCall, value: Any) -> ToolResult:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    structured = None if isinstance(value, str) else value
    return ToolResult(call.id, call.name, Status.SUCCESS, (Text(text),), structured=structured)


def _earlier(row: Row) -> list[Message]:
    messages: list[Message] = []
    for place, said in enumerate(row.before):
        match said:
            case ["user", str(text)]:
                messages.append(UserMessage(text))
            case ["reply", str(text)]:
                messages.append(Reply(text))
            case ["call", str(name), dict(arguments), result]:
                call = ToolCall(name, arguments, id=f"earlier-{place}")
                messages += [
                    Reply(calls=(call,)),
                    ResultsMessage((result_of(call, Wanted(name, arguments, result)),)),
                ]
    return messages


def answer_right(played: Played) -> bool:
    """Whether the last words are what the row asks for: the result, an honest refusal, or just something said."""
    row, said = played.row, played.said
    if not said or not avoids(said, row.never):
        return False
    if row.group == "cannot":
        return declines(said)
    return owns_up(said) if row.admit else says(said, row.answer)
