"""A typed function becomes a tool: its schema, its descriptions, and how it is called."""

import asyncio
import dataclasses
import datetime
import decimal
import enum
import functools
import pathlib
import typing
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import pytest
from pydantic import AfterValidator, BaseModel, Field

from toolwire.agent import Agent
from toolwire.define.arguments import Checker
from toolwire.define.functions import from_schema, tool
from toolwire.errors import DefinitionError, ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Delivery, Effect, InProcess, Tier, Tool
from toolwire.testing import ScriptedModel


def call(made: Tool, context: Context | None = None, /, **arguments: Any) -> Any:
    """Check the arguments as a runtime would, then call the tool with them."""
    assert isinstance(made.target, InProcess)
    checked = Checker(made).check(arguments)
    assert checked.faults == ()
    return made.target.invoke(checked.arguments, context or Context())


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Address(BaseModel):
    street: str = Field(description="Street and number.")
    city: str = "Paris"


class Span(NamedTuple):
    first: int
    last: int


class Window(typing.TypedDict, total=False):
    start: typing.Required[int]
    end: int


@pytest.mark.feature("F042")
def test_the_input_schema_follows_from_the_signature() -> None:
    @tool
    def read(path: str, offset: int = 0, follow: bool = False) -> str:
        """Read a file."""
        return path

    assert read.input_schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "offset": {"type": "integer", "default": 0},
            "follow": {"type": "boolean", "default": False},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


@pytest.mark.feature("F044")
def test_both_schemas_carry_required_lists() -> None:
    @tool
    def locate(place: str, near: Point | None = None) -> Address:
        """Find an address."""
        return Address(street=place)

    assert locate.input_schema["required"] == ["place"]
    assert locate.output_schema is not None
    assert locate.output_schema["required"] == ["street"]


@pytest.mark.feature("F059")
def test_defaults_are_in_the_schema_and_are_left_to_the_function() -> None:
    seen: list[Any] = []

    @tool
    def paint(
        color: Color = Color.BLUE, since: datetime.date = datetime.date(2024, 2, 29), tags: tuple[str, ...] = ()
    ) -> None:
        """Paint it."""
        seen.extend([color, since, tags])

    properties = paint.input_schema["properties"]
    assert [properties[name]["default"] for name in properties] == ["blue", "2024-02-29", []]
    call(paint)
    assert seen == [Color.BLUE, datetime.date(2024, 2, 29), ()]


@pytest.mark.parametrize(
    ("annotation", "given", "received"),
    [
        (Point, {"x": 1}, Point(1)),
        (list[Point], [{"x": 1, "y": 2}], [Point(1, 2)]),
        (Address, {"street": "1 Main"}, Address(street="1 Main")),
        (Span, [1, 2], Span(1, 2)),
        (Window, {"start": 1}, {"start": 1}),
        (dict[str, Window], {"a": {"start": 1, "end": 2}}, {"a": {"start": 1, "end": 2}}),
        (Color, "red", Color.RED),
        (Literal["a", 2], 2, 2),
        (Optional[Color], None, None),  # noqa: UP045
        (int | str, "5", "5"),
        (set[int], [1, 2, 1][:2], {1, 2}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (datetime.datetime, "2024-01-02T03:04:05Z", datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
        (datetime.datetime, "2024-01-02T03:04", datetime.datetime(2024, 1, 2, 3, 4)),
        (datetime.time, "03:04:05", datetime.time(3, 4, 5)),
        (datetime.timedelta, "PT90S", datetime.timedelta(seconds=90)),
        (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
        (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
        (pathlib.Path, "a/b", pathlib.Path("a/b")),
        (float, 3, 3.0),
        (Any, [1, "x"], [1, "x"]),
    ],
)
def test_plain_json_arrives_as_the_annotated_type(annotation: Any, given: Any, received: Any) -> None:
    def echo(value: Any) -> Any:
        """Echo."""
        return value

    echo.__annotations__["value"] = annotation
    got = call(tool(echo), value=given)
    assert got == received
    assert type(got) is type(received)


def test_schemas_carry_no_titles_but_keep_properties_of_that_name() -> None:
    @tool
    def publish(title: str, address: Address) -> Address:
        """Publish it."""
        return address

    assert set(publish.input_schema["properties"]) == {"title", "address"}
    assert publish.input_schema["properties"]["title"] == {"type": "string"}
    assert "title" not in str(publish.output_schema)


GOOGLE = """Find things.

Over more than one line.

Args:
    what: The thing,
        however small.
    limit (int): How many at most.

Returns:
    The things found.
"""
NUMPY = """Find things.

Parameters
----------
what : str
    The thing,
    however small.
limit : int
    How many at most.

Returns
-------
list
    The things found.
"""
SPHINX = """Find things.

:param what: The thing,
    however small.
:param int limit: How many at most.
:returns: The things found.
"""


@pytest.mark.feature("F045")
@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_every_property_has_a_type_and_the_description_of_its_docstring(docstring: str) -> None:
    def find(what: str, limit: int = 3) -> list[str]:
        return [what] * limit

    find.__doc__ = docstring
    found = tool(find)
    assert found.description == "Find things."
    assert found.input_schema["properties"] == {
        "what": {"type": "string", "description": "The thing, however small."},
        "limit": {"type": "integer", "description": "How many at most.", "default": 3},
    }
    assert found.output_schema == {"type": "array", "items": {"type": "string"}, "description": "The things found."}


def test_docstrings_are_read_as_people_write_them() -> None:
    def work(first: int, second: int, rest: int = 0) -> dict[str, int]:
        """Do the work,
        all of it.

        Note: a colon in prose is no heading.

        Args:
            first (Callable[[int], str], optional): A value: with a colon.

                And a second paragraph.
            second: Another.

        Raises:
            ValueError: If there is none.

        Returns:
            dict[str, int]: What was done.
        """
        return {}

    made = tool(work)
    assert made.description == "Do the work, all of it."
    shown = {name: schema.get("description") for name, schema in made.input_schema["properties"].items()}
    assert shown == {"first": "A value: with a colon. And a second paragraph.", "second": "Another.", "rest": None}
    assert made.output_schema is not None
    assert made.output_schema["description"] == "What was done."


def test_annotated_gives_descriptions_and_constraints() -> None:
    @tool
    def wait(
        seconds: Annotated[int, Field(ge=1, le=60, description="How long.")],
        reason: Annotated[str, "Why."] = "",
        times: int = Field(default=2, ge=1, description="How often."),
    ) -> int:
        """Wait."""
        return times

    assert wait.input_schema["properties"] == {
        "seconds": {"type": "integer", "minimum": 1, "maximum": 60, "description": "How long."},
        "reason": {"type": "string", "description": "Why.", "default": ""},
        "times": {"type": "integer", "minimum": 1, "description": "How often.", "default": 2},
    }
    assert wait.input_schema["required"] == ["seconds"]
    assert call(wait, seconds=1) == 2


def test_a_context_parameter_is_filled_in_and_never_shown() -> None:
    @tool
    def who(context: "Context", name: str, again: Context | None = None) -> str:
        """Tell who calls."""
        assert again is context
        return f"{context.agent}/{name}"

    assert list(who.input_schema["properties"]) == ["name"]
    assert call(who, Context(agent="ada"), name="x") == "ada/x"


def test_annotations_written_as_text_may_name_local_types() -> None:
    @dataclasses.dataclass
    class Inner:
        value: "int"

    @dataclasses.dataclass
    class Outer:
        inner: "Inner"

    @tool
    def unpack(outer: "Outer | None", items: "list[Inner]") -> "int":
        """Unpack."""
        return outer.inner.value if outer else 0

    assert call(unpack, outer={"inner": {"value": 7}}, items=[]) == 7


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    def broken(value: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
        """Break."""

    with pytest.raises(DefinitionError, match=r"'broken'.*'Nowhere' is not defined.*import"):
        tool(broken)


@pytest.mark.feature("F140")
async def test_sync_and_async_functions_say_which_they_are() -> None:
    @tool
    def now() -> int:
        """Answer now."""
        return 1

    @tool
    async def later() -> int:
        """Answer later."""
        await asyncio.sleep(0)
        return 2

    class Later:
        """Answer later, as an object."""

        async def __call__(self, by: int) -> int:
            return by

    assert (now.in_process.is_async, later.in_process.is_async, tool(Later()).in_process.is_async) == (
        False,
        True,
        True,
    )
    assert tool(functools.partial(Later(), 1)).in_process.is_async

    @tool
    @functools.wraps(later.in_process.function)
    def wrapped() -> Any:
        return later()

    assert call(now) == 1
    async with asyncio.timeout(5):
        assert await call(later) == 2
        assert await call(tool(Later()), by=3) == 3
        assert await call(wrapped) == 2


def test_methods_partials_and_callable_objects_are_tools() -> None:
    class Shop:
        """Sell things."""

        def price(self, item: str, *, currency: str = "EUR") -> str:
            """Tell the price."""
            return f"{item} {currency}"

        def __call__(self, item: str) -> str:
            return f"sold {item}"

    bound = tool(Shop().price)
    filled = tool(functools.partial(Shop().price, currency="secret"), name="filled")
    assert (bound.name, call(bound, item="tea")) == ("price", "tea EUR")
    assert "currency" not in filled.input_schema["properties"]
    assert call(filled, item="tea") == "tea secret"
    assert (tool(Shop()).name, tool(Shop()).description, call(tool(Shop()), item="tea")) == (
        "Shop",
        "Sell things.",
        "sold tea",
    )


def test_positional_only_and_further_keyword_parameters_work() -> None:
    @tool
    def mixed(first: int, second: int = 2, /, *, third: Color, **rest: datetime.date) -> tuple[Any, ...]:
        """Mix."""
        return first, second, third, rest

    assert mixed.input_schema["additionalProperties"] == {"type": "string", "format": "date"}
    day = datetime.date(2024, 1, 1)
    assert call(mixed, first=1, third="red", extra="2024-01-01") == (1, 2, Color.RED, {"extra": day})


def test_a_tool_still_is_its_function() -> None:
    @tool
    def double(number: int) -> int:
        """Double it."""
        return 2 * number

    assert double(4) == 8


def test_arguments_that_a_type_refuses_fail_as_invalid_parameters() -> None:
    """The schema cannot know what a validator function knows."""

    def even(value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    @tool
    def halve(number: Annotated[int, AfterValidator(even)]) -> int:
        """Halve it."""
        return number // 2

    with pytest.raises(ToolFailure, match="number: Value error, must be even") as failure:
        call(halve, number=3)
    assert failure.value.code is Code.INVALID_PARAMS


@pytest.mark.feature("F063")
@pytest.mark.feature("F064")
def test_attributes_reach_the_tool() -> None:
    @tool(
        name="fs.delete",
        tier=Tier.RUN,
        needs="files",
        effect=Effect.IDEMPOTENT,
        reads=["a"],
        writes="b",
        requires_confirmation=True,
        delivery=Delivery.USER,
        platforms=["linux"],
        examples=[{"path": "x"}],
        version="2",
        polling=True,
    )
    def delete(path: str) -> None:
        """Delete a file."""

    assert (delete.name, delete.tier, delete.requires_confirmation) == ("fs.delete", Tier.RUN, True)
    assert (delete.needs, delete.reads, delete.writes) == (frozenset({"files"}), ("a",), ("b",))
    assert (delete.effect, delete.delivery, delete.platforms) == (
        Effect.IDEMPOTENT,
        Delivery.USER,
        frozenset({"linux"}),
    )
    assert (delete.examples, delete.version, delete.polling) == (({"path": "x"},), "2", True)


@pytest.mark.feature("F136")
@pytest.mark.feature("F138")
@pytest.mark.parametrize(
    ("category", "usual", "most"),
    [("", 30, 300), ("file", 5, 30), ("web", 30, 120), ("exec", 30, 300), ("git", 60, 300), ("mail", 10, 60)],
)
def test_a_category_gives_the_usual_and_the_greatest_timeout(category: str, usual: float, most: float) -> None:
    def work() -> None:
        """Do the work."""

    made = tool(work, category=category)
    assert (made.timeout_s, made.max_timeout_s) == (usual, most)


@pytest.mark.feature("F136")
def test_an_explicit_timeout_wins_and_never_exceeds_the_maximum() -> None:
    def work() -> None:
        """Do the work."""

    assert tool(work, category="file", timeout_s=12).timeout_s == 12
    assert tool(work, category="file", timeout_s=90).max_timeout_s == 90
    assert tool(work, timeout_s=90, max_timeout_s=20).timeout_s == 20
    with pytest.raises(DefinitionError, match="above zero"):
        tool(work, timeout_s=0)


def test_an_explicit_schema_is_used_as_it_is() -> None:
    schema = {"type": "object", "properties": {"from": {"type": "string", "format": "date"}}, "required": ["from"]}
    made = from_schema("mail.list", "List mail.", schema, lambda **given: given, tier=Tier.CRAWL)
    assert (made.input_schema, made.tier) == (schema, Tier.CRAWL)
    assert call(made, **{"from": "2024-01-01"}) == {"from": "2024-01-01"}
    schema["properties"] = {}
    assert made.input_schema != schema


def anything(*args: Any, **kwargs: Any) -> None:
    """Do anything."""


@pytest.mark.threat("T16")
@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": "array"}, '"type": "object"'),
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "not a valid JSON Schema"),
        ({"properties": {"a": {"$ref": "https://example.com/a.json"}}}, "refers to 'https://example.com/a.json'"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "does not exist"),
        ({"properties": {"a": {"pattern": "(a"}}}, "not a valid JSON Schema"),
        ({"description": "x" * 300_000}, "at most 262144"),
        ({"default": {1, 2}}, "must be plain JSON"),
        ([], "must be a JSON object"),
    ],
)
def test_an_unusable_schema_is_refused_with_a_reason(schema: Any, complaint: str) -> None:
    with pytest.raises(DefinitionError, match=complaint):
        tool(anything, input_schema=schema)


@pytest.mark.threat("T16")
def test_a_schema_whose_references_multiply_is_refused() -> None:
    """We chose it: thirty doublings would keep the validator busy for minutes."""
    defs: dict[str, Any] = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(30)}
    schema = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs | {"d30": {"type": "null"}}}
    with pytest.raises(DefinitionError, match="unfolds"):
        tool(anything, input_schema=schema)


def test_a_schema_may_not_promise_what_the_function_does_not_take() -> None:
    def narrow(a: int) -> None:
        """Be narrow."""

    with pytest.raises(DefinitionError, match="has 'b', which its function does not take"):
        tool(narrow, input_schema={"properties": {"a": {}, "b": {}}})


def undocumented(a: int) -> None: ...


def starred(*values: int) -> None:
    """Take many."""


def generated() -> Any:
    """Generate."""
    yield 1


def opaque(value: Callable[[], None], lock: asyncio.Lock) -> None:
    """Take what JSON cannot say."""


def looks_ahead(value: Annotated[str, Field(pattern="(?=a)b")]) -> None:
    """Look ahead."""


def half(value: "list[") -> None:  # type: ignore[valid-type]  # noqa: F722
    """Stop halfway."""


def final(value: typing.ClassVar[int]) -> None:  # type: ignore[misc]
    """Use a type in the wrong place."""


class Holder:
    def method(self, a: int) -> None:
        """Do it."""


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (undocumented, "add a docstring or give description="),
        (lambda: None, "give name="),
        (starred, "use a list parameter instead"),
        (generated, "return a list"),
        (opaque, "give input_schema="),
        (looks_ahead, "look-around"),
        (half, "annotation that is not a type"),
        (final, "not valid as type argument"),
        (Holder.method, r"tool\(obj.method\)"),
        (42, "made from a function"),
        (Holder, "made from a function"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_advice(function: Any, advice: str) -> None:
    with pytest.raises(DefinitionError, match=advice):
        tool(function)


@pytest.mark.parametrize("name", ["1st", "two words", "ünder", "x" * 129, "a/b", "a\n"])
def test_a_name_that_no_provider_takes_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be a tool's name"):
        tool(anything, name=name)


def test_an_explicit_output_schema_is_checked_and_kept() -> None:
    assert tool(anything, name="a", input_schema={}, output_schema={"type": "string"}).output_schema == {
        "type": "string"
    }
    with pytest.raises(DefinitionError, match="output_schema of tool 'a'"):
        tool(anything, name="a", input_schema={}, output_schema={"type": "text"})


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(DefinitionError, match="takes no colour="):
        tool(anything, colour="red")  # type: ignore[call-overload]


def test_an_option_of_the_wrong_kind_is_refused_with_the_choices() -> None:
    with pytest.raises(DefinitionError, match=r"Tier.CRAWL, Tier.WALK, Tier.RUN, not 'runn'"):
        tool(place, tier="runn")  # type: ignore[call-overload]


def test_an_option_can_be_given_by_its_name() -> None:
    assert tool(place, tier="run").tier is Tier.RUN  # type: ignore[call-overload]


def test_a_default_that_json_cannot_say_is_not_shown() -> None:
    def measure(limit: float = float("inf"), mark: Any = anything, most: int = 10**30) -> float:
        """Measure."""
        return limit

    made = tool(measure)
    assert all("default" not in schema for schema in made.input_schema["properties"].values())
    assert call(made) == float("inf")


def test_a_return_type_that_json_cannot_say_gives_no_output_schema() -> None:
    def numbers() -> range:
        """Give what is like a list."""
        return range(3)

    def free() -> Any:
        """Return anything."""

    assert tool(numbers).output_schema is None
    assert tool(free).output_schema is None


class Item(BaseModel):
    sku: str
    amount: int = 1


class Order(BaseModel):
    customer: str
    items: list[Item] = []


@dataclasses.dataclass
class Place:
    street: str


class Note(TypedDict):
    text: str


class Loose(BaseModel, extra="ignore"):
    a: int


class Renamed(BaseModel, populate_by_name=True):
    a: int = Field(alias="A")


def place(
    order: Order | None = None, where: Place | None = None, note: Note | None = None,
    loose: Loose | None = None, renamed: Renamed | None = None,
) -> str:  # fmt: skip
    """Place an order."""
    return "placed"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"order": {"customer": "a", "nope": 1}}, "unknown 'nope' in order; it takes customer, items"),
        (
            {"order": {"customer": "a", "items": [{"sku": "x"}, {"sku": "y", "amout": 2}]}},
            "unknown 'amout' in order.items[1]; did you mean 'amount'?",
        ),
        ({"where": {"street": "s", "city": "c"}}, "unknown 'city' in where"),
        ({"note": {"text": "t", "colour": "c"}}, "unknown 'colour' in note"),
    ],
)
async def test_unknown_fields_of_nested_types_are_told_with_their_path(arguments: Any, sentence: str) -> None:
    async with Agent(ScriptedModel("x"), [place]) as agent:
        result = await agent.call("place", arguments)
    assert (result.status, sentence in result.text) == ("failed", True), result.text


@pytest.mark.parametrize(
    "arguments",
    [{"order": {"customer": "a", "items": [{"sku": "x"}]}}, {"loose": {"a": 1, "b": 2}}, {"renamed": {"A": 1}}],
)
async def test_a_nested_type_takes_what_it_says_itself(arguments: Any) -> None:
    async with Agent(ScriptedModel("x"), [place]) as agent:
        assert (await agent.call("place", arguments)).text == "placed"
