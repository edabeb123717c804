"""Requests that want a tool, with the arguments they give: what the embedded model learns a tool from. Pure.

Phrases for the built-in tools are written down here, in the words people use; any other tool is shown by its
description and the arguments of its own examples, or by sample arguments that fit its schema.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolwire.protocol.tools import Tool

EXAMPLES_PER_TOOL = 3
PURPOSE_CHARS = 100


@dataclass(frozen=True, slots=True)
class Example:
    """A request that wants a tool, and the arguments it gives."""

    request: str
    arguments: Mapping[str, Any]


Phrases = Mapping[str, tuple[Example, ...]]

PHRASES: Phrases = {
    "calculator": (
        Example("What is 7 * 8?", {"expression": "7 * 8"}),
        Example("How much is 12 plus 30?", {"expression": "12 + 30"}),
        Example("Calculate 45 / 9", {"expression": "45 / 9"}),
    ),
    "echo": (
        Example("Echo good night", {"message": "good night"}),
        Example("Say again: I like tea", {"message": "I like tea"}),
        Example("Echo the word sunshine", {"message": "sunshine"}),
    ),
    "random": (
        Example("Pick a random number from 1 to 9", {"min": 1, "max": 9}),
        Example("Give me 2 random numbers between 30 and 40", {"min": 30, "max": 40, "count": 2}),
        Example("Give me 4 random numbers between 10 and 60", {"min": 10, "max": 60, "count": 4}),
    ),
    "timer": (
        Example("Wait 7 seconds", {"seconds": 7}),
        Example("Set a timer for 8 seconds", {"seconds": 8}),
        Example("Start a 20 second timer", {"seconds": 20}),
    ),
    "read": (
        Example("Read the file story.txt", {"path": "story.txt"}),
        Example("What is in the file list.md?", {"path": "list.md"}),
        Example("Show me the contents of app.py", {"path": "app.py"}),
    ),
}

DEMO_QUESTIONS = ("What is 23*19?", "What is 2 to the power of 10?", "Give me a random number between 1 and 6")
"""Questions to begin with, which the model gets right with the built-in tools."""

SMALL_TALK = ("Hello! Nice to meet you.", "What is the capital of Spain?", "Thanks, you are kind.")


def requests_of(tool: Tool, phrases: Phrases = PHRASES) -> tuple[str, ...]:
    """Three ways in which a person would ask for the tool."""
    known = [example.request for example in phrases.get(tool.name, ()) if _fits(example.arguments, tool)]
    if known:
        return tuple(known[:EXAMPLES_PER_TOOL])
    purpose = _purpose(tool) or _spoken(tool)
    values = " ".join(str(value)[:80] for value in _samples(tool)[0].values())
    return purpose, f"Please {_spoken(tool)} {values}".rstrip(), f"I want to {purpose[:1].lower()}{purpose[1:]}"


def examples_of(tool: Tool, phrases: Phrases = PHRASES) -> tuple[Example, ...]:
    """Up to three worked examples of the tool, always the same ones."""
    known = [example for example in phrases.get(tool.name, ()) if _fits(example.arguments, tool)]
    return tuple(known[:EXAMPLES_PER_TOOL]) or _made(tool)


def _fits(arguments: Mapping[str, Any], tool: Tool) -> bool:
    """Whether a tool of this name is the one that the phrase was written for, by the names of its arguments."""
    properties, required = _named(tool)
    return arguments.keys() <= properties.keys() and set(required) <= arguments.keys()


def _named(tool: Tool) -> tuple[Mapping[str, Any], list[str]]:
    properties = tool.input_schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = tool.input_schema.get("required")
    return properties, [key for key in required if key in properties] if isinstance(required, list) else []


def _made(tool: Tool) -> tuple[Example, ...]:
    purpose = _purpose(tool) or _spoken(tool)
    openings = (purpose, f"{_spoken(tool)}:", purpose)
    return tuple(
        Example(f"{opening} {_listed(sample)}".strip(), sample)
        for opening, sample in zip(openings, _samples(tool), strict=False)
    )


def _samples(tool: Tool) -> list[Mapping[str, Any]]:
    given = [example for example in tool.examples if _fits(example, tool)]
    return [*given[:EXAMPLES_PER_TOOL], _sample_arguments(tool, 0), _sample_arguments(tool, 1)][:EXAMPLES_PER_TOOL]


def _spoken(tool: Tool) -> str:
    return tool.name.replace("_", " ").replace("-", " ")


def _purpose(tool: Tool) -> str:
    """The first sentence of the description, on one line."""
    line = " ".join(tool.description[:1000].split())
    return line.split(". ")[0].rstrip(".")[:PURPOSE_CHARS]


def _listed(arguments: Mapping[str, Any]) -> str:
    if len(arguments) == 1:
        return " ".join(str(value)[:80] for value in arguments.values())
    return ", ".join(f"{key} {str(value)[:80]}" for key, value in arguments.items())


_SAMPLES: Mapping[str, tuple[Any, Any]] = {
    "string": ("blue", "garden"),
    "integer": (7, 30),
    "number": (7, 2.5),
    "boolean": (True, False),
    "array": ([], []),
    "object": ({}, {}),
}


def _sample_arguments(tool: Tool, which: int) -> dict[str, Any]:
    properties, required = _named(tool)
    return {key: _sample(properties[key], which) for key in required or list(properties)[:2]}


def _sample(schema: Any, which: int) -> Any:
    match schema:
        case {"enum": [first, *more]} | {"examples": [first, *more]}:
            return more[0] if more and which else first
        case {"const": constant}:
            return constant
        case {"type": str(kind)} if kind in _SAMPLES:
            return _SAMPLES[kind][which]
    return _SAMPLES["string"][which]
