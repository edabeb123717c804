"""A result names the sandbox that confined it, and so do the record, the log and the status."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.toolbox.git_places import started
from toolwire import Grant, SqliteStore, Tier, Toolbox, ToolCall
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.hub.runtime import Runtime
from toolwire.protocol.turns import Turn
from toolwire.toolbox.git.inspect_tools import git
from toolwire.toolbox.shell.bash import bash_tool

SETTINGS = """\
[tools]
groups = ["shell"]
sandbox_engine = "ENGINE"
[grant]
tier = "run"
permissions = ["shell"]
roots = ["work"]
confirmed = ["*"]
"""


@pytest.fixture
def place(inside: Inside, tmp_path: Path) -> Inside:
    (tmp_path / "work").mkdir()
    (tmp_path / "toolwire.toml").write_text(SETTINGS.replace("ENGINE", "bubblewrap"))
    return inside


@pytest.mark.parametrize(
    ("command", "status"), [("exit 0", "success"), ("exit 3", "success"), ("sleep 60 & sleep 60", "timeout")]
)
async def test_a_result_names_engine_and_profile_however_it_ended_and_so_does_its_record(
    tmp_path: Path, command: str, status: str
) -> None:
    (tmp_path / "work").mkdir()
    store = await SqliteStore.at(tmp_path / "home")
    grant = Grant(Tier.RUN, frozenset({"shell"}), (str(tmp_path / "work"),), confirmed=frozenset({"*"}))
    runtime = Runtime(Toolbox(bash_tool(local_sandbox())), store)
    turn = Turn("t", grant=grant)
    await store.begin(turn)
    arguments = {"command": command, "timeout_ms": 1000 if status == "timeout" else 20_000}
    result = await runtime.execute(ToolCall("bash", arguments, id="c"), turn)
    [card] = await store.calls(turn_id="t", limit=1)
    await store.close_store()
    assert (result.status, result.engine) == (status, "bubblewrap")
    assert result.profile
    assert card.result == result


async def test_git_says_so_too_and_what_ran_nowhere_says_nothing(tmp_path: Path) -> None:
    work = started(tmp_path / "work")
    store = await SqliteStore.at(tmp_path / "home")
    grant = Grant(Tier.RUN, frozenset({"git"}), (str(work),))
    turn = Turn("t", grant=grant)
    await store.begin(turn)
    runtime = Runtime(Toolbox(*git(local_sandbox())), store)
    ran = await runtime.execute(ToolCall("git_status", {}, id="a"), turn)
    refused = await runtime.execute(ToolCall("git_status", {"path": "../.."}, id="b"), turn)
    await store.close_store()
    assert (ran.ok, ran.engine) == (True, "bubblewrap")
    assert (refused.ok, refused.engine, refused.profile) == (False, "", "")


def test_the_log_and_the_status_show_it(place: Inside) -> None:
    called = place("call", "bash", "command=echo hi", "--json").json
    assert called["engine"] == "bubblewrap"
    assert " in bubblewrap" in place("logs", "--no-color").out
    [row] = [row for row in place("logs", "--json").json if row["event"] == "finished" and row["tool"] == "bash"]
    assert row["detail"] == {"engine": "bubblewrap", "profile": called["profile"]}
    health = {tool["tool"]: tool["engine"] for tool in place("status", "--tools", "--json").json["tools"]}
    assert (health["bash"], health["echo"]) == ("bubblewrap", "")
    assert place("status", "--json").json["sandbox"] == "bubblewrap"


def test_no_sandbox_is_not_passed_over_in_silence(place: Inside) -> None:
    Path("toolwire.toml").write_text(SETTINGS.replace("ENGINE", "none"))
    assert place("call", "bash", "command=echo hi", "--json").json["engine"] == "none"
    assert " in none" in place("logs", "--no-color").out
    assert "commands are not confined" in place("status", "--no-color").out


def test_the_browser_names_its_box(place: Inside) -> None:
    Path("toolwire.toml").write_text(
        '[tools]\ngroups = ["browser"]\n[grant]\ntier = "run"\npermissions = ["network"]\n'
    )
    ran = place("call", "browser", "--args", json.dumps({"action": "extract"}), "--yes", "--json").json
    assert (ran["engine"], ran["profile"]) == ("bubblewrap", "chromium")


@pytest.mark.threat("T104")
def test_T104_the_log_shows_what_a_command_was_refused(place: Inside, tmp_path: Path) -> None:
    settings = tmp_path / "toolwire.toml"
    online = settings.read_text().replace('["shell"]\nroots', '["shell", "network"]\nnetwork = ["good.example"]\nroots')
    settings.write_text(online)
    place("call", "bash", "command=touch x; curl -s http://evil.example/; curl -s http://evil.example/")

    shown = place("logs", "--no-color").out
    assert "refused evil.example:80 (2 times: evil.example:80 is not among the hosts that the grant lists" in shown
    assert "reached" not in shown
