"""`toolwire schedule`, and what `toolwire run` makes of it: through the real store, in several processes."""

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import LIMIT_S, Stage, scripted
from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.rules.schedule_definitions import SCHEDULE, TICK
from toolwire.breadcrumbs.service import RecordService
from toolwire.cli.entry.exits import Exit
from toolwire.protocol.breadcrumbs import Record, RecordQuery
from toolwire.protocol.tools import Grant, Tier
from toolwire.record.projects import of_project
from toolwire.record.sqlite import SqliteStore
from toolwire.wire.codecs.stored import write_grant

ECHO = {"type": "call", "tool": "echo", "arguments": {"message": "hello"}}


def add_overdue(folder: Path, action: dict[str, Any], project: str = "default", **more: Any) -> str:
    """A schedule of an hour ago, due since: with a clock of its own there is nothing to wait for."""

    async def create() -> str:
        store = await SqliteStore.at(folder / ".toolwire")
        try:
            records = RecordService(of_project(store, project), project, clock=lambda: time.time() - 3_600)
            context = {"interval": {"type": "every", "minutes": 50}, "action": action, **more}
            return (await records.create(NewRecord(SCHEDULE, "Overdue", context=context), Caller("ann", Role.ADMIN))).id
        finally:
            await store.close_store()

    return asyncio.run(create())


def records_of(folder: Path, schema_name: str) -> list[Record]:
    async def read() -> list[Record]:
        store = await SqliteStore.at(folder / ".toolwire")
        try:
            records = RecordService(of_project(store, "default"), "default")
            rows = await records.listed(RecordQuery(schema_name=schema_name), RUNTIME, limit=200)
            return [row.value for row in reversed(rows)]
        finally:
            await store.close_store()

    return asyncio.run(read())


def test_schedules_are_added_listed_paused_and_removed(inside: Inside) -> None:
    added = inside("schedule", "add", "Morning", "--daily", "09:00", "--timezone", "Europe/Berlin", "--ask", "New?")
    assert added.code == Exit.DONE, added.err
    [listed] = inside("schedule", "list", "--json").json
    assert (listed["title"], listed["enabled"], listed["runs"]) == ("Morning", True, 0)
    assert listed["next_run"].endswith((":00:00.000Z",))
    assert listed["action"] == {"type": "ask", "question": "New?"}
    assert "Morning" in inside("schedule", "list").out

    assert inside("schedule", "pause", "Morning").code == Exit.DONE
    [paused] = inside("schedule", "list", "--json").json
    assert (paused["enabled"], paused["next_run"]) == (False, None)
    assert inside("schedule", "resume", paused["id"][-8:]).code == Exit.DONE
    assert inside("schedule", "list", "--json").json[0]["enabled"] is True

    assert inside("schedule", "remove", "Evening").code == Exit.NOT_FOUND
    assert inside("schedule", "remove", "Morning").code == Exit.DONE
    assert inside("schedule", "list", "--json").json == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--cron", "0 0 30 2 *"], "day-of-month"),
        (["--cron", "* * *"], "five fields"),
        (["--every", "15"], "such as 15m"),
        ([], "one of --cron"),
        (["--daily", "09:00", "--every", "1h"], "one of --cron"),
        (["--daily", "09:00", "--timezone", "Mars/Base"], "time zone"),
        (["--daily", "09:00", "--ask", "x", "--call", "echo"], "one thing"),
        (["--daily", "09:00", "--call", "echo", "--arguments", "[1]"], "not a JSON object"),
        (["--daily", "09:00", "--missed", "perhaps"], "skip, once, all"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused_with_what_to_do(
    inside: Inside, words: list[str], says: str
) -> None:
    ran = inside("schedule", "add", "x", *words)
    assert (ran.code, says in ran.err) == (Exit.USAGE, True), ran.err


def test_the_next_times_of_an_interval_are_shown(inside: Inside) -> None:
    times = inside("schedule", "next", "--cron", "30 9 * * MON", "--timezone", "Asia/Tokyo", "--json").json
    assert len(times) == 5
    assert all(time.endswith("T09:30+09:00") for time in times)


@pytest.mark.feature("F181")
def test_a_schedule_calls_its_tool_once_however_many_runners_there_are(stage: Stage) -> None:
    """Two processes start at the same moment on one store. The call, its turn and its tick are there once."""
    schedule = add_overdue(stage.folder, ECHO)

    runners = [stage.start("run", "--once", "--json") for _ in range(2)]
    said = [runner.communicate(timeout=LIMIT_S) for runner in runners]

    assert [runner.returncode for runner in runners] == [0, 0], said
    [tick] = records_of(stage.folder, TICK)
    assert tick.context["schedule_id"] == schedule
    turns = [json.loads(line) for out, _ in said for line in out.splitlines()]
    assert [turn["turn_id"] for turn in turns] == [tick.context["turn_id"]]
    assert json.loads(turns[0]["answer"])["results"] == {"call": {"echo": "hello"}}
    [listed] = stage.run("schedule", "list", "--json").json
    assert (listed["runs"], listed["error"]) == (1, "")


def test_a_schedule_asks_an_agent_with_the_grant_of_the_settings(inside: Inside, tmp_path: Path) -> None:
    with scripted([("calculator", {"expression": "6*7"})], "It is 42.") as model:
        url = f'url = "{model.url}"'
        profile = f'[profiles.main]\nprovider = "openai-compatible"\nmodel = "scripted"\n{url}\n'
        (tmp_path / "toolwire.toml").write_text(f'profile = "main"\n{profile}', encoding="utf-8")
        add_overdue(tmp_path, {"type": "ask", "question": "What is 6*7?"})
        ran = inside("run", "--once", "--json")
    assert (ran.code, ran.json["answer"]) == (Exit.DONE, "It is 42."), ran.err


def test_a_call_that_needs_approval_waits_for_it(painter: Inside, tmp_path: Path) -> None:
    add_overdue(tmp_path, {"type": "call", "tool": "paint", "arguments": {"colour": "red"}})
    assert painter("run", "--once", "--json").json["state"] == "waiting"
    assert not (tmp_path / "painted").exists()

    assert painter("approve").code == Exit.DONE
    assert painter("run", "--once", "--json").json["state"] == "ended"
    assert (tmp_path / "painted").read_text() == "red\n"


def test_a_schedule_of_a_tool_that_is_not_there_says_so(inside: Inside, tmp_path: Path) -> None:
    add_overdue(tmp_path, {"type": "call", "tool": "ecko"})
    assert inside("run", "--once").code == Exit.DONE
    [listed] = inside("schedule", "list", "--json").json
    assert "ecko" in listed["error"]


def overdue_reading(inside: Inside, folder: Path, permissions: list[str]) -> str:
    """What comes of a schedule whose author, a model, had these permissions: it reads a file."""
    (folder / "notes.txt").write_text("hello from the file", encoding="utf-8")
    grant = '[grant]\npermissions = ["file_read"]\n'
    (folder / "toolwire.toml").write_text(f'[tools]\ngroups = ["read_only"]\n{grant}', encoding="utf-8")
    action = {"type": "call", "tool": "read", "arguments": {"path": "notes.txt"}}
    made_by = write_grant(Grant(Tier.RUN, frozenset(permissions), roots=(str(folder),)))
    add_overdue(folder, action, grant=made_by)
    return inside("run", "--once", "--json").out


def test_T270_a_schedule_of_a_model_may_not_do_what_its_turn_could_not(inside: Inside, tmp_path: Path) -> None:
    out = overdue_reading(inside, tmp_path, ["records"])
    assert out == ""
    assert "calls 'read', which cannot be used here" in inside("schedule", "list", "--json").json[0]["error"]


def test_T270_control_with_the_permission_of_its_turn_it_may(inside: Inside, tmp_path: Path) -> None:
    assert "hello from the file" in overdue_reading(inside, tmp_path, ["records", "file_read"])


def test_T270_a_schedule_of_a_model_runs_under_the_name_of_its_agent(inside: Inside, tmp_path: Path) -> None:
    """Under another one it would have the configurations and private records of that one, and approve its own work."""
    overdue_reading(inside, tmp_path, ["records", "file_read"])
    [result] = records_of(tmp_path, "tool.response.v1")
    assert result.created_by == "agent:ann"


def test_a_runner_of_all_projects_fires_the_schedules_of_each_in_its_own_folder(inside: Inside, tmp_path: Path) -> None:
    """A project whose settings are broken is told of, and holds up no other one."""
    for name in ("acme", "broken", "zoo"):
        (tmp_path / "projects" / name).mkdir(parents=True)
        add_overdue(tmp_path, ECHO, project=name)
    (tmp_path / "projects" / "broken" / "toolwire.toml").write_text("nonsense = [", encoding="utf-8")

    ran = inside("run", "--once", "--json", "--all-projects")

    assert sorted(json.loads(line)["project"] for line in ran.out.splitlines()) == ["acme", "zoo"], ran.err
    assert "project broken are not looked after" in ran.err


def test_a_runner_that_is_killed_leaves_one_firing_to_be_finished_by_the_next(stage: Stage) -> None:
    with scripted("It is 42.", "It is 42.") as model:
        model.gates[1] = threading.Event()
        profile = f'[profiles.main]\nprovider = "openai-compatible"\nmodel = "scripted"\nurl = "{model.url}"\n'
        stage.settings(f'profile = "main"\n{profile}')
        add_overdue(stage.folder, {"type": "ask", "question": "What is 6*7?"})
        killed = stage.start("run", "--json")
        model.wait_for_request(killed)
        killed.kill()
        killed.wait(LIMIT_S)
        ran = stage.run("run", "--once", "--json")

    [tick] = records_of(stage.folder, TICK)
    assert (ran.json["turn_id"], ran.json["answer"]) == (tick.context["turn_id"], "It is 42."), ran.err
    assert stage.run("status", "--json").json["turns"] == {"running": 0, "interrupted": 0, "ended": 1}


def test_a_server_that_runs_agents_fires_schedules_too(stage: Stage) -> None:
    with scripted("It is 42.") as model:
        profile = f'[profiles.main]\nprovider = "openai-compatible"\nmodel = "scripted"\nurl = "{model.url}"\n'
        stage.settings(f'profile = "main"\n[serve]\nport = 0\nupstream = "{model.url}"\nagents = true\n{profile}')
        add_overdue(stage.folder, {"type": "ask", "question": "What is 6*7?"})
        server = stage.start("serve", "--token-env", "TOKEN", TOKEN="a-token-of-some-length")
        model.wait_for_request(server)
    assert "What is 6*7?" in json.dumps(model.requests[0]["messages"])
