"""A collection of tools: exact names, stable order, near misses."""

from typing import Any

import pytest
from msgspec.structs import replace

from toolwire.define.functions import tool
from toolwire.define.openai import tool_from_openai
from toolwire.define.toolbox import DeferredTool, Toolbox
from toolwire.errors import DefinitionError
from toolwire.protocol.tools import Tool


def named(*names: str) -> list[Tool]:
    return [Tool(name, "A tool.") for name in names]


@pytest.mark.threat("T9")
@pytest.mark.feature("F105")
def test_a_tool_is_found_by_its_exact_name_only() -> None:
    box = Toolbox(*named("read", "write"))
    found = box.get("read")
    assert found is not None
    assert found.name == "read"
    assert (box.get("Read"), box.get("rea"), "write" in box, "Write" in box) == (None, None, True, False)


def test_tools_keep_the_order_in_which_they_were_given() -> None:
    box = Toolbox(*named("zeta", "alpha", "mid"))
    assert box.names == ("zeta", "alpha", "mid")
    assert [each.name for each in box.only({"mid", "zeta", "none"})] == ["zeta", "mid"]
    assert box.plus(*named("beta")).names == ("zeta", "alpha", "mid", "beta")
    assert len(box) == 3


def test_a_name_cannot_be_taken_twice() -> None:
    with pytest.raises(DefinitionError, match="two tools are named 'a'"):
        Toolbox(*named("a", "b", "a"))
    with pytest.raises(DefinitionError, match="two tools are named 'a'"):
        Toolbox(*named("a")).plus(*named("a"))


def test_functions_tools_and_toolboxes_make_a_toolbox() -> None:
    def plain(x: int) -> int:
        """Be plain."""
        return x

    @tool
    def decorated() -> None:
        """Be decorated."""

    assert Toolbox.of(Toolbox(*named("boxed")), plain, decorated).names == ("boxed", "plain", "decorated")


@pytest.mark.feature("F106")
@pytest.mark.parametrize(
    ("miss", "names"),
    [
        ("read-file", ("read_file", "read_files", "read_line")),
        ("ReadFile", ("read_file", "read_files", "read_line")),
        ("wrote", ("write",)),
        ("quantum", ()),
        ("", ()),
        ("read" * 1_000_000, ()),
    ],
)
def test_a_miss_is_answered_with_the_nearest_names(miss: str, names: tuple[str, ...]) -> None:
    box = Toolbox(*named("write", "read_files", "read_line", "read_file", "delete"))
    assert box.nearest(miss) == names


def test_nearest_names_can_be_limited_to_those_on_offer() -> None:
    box = Toolbox(*named("write", "wrote"))
    assert box.nearest("writ", among=["wrote"], most=1) == ("wrote",)


def test_a_huge_catalogue_of_look_alikes_is_searched_within_bounds() -> None:
    names = [f"{'ab' * 60}{number}" for number in range(20_000)]
    assert len(Toolbox().nearest("ba" * 60, among=names)) == 3


def test_a_checker_is_compiled_once_and_shared_with_narrower_toolboxes() -> None:
    box = Toolbox(*named("a", "b"))
    assert box.checker("a") is box.checker("a")
    assert box.only(["a"]).checker("a") is box.checker("a")
    with pytest.raises(KeyError):
        box.checker("c")


OPENAI = {
    "name": "get_weather",
    "description": "Weather.",
    "parameters": {"type": "object", "properties": {"city": {}}},
}


@pytest.mark.parametrize("entry", [{"type": "function", "function": OPENAI}, {"type": "function", **OPENAI}])
def test_openai_entries_become_tools_without_a_target(entry: dict[str, Any]) -> None:
    made = tool_from_openai(entry)
    assert (made.name, made.description, made.input_schema) == tuple(OPENAI.values())
    assert made.target is None
    assert tool_from_openai({"function": {"name": "bare"}}).input_schema == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "entry",
    [{}, {"type": "web_search"}, {"function": 3}, {"function": {"name": "a b"}}, [], {"name": "a", "parameters": [1]}],
)
def test_other_entries_are_refused(entry: Any) -> None:
    with pytest.raises(DefinitionError):
        tool_from_openai(entry)


def test_a_deferred_tool_is_made_once_when_it_is_first_used_by_any_of_the_toolboxes_that_share_it() -> None:
    made: list[str] = []

    def make(name: str) -> Tool:
        made.append(name)
        return Tool(name, "A tool.")

    box = Toolbox(DeferredTool("one", lambda: make("one")), DeferredTool("two", lambda: make("two")))
    later = box.only(["two"]).plus(*named("own")).map(lambda each: replace(each, version="2.0.0"))

    assert (box.names, later.names, "two" in box, len(box), box.get("none")) == (
        ("one", "two"), ("two", "own"), True, 2, None,
    )  # fmt: skip
    assert made == []
    assert [each.version for each in later] == ["2.0.0", "2.0.0"]
    assert made == ["two"]
    assert box.checker("one").check({}).arguments == {}
    assert [each.name for each in box] == ["one", "two"]
    assert box.get("two") is next(iter(box.only(["two"])))
    assert made == ["two", "one"]
