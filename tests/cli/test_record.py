"""`toolwire status`, `metrics`, `logs` and `doctor`: what is on record, and what works here."""

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import LIMIT_S, Stage, scripted
from toolwire import SqliteStore, run_sync
from toolwire.cli.entry.exits import Exit
from toolwire.protocol.records import AuditRow


@pytest.mark.feature("F225")
def test_status_shows_settings_with_their_origin_turns_and_the_health_of_tools(inside: Inside) -> None:
    Path("toolwire.toml").write_text("[loop]\niterations = 4\n")
    with scripted([("calculator", {"expression": "1/0"})], "It cannot be done.") as model:
        inside("ask", "What is 1/0?", *model.flags)
    said = inside("status", "--json").json
    [setting] = said["settings"]
    assert (setting["key"], setting["value"]) == ("loop.iterations", 4)
    assert "toolwire.toml, line 2" in setting["origin"]
    assert said["turns"] == {"running": 0, "interrupted": 0, "ended": 1}
    health = {tool["tool"]: tool for tool in said["tools"]}
    assert (health["calculator"]["calls"], health["calculator"]["success"]) == (1, 0)
    assert health["calculator"]["last_error"]
    told = inside("status").out
    assert "loop.iterations = 4" in told
    assert "What is 1/0?" in told
    assert "loop.iterations" not in inside("status", "--tools").out


@pytest.mark.feature("F225")
def test_metrics_count_calls_and_turns(inside: Inside) -> None:
    for expression in ("1+1", "2+2", "1/0"):
        inside("call", "calculator", f"expression={expression}")
    said = inside("metrics", "--json").json
    [calculator] = said["tools"]
    assert (calculator["calls"], calculator["success"], calculator["errors"]) == (3, 2, 1)
    assert said["loop"]["turns"] == 3
    assert "67%" in inside("metrics", "--tools").out
    assert "3 ended" in inside("metrics", "--loop").out
    assert inside("metrics", "--loop", "--json").json.keys() == {"loop"}


@pytest.mark.feature("F220")
def test_metrics_of_tools_tell_errors_by_type_and_how_calls_got_on_together(inside: Inside) -> None:
    for expression in ("1+1", "1/0", "2+"):
        inside("call", "calculator", f"expression={expression}")
    said = inside("metrics", "--tools", "--json").json
    [calculator] = said["tools"]
    assert sum(calculator["errors_by_type"].values()) == 2
    assert calculator["success_rate"] == pytest.approx(1 / 3)
    assert calculator["avg_ms"] == pytest.approx(calculator["total_ms"] / 3)
    assert (said["together"]["turns"], said["together"]["parallel_batches"]) == (3, 0)
    shown = inside("metrics", "--tools").out
    assert "calculator: execution_failed 1, invalid_params 1; last: invalid_params:" in " ".join(shown.split())
    assert "recovery" in shown


@pytest.mark.feature("F225")
def test_logs_show_the_audit_log_and_can_be_narrowed(inside: Inside) -> None:
    inside("call", "calculator", "expression=1")
    turn_id = inside("status", "--json").json["newest"][0]["id"]
    inside("call", "echo", "message=hi")
    rows = inside("logs", "--json").json
    assert [(row["tool"], row["event"]) for row in rows] == [
        ("calculator", "allowed"),
        ("calculator", "finished"),
        ("echo", "allowed"),
        ("echo", "finished"),
    ]
    assert {row["tool"] for row in inside("logs", "--json", "--tool", "echo").json} == {"echo"}
    assert {row["tool"] for row in inside("logs", "--json", "--turn", turn_id).json} == {"calculator"}
    assert len(inside("logs", "--filter=tool", "--limit", "3", "--json").json) == 3
    assert "finished" in inside("logs").out
    assert inside("logs", "--turn", "nosuch").code == Exit.NOT_FOUND


@pytest.mark.feature("F225")
def test_logs_can_be_followed_while_another_process_writes(stage: Stage) -> None:
    stage.run("call", "echo", "message=first")
    following = stage.start("logs", "--follow", "--json")
    assert following.stdout is not None
    first = [json.loads(following.stdout.readline()) for _ in range(2)]
    stage.run("call", "calculator", "expression=1")
    then = [json.loads(following.stdout.readline()) for _ in range(2)]
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=LIMIT_S)
    assert [row["tool"] for row in [*first, *then]] == ["echo", "echo", "calculator", "calculator"]
    assert following.returncode == Exit.INTERRUPTED


@pytest.mark.feature("F225")
def test_logs_that_are_followed_skip_nothing_when_more_is_written_than_one_look_shows(stage: Stage) -> None:
    """Rows come together, several times as many as are read at once."""
    stage.run("call", "echo", "message=first")
    following = stage.start("logs", "--follow", "--json")
    assert following.stdout is not None
    first = [json.loads(following.stdout.readline()) for _ in range(2)]
    run_sync(_written(stage.folder / ".toolwire", 2_500))
    then = [json.loads(following.stdout.readline()) for _ in range(2_500)]
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=LIMIT_S)
    assert [row["tool"] for row in first] == ["echo", "echo"]
    assert [row["event"] for row in then] == [f"event-{number}" for number in range(2_500)]


async def _written(home: Path, count: int) -> None:
    async with await SqliteStore.at(home) as store:
        await store.audit([AuditRow(1.0, f"event-{number}") for number in range(count)])


def test_looking_at_an_empty_record_makes_none(inside: Inside) -> None:
    assert "none yet" in inside("status").out
    assert inside("logs", "--json").json == []
    assert inside("metrics").out.startswith("No tool has been called yet.")
    assert not Path(".toolwire").exists()


def test_the_doctor_says_what_works_and_what_to_do(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "very-secret")
    ran = inside("doctor", "--json")
    found = {finding["what"]: finding for finding in ran.json["findings"]}
    assert (ran.code, ran.json["ok"]) == (Exit.DONE, True)
    assert {
        "python",
        "sqlite",
        "settings",
        "home",
        "durability",
        "disk",
        "clock",
        "keys",
        "ollama",
        "local model",
        "sandbox",
        "terminal",
    } <= found.keys()
    assert found["keys"]["said"] == "GROQ_API_KEY set"
    assert "very-secret" not in ran.out
    assert all(finding["advice"] for finding in found.values() if finding["state"] in ("missing", "broken", "warn"))
    assert not Path(".toolwire").exists()


def test_the_doctor_looks_into_the_record(inside: Inside) -> None:
    def examined() -> tuple[int, str, str]:
        ran = inside("doctor", "--json")
        [store] = [finding for finding in ran.json["findings"] if finding["what"] == "store"]
        return ran.code, store["state"], store["said"]

    assert inside("call", "echo", "message=hi").code == Exit.DONE
    assert examined()[:2] == (Exit.DONE, "ok")
    with closing(sqlite3.connect(".toolwire/store.db")) as store:
        store.execute("PRAGMA user_version = 999")
    code, state, said = examined()
    assert (code, state) == (Exit.FAILED, "broken")
    assert "made by a newer toolwire" in said


def test_the_doctor_finds_what_is_broken(inside: Inside) -> None:
    Path("toolwire.toml").write_text("[loop]\niteration = 4\n")
    ran = inside("doctor", "--json")
    assert ran.code == Exit.FAILED
    [broken] = [finding for finding in ran.json["findings"] if finding["state"] == "broken"]
    assert "loop.iterations" in broken["said"]
    Path("toolwire.toml").unlink()
    assert inside("doctor", "--home", "/proc/nowhere").code == Exit.FAILED
