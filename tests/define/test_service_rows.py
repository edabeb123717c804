"""Rows of `resource.tools`: read from files, checked with plain messages, and what a model sees of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Grant, Tier
from toolwire.define.service_arguments import (
    HiddenArgument,
    MissingVariable,
    environment_secrets,
    fill_arguments,
    with_environment,
)
from toolwire.define.service_rows import ToolRegistry, registry_from_file
from toolwire.errors import DefinitionError
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import BusService, Delivery, Effect, Tool
from toolwire.testing import ScriptedModel, call, says

SUBJECT = "cg.v1r4.{project_id}.{channel_id}.cmd.tool.search"
ROW: dict[str, Any] = {
    "project_id": "acme",
    "tool_name": "web_search",
    "description": "Searches the web and gives titles and addresses.",
    "parameters": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "count": {"type": "integer", "description": "How many hits."},
            "tenant": {"type": "string"},
            "api_key": {"type": "string"},
        },
        "required": ["query", "count", "tenant", "api_key"],
    },
    "target_subject": SUBJECT,
    "after_execution": "suspend",
    "options": {
        "args": {"defaults": {"count": 5}, "fixed": {"tenant": "t-{project_id}"}},
        "envs": {"api_key": "SEARCH_KEY"},
        "timeout_seconds": 60,
        "effect": "pure",
    },
}

TOML = """
project_id = "acme"

[[tools]]
tool_name = "web_search"
description = "Searches the web and gives titles and addresses."
target_subject = "cg.v1r4.{project_id}.{channel_id}.cmd.tool.search"
after_execution = "suspend"

[tools.parameters]
type = "object"
required = ["query", "count", "tenant", "api_key"]

[tools.parameters.properties]
query = {type = "string", description = "What to look for."}
count = {type = "integer", description = "How many hits."}
tenant = {type = "string"}
api_key = {type = "string"}

[tools.options]
timeout_seconds = 60
effect = "pure"
args.defaults.count = 5
args.fixed.tenant = "t-{project_id}"
envs.api_key = "SEARCH_KEY"
"""

YAML = """
project_id: acme
tools:
  - tool_name: web_search
    description: Searches the web and gives titles and addresses.
    target_subject: cg.v1r4.{project_id}.{channel_id}.cmd.tool.search
    after_execution: suspend
    parameters:
      type: object
      required: [query, count, tenant, api_key]
      properties:
        query: {type: string, description: What to look for.}
        count: {type: integer, description: How many hits.}
        tenant: {type: string}
        api_key: {type: string}
    options:
      timeout_seconds: 60
      effect: pure
      args:
        defaults: {count: 5}
        fixed: {tenant: "t-{project_id}"}
      envs: {api_key: SEARCH_KEY}
"""


def registry(*rows: dict[str, Any], **top: Any) -> ToolRegistry:
    return registry_from_file(json.dumps({"tools": list(rows), **top}).encode(), "tools.json")


def row(**changes: Any) -> dict[str, Any]:
    return {name: item for name, item in {**ROW, **changes}.items() if item is not None}


def only(read: ToolRegistry) -> Tool:
    (one,) = read.rows
    return one.tool


def target(read: ToolRegistry) -> BusService:
    found = only(read).target
    assert isinstance(found, BusService)
    return found


@pytest.mark.feature("F051")
@pytest.mark.parametrize(
    ("file", "content"), [("t.json", json.dumps({"tools": [ROW]})), ("t.toml", TOML), ("t.yaml", YAML), ("T.YML", YAML)]
)
def test_a_row_says_the_same_in_every_format(file: str, content: str) -> None:
    (found,) = registry_from_file(content.encode(), file).rows
    tool = found.tool
    assert (found.project, tool.name) == ("acme", "web_search")
    assert tool.description == "Searches the web and gives titles and addresses."
    assert (tool.timeout_s, tool.effect, tool.delivery) == (60, Effect.PURE, Delivery.MODEL)
    assert tool.target == BusService(
        SUBJECT, AfterExecution.SUSPEND, False, {"count": 5}, {"tenant": "t-{project_id}"}, {"api_key": "SEARCH_KEY"}
    )
    assert found.parameters == ROW["parameters"]


def test_a_model_sees_neither_fixed_arguments_nor_those_from_the_environment() -> None:
    seen = only(registry(ROW)).input_schema
    assert seen["properties"].keys() == {"query", "count"}
    assert seen["required"] == ["query"]
    assert "api_key" not in json.dumps(seen)
    assert "tenant" not in json.dumps(seen)


class Recording:
    """An executor in the place of a bus, which puts in what a service puts in."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.cards: list[Any] = []
        self.ran: list[Any] = []

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        place = allowed.tool.target
        assert isinstance(place, BusService)
        card = fill_arguments(place, allowed.arguments, {"project_id": context.project})
        self.cards.append(card)
        self.ran.append(with_environment(place, card.arguments, self.environment))
        return ToolResult(allowed.call.id, allowed.call.name, Status.SUCCESS)

    async def close(self) -> None:
        pass


async def run(tool: Tool, arguments: dict[str, Any]) -> tuple[ToolResult, Recording]:
    bus = Recording({"SEARCH_KEY": "sk-very-secret"})
    agent = Agent(
        ScriptedModel(), [tool], executor=Router(InProcessExecutor(), bus=bus), grant=Grant(tier=Tier.RUN)
    )  # fmt: skip
    return await agent.call(tool.name, arguments), bus


async def test_hidden_arguments_are_put_in_when_the_call_runs_and_secrets_are_on_no_card() -> None:
    result, bus = await run(only(registry(ROW)), {"query": "tents"})
    assert result.ok, result.text
    (card,) = bus.cards
    assert card.arguments == {"query": "tents", "count": 5, "tenant": "t-default"}
    assert card.metadata == {"tool_args_defaults_applied": ["count"], "tool_args_fixed_applied": ["tenant"]}
    assert "sk-very-secret" not in repr(card)
    assert bus.ran == [{"query": "tents", "count": 5, "tenant": "t-default", "api_key": "sk-very-secret"}]


@pytest.mark.parametrize("name", ["tenant", "api_key"])
@pytest.mark.parametrize("additional", [None, True, False, {"type": "string"}])
async def test_a_model_that_names_a_hidden_argument_is_refused(name: str, additional: Any) -> None:
    parameters = dict(ROW["parameters"])
    if additional is not None:
        parameters["additionalProperties"] = additional
    result, bus = await run(only(registry(row(parameters=parameters))), {"query": "tents", name: "mine"})
    assert result.error is not None
    assert result.error.code is Code.INVALID_PARAMS
    assert bus.ran == []


async def test_the_tools_of_a_registry_are_offered_as_they_are_seen() -> None:
    model = ScriptedModel(says("", call("web_search", query="tents")), "Three.")
    bus = Recording({"SEARCH_KEY": "k"})
    agent = Agent(
        model, registry(ROW).tools("acme"), executor=Router(InProcessExecutor(), bus=bus), grant=Grant(tier=Tier.RUN)
    )  # fmt: skip
    answer = await agent.ask("How many?")
    assert answer.text == "Three."
    (offered,) = model.requests[0].tools
    assert offered.input_schema["properties"].keys() == {"query", "count"}
    assert len(bus.ran) == 1


def test_an_argument_that_the_model_gave_wins_over_its_default_also_when_it_is_null() -> None:
    place = target(registry(ROW))
    assert fill_arguments(place, {"query": "x", "count": 9}, {}).arguments["count"] == 9
    assert fill_arguments(place, {"query": "x", "count": None}, {}).arguments["count"] is None
    assert fill_arguments(place, {"query": "x", "count": 9}, {}).defaults_applied == ()


def test_a_hidden_argument_is_refused_where_it_would_be_put_in_as_well() -> None:
    with pytest.raises(HiddenArgument, match="api_key"):
        fill_arguments(target(registry(ROW)), {"query": "x", "api_key": "mine"}, {})


def test_a_variable_that_is_not_set_is_named_without_its_value() -> None:
    place = target(registry(ROW))
    with pytest.raises(MissingVariable, match="set SEARCH_KEY"):
        with_environment(place, {}, {})
    with pytest.raises(MissingVariable, match="set SEARCH_KEY"):
        with_environment(place, {}, {"SEARCH_KEY": ""})
    assert environment_secrets(place, {"SEARCH_KEY": "k", "HOME": "h"}) == {"SEARCH_KEY": "k"}


def test_marks_in_values_are_filled_and_other_braces_stay() -> None:
    fixed = {"tenant": "{project_id}/{agent_id}/{nothing}/{}", "epoch": "{turn_epoch}", "list": [{"x": "{step_id}"}]}
    properties: dict[str, Any] = {"tenant": {}, "epoch": {}, "list": {}}
    made = registry(row(parameters={"properties": properties}, options={"args": {"fixed": fixed}}))
    filled = fill_arguments(
        target(made), {}, {"project_id": "acme", "agent_id": "ann", "turn_epoch": 3, "step_id": "s"}
    )
    assert filled.arguments == {"tenant": "acme/ann/{nothing}/{}", "epoch": 3, "list": [{"x": "s"}]}


def nested(value: Any, depth: int) -> Any:
    for place in range(depth):
        value = [value] if place % 2 else {"x": value}
    return value


def test_marks_are_filled_as_deep_as_arguments_may_be_and_no_deeper() -> None:
    def filled(depth: int) -> Any:
        fixed = {"list": nested("{step_id}", depth)}
        made = registry(row(parameters={"properties": {"list": {}}}, options={"args": {"fixed": fixed}}))
        return fill_arguments(target(made), {}, {"step_id": "s"}).arguments["list"]

    assert filled(60) == nested("s", 60)
    assert filled(100) == nested("{step_id}", 100)


def test_a_value_with_a_mark_is_not_judged_before_it_is_filled() -> None:
    made = registry(row(options={"args": {"fixed": {"count": "{turn_epoch}"}}}))
    assert fill_arguments(target(made), {}, {"turn_epoch": 4}).arguments["count"] == 4


def test_what_a_tool_returns_can_be_described() -> None:
    schema = {"type": "object", "properties": {"hits": {"type": "integer"}}}
    assert only(registry(row(options={"output_schema": schema}))).output_schema == schema
    assert only(registry(ROW)).output_schema is None
    with pytest.raises(DefinitionError, match="output_schema is not a valid JSON Schema"):
        registry(row(options={"output_schema": {"type": "objec"}}))


def test_what_a_model_gives_is_never_filled() -> None:
    filled = fill_arguments(target(registry(ROW)), {"query": "{project_id} {tool_call_id}"}, {"project_id": "acme"})
    assert filled.arguments["query"] == "{project_id} {tool_call_id}"


def test_terminate_goes_to_the_user_and_tiers_follow_from_effects() -> None:
    tool = only(registry(row(after_execution="terminate", options={})))
    assert (tool.delivery, tool.effect, tool.tier) == (Delivery.USER, Effect.UNSAFE, Tier.RUN)
    assert only(registry(row(options={"effect": "pure"}))).tier is Tier.WALK
    assert only(registry(row(options={"effect": "unsafe", "tier": "walk"}))).tier is Tier.WALK
    assert target(registry(row(options={"controls_turn": True}))).controls_turn
    assert not target(registry(ROW)).controls_turn


def test_a_definition_that_only_hidden_arguments_use_is_not_shown() -> None:
    parameters = {
        "properties": {"query": {"$ref": "#/$defs/text"}, "api_key": {"$ref": "#/$defs/key"}},
        "$defs": {
            "text": {"anyOf": [{"$ref": "#/$defs/short"}, {"type": "array", "items": {"$ref": "#/$defs/text"}}]},
            "short": {"type": "string"},
            "key": {"type": "string"},
        },
        "examples": [{"api_key": "k"}],
    }
    seen = only(registry(row(parameters=parameters, options={"envs": {"api_key": "KEY"}}))).input_schema
    assert seen["$defs"].keys() == {"text", "short"}
    assert "key" not in json.dumps(seen)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tool_name": None}, "tool_name is missing"),
        ({"tool_name": "rm -rf"}, "tool_name is letters"),
        ({"description": " "}, "description is empty"),
        ({"description": "a\u202eb"}, "invisible characters"),
        ({"project_id": None}, "project_id is missing"),
        ({"project_id": "a.b"}, "project_id must be 1 to 64 letters"),
        ({"project_id": "*"}, "project_id must be 1 to 64 letters"),
        ({"target_subject": None}, "target_subject is missing"),
        ({"target_subject": "search"}, "a subject is like"),
        ({"target_subject": "cg.v1r4.other.{channel_id}.cmd.tool.search"}, "another project"),
        ({"target_subject": "cg.v1r4.*.*.cmd.tool.search"}, "letters, digits"),
        ({"target_subject": "cg.v1r4.{project_id}.{channel_id}.cmd.tool.>"}, "letters, digits"),
        ({"target_subject": "cg.v9.{project_id}.{channel_id}.cmd.tool.search"}, "v9 is not understood"),
        ({"target_subject": "cg.v1r4.{project_id}.{channel_id}.cmd.sys.pmo.internal.fork_join"}, "subject of a tool"),
        ({"target_subject": "cg.v1r4.{project_id}.{channel_id}.cmd.agent.ann.wakeup"}, "a tool is called at"),
        ({"after_execution": "stop"}, "after_execution is one of suspend, terminate, detach"),
        ({"parameters": {"type": "array"}}, 'must have "type": "object"'),
        ({"parameters": {"properties": {"a": {"type": "strin"}}}, "options": {}}, "not a valid JSON Schema"),
        ({"parameters": {"properties": {"a": {"$ref": "https://x.test/s"}}}, "options": {}}, "refers to"),
        ({"options": {"args": {"default": {}}}}, "did you mean defaults"),
        ({"options": {"args": {"fixed": {"nothing": 1}}}}, "'nothing', which is not in parameters.properties"),
        ({"options": {"envs": {"nothing": "X"}}}, "'nothing', which is not in parameters.properties"),
        ({"options": {"envs": {"api_key": "not a name"}}}, "name of an environment variable"),
        ({"options": {"envs": {"api_key": 7}}}, "must be text"),
        ({"options": {"envs": {"count": "COUNT"}}}, "does not take text"),
        ({"options": {"args": {"fixed": {"count": "many"}}}}, "does not fit its schema"),
        ({"options": {"args": {"defaults": {"count": "many"}}}}, "does not fit its schema"),
        ({"options": {"args": {"fixed": {"count": 1}, "defaults": {"count": 2}}}}, "choose one"),
        ({"options": {"args": {"fixed": {"api_key": "x"}}, "envs": {"api_key": "X"}}}, "choose one"),
        ({"options": {"timeout_seconds": 0}}, "whole number from 1"),
        ({"options": {"timeout_seconds": True}}, "whole number from 1"),
        ({"options": {"effect": "safe"}}, "effect is one of"),
        ({"options": {"tier": "fly"}}, "tier is one of"),
        ({"options": {"permissions": ["File Read"]}}, "permissions are words"),
        ({"options": {"timeout": 3}}, "unknown key 'timeout'"),
        ({"options": []}, "options must be a table"),
        ({"version": "new"}, "version is one to four numbers"),
        ({"endpoint": "x"}, "unknown key 'endpoint'"),
    ],
)
def test_a_row_that_is_wrong_is_refused_with_its_place(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        registry(row(**changes))
    assert says in str(refused.value)
    assert str(refused.value).startswith("tools.json: ")


@pytest.mark.parametrize(
    "more",
    [{"anyOf": [{"required": ["api_key"]}]}, {"if": {"required": ["tenant"]}}, {"patternProperties": {"^a": {}}},
     {"dependentRequired": {"query": ["api_key"]}}, {"allOf": [{}]}, {"$ref": "#/$defs/x", "$defs": {"x": {}}},
     {"properties": {**ROW["parameters"]["properties"], "other": {"$ref": "#/properties/api_key"}}}],
)  # fmt: skip
def test_a_schema_through_which_hidden_arguments_would_show_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        registry(row(parameters={**ROW["parameters"], **more}))
    assert registry(row(parameters={**ROW["parameters"], **more}, options={})).rows


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("t.txt", b"", "must end in"),
        ("t.json", b"{", "not valid JSON"),
        ("t.json", b'{"tools": [], "tools": []}', "stands twice"),
        ("t.json", b'{"tools": NaN}', "not a number"),
        ("t.json", b"[" * 100_000, "nested too deeply"),
        ("t.json", b"[]", "must be a table with tools"),
        ("t.json", b'{"tools": []}', "tools is missing"),
        ("t.json", b'{"tools": [7]}', "must be tables"),
        ("t.json", b'{"tool": []}', "did you mean tools"),
        ("t.json", b"\xff\xfe", "not UTF-8"),
        ("t.json", b" " * (1024 * 1024 + 1), "larger than"),
        ("t.toml", b"tools = ", "not valid TOML"),
        ("t.yaml", b"tools: [", "not valid YAML"),
        ("t.yaml", b"tools: []\ntools: []", "stands twice"),
        ("t.yaml", b"a: &a [x, x]\nb: [*a, *a]", "aliases"),
        ("t.yaml", b"tools: !!python/object/apply:os.system [id]", "not valid YAML"),
        ("t.yaml", b"[" * 5_000, "nested too deeply"),
        ("t.yaml", b"", "must be a table with tools"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_its_name(file: str, content: bytes, says: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        registry_from_file(content, file)
    assert says in str(refused.value)
    assert str(refused.value).startswith(file)


def test_the_example_of_the_docs_is_read() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "protocol.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    tool = only(registry_from_file(example.encode(), "tools.yaml"))
    assert (tool.version, tool.input_schema["properties"].keys()) == ("1.2", {"query", "count"})


def test_a_file_of_a_project_registers_for_that_one_only() -> None:
    content = json.dumps({"tools": [ROW]}).encode()
    assert registry_from_file(content, "t.json", project="acme").rows
    with pytest.raises(DefinitionError, match="for project 'acme', not for 'other'"):
        registry_from_file(content, "t.json", project="other")
    nameless = json.dumps({"tools": [row(project_id=None)]}).encode()
    assert registry_from_file(nameless, "t.json", project="other").rows[0].project == "other"


def test_tools_of_one_project_are_not_those_of_another() -> None:
    both = registry(ROW, row(project_id="other", description="Another search tool altogether."))
    assert [tool.description for tool in both.tools("other")] == ["Another search tool altogether."]
    assert both.tools("nobody") == ()


def test_the_newest_version_is_used_unless_one_is_pinned() -> None:
    rows = [row(version=version) for version in ("1.9", "1.10", "2.0-rc1")]
    known = registry(*rows)
    assert [tool.version for tool in known.tools("acme")] == ["1.10"]
    assert [tool.version for tool in known.tools("acme", ["web_search@1.9"])] == ["1.9"]
    assert [tool.version for tool in known.tools("acme", ["web_search@2.0-rc1"])] == ["2.0-rc1"]
    for pin in ("web_search@3", "other@1", "web_search"):
        with pytest.raises(DefinitionError):
            known.tools("acme", [pin])


def test_the_same_version_cannot_be_registered_twice() -> None:
    with pytest.raises(DefinitionError, match="registered twice"):
        registry(ROW, row(description="Something else entirely."))
    with pytest.raises(DefinitionError, match="registered twice"):
        registry(ROW).plus(registry(ROW).rows)
