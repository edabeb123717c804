"""Details on demand: a model that was told its tools on one line each, and the record about all of them."""

import json
from typing import Any

import httpx2

from tests.cli.conftest import Inside
from tests.cli.stage import LIMIT_S, Stage, scripted
from tests.gateway.test_serve import address, first_line
from tests.no_tls import NO_TLS

SETTINGS = """
profile = "short"

[tools]
groups = ["catalogue", "data"]

[profiles.short]
provider = "openai-compatible"
model = "scripted"
url = "URL"

[profiles.short.tools]
definition_format = "compact"
"""


def line(tool: str, **given: object) -> str:
    return json.dumps({"tool": tool, "input": given})


def test_a_model_asks_for_one_tool_in_full_and_calls_it_in_the_short_form(stage: Stage) -> None:
    transform = line("json-transform", data={"a": [3, 1]}, operation="sort", path="a", sort_by="@")
    with scripted(line("tool-show", name="json-transform"), transform, "It is 1, 3.") as model:
        stage.settings(SETTINGS.replace("URL", model.url))
        ran = stage.run("ask", "Sort it", "--no-stdin")
        assert ran.code == 0, ran.err
        system = model.requests[0]["messages"][0]["content"]
        shown, sorted_ = (asked["messages"][-1]["content"] for asked in model.requests[1:])
    assert "random(min=1, max=100, count=1) -> numbers — Draw random whole numbers." in system
    assert "sort_by" not in system
    definition = json.loads(shown)["output"]["tool"]
    assert "sort_by" in definition["input_schema"]["properties"]
    assert definition["name"] == "json-transform"
    assert json.loads(sorted_)["output"]["result"] == [1, 3]
    assert "It is 1, 3." in ran.out


def test_only_what_can_be_called_is_shown_and_a_slip_is_answered_with_the_nearest_name(inside: Inside) -> None:
    everything = inside("call", "tool-show", "--tools", "catalogue,coding", "--json").json["structured"]
    assert everything["catalogue"].startswith("[")
    assert "read(path: string" in everything["catalogue"]
    lines = [line for line in everything["catalogue"].splitlines() if not line.startswith("[")]
    assert everything["total"] == len(lines) > 10
    assert not any(line.startswith("write(") for line in lines)
    missed = inside("call", "tool-show", "--tools", "catalogue", "--args", '{"name": "randm"}', "--json")
    assert "did you mean random" in missed.out


def test_serve_keeps_the_catalogue_of_tools_as_a_record(stage: Stage) -> None:
    stage.settings('[serve]\nupstream = "http://127.0.0.1:9"\nport = 0\n[records]\nwriters = ["ANN"]\n')
    process = stage.start("serve", "--token-env", "ANN", ANN="token-of-ANN")
    try:
        url = address(first_line(process))
        with httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False, verify=NO_TLS) as http:
            http.headers["x-api-key"] = "token-of-ANN"
            found: list[Any] = []
            while not found:  # it is written right after the server has begun to listen
                found = http.get("/v1/records?schema_name=tool.catalog.v1").json()["data"]
            raw, view = (http.get(f"/v1/records/{found[0]['id']}?view={view}").json() for view in ("raw", "llm"))
    finally:
        process.terminate()
        process.wait(LIMIT_S)
    assert raw["context"]["activeTools"] == raw["context"]["totalTools"] == 5
    assert "calculator(expression: string) -> result" in view["context"]["compact"]
    assert set(view["context"]) == {"activeTools", "compact"}
