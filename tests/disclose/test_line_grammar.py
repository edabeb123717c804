"""From the compact text alone a call of every tool can be formed; and lines stay within their budget."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import wordllama
from benchmarks.context import hundred_tools
from tokenizers import Tokenizer

from tests.disclose.line_reader import read_line
from toolwire.decide.ladder import Case, preflight
from toolwire.define.toolbox import Toolbox
from toolwire.disclose.compact import compact_catalogue
from toolwire.protocol.calls import Denied, ToolCall
from toolwire.protocol.line_budget import fit_lines, lines_of
from toolwire.protocol.token_estimate import estimate_tokens
from toolwire.protocol.tool_lines import LineDetail, tool_line
from toolwire.protocol.tools import Grant, Tool
from toolwire.toolbox.registry import ToolDependencies, make_tools, tools_of
from toolwire.wire.prompted.compact import tell_tools, tool_lines
from toolwire.wire.replies.reply import parse_reply

BUILT_IN = {tool.name: tool for tool in tools_of(["all"], ToolDependencies())}
EVERYDAY = {tool.name: tool for tool in make_tools(["calculator", "echo", "random", "timer"], ToolDependencies())}
TOOLS = BUILT_IN | EVERYDAY
BOX = Toolbox(*TOOLS.values())
TREE = Tool(
    "plant",
    "Plant a tree",
    {
        "type": "object",
        "required": ["tree", "depth"],
        "properties": {
            "tree": {"$ref": "#/$defs/Tree"},
            "depth": {"type": "number", "minimum": 2.5},
            "color": {"enum": ["green", "red"], "default": "red"},
        },
        "$defs": {
            "Tree": {
                "type": "object",
                "required": ["kind", "branches"],
                "properties": {
                    "kind": {"enum": ["oak", "elm"]},
                    "branches": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
                    "note": {"type": "string"},
                },
            }
        },
    },
)


def refused(arguments: dict[str, Any], name: str) -> list[str]:
    """What is wrong with a call as far as its arguments go."""
    issues = preflight(Case(ToolCall(name, arguments), BOX, Grant()))
    return [issue.message for issue in issues if isinstance(issue, Denied) and issue.rule == "arguments"]


@pytest.mark.parametrize("detail", LineDetail, ids=lambda detail: detail.name)
def test_a_call_formed_from_the_line_of_any_built_in_tool_passes_validation(detail: LineDetail) -> None:
    for name, tool in TOOLS.items():
        line = read_line(tool_line(tool, detail))
        assert line.name == name
        assert {each.name for each in line.inputs if each.required} == set(tool.input_schema.get("required", ()))
        assert refused(line.arguments(optional=False), name) == []
        assert refused(line.arguments(optional=True), name) == []


def test_a_call_that_a_line_does_not_show_is_refused() -> None:
    """So the test above can fail: the line, and nothing else, says what passes."""
    assert refused({}, "calculator") != []
    assert refused({"seconds": "soon"}, "timer") != []
    assert refused({**read_line(tool_line(TOOLS["read"])).arguments(optional=True), "colour": "red"}, "read") != []


def test_what_is_written_for_a_model_is_read_back_as_a_call_of_every_tool() -> None:
    told = tell_tools(tuple(TOOLS.values())).partition("\n\n")[2].partition("\n\n")[0]
    lines = [read_line(line.removesuffix(".")) for line in told.splitlines()]
    assert [line.name for line in lines] == list(TOOLS)
    written = "\n".join(json.dumps({"tool": line.name, "input": line.arguments(optional=True)}) for line in lines)
    reply = parse_reply(written, [*TOOLS.values()], provider="text")
    assert [call.name for call in reply.calls] == list(TOOLS)
    assert [refused(dict(call.arguments), call.name) for call in reply.calls] == [[]] * len(TOOLS)


def test_a_line_shows_what_nested_objects_need() -> None:
    assert tool_line(TREE, LineDetail.SHORT) == (
        'plant(tree: {kind: "oak"|"elm", branches: array of any, …}, '
        'depth: number 2.5.., color="red"|"green") — Plant a tree'
    )
    assert read_line(tool_line(TREE)).arguments(optional=True)["depth"] == 2.5


@pytest.mark.parametrize("tokens_each", [60, 40, 30, 20, 15, 8, 4, 1])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_catalogue_stays_within_its_budget_and_says_as_much_as_fits(tokens_each: int, grouped: bool) -> None:
    budget = tokens_each * len(TOOLS)
    text = compact_catalogue(TOOLS.values(), budget=budget, grouped=grouped)
    assert estimate_tokens(text) <= budget
    if tokens_each >= 15:
        assert all(any(line.startswith(f"{name}(") for line in text.splitlines()) for name in TOOLS)
    else:
        assert text.startswith("[")
        told = [name for name in TOOLS if re.search(rf"[] ]{re.escape(name)}(,|$)", text, re.MULTILINE)]
        rest = re.search(r"… and (\d+) more", text)
        assert len(told) + int(rest[1] if rest else 0) == len(TOOLS)
    richer = compact_catalogue(TOOLS.values(), budget=budget + 5 * len(TOOLS), grouped=grouped)
    assert len(richer) >= len(text)


def test_the_longest_lines_say_less_before_a_short_one_does() -> None:
    short, long = Tool("a", "Do a small thing"), BUILT_IN["git_diff"]
    lines = [lines_of(short), lines_of(long)]
    most = sum(each[0][1] for each in lines)
    fitted = fit_lines(lines, most - 20)
    assert fitted is not None
    assert fitted[0] == tool_line(short)
    assert len(fitted[1]) < len(tool_line(long))
    assert fit_lines(lines, 3) is None
    assert fit_lines([], 0) == []


def test_no_line_loses_its_outputs_while_another_shows_optional_inputs() -> None:
    lines = [lines_of(tool) for tool in TOOLS.values()]
    for tokens_each in range(20, 60, 5):
        told = [read_line(line) for line in fit_lines(lines, tokens_each * len(lines)) or ()]
        bare = [line.name for line in told if not line.outputs and TOOLS[line.name].output_schema]
        assert not bare or all(each.required for line in told for each in line.inputs)


SEEDS_TOOLS = "calculator random echo timer json-transform workflow browser openrouter venice ollama_local".split()


@pytest.mark.feature("F209")
def test_fifteen_built_in_tools_with_their_inputs_and_the_standard_stay_short() -> None:
    """By the tokenizer of Llama 2, which makes more tokens of a text than those of `make bench-context`."""
    fifteen = [TOOLS[name] for name in (*SEEDS_TOOLS, "read", "write", "edit", "list", "websearch")]
    text = tell_tools(tuple(fifteen))
    lines = text.partition("\n\n")[2].partition("\n\n")[0]
    assert lines.count("\n") == 14
    assert tokens(lines) <= 650
    assert tokens(text) - tokens(lines) <= 110
    assert estimate_tokens(lines) <= 560
    assert estimate_tokens(lines) < 0.5 * estimate_tokens(json.dumps([tool.input_schema for tool in fifteen]))


@pytest.mark.parametrize(("count", "goal"), [(15, 550), (100, 3200)])
def test_the_tools_of_the_benchmark_stay_below_their_goals(count: int, goal: int) -> None:
    """By the estimate, which is above what `make bench-context` counts."""
    lines = tool_lines(hundred_tools()[:count])
    assert lines.count("\n") == count - 1
    assert estimate_tokens(lines) <= 1.05 * goal
    assert all(read_line(line.removesuffix(".")).inputs for line in lines.splitlines())


def tokens(text: str) -> int:
    table = Path(wordllama.__file__).parent / "tokenizers" / "l2_supercat_tokenizer_config.json"
    return len(Tokenizer.from_file(str(table)).encode(text, add_special_tokens=False).ids)
