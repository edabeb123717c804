"""A registered tool on its whole way: an agent calls it, a service in Node runs it, cards over HTTP, a report back."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.bus.servers import NatsServer, running
from tests.cli.stage import LIMIT_S, Stage, scripted
from tests.conformance.test_kit import NODE, SERVICE
from tests.gateway.test_serve import address, first_line
from tests.no_tls import NO_TLS
from toolwire.cli.entry.exits import Exit

SETTINGS = """
[bus]
kind = "nats"
url = ["{url}"]
[serve]
upstream = "http://127.0.0.1:9"
port = 0
[bus_services.notes]
token_env = "SERVICE_TOKEN"
tools = ["note"]
[grant]
tier = "run"
confirmed = ["note"]
"""
TOKEN = "a-token-of-ann"
PROFILE = """
[profiles.small]
provider = "openai-compatible"
model = "scripted"
url = "{url}"
"""
ROW = {
    "tool_name": "note",
    "description": "Writes a line down.",
    "target_subject": "cg.v1r4.{project_id}.{channel_id}.cmd.tool.note",
    "parameters": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "owner": {"type": "string"}, "key": {"type": "string"}},
        "required": ["text", "owner"],
    },
    "options": {"args": {"fixed": {"owner": "hidden-owner"}}, "envs": {"key": "HIDDEN_VARIABLE"}},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def stage(tmp_path: Path, broker: NatsServer) -> Iterator[Stage]:
    stage = Stage(tmp_path, {"SERVICE_TOKEN": "a-token-of-the-service"})
    stage.settings(SETTINGS.format(url=broker.url))
    (tmp_path / "tools.json").write_text(json.dumps({"tools": [ROW]}), encoding="utf-8")
    assert stage.run("registry", "add", "tools.json").code == Exit.DONE
    yield stage
    stage.close()


def test_T178_registered_tools_are_offered_without_what_they_hide(stage: Stage) -> None:
    listed = {tool["name"]: tool for tool in stage.run("tools", "list", "--json").json}
    shown = stage.run("tools", "show", "note", "--json")
    refused = stage.run("call", "note", "text=x", "owner=me")

    assert listed["note"]["offered"] is True
    assert list(shown.json["input_schema"]["properties"]) == ["text"]
    for hidden in ("hidden-owner", "HIDDEN_VARIABLE", "owner"):
        assert hidden not in json.dumps(listed) + shown.out
    assert (refused.code, "owner: not an argument of this tool" in refused.out + refused.err) == (Exit.FAILED, True)
    stage.settings("")
    assert stage.run("tools", "show", "note").code == Exit.NOT_FOUND


def test_T178_control_people_see_the_whole_row(stage: Stage) -> None:
    assert "hidden-owner" in stage.run("registry", "show", "note").out


def asked_over_http(url: str, question: str) -> str:
    """The answer of a turn that a client of the gateway begins."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx2.Client(base_url=url, headers=headers, timeout=LIMIT_S, trust_env=False, verify=NO_TLS) as http:
        turn = http.post("/v1/turns", json={"question": question}).json()["id"]
        end = time.monotonic() + LIMIT_S
        while (shown := http.get(f"/v1/turns/{turn}").json())["state"] != "ended":
            assert time.monotonic() < end, shown
            http.get(f"/v1/turns/{turn}/events").read()  # it lasts until the turn waits or has ended
        return str(shown["answer"])


@contextmanager
def started(environ: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen([NODE, SERVICE], env=environ)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(LIMIT_S) == 0


@pytest.mark.feature("F051")
@pytest.mark.feature("F197")
def test_an_agent_calls_a_service_in_node_and_gets_its_result(stage: Stage, broker: NatsServer) -> None:
    notes = stage.folder / "notes.txt"
    with scripted([("note", {"text": "buy milk"})], "Noted.", [("note", {"text": "buy tea"})], "Noted, too.") as model:
        stage.settings('profile = "small"\n' + SETTINGS.format(url=broker.url) + PROFILE.format(url=model.url))
        server = stage.start("serve", "--agents", "--token-env", "ANN", ANN=TOKEN)
        url = address(first_line(server))
        service = {"NATS_URL": broker.url, "CARDS_URL": url, "CARDS_TOKEN": "a-token-of-the-service"}
        service |= {"TOOL_SUBJECT": "cg.v1r4.default.public.cmd.tool.note", "NOTES": str(notes)}
        with started(service):
            asked = stage.run("ask", "Note: buy milk", "--json")
            answer = asked_over_http(url, "Note: buy tea")
            called = stage.run("call", "note", "text=buy bread", "--json")

    assert (asked.code, asked.json["answer"]) == (Exit.DONE, "Noted."), asked.err
    assert (answer, called.code) == ("Noted, too.", Exit.DONE)
    assert notes.read_text(encoding="utf-8") == "buy milk\nbuy tea\nbuy bread\n"
    sent = json.dumps(model.requests)
    assert "noted" in sent
    for hidden in ("hidden-owner", "HIDDEN_VARIABLE"):
        assert hidden not in sent + asked.out
    events = [row["event"] for row in stage.run("logs", "--json").json]
    assert [events.count(event) for event in ("dispatched", "finished", "report_refused")] == [3, 3, 0]
