"""Settings of git that an approved command sets: harmless ones stay, those that start programs do not (T84)."""

import asyncio
from pathlib import Path

import pytest

from tests.sandbox.conftest import git
from tests.sandbox.git_place import ORDINARY, place_for
from toolwire.define.toolbox import Toolbox
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.hub.runtime import Runtime
from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.tools import Grant, Tier
from toolwire.protocol.turns import Turn
from toolwire.record.memory import MemoryStore
from toolwire.toolbox.shell.bash import bash_tool


class Approved:
    """The shell's tool, with everything that it asks about approved."""

    def __init__(self, workspace: Path, sandbox: Sandbox) -> None:
        self.workspace = workspace
        self._runtime = Runtime(Toolbox(bash_tool(sandbox)), MemoryStore())
        self._number = 0

    async def __call__(self, command: str) -> ToolResult:
        self._number += 1
        grant = Grant(
            tier=Tier.RUN,
            permissions=frozenset({"shell"}),
            roots=(str(self.workspace),),
            confirmed=frozenset({"*"}),
        )
        call = ToolCall("bash", {"command": command}, id=f"c{self._number}")
        async with asyncio.timeout(30):
            return await self._runtime.execute(call, Turn("t", agent="a", grant=grant))


@pytest.fixture
def approved(workspace: Path, box: Sandbox) -> Approved:
    git("init", "-q", str(workspace))
    (workspace / "file").write_text("x")
    git("-C", str(workspace), "add", "file")
    git("-C", str(workspace), "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "first")
    return Approved(workspace, box)


WORK = {
    "git config user.name Ann": "name = Ann",
    "git config --local user.email ann@example.org": "email = ann@example.org",
    "git config user.name Ann && git config pull.rebase true": "rebase = true",
    "git remote add origin https://example.org/x.git": "url = https://example.org/x.git",
    "git remote add up git@example.org:x.git; git remote set-url up ssh://example.org/y; git remote -v": "ssh://example.org/y",
    "git remote add o https://example.org/x; git config branch.main.remote o": "remote = o",
    "git clone -q . copy": "",
    "git clone -q -b master file:///workspace copy": "",
}  # fmt: skip


@pytest.mark.parametrize("command", WORK)
async def test_local_clone_config_and_remote_work_after_approval(approved: Approved, command: str) -> None:
    result = await approved(command)

    assert result.structured["exit_code"] == 0, result
    assert WORK[command] in (approved.workspace / ".git" / "config").read_text()
    assert not list((approved.workspace / ".git").glob("*held-back*"))
    assert (approved.workspace / "copy" / "file").exists() == ("clone" in command)


REFUSED = (
    "git config core.hooksPath hooks",
    "git config core.fsmonitor 'touch x'",
    "git config CORE.sshCommand x",
    "git config core.editor x",
    "git config core.pager x",
    "git config alias.st '!touch x'",
    "git config filter.x.clean x",
    "git config diff.x.textconv x",
    "git config merge.x.driver x",
    "git config include.path ../x",
    "git config includeIf.onbranch:m.path ../x",
    "git config credential.helper '!x'",
    "git config http.proxy http://x",
    "git config url.x.insteadOf https://github.com",
    "git config init.templateDir x",
    "git config remote.origin.uploadpack x",
    "git config branch.main.mergeOptions '-s evil'",
    "git remote add origin 'ext::sh -c touch% x'",
    "git remote add origin ./evil",
    "git config remote.origin.url file:///workspace/evil",
    "git config branch.main.remote evil",
    "git config user.name Ann; sh -c 'git config core.hooksPath hooks'",
    "git config user.name Ann && printf '[core]\\nhooksPath = h\\n' >> .git/config",
    "git config -f .git/config core.hooksPath h",
    "git config --rename-section user alias",
)


@pytest.mark.parametrize("command", REFUSED)
async def test_T84_settings_that_start_programs_are_not_set_and_the_model_reads_why(
    approved: Approved, command: str
) -> None:
    before = (approved.workspace / ".git" / "config").read_text()

    result = await approved(command)

    assert (approved.workspace / ".git" / "config").read_text() == before
    assert "toolwire protects" in str(result.structured["notes"])


async def test_a_command_that_sets_a_protected_key_is_told_what_can_be_set(approved: Approved) -> None:
    result = await approved("git config core.hooksPath hooks")

    assert "`git config KEY VALUE` or `git remote …` can set keys" in result.structured["notes"][0]


async def test_T84_control_where_settings_stay_writable_they_are_set(workspace: Path) -> None:
    """Without the look at the end, what a command sets is what the user's git obeys."""
    git("init", "-q", str(workspace))
    git("-C", str(workspace), "config", "core.hooksPath", "hooks")

    assert "hooksPath" in (workspace / ".git" / "config").read_text()


SNEAKED: tuple[str, ...] = (
    "git config core.fsmonitor 'touch MARKER; false'",
    "git config remote.o.url x; git config --unset core.bare",
    "echo '[include] path = ../x' >> .git/config",
    "rm .git/config; mkdir .git/config",
    "rm .git/config; ln -s ../x .git/config",
    "echo '[broken' >> .git/config",
)


@pytest.mark.parametrize("user", [0, ORDINARY], ids=["root", "ordinary user"])
@pytest.mark.parametrize("text", SNEAKED)
def test_T84_settings_are_put_back_where_a_command_that_may_set_some_sets_others(user: int, text: str) -> None:
    with place_for(user) as place:
        before = (place.top / ".git" / "config").read_text()

        told = place.boxed(text, may_set_git=True)
        place.looked_at()

        assert (place.top / ".git" / "config").read_text() == before
        assert any("toolwire protects" in note for note in told["held"])
        assert not place.marker.exists()


def test_settings_that_the_user_changes_while_a_box_is_open_stay() -> None:
    with place_for(0) as place:
        with place.running("true"):
            place.shell("git config user.name Other")

        assert "Other" in (place.top / ".git" / "config").read_text()


def test_T84_what_a_box_writes_after_the_users_git_has_replaced_the_settings_is_put_back() -> None:
    """A mount goes with the file that it covers, and git replaces the whole file."""
    with place_for(ORDINARY) as place:
        write = "until grep -q Other .git/config; do sleep 0.01; done; git config core.fsmonitor 'touch MARKER; false'"
        with place.running(f"{write}; touch written"):
            place.shell("git config user.name Other; until test -e written; do sleep 0.01; done")
        place.looked_at()

        assert not place.marker.exists()
        assert "fsmonitor" not in (place.top / ".git" / "config").read_text()


def test_T84_a_branch_follows_only_remotes_that_there_are() -> None:
    with place_for(0) as place:
        place.boxed("git remote add up https://example.org/x; git config branch.master.remote up", may_set_git=True)
        told = place.boxed("git config branch.master.remote evil", may_set_git=True)

        assert "branch.master.remote" in told["held"][0]
        assert place.shell("git config branch.master.remote").stdout == "up\n"
