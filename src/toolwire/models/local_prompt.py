"""What the embedded model is shown. Pure text: worked examples, then the request.

A model this small does not follow instructions; it continues patterns. So a tool is shown by requests that want it,
its arguments by requests and the arguments they gave, and an answer by questions with their results.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolwire.models.local_examples import EXAMPLES_PER_TOOL, PHRASES, SMALL_TALK, Phrases, examples_of, requests_of
from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import Message, Reply, UserMessage
from toolwire.protocol.tools import Tool

REQUEST_CHARS = 400
RESULT_CHARS = 1200
SYSTEM_CHARS = 400
SHOTS_CHARS = 6000
PERSONA = "You are a helpful AI assistant."

Shots = tuple[tuple[str, str], ...]


def flat(text: str, limit: int) -> str:
    """The text on one line, its middle cut out where it is longer than the limit."""
    line = " ".join(text[: 2 * limit].split())
    if len(line) <= limit and len(text) <= 2 * limit:
        return line
    return f"{line[: limit // 2]} … {' '.join(text[-limit:].split())[-(limit // 2) :]}"


def no_tool_label(tools: Iterable[Tool]) -> str:
    """The word for "no tool", made different from every tool's name."""
    label = "chat"
    names = {tool.name for tool in tools}
    while label in names:
        label += "-"
    return label


def choice_shots(tools: Sequence[Tool], phrases: Phrases = PHRASES) -> Shots:
    """Requests with the tool they want, the tools taking turns so that none stands out by its place.

    With very many tools the last ones are not shown; they can still be named.
    """
    piles = [(tool.name, requests_of(tool, phrases)) for tool in tools]
    piles.append((no_tool_label(tools), SMALL_TALK))
    shots: list[tuple[str, str]] = []
    for row in range(EXAMPLES_PER_TOOL):
        order = piles if row % 2 == 0 else piles[::-1]
        shots += [(flat(requests[row], REQUEST_CHARS), label) for label, requests in order if row < len(requests)]
    return tuple(_within(shots, SHOTS_CHARS))


def _within(shots: list[tuple[str, str]], budget: int) -> Iterator[tuple[str, str]]:
    for text, label in shots:
        budget -= len(text) + len(label) + len("Request: \nTool: \n\n")
        if budget < 0:
            return
        yield text, label


def choice_prompt(shots: Shots, request: str) -> str:
    """Ends where the model would name the tool."""
    shown = "".join(f"Request: {text}\nTool: {label}\n\n" for text, label in shots)
    return f"{shown}Request: {flat(request, REQUEST_CHARS)}\nTool:"


def arguments_prompt(tool: Tool, request: str, phrases: Phrases = PHRASES) -> str:
    """Ends where the model would write the arguments."""
    examples = examples_of(tool, phrases)
    shown = "".join(f"Request: {one.request}\n{tool.name}: {_json(one.arguments)}\n\n" for one in examples)
    return f"{shown}Request: {flat(request, REQUEST_CHARS)}\n{tool.name}: "


_TOLD = (
    ("What is 7 * 8?", "56", "The result is 56."),
    ("Show me city.txt", "Lisbon is sunny.", "The result is: Lisbon is sunny."),
    ("Pick 2 numbers", "4, 9", "The result is 4, 9."),
    ("Echo good night", "good night", "The result is: good night"),
)


def result_prompt(request: str, result: str) -> str:
    """Ends where the model would tell the result of a tool to the person who asked."""
    shown = "".join(f"Question: {ask}\nResult: {found}\nAnswer: {told}\n\n" for ask, found, told in _TOLD)
    return f"{shown}Question: {flat(request, REQUEST_CHARS)}\nResult: {flat(result, RESULT_CHARS)}\nAnswer:"


def gist(call: ToolCall | None, result: ToolResult) -> str:
    """What of a result is worth telling, in few words.

    Of an object, members that only repeat the call's arguments, flags and empty ones are left out; where a text
    leads what remains, it is the result, else the rest is listed by name.
    """
    if not isinstance(result.structured, Mapping) or not result.ok:
        return result.text
    given = list(call.arguments.values()) if call else []
    news: dict[str, str] = {}  # by what it says: of two members that say the same, the first names it
    for key, value in result.structured.items():
        if _is_news(value, given):
            news.setdefault(_shown(value), key)
    match [(key, text) for text, key in news.items()]:
        case []:
            return ", ".join(_shown(value) for value in list(result.structured.values())[:1])
        case [(key, first), *more] if not more or isinstance(result.structured[key], str):
            return first
    return ", ".join(f"{key} {text}" for text, key in news.items())


def _is_news(value: Any, given: list[Any]) -> bool:
    return not isinstance(value, bool) and value not in (None, "", [], {}) and value not in given


def _shown(value: Any) -> str:
    match value:
        case str():
            return value
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case list():
            return ", ".join(_shown(item) for item in value[:100])
    return _json(value)


def said(role: str, text: str) -> str:
    """One message in the model's own chat format; the text cannot break out of it."""
    return f"<|im_start|>{role}\n{text.replace('<|', '< |')}<|im_end|>\n"


def spoken(message: Message) -> str:
    """A message of a plain conversation; empty for what is not said between people and model."""
    match message:
        case UserMessage(text):
            return said("user", text)
        case Reply(content=content) if content:
            return said("assistant", content)
    return ""


def chat_prompt(system: str, messages: Sequence[Message]) -> str:
    """A plain conversation, ending where the model would speak."""
    opening = said("system", flat(system, SYSTEM_CHARS) or PERSONA)
    return opening + "".join(spoken(message) for message in messages) + "<|im_start|>assistant\n"


def _json(value: Any) -> str:
    return json.dumps(dict(value) if isinstance(value, Mapping) else value, ensure_ascii=False, default=str)
