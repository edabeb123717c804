"""What the embedded model is shown. Pure text: worked examples, then the request.

A model this small does not follow instructions; it continues patterns. So a tool is shown by requests that want it,
its arguments by requests and the arguments they gave, and an answer by questions with their results.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolwire.protocol.chat import Message, Reply, UserMessage
from toolwire.protocol.tools import Tool

EXAMPLES_PER_TOOL = 3
REQUEST_CHARS = 600
RESULT_CHARS = 1200
SYSTEM_CHARS = 600
PERSONA = "You are a helpful AI assistant."

SMALL_TALK = (
    "Hello! Nice to meet you.",
    "What is the capital of Spain?",
    "Who wrote Hamlet?",
)


@dataclass(frozen=True, slots=True)
class Example:
    """A request that wants a tool, and the arguments it gave."""

    request: str
    arguments: Mapping[str, Any]


def examples_of(tool: Tool) -> tuple[Example, ...]:
    """The tool's own worked examples (`{"request": …, "input": {…}}`), or ones made from its schema."""
    own = [Example(example["request"], example["input"]) for example in tool.examples if _is_worked(example)]
    return tuple(own[:EXAMPLES_PER_TOOL]) or _made_examples(tool)


def _is_worked(example: Any) -> bool:
    match example:
        case {"request": str(), "input": Mapping()}:
            return True
    return False


def _made_examples(tool: Tool) -> tuple[Example, ...]:
    purpose = flat(tool.description, 120).split(". ")[0].rstrip(".") or tool.name
    spoken = tool.name.replace("_", " ").replace("-", " ")
    samples = (_sample_arguments(tool, 0), _sample_arguments(tool, 1))
    return tuple(
        Example(" ".join([words, *(str(value) for value in sample.values())]), sample)
        for words, sample in zip((spoken, purpose), samples, strict=True)
    )


_SAMPLES: Mapping[str, tuple[Any, Any]] = {
    "string": ("blue", "garden"),
    "integer": (7, 30),
    "number": (7, 2.5),
    "boolean": (True, False),
    "array": ([], []),
    "object": ({}, {}),
}


def _sample_arguments(tool: Tool, which: int) -> dict[str, Any]:
    properties = tool.input_schema.get("properties") or {}
    required = tool.input_schema.get("required") or list(properties)[:2]
    return {key: _sample(properties[key], which) for key in required if key in properties}


def _sample(schema: Any, which: int) -> Any:
    match schema:
        case {"enum": [first, *more]}:
            return more[0] if more and which else first
        case {"examples": [first, *more]}:
            return more[0] if more and which else first
        case {"type": str(kind)} if kind in _SAMPLES:
            return _SAMPLES[kind][which]
    return "blue"


def flat(text: str, limit: int) -> str:
    """The text on one line, its middle cut out where it is longer than the limit."""
    line = " ".join(text[: 4 * limit].split())
    if len(line) <= limit and len(text) <= 4 * limit:
        return line
    return f"{line[: limit // 2]} … {' '.join(text[-limit:].split())[-(limit // 2) :]}"


def said(role: str, text: str) -> str:
    """One message in the model's own chat format; the text cannot break out of it."""
    return f"<|im_start|>{role}\n{text.replace('<|', '< |')}<|im_end|>\n"


def asked_of(role: str) -> str:
    return f"<|im_start|>{role}\n"


def no_tool_label(tools: Iterable[Tool]) -> str:
    """The word for "no tool", made different from every tool's name."""
    label = "none"
    names = {tool.name for tool in tools}
    while label in names:
        label += "-"
    return label


def choice_shots(tools: Sequence[Tool]) -> list[tuple[str, str]]:
    """Requests with the tool they want, the tools taking turns so that none stands out by its place."""
    piles = [(tool.name, [example.request for example in examples_of(tool)]) for tool in tools]
    piles.append((no_tool_label(tools), list(SMALL_TALK)))
    shots: list[tuple[str, str]] = []
    for row in range(EXAMPLES_PER_TOOL):
        order = piles if row % 2 == 0 else piles[::-1]
        shots += [(requests[row], label) for label, requests in order if row < len(requests)]
    return shots


def choice_prompt(shots: Sequence[tuple[str, str]], request: str) -> str:
    """Ends where the model would name the tool."""
    shown = "".join(f"Request: {flat(text, REQUEST_CHARS)}\nTool: {label}\n\n" for text, label in shots)
    return f"{shown}Request: {flat(request, REQUEST_CHARS)}\nTool:"


def arguments_prompt(tool: Tool, request: str) -> str:
    """Ends where the model would write the arguments."""
    shown = "".join(f"Request: {one.request}\n{tool.name}: {_json(one.arguments)}\n\n" for one in examples_of(tool))
    return f"{shown}Request: {flat(request, REQUEST_CHARS)}\n{tool.name}: "


_ANSWERED = (
    ("What is 7 * 8?", "56", "7 * 8 is 56."),
    ("Which city has the file city.txt?", "Lisbon", "The file city.txt has Lisbon."),
)


def result_prompt(request: str, result: str) -> str:
    """Ends where the model would tell the result of a tool to the person who asked."""
    shown = "".join(f"Question: {ask}\nResult: {found}\nAnswer: {told}\n\n" for ask, found, told in _ANSWERED)
    return f"{shown}Question: {flat(request, REQUEST_CHARS)}\nResult: {flat(result, RESULT_CHARS)}\nAnswer:"


def chat_prompt(system: str, messages: Sequence[Message]) -> str:
    """A plain conversation, ending where the model would speak."""
    opening = said("system", flat(system, SYSTEM_CHARS) or PERSONA)
    return opening + "".join(spoken(message) for message in messages) + asked_of("assistant")


def spoken(message: Message) -> str:
    match message:
        case UserMessage(text):
            return said("user", text)
        case Reply(content=content) if content:
            return said("assistant", content)
    return ""


def _json(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), ensure_ascii=False)
