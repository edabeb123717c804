"""The eight patterns of the tool invocation standard from end to end: a scripted model, real tools, a real store.

What happened is read afterwards as records, from the store that the command has left.
"""

import asyncio
import json
from typing import Any

import pytest

from tests.cli.stage import Ran, Script, Stage, scripted
from tests.cli.test_rcrt_patterns import envelope, request
from toolwire import SqliteStore
from toolwire.breadcrumbs.rules.callers import RUNTIME
from toolwire.breadcrumbs.service import RecordService
from toolwire.protocol.breadcrumbs import RecordQuery

KEY = "sk-9f8e7d6c5b4a"
MESSAGES = [
    {"role": "system", "content": "Analyze this code for bugs"},
    {"role": "user", "content": "def foo():\n  return bar"},
]
SETTINGS = """
profile = "rcrt"

[tools]
groups = ["workflow", "records", "models"]
models = ["venice vendor/small at LLM", "ollama_local llama at OLLAMA"]

[grant]
tier = "run"
permissions = ["records", "network"]

[profiles.rcrt]
provider = "openai-compatible"
model = "scripted"
url = "URL"

[profiles.rcrt.tools]
definition_format = "rcrt"
"""


class Patterns:
    """A project whose model answers in the envelope, and which can ask another model over HTTP."""

    def __init__(self, stage: Stage, llm: Script) -> None:
        self.stage = stage
        self.llm = llm
        self.told: list[list[dict[str, Any]]] = []

    def ask(self, *lines: str, thread: str = "abc") -> Ran:
        """Ask, with these answers of the model; what it was told in return is in `told`, step by step."""
        with scripted(*lines) as model:
            self.settings(model.url)
            ran = self.stage.run("ask", "Go", "--no-stdin", "--thread", thread)
            assert ran.code == 0, ran.err
            self.told = [_responses(said["messages"][-1]["content"]) for said in model.requests[1:]]
        return ran

    def settings(self, url: str) -> None:
        text = SETTINGS.replace("URL", url).replace("OLLAMA", "http://127.0.0.1:9")
        self.stage.settings(text.replace("LLM", self.llm.url))

    def records(self, schema_name: str = "", *tags: str) -> list[dict[str, Any]]:
        """Records of the project, the newest first."""
        return asyncio.run(self._records(RecordQuery(schema_name, all_tags=tags)))

    async def _records(self, query: RecordQuery) -> list[dict[str, Any]]:
        async with await SqliteStore.at(self.stage.folder / ".toolwire") as store:
            rows = await RecordService(store, "default").listed(query, RUNTIME)
        names = ("id", "schema_name", "title", "tags", "context", "version")
        return [{name: getattr(row.value, name) for name in names} for row in rows]

    def outputs(self) -> list[Any]:
        """The outputs that came back to the model."""
        return [one["context"]["output"] for step in self.told for one in step]


def _responses(content: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines() if line.startswith('{"schema_name":"tool.response.v1"')]


@pytest.fixture
def patterns(stage: Stage) -> Any:
    with scripted("bar is undefined.", "Nothing is wrong.") as llm:
        yield Patterns(stage, llm)


@pytest.mark.feature("F147", "F148", "F002", "F003")
def test_pattern_1_a_simple_call_and_its_records(patterns: Patterns) -> None:
    ran = patterns.ask(
        envelope("I'll calculate that for you.", request("calculator", "calc-001", returns=False, expression="25 * 4"))
    )
    assert "100" in ran.out
    assert patterns.told == []
    [response] = patterns.stage.run("records", "list", "--tag", "request:calc-001", "--json").json
    assert response["schema_name"] == "tool.response.v1"
    assert response["tags"] == ["tool:response", "request:calc-001", "session:abc"]
    context = response["context"]
    assert (context["status"], context["output"]["result"], context["error"]) == ("success", 100, None)
    [answer] = patterns.records("agent.response.v1")
    assert (answer["title"], answer["tags"]) == ("I'll calculate that for you.", ("agent:response", "session:abc"))
    forged = patterns.stage.run("records", "edit", response["id"], '{"title": "forged"}', "--version", "1")
    assert forged.code != 0
    assert "cannot be written" in forged.err


@pytest.mark.feature("F013")
def test_pattern_2_another_model_is_asked_with_the_configuration_that_was_named(patterns: Patterns) -> None:
    config = {
        "toolName": "openrouter",
        "agents": ["cli"],
        "config": {"apiKey": KEY, "defaultModel": "vendor/large", "baseUrl": patterns.llm.url},
    }
    patterns.settings("http://127.0.0.1:9")
    made = patterns.stage.run(
        "records", "create", "tool.config.v1", "-", "--title", "Keys", "--json", stdin=json.dumps(config).encode()
    )
    assert made.code == 0, made.err
    config_id = made.json.get("record", made.json)["id"]
    asked = {**request("openrouter", "llm-001", returns=True, messages=MESSAGES), "config_id": config_id}
    ran = patterns.ask(
        envelope("Let me ask an LLM.", asked, {**asked, "tool": "venice", "requestId": "llm-002"}),
        envelope("The code has a bug."),
    )
    [[good, refused]] = patterns.told
    assert good["context"]["output"]["content"] == "bar is undefined."
    assert (patterns.llm.requests[0]["model"], patterns.llm.headers[0]["authorization"]) == (
        "vendor/large", f"Bearer {KEY}",
    )  # fmt: skip
    assert "does not exist, or this call may not use it" in refused["context"]["error"]
    assert len(patterns.llm.requests) == 1
    assert "The code has a bug." in ran.out


def test_pattern_3_parallel_requests_are_joined_and_each_is_a_record(patterns: Patterns) -> None:
    patterns.ask(
        envelope(
            "In parallel.",
            request("venice", "search-weather", returns=True, messages=MESSAGES),
            request("venice", "search-news", returns=True, messages=MESSAGES),
        ),
        envelope("Both are back."),
    )
    assert sorted(one["content"] for one in patterns.outputs()) == ["Nothing is wrong.", "bar is undefined."]
    assert len(patterns.told) == 1
    tags = [one["tags"][1] for one in patterns.records("tool.response.v1")]
    assert tags == ["request:search-news", "request:search-weather"]


def test_pattern_4_a_workflow_keeps_its_results_and_creates_a_record(patterns: Patterns) -> None:
    steps = [
        {"id": "num", "tool": "random", "input": {"min": 4, "max": 4}},
        {"id": "sum", "tool": "calculator", "input": {"expression": "${num.numbers[0]} + 5"}},
        {
            "id": "note",
            "tool": "breadcrumb-create",
            "input": {"schema_name": "sum.v1", "title": "Sum", "context": {"sum": "${sum.result}"}},
        },
    ]
    patterns.ask(envelope("Running it.", request("workflow", "workflow-001", returns=False, steps=steps)))
    [note] = patterns.records("sum.v1")
    assert note["context"] == {"sum": 9}
    [response] = patterns.records("", "request:workflow-001")
    assert response["context"]["output"]["executionOrder"] == ["num", "sum", "note"]
    assert [one["context"]["message"] for one in patterns.records("agent.response.v1")] == ["Running it."]


def test_pattern_5_an_error_comes_back_and_a_record_says_why(patterns: Patterns) -> None:
    patterns.llm.lines[:] = [400, "bar is undefined."]
    ran = patterns.ask(
        envelope("Asking.", request("venice", "llm-001", returns=False, messages=MESSAGES)),
        envelope("Once more.", request("venice", "llm-002", returns=True, messages=MESSAGES)),
        envelope("It is bar."),
    )
    assert [step[0]["context"]["status"] for step in patterns.told] == ["error", "success"]
    assert "It is bar." in ran.out
    [failed] = patterns.records("", "request:llm-001")
    assert (failed["context"]["status"], failed["context"]["output"]) == ("error", None)
    assert failed["context"]["error"]


@pytest.mark.feature("F194", "F241", "F192")
def test_pattern_6_records_are_created_found_and_updated(patterns: Patterns) -> None:
    created = request(
        "breadcrumb-create", "create-001", returns=False, schema_name="note.v1", title="Meeting Notes",
        tags=["note", "meeting", "session:SESSION_ID"], context={"content": "about the project", "by": "Ann"},
    )  # fmt: skip
    ran = patterns.ask(envelope("I keep that.", created))
    [note] = patterns.records("note.v1")
    assert note["id"] in ran.out
    assert note["tags"] == ("note", "meeting", "session:abc")
    updates = {"tags": ["note", "meeting", "important"], "context": {"content": "updated content"}}
    update = request("breadcrumb-update", "update-001", returns=True, breadcrumb_id=note["id"], updates=updates)
    patterns.ask(
        envelope("", update),
        envelope("", request("breadcrumb-search", "search-001", returns=True, query="meeting notes project", nn=5)),
        envelope("", update),
        envelope("Done."),
    )
    blind, found, done = patterns.told
    assert blind[0]["context"]["status"] == "error"
    assert [one["id"] for one in found[0]["context"]["output"]["breadcrumbs"]] == [note["id"]]
    assert done[0]["context"]["output"]["new_version"] == 2
    [after] = patterns.records("note.v1")
    assert (after["version"], after["context"]) == (2, {"content": "updated content", "by": "Ann"})
    assert after["tags"] == ("note", "meeting", "important", "session:abc")


@pytest.mark.feature("F169")
def test_pattern_7_what_was_found_is_given_to_another_model_and_then_answered(patterns: Patterns) -> None:
    patterns.settings("http://127.0.0.1:9")
    article = '{"text": "browser automation security: keep profiles apart"}'
    assert patterns.stage.run("records", "create", "article.v1", article, "--title", "Browsers").code == 0
    ran = patterns.ask(
        envelope("Searching.", request("breadcrumb-search", "s-1", returns=True, query="browser automation security")),
        envelope("Found 1.", request("venice", "llm-001", returns=True, messages=MESSAGES)),
        envelope("Based on my analysis: keep profiles apart."),
    )
    found, thought = patterns.outputs()
    assert (found["count"], thought["content"]) == (1, "bar is undefined.")
    assert "Based on my analysis" in ran.out
    messages = [one["context"]["message"] for one in patterns.records("agent.response.v1")]
    assert messages == ["Based on my analysis: keep profiles apart.", "Found 1.", "Searching."]


@pytest.mark.feature("F174", "F069")
def test_pattern_8_a_request_is_delegated_to_a_specialist_and_its_answer_comes_back(patterns: Patterns) -> None:
    patterns.settings("http://127.0.0.1:9")
    specialist = {"name": "tool-creator", "system_prompt": "You create tools.", "tools": ["calculator"]}
    made = patterns.stage.run("records", "create", "agent.def.v1", json.dumps(specialist), "--title", "Tool creator")
    assert made.code == 0, made.err
    wish = request(
        "breadcrumb-create", "delegate-001", returns=False, schema_name="tool.creation.request.v1",
        title="Tool Request: Counter", tags=["tool:creation", "assigned-to:tool-creator"],
        context={
            "tool_name": "counter", "description": "Counts from 1 to 10", "requestedBy": "cli",
            "requirements": ["Sequential counting", "Return array"],
        },
    )  # fmt: skip
    patterns.ask(envelope("I'm delegating tool creation to our specialist.", wish))
    [asked] = patterns.records("tool.creation.request.v1")
    with scripted(
        envelope("", request("calculator", "sum-1", returns=True, expression="1 + 9")), envelope("It counts to 10.")
    ) as model:
        patterns.settings(model.url)
        ran = patterns.stage.run("run", "--once")
        assert ran.code == 0, ran.err
        said = model.requests
    assert "You create tools." in said[0]["messages"][0]["content"]
    assert "Counts from 1 to 10" in json.dumps(said[0]["messages"])
    [answer] = patterns.records("delegation.response.v1")
    assert (answer["context"]["status"], answer["context"]["answer"]) == ("success", "It counts to 10.")
    assert f"request:{asked['id']}" in answer["tags"]
