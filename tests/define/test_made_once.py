"""What pydantic makes of a signature is made once for all functions that have it, and for no other."""

from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge
from pydantic import BaseModel, Field

from toolwire import Tool, tool


def made(kind: Any) -> Tool:
    """A tool with one parameter of this type, as a factory makes it."""

    def look(at: kind) -> dict[str, kind]:
        """Look."""
        return {"seen": at}

    return tool(look)


ALIKE = [
    (Annotated[int, Ge(1)], Annotated[int, Ge(2)]),
    (Annotated[float, Ge(1)], Annotated[float, Ge(1.5)]),
    (Literal[1], Literal[True]),
    (Annotated[str, "one"], Annotated[str, "other"]),
    (Annotated[int, Field(gt=1)], Annotated[int, Field(gt=2)]),
    (list[int], list[bool]),
]


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=str)
def test_tools_whose_types_are_alike_keep_their_own_schemas(one: Any, other: Any) -> None:
    first, second, again = made(one), made(other), made(one)

    assert first.input_schema != second.input_schema
    assert (first.input_schema, first.output_schema) == (again.input_schema, again.output_schema)


def test_a_schema_that_is_changed_does_not_change_that_of_another_tool() -> None:
    first = made(Annotated[int, Ge(7)])
    first.input_schema["properties"]["at"]["minimum"] = 0

    assert made(Annotated[int, Ge(7)]).input_schema["properties"]["at"]["minimum"] == 7


def test_a_name_means_what_it_means_where_the_function_stands() -> None:
    def number() -> Tool:
        class Wish(BaseModel):
            count: int

        def look(at: "Wish") -> str:
            """Look."""
            return str(at.count)

        return tool(look)

    def word() -> Tool:
        class Wish(BaseModel):
            name: str

        def look(at: "list[Wish]") -> str:
            """Look."""
            return at[0].name

        return tool(look)

    def other_number() -> Tool:
        class Wish(BaseModel):
            size: float

        def look(at: "Wish") -> str:
            """Look."""
            return str(at.size)

        return tool(look)

    found = [str(make().input_schema) for make in (number, word, other_number, number)]

    assert ["count" in each for each in found] == [True, False, False, True]
    assert ["name" in each for each in found] == [False, True, False, False]
    assert ["size" in each for each in found] == [False, False, True, False]
