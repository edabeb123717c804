"""Plain types are described without pydantic, and word for word as pydantic describes them."""

import json
import subprocess
import sys
import typing
from typing import Annotated, Any, Literal, TypedDict, Union

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire import Tool, tool
from toolwire.define.fields import Field
from toolwire.define.plain_types import plain_result

WORDS = st.text("abc", min_size=1, max_size=3)
BOUNDS: dict[Any, Any] = {
    int: st.fixed_dictionaries({}, optional={name: st.integers(-9, 9) for name in ("ge", "gt", "le", "lt")}),
    float: st.fixed_dictionaries({}, optional={"ge": st.integers(-9, 9), "le": st.floats(-9, 9)}),
    str: st.fixed_dictionaries({}, optional={"min_length": st.integers(0, 9), "max_length": st.integers(0, 9)}),
    bool: st.just({}),
}
BOUNDS[list] = BOUNDS[dict] = BOUNDS[str]
SCALARS = st.sampled_from([str, int, float, bool])
LITERALS = st.lists(WORDS, min_size=1, unique=True).map(lambda words: Literal[tuple(words)])


@st.composite
def annotations(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Any]:
    """A type with our `Field`s, and the same type with pydantic's."""
    shape = draw(st.sampled_from(["scalar", "literal", "list", "dict", "optional", "union"] if depth else ["scalar"]))
    ours: Any
    theirs: Any
    bounds = {}
    if shape == "scalar":
        ours = theirs = kind = draw(SCALARS)
        bounds = draw(BOUNDS[kind])
    elif shape == "literal":
        ours = theirs = draw(LITERALS)
    elif shape == "union":
        for forget in typing._cleanups:  # type: ignore[attr-defined]
            forget()  # typing takes Union[int, float] for Union[float, int] once it has made that
        ours = theirs = Union[draw(SCALARS), draw(SCALARS), None]  # noqa: UP007 - may be one type twice
    else:
        one, other = draw(annotations(depth - 1))
        ours, theirs = (_around(shape, inner) for inner in (one, other))
        bounds = draw(BOUNDS[list]) if shape in ("list", "dict") else {}
    if said := draw(st.sampled_from(["", "Said."])):
        bounds = {**bounds, "description": said}
    if not bounds:
        return ours, theirs
    return Annotated[ours, Field(**bounds)], Annotated[theirs, pydantic.Field(**bounds)]


def _around(shape: str, inner: Any) -> Any:
    return {"list": list[inner], "dict": dict[str, inner], "optional": inner | None}[shape]


def made(kind: Any, default: Any = ...) -> Tool:
    def without(at: kind) -> kind:
        """Look."""
        return at

    def with_default(at: kind = default) -> kind:
        """Look."""
        return at

    return tool(without if default is ... else with_default, name="look")


def as_text(one: Tool) -> str:
    """Both schemas, with the order of their keys."""
    return json.dumps([one.input_schema, one.output_schema])


@given(annotations())
@settings(max_examples=60, deadline=None)
def test_plain_types_are_described_as_pydantic_does(kinds: tuple[Any, Any]) -> None:
    ours, theirs = kinds

    # An object that says nothing makes a type one that only pydantic can judge.
    assert as_text(made(ours)) == as_text(made(Annotated[theirs, object()]))


@pytest.mark.parametrize(
    "default",
    [None, 0, 1.5, True, "x", [], {}, float("inf"), 1 << 70, (1,), object()],
    ids=lambda default: "object" if type(default) is object else repr(default),
)
def test_defaults_are_shown_as_pydantic_shows_them(default: Any) -> None:
    ours, theirs = made(Any, default), made(Annotated[Any, object()], default)

    assert json.dumps(ours.input_schema) == json.dumps(theirs.input_schema)


class Match(TypedDict):
    line: Annotated[int, Field(description="Its number.")]


class Found(TypedDict):
    best: Annotated[Match, Field(description="The first.")]
    matches: list[Match]
    note: str | None


class Partly(TypedDict, total=False):
    note: str


class Told(TypedDict):
    """What was told."""

    note: str


class Again(TypedDict):
    inner: "list[Again]"


def test_a_typed_dict_is_described_as_pydantic_does() -> None:
    def look() -> Found:
        """Look."""
        raise NotImplementedError

    def look_by_pydantic() -> Annotated[Found, object()]:
        """Look."""
        raise NotImplementedError

    assert plain_result(Found) is not None
    assert json.dumps(tool(look).output_schema) == json.dumps(tool(look_by_pydantic).output_schema)


@pytest.mark.parametrize("kind", [Partly, Told, Again, Annotated[Found, "said"], set[str], tuple[int, ...], bytes])
def test_what_is_not_plain_is_left_to_pydantic(kind: Any) -> None:
    assert plain_result(kind) is None


@pytest.mark.parametrize("kind", [Annotated[str, Field(ge=1)], Annotated[int | str, Field(max_length=1)]])
def test_bounds_that_do_not_fit_a_type_are_left_to_pydantic(kind: Any) -> None:
    assert plain_result(kind) is None


def test_pydantic_understands_our_fields_inside_its_own_types() -> None:
    class Wish(pydantic.BaseModel):
        count: Annotated[int, Field(ge=3, description="How many.")]
        name: Annotated[str, Field(pattern="^a")]

    properties = Wish.model_json_schema()["properties"]

    assert properties["count"] == {"description": "How many.", "minimum": 3, "title": "Count", "type": "integer"}
    assert properties["name"]["pattern"] == "^a"
    with pytest.raises(pydantic.ValidationError):
        Wish(count=2, name="a")


def test_a_tool_of_plain_types_loads_no_pydantic() -> None:
    code = """
import sys
from toolwire import tool

@tool
def add(a: float, b: int = 2, note: str | None = None) -> dict[str, float]:
    '''Add.

    Args:
        a: One.
    '''
    return {"sum": a + b}

assert not any(name.startswith("pydantic") for name in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
