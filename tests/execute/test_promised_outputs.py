"""What a function gives is held against what it promises, and a broken promise is told, not passed on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, Field

from toolwire import Agent, MemoryStore, Toolbox, tool
from toolwire.deliver.secrets import Secret, Secrets
from toolwire.hub.runtime import Runtime
from toolwire.protocol.calls import Text, ToolCall, ToolOutput, ToolResult
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import Turn
from toolwire.testing import ScriptedModel, call


class Tea(TypedDict):
    name: str
    minutes: int


@dataclass
class Cup:
    tea: str
    sugar: int = 0


class Pot(BaseModel):
    size_ml: int = Field(serialization_alias="sizeMl")


def promising(kind: Any, value: Any) -> Tool:
    def brew() -> Any:
        """Brew something."""
        return value

    brew.__annotations__["return"] = kind
    return tool(brew)


async def brewed(made: Tool, store: MemoryStore | None = None, **more: Any) -> ToolResult:
    runtime = Runtime(Toolbox(made), store or MemoryStore(), **more)
    return await runtime.execute(ToolCall("brew", {}, id="c"), Turn("t"))


KEPT = [
    (str, "green"), (int, 3), (float, 2.5), (float, 3), (float, float("nan")), (bool, True), (None, None), (Any, {1}),
    (int | None, None), (int | None, 4), (list[int], [1, 2]), (dict[str, int], {"a": 1}), (set[int], {2, 1}),
    (Tea, {"name": "green", "minutes": 3}), (Tea, {"name": "green", "minutes": 3, "cups": 2}),
    (Cup, Cup("black")), (Pot, Pot(size_ml=500)), (list[Cup], [Cup("a"), Cup("b")]),
    (tuple[int, str], (1, "x")), (Tea, Text("only words")), (Tea, ToolOutput((Text("words"),))),
]  # fmt: skip
BROKEN = [
    (str, 3), (str, None), (int, "3"), (int, 3.5), (int, True), (float, "a lot"), (bool, 1), (None, "something"),
    (int | None, "text"), (list[int], [1, "2"]), (dict[str, int], {"a": None}), (Tea, {"name": "green"}),
    (Tea, "green"), (Tea, ToolOutput((Text("words"),), {"name": 1, "minutes": 3})), (Cup, {"sugar": 1}),
    (list[Tea], {"name": "green", "minutes": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), KEPT, ids=repr)
async def test_an_output_as_promised_is_passed_on(kind: Any, value: Any) -> None:
    result = await brewed(promising(kind, value))
    assert result.ok, result.text


@pytest.mark.parametrize(("kind", "value"), BROKEN, ids=repr)
async def test_another_output_is_a_failure_that_says_what_is_wrong(kind: Any, value: Any) -> None:
    result = await brewed(promising(kind, value))
    assert result.error is not None
    assert result.error.code is Code.INVALID_OUTPUT
    assert "'brew' has run, but its output is not what it promises: " in result.text
    assert result.structured is None


async def test_the_whole_output_is_not_called_arguments() -> None:
    assert "promises: expected an integer, got the string 'three'." in (await brewed(promising(int, "three"))).text
    inside = await brewed(promising(list[int], [1, "three"]))
    assert "promises: [1]: expected an integer, got the string 'three'." in inside.text


async def test_what_was_given_all_the_same_is_kept_and_its_handle_told() -> None:
    store = MemoryStore()
    result = await brewed(promising(Tea, {"name": "green", "minutes": "three"}), store)
    assert result.handle is not None
    assert result.text.endswith(f"What it gave is kept as {result.handle}.")
    assert '"three"' not in result.text.partition("kept as")[2]
    assert await store.fetch(result.handle) == b'{"name":"green","minutes":"three"}'


async def test_an_explicit_schema_is_a_promise_too() -> None:
    def checked(value: Any) -> Tool:
        return tool(lambda: value, name="brew", description="Brew.", output_schema={"enum": ["green", "black"]})

    assert (await brewed(checked("green"))).ok
    broken = await brewed(checked("white"))
    assert broken.error is not None
    assert broken.error.code is Code.INVALID_OUTPUT


async def test_a_secret_that_hid_in_a_broken_output_is_not_kept() -> None:
    store = MemoryStore()
    secrets = Secrets({"KEY": Secret("hunter2", frozenset({"brew"}))})
    result = await brewed(promising(int, "hun\x1b[0mter2"), store, secrets=secrets)
    assert result.handle is not None
    assert b"ter2" not in await store.fetch(result.handle)


async def test_the_model_hears_of_it_and_can_go_on() -> None:
    @tool
    def brew() -> int:
        """Brew something."""
        return "not a number"  # type: ignore[return-value] # that is the point

    answer = await Agent(ScriptedModel(call("brew"), "It gave no number."), [brew]).ask("Brew.")
    assert answer.text == "It gave no number."


def test_a_function_without_a_promise_is_not_looked_at() -> None:
    def checks(function: Callable[..., Any]) -> Any:
        return tool(function).in_process.check

    def silent():  # type: ignore[no-untyped-def] # it promises nothing
        """Say nothing about it."""

    def anything() -> Any:
        """Promise nothing."""

    assert (checks(silent), checks(anything)) == (None, None)
