"""What every outbound dialect needs: JSON for any text, ids for the wire, answered calls, the words of a result."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from toolwire.protocol.calls import Image, Text, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Note, ResultsMessage
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool

Json = dict[str, Any]

Made = TypeVar("Made")

KEPT_TOOLS = 1024
LONGEST_ID = 40  # OpenAI refuses longer tool_call_id values
NO_OUTPUT = "(no output)"


def to_json(value: Any) -> bytes:
    """Compact JSON of any value made of JSON types; lone surrogates become U+FFFD. Raises ValueError when it cannot."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError:  # a lone surrogate, an integer beyond 64 bits, or nesting beyond its limit
        return _patient_json(value)


def _patient_json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, RecursionError) as wrong:
        raise ValueError(f"cannot be written as JSON: {wrong}") from None
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return dict(value)
        case set() | frozenset():
            return sorted(value, key=str)
        case _:
            return str(value)


def once_per_tool(write: Callable[[Tool], Made]) -> Callable[[Iterable[Tool]], list[Made]]:
    """The function for lists of tools, remembering what it made of the tools it saw last."""
    made: dict[int, Made] = {}
    seen: dict[int, Tool] = {}  # tools are kept with what was made of them, so no id can be given to another one

    def make(tool: Tool) -> Made:
        if len(made) >= KEPT_TOOLS:
            oldest = next(iter(made))
            del made[oldest], seen[oldest]
        seen[id(tool)] = tool
        made[id(tool)] = write(tool)
        return made[id(tool)]

    def written(tools: Iterable[Tool]) -> list[Made]:
        tools = tuple(tools)
        try:
            return [made[key] for key in map(id, tools)]
        except KeyError:
            return [made[id(tool)] if id(tool) in made else make(tool) for tool in tools]

    return written


def short_id(text: str) -> bool:
    return len(text) <= LONGEST_ID


class CallIds:
    """Chooses the id under which each call of one conversation travels, and remembers it for the result.

    The provider's own id is kept where it fits and is new; otherwise ours is; otherwise one is derived from ours
    (nine hexadecimal digits, which every provider takes).
    """

    def __init__(self, fits: Callable[[str], bool] = short_id) -> None:
        self._fits = fits
        self._taken: set[str] = set()
        self._wire: dict[str, str] = {}

    def claim(self, call: ToolCall) -> str:
        """The wire id of a call that is being written for the first time."""
        chosen = call.alias
        if not chosen or chosen in self._taken or not self._fits(chosen):
            chosen = call.id
            if not chosen or chosen in self._taken or not self._fits(chosen):
                chosen = self._derived(call)
        self._taken.add(chosen)
        self._wire[call.id] = chosen
        return chosen

    def of(self, result: ToolResult) -> str:
        """The wire id of the call that this result answers."""
        return self._wire.get(result.call_id, result.call_id)

    def _derived(self, call: ToolCall) -> str:
        attempt = 0
        while (digest := _digest(f"{call.id}/{attempt}")) in self._taken:
            # Where one id comes again and again, those before it are not tried once more.
            attempt = attempt + 1 if attempt else len(self._taken)
        return digest


def _digest(seed: str) -> str:
    return hashlib.sha256(seed.encode(errors="replace")).hexdigest()[:9]


def answers(message: Message, waiting: Sequence[ToolCall]) -> bool:
    """Whether this message gives each waiting call its one result, in order, as almost every one does."""
    if not isinstance(message, ResultsMessage) or not waiting:
        return False
    results = message.results
    if len(results) == 1:  # as nearly always
        return results[0].call_id == waiting[0].id and len(waiting) == 1
    return [result.call_id for result in results] == [call.id for call in waiting]


def settle(message: Message, waiting: Sequence[ToolCall]) -> tuple[Message, ...]:
    """What to say so that every waiting call is answered once: providers refuse a call without its result.

    A missing result says so; a result without a call becomes a note.
    """
    match message:
        case ResultsMessage(results):
            return _matched(results, waiting)
        case _ if waiting:
            return (ResultsMessage(tuple(_lost(call) for call in waiting)), message)
        case _:
            return (message,)


def _matched(results: tuple[ToolResult, ...], waiting: Sequence[ToolCall]) -> tuple[Message, ...]:
    found = {result.call_id: result for result in reversed(results)}
    answers = tuple(found.pop(call.id) if call.id in found else _lost(call) for call in waiting)
    strays = tuple(Note(f"A result of {stray.name} came on its own: {words(stray)}") for stray in found.values())
    return (ResultsMessage(answers), *strays) if answers else strays


def _lost(call: ToolCall) -> ToolResult:
    return ToolResult.failed(call, Code.OUTCOME_UNKNOWN, "no result of this call was kept")


def words(result: ToolResult) -> str:
    """The result as text: its content, or else its structured output, after the error sentence if it failed."""
    content = result.content
    if len(content) == 1 and type(only := content[0]) is Text and only.text and result.error is None:
        return only.text  # nearly every result
    text = result.text
    if not text and result.structured is not None:
        text = to_json(result.structured).decode()
    if result.error is None:
        return text or NO_OUTPUT
    if result.error.message not in text:
        text = f"{result.error.message}\n{text}".rstrip()
    return f"Error ({result.error.code}): {text}"


def is_failure(result: ToolResult) -> bool:
    return result.is_failure


def images(result: ToolResult) -> Sequence[Image]:
    if len(result.content) == 1 and type(result.content[0]) is Text:  # nearly every result
        return ()
    return [block for block in result.content if isinstance(block, Image)]
