"""The patterns of the universal tool invocation standard, with a scripted model that answers in its envelope."""

import json
from typing import Any

import pytest

from tests.cli.stage import Ran, Stage, scripted

SETTINGS = """
profile = "rcrt"

[tools]
modules = ["mine:tools"]
groups = ["workflow"]

[profiles.rcrt]
provider = "openai-compatible"
model = "scripted"
url = "URL"

[profiles.rcrt.tools]
definition_format = "rcrt"
"""
TOOLS = '''
from toolwire import tool


@tool
def openrouter(messages: list[dict]) -> dict:
    """Call a model."""
    raise RuntimeError("API rate limit exceeded")


@tool
def ollama_local(messages: list[dict]) -> dict:
    """Call a local model."""
    return {"content": "bar is undefined", "model": "local"}


@tool(name="web-search")
def web_search(query: str) -> dict:
    """Search."""
    return {"found": f"about {query}"}


heard = ""


@tool
async def bell(rings: str) -> dict:
    """Ring."""
    global heard
    heard += rings
    return {"heard": heard}


tools = [openrouter, ollama_local, web_search, bell]
'''
MESSAGES = [{"role": "user", "content": "def foo(): return bar"}]


def envelope(message: str, *requests: dict[str, Any]) -> str:
    context = {"message": message, "tool_requests": list(requests)}
    tags = ["agent:response", "session:abc"]
    crumb = {"schema_name": "agent.response.v1", "title": "Response", "tags": tags, "context": context}
    return json.dumps({"action": "create", "breadcrumb": crumb})


def request(tool: str, number: str, returns: bool, **given: Any) -> dict[str, Any]:
    return {"tool": tool, "input": given, "requestId": number, "return_to_llm": returns}


def ask(stage: Stage, *lines: str) -> tuple[Ran, list[list[dict[str, Any]]], str]:
    """How it ended, the responses that the model got in each step, and its system text."""
    stage.module("mine", TOOLS)
    with scripted(*lines) as model:
        stage.settings(SETTINGS.replace("URL", model.url))
        ran = stage.run("ask", "Go", "--no-stdin")
        assert ran.code == 0, ran.err
        asked = model.requests
    told = [
        [json.loads(line) for line in said["messages"][-1]["content"].splitlines()]
        for said in asked[1:]
        if "tool.response.v1" in said["messages"][-1]["content"]
    ]
    return ran, told, asked[0]["messages"][0]["content"]


@pytest.mark.feature("F022", "F024", "F001", "F005", "F007")
def test_a_result_that_need_not_come_back_goes_to_the_user_and_ends_the_turn(stage: Stage) -> None:
    line = envelope(
        "I'll calculate that for you.", request("calculator", "calc-001", returns=False, expression="25 * 4")
    )
    ran, told, _ = ask(stage, line)
    assert told == []
    assert "100" in ran.out


@pytest.mark.feature("F004", "F008", "F147", "F148", "F169")
def test_a_result_that_comes_back_is_a_response_under_the_models_own_id(stage: Stage) -> None:
    ran, told, _ = ask(
        stage,
        envelope(
            "Let me ask an LLM to analyze that code.",
            request("ollama_local", "llm-001", returns=True, messages=MESSAGES),
        ),
        envelope("The code has a bug: bar is undefined."),
    )
    [[response]] = told
    assert response["schema_name"] == "tool.response.v1"
    assert response["tags"] == ["tool:response", "request:llm-001"]
    assert response["context"] == {
        "request_id": "llm-001",
        "tool": "ollama_local",
        "status": "success",
        "output": {"content": "bar is undefined", "model": "local"},
    }
    assert "Let me ask an LLM" in ran.out + ran.err
    assert "The code has a bug" in ran.out
    assert "tool_requests" not in ran.out


def test_parallel_requests_are_joined_in_their_order(stage: Stage) -> None:
    _, told, _ = ask(
        stage,
        envelope(
            "In parallel.",
            request("web-search", "search-weather", returns=True, query="London weather"),
            request("web-search", "search-news", returns=True, query="London news"),
        ),
        envelope("Sunny."),
    )
    assert [one["context"]["request_id"] for one in told[0]] == ["search-weather", "search-news"]


def test_a_workflow_is_one_request(stage: Stage) -> None:
    steps = [
        {"id": "num1", "tool": "random", "input": {"min": 4, "max": 4}},
        {"id": "num2", "tool": "random", "input": {"min": 5, "max": 5}},
        {
            "id": "sum",
            "tool": "calculator",
            "input": {"expression": "${num1.numbers[0]} + ${num2.numbers[0]}"},
            "dependencies": ["num1", "num2"],
        },
    ]
    ran, told, _ = ask(stage, envelope("I'll run it.", request("workflow", "workflow-001", returns=False, steps=steps)))
    assert told == []
    assert '"result": 9' in ran.out


@pytest.mark.feature("F172", "F170")
def test_an_error_comes_back_and_another_tool_is_tried(stage: Stage) -> None:
    ran, told, _ = ask(
        stage,
        envelope("Asking.", request("openrouter", "llm-001", returns=False, messages=MESSAGES)),
        envelope("A local model instead.", request("ollama_local", "llm-002", returns=True, messages=MESSAGES)),
        envelope("bar is undefined."),
    )
    assert told[0][0]["context"]["status"] == "error"
    assert "API rate limit exceeded" in told[0][0]["context"]["error"]
    assert told[1][0]["context"]["status"] == "success"
    assert "bar is undefined." in ran.out


@pytest.mark.feature("F171")
def test_results_are_accumulated_over_several_steps(stage: Stage) -> None:
    ran, told, _ = ask(
        stage,
        envelope("", request("random", "r1", returns=True, min=2, max=2)),
        envelope("", request("random", "r2", returns=True, min=3, max=3)),
        envelope("Their sum:", request("calculator", "calc-final", returns=False, expression="2 + 3")),
    )
    assert [step[0]["context"]["output"] for step in told] == [{"numbers": [2]}, {"numbers": [3]}]
    assert "5" in ran.out


@pytest.mark.feature("F006")
def test_a_name_must_be_one_of_the_catalogue(stage: Stage) -> None:
    _, told, _ = ask(
        stage,
        envelope(
            "",
            request("web_srch", "s1", returns=False, query="x"),
            request("web-search", "s2", returns=True, query="y"),
        ),
        envelope("Done."),
    )
    assert [one["context"]["request_id"] for one in told[0]] == ["s2"]


def later(tool: str, number: str, *before: str, **given: Any) -> dict[str, Any]:
    return {**request(tool, number, returns=True, **given), "dependencies": list(before)}


@pytest.mark.feature("F135")
def test_a_request_runs_once_those_it_depends_on_have_succeeded(stage: Stage) -> None:
    _, told, _ = ask(
        stage,
        envelope(
            "",
            later("bell", "last", "middle", "first", rings="c"),
            later("bell", "middle", "first", rings="b"),
            request("bell", "first", returns=True, rings="a"),
        ),
        envelope("", later("bell", "more", "last", rings="d")),
        envelope("Done."),
    )
    heard = {one["context"]["request_id"]: one["context"]["output"]["heard"] for step in told for one in step}
    assert heard == {"first": "a", "middle": "ab", "last": "abc", "more": "abcd"}


@pytest.mark.feature("F135")
def test_a_request_does_not_run_if_one_it_depends_on_fails_is_unknown_or_depends_on_it(stage: Stage) -> None:
    _, [told], _ = ask(
        stage,
        envelope(
            "",
            request("openrouter", "broken", returns=True, messages=MESSAGES),
            later("bell", "after-broken", "broken", rings="a"),
            later("bell", "after-that", "after-broken", rings="b"),
            later("bell", "unknown", "nothing", rings="c"),
            later("bell", "one", "two", rings="d"),
            later("bell", "two", "one", rings="e"),
            request("bell", "alone", returns=True, rings="f"),
        ),
        envelope("Done."),
    )
    errors = {one["context"]["request_id"]: one["context"].get("error", "") for one in told}
    assert "depends on a call of 'openrouter' that did not succeed" in errors["after-broken"]
    assert "depends on a call of 'bell' that did not succeed" in errors["after-that"]
    assert "depends on 'nothing', and no request has this id" in errors["unknown"]
    assert all("its dependencies are circular" in errors[one] for one in ("one", "two"))
    assert [one["context"]["output"] for one in told if one["context"]["output"]] == [{"heard": "f"}]


@pytest.mark.feature("F070", "F071", "F023")
def test_the_standard_is_told_once_with_how_to_decide_where_results_go(stage: Stage) -> None:
    _, _, system = ask(stage, envelope("Hello."))
    assert system.count("agent.response.v1") == 1
    assert system.count("return_to_llm") == 2
    assert "true if you need the result to go on" in system
    assert "false if it is the final answer" in system
    assert system.count('{"tool":"calculator"') == 1
