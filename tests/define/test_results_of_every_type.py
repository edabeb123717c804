"""A type that a tool may promise is one that it can return; any other is refused when the tool is defined."""

import dataclasses
import datetime
import enum
import uuid
from collections.abc import Callable
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest
from msgspec import Struct
from pydantic import BaseModel, Field, PlainSerializer, SecretStr

from toolwire import Agent, tool
from toolwire.errors import DefinitionError
from toolwire.testing import ScriptedModel


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Part:
    size: Decimal
    where: Path


class Weight(Struct, frozen=True):
    grams: Decimal
    of: Part


class Order(BaseModel):
    part: Part
    raw: bytes
    when: datetime.timedelta = Field(alias="took")


class Point(NamedTuple):
    x: int
    y: int


class Row(TypedDict):
    price: Decimal


PART = Part(Decimal("1.50"), Path("/a"))
ORDER = Order(part=PART, raw=b"x", took=datetime.timedelta(1))
CASES: list[tuple[Any, Any, Any]] = [
    (Decimal, Decimal("1.50"), "1.50"),
    (Path, Path("/a/b"), "/a/b"),
    (bytes, b"abc", "abc"),
    (bytes, b"\xff\x00", "data:application/octet-stream;base64,/wA="),
    (bytearray, bytearray(b"abc"), "abc"),
    (datetime.datetime, datetime.datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"),
    (datetime.date, datetime.date(2026, 1, 2), "2026-01-02"),
    (datetime.timedelta, datetime.timedelta(seconds=5), "PT5S"),
    (uuid.UUID, uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (Colour, Colour.RED, "red"),
    (Part, PART, {"size": "1.50", "where": "/a"}),
    (Weight, Weight(Decimal(2), PART), {"grams": "2", "of": {"size": "1.50", "where": "/a"}}),
    (list[Weight], [Weight(Decimal(2), PART)], [{"grams": "2", "of": {"size": "1.50", "where": "/a"}}]),
    (Order, ORDER, {"part": {"size": "1.50", "where": "/a"}, "raw": "x", "took": "P1D"}),
    (Row, {"price": Decimal(2)}, {"price": "2"}),
    (Point, Point(1, 2), [1, 2]),
    (set[int], {3, 1}, [1, 3]),
    (frozenset[Path], frozenset({Path("b"), Path("a")}), ["a", "b"]),
    (list[Path], [Path("a")], ["a"]),
    (dict[str, Decimal], {"a": Decimal(1)}, {"a": "1"}),
    (dict[Path, int], {Path("a"): 1}, {"a": 1}),
    (tuple[Decimal, ...], (Decimal(1),), ["1"]),
    (Decimal | None, Decimal(1), "1"),
    (Decimal | Path, Path("a"), "a"),
    (complex, 1 + 2j, "1+2j"),
    (IPv4Address, IPv4Address("10.0.0.1"), "10.0.0.1"),
    (SecretStr, SecretStr("hidden"), "**********"),
    (Annotated[datetime.date, PlainSerializer(lambda day: day.year, return_type=int)], datetime.date(2026, 1, 2), 2026),
    (list[Annotated[Colour, PlainSerializer(lambda colour: colour.name, return_type=str)]], [Colour.RED], ["RED"]),
    (Any, Decimal(1), "1"),
    (None, [Path("a"), b"x", {Path("k"): 1}], ["a", "x", {"k": 1}]),
]  # fmt: skip


def returning(annotation: Any, value: Any) -> Callable[[], Any]:
    def give() -> Any:
        """Give it."""
        return value

    give.__annotations__ = {} if annotation is None else {"return": annotation}
    return give


@pytest.mark.parametrize(("annotation", "value", "plain"), CASES, ids=[str(case[0])[:40] for case in CASES])
async def test_a_result_of_this_type_is_shown(annotation: Any, value: Any, plain: Any) -> None:
    async with Agent(ScriptedModel("x"), [tool(returning(annotation, value))]) as agent:
        result = await agent.call("give", {})
    assert (result.status, result.structured, result.error) == ("success", plain, None)


async def test_bytes_in_a_model_that_are_no_text_are_shown_too() -> None:
    order = Order(part=PART, raw=b"\xff", took=datetime.timedelta(1))
    async with Agent(ScriptedModel("x"), [tool(returning(Order, order))]) as agent:
        result = await agent.call("give", {})
    assert (result.status, result.structured["raw"]) == ("success", "data:application/octet-stream;base64,/w==")


class Handle:
    """Nothing says how this becomes JSON."""


@pytest.mark.parametrize("annotation", [Handle, list[Handle], Handle | None, dict[str, Handle], Callable[[], int]])
def test_a_result_that_could_never_be_shown_is_refused_at_definition(annotation: Any) -> None:
    with pytest.raises(DefinitionError, match=r"tool 'give' returns .*, which has no JSON form"):
        tool(returning(annotation, None))


async def test_an_unannotated_result_without_json_says_that_the_tool_has_run() -> None:
    async with Agent(ScriptedModel("x"), [tool(returning(None, Handle()))]) as agent:
        result = await agent.call("give", {})
    assert result.status == "failed"
    assert "the tool has run, but it returned a value of type Handle" in result.text
