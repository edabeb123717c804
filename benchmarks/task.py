"""The work that every loop does in the benchmarks: the same tools, the same calls, the same answer, no waiting."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Protocol

import orjson

SYSTEM = "You are a careful weather assistant. Use the tools and answer in one sentence."
QUESTION = "How will the weather be in the cities of the list?"
ANSWER = "It will be mild and dry everywhere."
DESCRIPTION = "Look up the weather forecast of one city for some days."

Lookup = Callable[..., Awaitable[str]]
Run = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Shape:
    """One run: how many turns use tools, how many calls each of them makes, and how many tools are registered."""

    turns: int
    parallel: int = 1
    tools: int = 2

    @property
    def model_calls(self) -> int:
        """Every turn asks the model once, and the answer is one more."""
        return self.turns + 1

    @property
    def tool_calls(self) -> int:
        return self.turns * self.parallel


SHAPES = {
    "one": Shape(1),
    "wide": Shape(1, parallel=16),
    "ten": Shape(10),
    "many_tools": Shape(10, tools=200),
    "hundred": Shape(100),
    "two_hundred": Shape(200),
}


class Subject(Protocol):
    """A module that can do the work its own way."""

    def prepare(self, shape: Shape) -> Run:
        """Set up what lives longer than one run, and give back the run."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as the model writes it."""

    id: str
    name: str
    arguments: str


class Weather:
    """What every tool asks; `asked` counts how often, so that no framework skips its work unnoticed."""

    asked = 0

    def forecast(self, city: str, days: int, units: str) -> str:
        """About a hundred bytes."""
        self.asked += 1
        return f"{city}: mild and dry for {days} days ({units}); wind from the west, little cloud, no cause for worry."


WEATHER = Weather()


def functions(count: int) -> list[Lookup]:
    """The tools, as plain functions."""
    return [_function(f"lookup_{number}") for number in range(count)]


def _function(name: str) -> Lookup:
    async def lookup(city: str, days: int, units: str = "metric") -> str:
        return WEATHER.forecast(city, days, units)

    lookup.__name__ = lookup.__qualname__ = name
    lookup.__doc__ = DESCRIPTION
    return lookup


def schema() -> dict[str, Any]:
    """The parameters of every tool, for those who write schemas by hand."""
    properties = {"city": {"type": "string"}, "days": {"type": "integer"}, "units": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": ["city", "days"], "additionalProperties": False}


def script(shape: Shape) -> Iterator[tuple[Asked, ...]]:
    """What the model asks for at each step, run after run; nothing means that it answers."""
    steps = [tuple(_asked(turn, place) for place in range(shape.parallel)) for turn in range(shape.turns)]
    return cycle([*steps, ()])


def _asked(turn: int, place: int) -> Asked:
    arguments = {"city": f"City {turn}-{place}", "days": 3 + place, "units": "metric"}
    return Asked(f"call_{turn}_{place}", f"lookup_{place % 2}", orjson.dumps(arguments).decode())
