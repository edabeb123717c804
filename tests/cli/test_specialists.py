"""Specialist agents in a real project: woken by `toolwire run`, asked by a turn that waits, never more than granted."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import Script, scripted
from tests.cli.test_schedule import records_of
from toolwire.breadcrumbs.rules.agent_definitions import RESPONSE
from toolwire.cli.entry.exits import Exit

MAKER = {"name": "tool-maker", "system_prompt": "You make tools.", "tools": ["calculator"]}
ASK = {"agent": "tool-maker", "title": "A clock", "context": {"tool_name": "clock"}}


def settings(folder: Path, model: Script, more: str = "") -> None:
    profile = f'[profiles.main]\nprovider = "openai-compatible"\nmodel = "scripted"\nurl = "{model.url}"\n'
    grant = '[grant]\ntier = "walk"\npermissions = ["records", "session", "file_read"]\n'
    text = f'profile = "main"\n{more}\n[tools]\ngroups = ["records", "read_only"]\n{grant}{profile}'
    (folder / "toolwire.toml").write_text(text, encoding="utf-8")


def define(inside: Inside, **more: Any) -> None:
    made = inside("records", "create", "agent.def.v1", json.dumps({**MAKER, **more}), "--title", "Maker")
    assert made.code == Exit.DONE, made.err


def request(inside: Inside, context: str = "{}") -> str:
    tags = ("--tag", "assigned-to:tool-maker")
    made = inside("records", "create", "tool.creation.request.v1", context, "--title", "A clock", *tags)
    assert made.code == Exit.DONE, made.err
    return made.out.strip()


@pytest.mark.feature("F069", "F174")
def test_a_request_of_a_person_is_done_by_the_agent_that_it_is_assigned_to(inside: Inside, tmp_path: Path) -> None:
    with scripted([("calculator", {"expression": "12*60"})], "def clock(): …") as model:
        settings(tmp_path, model)
        define(inside)
        wanted = request(inside, '{"tool_name": "clock"}')
        ran = inside("run", "--once", "--json")
        assert inside("run", "--once", "--json").out == ""

    assert (ran.code, ran.json["answer"]) == (Exit.DONE, "def clock(): …"), ran.err
    first = model.requests[0]
    assert [said["content"] for said in first["messages"] if said["role"] == "system"] == ["You make tools."]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["calculator"]
    [response] = records_of(tmp_path, RESPONSE)
    assert (response.context["request_id"], response.context["status"]) == (wanted, "success")
    assert response.context["answer"] == "def clock(): …"


def test_a_turn_waits_for_the_agent_to_which_it_assigns_work(inside: Inside, tmp_path: Path) -> None:
    with scripted([("assign", ASK)], "def clock(): …", "It is made.") as model:
        settings(tmp_path, model)
        define(inside)
        asked = inside("ask", "Make a clock")
        assert asked.code == Exit.WAITING, asked.err
        ran = inside("run", "--once", "--json")

    answers = [json.loads(line)["answer"] for line in ran.out.splitlines()]
    assert answers == ["def clock(): …", "It is made."], ran.err
    told = model.requests[-1]["messages"][-1]["content"]
    assert "def clock(): …" in told
    assert len(records_of(tmp_path, RESPONSE)) == 1


def test_an_agent_that_is_not_there_is_told_with_those_that_are(inside: Inside, tmp_path: Path) -> None:
    with scripted([("assign", {**ASK, "agent": "tool-makr"})], "Sorry.") as model:
        settings(tmp_path, model)
        define(inside)
        asked = inside("ask", "Make a clock")
    assert asked.code == Exit.DONE
    assert "did you mean tool-maker?" in model.requests[-1]["messages"][-1]["content"]


def test_a_specialist_has_no_more_than_its_definition_and_its_project_allow(inside: Inside, tmp_path: Path) -> None:
    """The tool is there and named; the permission that it needs is taken away by the definition."""
    with scripted([("read", {"path": "notes.txt"})], "I could not read it.") as model:
        (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
        settings(tmp_path, model)
        define(inside, tools=["read"], permissions=[])
        request(inside)
        inside("run", "--once", "--json")
    assert "hello" not in json.dumps(model.requests)
    assert "file_read" in model.requests[-1]["messages"][-1]["content"]


def test_a_tool_that_the_project_does_not_have_is_the_reason_in_the_response(inside: Inside, tmp_path: Path) -> None:
    with scripted() as model:
        settings(tmp_path, model)
        define(inside, tools=["bash"])
        request(inside)
        assert inside("run", "--once", "--json").out == ""
    [response] = records_of(tmp_path, RESPONSE)
    assert (response.context["status"], "bash" in response.context["error"]) == ("failed", True)
    assert model.requests == []


READS = [("read", {"path": "notes.txt"})]
LESS = '[agents.cli]\npermissions = ["records", "session"]\n'


def assigned_reading(inside: Inside, folder: Path, grant: str) -> str:
    """What a specialist with the tool `read` is told, for a turn of an agent with this grant."""
    (folder / "notes.txt").write_text("hello from the file", encoding="utf-8")
    with scripted([("assign", ASK)], READS, "Done.", "Done.") as model:
        settings(folder, model, grant)
        define(inside, tools=["read"])
        assert inside("ask", "Read it").code == Exit.WAITING
        inside("run", "--once")
    return str(model.requests[2]["messages"][-1]["content"])


def test_T271_a_specialist_may_not_do_what_the_turn_that_asks_may_not(inside: Inside, tmp_path: Path) -> None:
    told = assigned_reading(inside, tmp_path, LESS)
    assert ("hello from the file" in told, "file_read" in told) == (False, True)


def test_T271_control_for_a_turn_that_may_read_the_specialist_reads(inside: Inside, tmp_path: Path) -> None:
    assert "hello from the file" in assigned_reading(inside, tmp_path, "")


def test_what_a_specialist_uses_counts_against_the_day_of_its_project(inside: Inside, tmp_path: Path) -> None:
    """Its name is in no settings, and still neither it nor the agent at the terminal gets a day of its own."""
    with scripted([("calculator", {"expression": "12*60"})], "Made.") as model:
        settings(tmp_path, model, "[budget]\ncalls = 1\n")
        define(inside)
        request(inside)
        assert inside("run", "--once", "--json").json["answer"] == "Made."
        spent = inside("call", "calculator", "expression=1")
        request(inside)
        assert inside("run", "--once", "--json").out == ""
    assert (spent.code == Exit.DONE, "1 calls of 1 calls" in spent.err) == (False, True), spent.err
    assert "budget" in records_of(tmp_path, RESPONSE)[-1].context["error"]
    assert inside("status", "--json").json["budget"]["calls"] == {"used": 1, "allowed": 1}
