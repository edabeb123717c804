"""The git tools on real repositories, in real boxes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.toolbox.conftest import Call
from tests.toolbox.git_places import Open, git, started
from toolwire import Agent, Grant, Tier
from toolwire.define.conformance import report
from toolwire.errors import ToolFailure
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.protocol.context import Context
from toolwire.protocol.operations import Command, Listener, Ran, shell
from toolwire.protocol.outcomes import Code
from toolwire.testing import ScriptedModel
from toolwire.toolbox.git.inspect_tools import git as git_tools
from toolwire.toolbox.git.output import read_diff, read_status

Asked = Any


@pytest.fixture
def repo(workspace: Path) -> Path:
    return started(workspace)


@pytest.fixture
def ask(call: Call, granted: Context) -> Asked:
    """Call a git tool in a box by its name."""
    tools = {tool.name: tool for tool in git_tools(local_sandbox(), author="Bot <bot@example.org>")}

    async def asked(name: str, key: str = "c1", **arguments: Any) -> Any:
        context = Context(call_id=key, turn_id="t1", grant=granted.grant, timeout_s=60)
        async with asyncio.timeout(30):
            return await call(tools[name], context, **arguments)

    return asked


def test_the_git_tools_conform() -> None:
    assert [report(tool) for tool in git_tools(Open())] == [[]] * 5


@pytest.mark.feature("F256")
async def test_status_tells_branch_and_every_kind_of_change(ask: Asked, repo: Path) -> None:
    (repo / "old name.txt").write_text("one\ntwo\nthree\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "Add more")
    git(repo, "mv", "old name.txt", "new\tname.txt")
    (repo / "tea.txt").write_text("green\n")
    (repo / "new.txt").write_text("x\n")

    status = await ask("git_status")

    assert (status["branch"], status["commit"]) == ("main", git(repo, "rev-parse", "HEAD"))
    assert {(one["path"], one["staged"], one["unstaged"], one["old_path"]) for one in status["entries"]} == {
        ("new\tname.txt", "renamed", "", "old name.txt"),
        ("tea.txt", "", "modified", ""),
        ("new.txt", "", "untracked", ""),
    }
    assert not status["clean"]


async def test_status_tells_how_a_branch_stands_to_its_upstream(ask: Asked, repo: Path) -> None:
    git(repo, "branch", "base")
    git(repo, "branch", "-q", "--set-upstream-to=base")
    git(repo, "commit", "-q", "--allow-empty", "-m", "Go ahead")

    status = await ask("git_status")

    assert (status["upstream"], status["ahead"], status["behind"], status["clean"]) == ("base", 1, 0, True)


async def test_a_repository_before_its_first_commit_and_one_without_a_branch(ask: Asked, workspace: Path) -> None:
    git(workspace, "init", "-q", "-b", "main")
    status = await ask("git_status")
    assert (status["branch"], status["commit"]) == ("main", "")

    started(workspace)
    git(workspace, "checkout", "-q", "--detach")
    assert (await ask("git_status"))["branch"] == ""


async def test_where_there_is_no_repository_the_tools_say_so(ask: Asked, workspace: Path) -> None:
    for name in ("git_status", "git_log", "git_diff", "git_branch"):
        with pytest.raises(ToolFailure, match="no git repository") as failed:
            await ask(name)
        assert failed.value.code is Code.NOT_FOUND


async def test_while_a_box_is_open_git_shows_and_commits_nothing_of_ours(ask: Asked, repo: Path) -> None:
    (repo / "new.txt").write_text("x\n")
    heard = asyncio.Event()
    job = asyncio.create_task(
        local_sandbox().run(Command(shell("echo up; sleep 60"), str(repo)), lambda _stream, _piece: heard.set())
    )
    async with asyncio.timeout(20):
        await heard.wait()
    assert git(repo, "status", "--short", "--ignored") == "?? new.txt"

    status = await ask("git_status")
    done = await ask("git_commit", message="Take all", all=True)

    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert [one["path"] for one in status["entries"]] == ["new.txt"]
    assert done["files"] == ["new.txt"]
    assert git(repo, "status", "--short") == ""


@pytest.mark.feature("F256")
async def test_diff_shows_what_is_unstaged_staged_committed_or_between_two(ask: Asked, repo: Path) -> None:
    (repo / "tea.txt").write_text("green\nblack\nwhite\n")
    unstaged = await ask("git_diff")
    git(repo, "add", "-A")
    staged = await ask("git_diff", staged=True)
    git(repo, "commit", "-q", "-m", "Add white")
    shown = await ask("git_diff", commit="HEAD")
    between = await ask("git_diff", base="HEAD~1", commit="main")

    for diff in (unstaged, staged, shown, between):
        assert diff["files"] == [{"path": "tea.txt", "old_path": "", "added": 1, "deleted": 0}]
        assert diff["patch"].startswith("diff --git a/tea.txt b/tea.txt\n")
        assert diff["patch"].endswith("+white\n")
    assert (await ask("git_diff"))["files"] == []


async def test_a_long_diff_is_read_in_parts(ask: Asked, repo: Path) -> None:
    (repo / "tea.txt").write_text("".join(f"{number}\n" for number in range(2000)))

    whole = await ask("git_diff")
    first = await ask("git_diff", max_chars=500)
    second = await ask("git_diff", max_chars=500, start=500)

    assert first["patch"] + second["patch"] == whole["patch"][:1000]
    assert (first["truncated"], whole["truncated"]) == (True, False)


@pytest.mark.feature("F256")
async def test_log_lists_commits_with_all_their_facts(ask: Asked, repo: Path) -> None:
    git(repo, "tag", "v1")
    git(repo, "commit", "-q", "--allow-empty", "-m", "Do nothing")

    commits = (await ask("git_log", max_count=3))["commits"]

    assert [one["subject"] for one in commits] == ["Do nothing", "Add tea"]
    assert commits[0]["parents"] == [commits[1]["commit"]]
    assert commits[1]["refs"] == ["tag: v1"]
    assert (commits[1]["author"], commits[1]["email"], commits[1]["body"]) == ("Ann", "ann@example.org", "Both kinds.")
    assert [one["subject"] for one in (await ask("git_log", paths=["tea.txt"]))["commits"]] == ["Add tea"]
    assert (await ask("git_log", author="Bob"))["commits"] == []
    with pytest.raises(ToolFailure) as failed:
        await ask("git_log", ref="no-such-branch")
    assert failed.value.code is Code.INVALID_PARAMS


@pytest.mark.feature("F256")
async def test_branch_lists_branches_with_the_current_one(ask: Asked, repo: Path) -> None:
    git(repo, "branch", "topic/näher")

    found = await ask("git_branch")

    assert found["current"] == "main"
    assert {(one["name"], one["current"], one["subject"]) for one in found["branches"]} == {
        ("main", True, "Add tea"),
        ("topic/näher", False, "Add tea"),
    }


@pytest.mark.feature("F256")
async def test_commit_takes_the_given_paths_and_leaves_the_rest_as_it_is(ask: Asked, repo: Path) -> None:
    (repo / "tea.txt").write_text("white\n")
    (repo / "staged.txt").write_text("s\n")
    git(repo, "add", "staged.txt")
    (repo / "new.txt").write_text("n\n")

    done = await ask("git_commit", message="Change tea\n\nIt was cold.\n", paths=["tea.txt"])

    assert (done["branch"], done["files"], done["subject"]) == ("main", ["tea.txt"], "Change tea")
    assert done["commit"] == git(repo, "rev-parse", "HEAD")
    assert done["parent"] == git(repo, "rev-parse", "HEAD~1")
    assert git(repo, "log", "-1", "--format=%an <%ae>|%B") == "Bot <bot@example.org>|Change tea\n\nIt was cold."
    assert git(repo, "status", "--short") == "A  staged.txt\n?? new.txt"


async def test_commit_takes_all_or_what_is_staged_and_signs_as_the_repository_says(ask: Asked, repo: Path) -> None:
    git(repo, "config", "user.name", "Cy")
    git(repo, "config", "user.email", "cy@example.org")
    (repo / "a.txt").write_text("a\n")
    git(repo, "add", "a.txt")
    (repo / "tea.txt").unlink()

    staged = await ask("git_commit", "c1", message="Add a")
    everything = await ask("git_commit", "c2", message="Remove tea", all=True)

    assert (staged["files"], everything["files"]) == (["a.txt"], ["tea.txt"])
    assert git(repo, "log", "-1", "--format=%an") == "Cy"
    assert git(repo, "status", "--short") == ""


async def test_commit_in_a_folder_below_the_top_and_of_odd_names(ask: Asked, repo: Path) -> None:
    below = repo / "src" / "deep"
    below.mkdir(parents=True)
    for name in ("plain.txt", "two words\tand more\n.txt", "-dash.txt", "ümlaut.txt"):
        (below / name).write_text("x\n")
    (repo / "tea.txt").write_text("white\n")
    started(repo / "other")  # a repository of its own is no part of this one

    some = await ask("git_commit", "c1", message="Add one", paths=["deep/-dash.txt"], repository="src")
    rest = await ask("git_commit", "c2", message="Add the rest", all=True, repository="src")

    assert some["files"] == ["src/deep/-dash.txt"]
    assert set(rest["files"]) == {
        "src/deep/plain.txt", "src/deep/two words\tand more\n.txt", "src/deep/ümlaut.txt", "tea.txt",
    }  # fmt: skip
    assert git(repo, "status", "--short") == "?? other/"


async def test_a_folder_that_became_a_file_is_committed_as_one(ask: Asked, repo: Path) -> None:
    (repo / "a").mkdir()
    (repo / "a" / "b").write_text("x\n")
    await ask("git_commit", "c1", message="Add a folder", all=True)
    (repo / "a" / "b").unlink()
    (repo / "a").rmdir()
    (repo / "a").write_text("y\n")

    await ask("git_commit", "c2", message="Make it a file", paths=["a"])

    assert git(repo, "ls-tree", "-r", "--name-only", "HEAD").split() == ["a", "tea.txt"]
    assert git(repo, "status", "--short") == ""


async def test_the_first_commit_of_a_repository(ask: Asked, workspace: Path) -> None:
    git(workspace, "init", "-q", "-b", "main")
    (workspace / "a.txt").write_text("a\n")

    done = await ask("git_commit", message="Begin", all=True)

    assert (done["parent"], done["files"]) == ("", ["a.txt"])
    assert git(workspace, "status", "--short") == ""


async def test_a_commit_that_is_tried_again_gives_the_first_one_and_makes_no_second(ask: Asked, repo: Path) -> None:
    """A process that died after committing leaves its call open; running it again must not commit what came later."""
    (repo / "tea.txt").write_text("white\n")
    first = await ask("git_commit", "c7", message="Change tea", all=True)
    (repo / "later.txt").write_text("x\n")

    again = await ask("git_commit", "c7", message="Change tea", all=True)

    assert again == first
    assert git(repo, "rev-list", "--count", "HEAD") == "2"
    assert git(repo, "status", "--short") == "?? later.txt"


async def test_a_commit_onto_something_else_than_expected_changes_nothing(ask: Asked, repo: Path) -> None:
    seen = git(repo, "rev-parse", "HEAD")
    git(repo, "commit", "-q", "--allow-empty", "-m", "Someone else")
    (repo / "tea.txt").write_text("white\n")

    with pytest.raises(ToolFailure, match=f"not at {seen}"):
        await ask("git_commit", message="Change tea", all=True, expected_head=seen)

    assert git(repo, "log", "-1", "--format=%s") == "Someone else"
    assert git(repo, "status", "--short") == "M tea.txt"


class Meanwhile(Open):
    """Someone moves the branch after the tree is made and before the commit's reference is written."""

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        script = command.argv[4] if len(command.argv) > 4 else ""
        moved = script.replace(
            "git update-ref -m",
            "git update-ref HEAD $(git commit-tree -m Other -p HEAD HEAD^{tree}); git update-ref -m",
        )
        argv = (*command.argv[:4], moved, *command.argv[5:]) if script else command.argv
        return await super().run(Command(argv, command.workspace, command.cwd, stdin=command.stdin, env=command.env))


async def test_a_branch_that_moves_meanwhile_is_not_overwritten(call: Call, granted: Context, repo: Path) -> None:
    (repo / "tea.txt").write_text("white\n")

    with pytest.raises(ToolFailure, match="moved meanwhile"):
        await call(git_tools(Meanwhile())[4], granted, message="Change tea", all=True)

    assert git(repo, "log", "-1", "--format=%s") == "Other"
    assert git(repo, "status", "--short") == "M tea.txt"


async def test_a_commit_while_another_git_is_at_work_changes_nothing(ask: Asked, repo: Path) -> None:
    (repo / "tea.txt").write_text("white\n")
    (repo / ".git" / "index.lock").touch()

    with pytest.raises(ToolFailure, match="another git process"):
        await ask("git_commit", message="Change tea", all=True)

    (repo / ".git" / "index.lock").unlink()
    assert git(repo, "rev-list", "--count", "HEAD") == "1"


async def test_nothing_to_commit_a_merge_and_a_filtered_file_are_refused(ask: Asked, repo: Path) -> None:
    with pytest.raises(ToolFailure, match="nothing to commit"):
        await ask("git_commit", message="Nothing", all=True)

    (repo / ".git" / "MERGE_HEAD").write_text(git(repo, "rev-parse", "HEAD"))
    with pytest.raises(ToolFailure, match="merge"):
        await ask("git_commit", message="Merge", all=True)
    (repo / ".git" / "MERGE_HEAD").unlink()

    (repo / ".gitattributes").write_text("*.bin filter=lfs\n")
    (repo / "big.bin").write_text("large\n")
    with pytest.raises(ToolFailure, match=r"big\.bin needs a filter"):
        await ask("git_commit", message="Add it", all=True)
    assert git(repo, "rev-list", "--count", "HEAD") == "1"


async def test_a_commit_needs_the_permission_and_a_person(repo: Path) -> None:
    (repo / "tea.txt").write_text("white\n")
    looking = Grant(Tier.CRAWL, frozenset({"git"}), (str(repo),))

    async with Agent(ScriptedModel(), git_tools(local_sandbox()), grant=looking) as agent:
        status = await agent.call("git_status", {})
        commit = await agent.call("git_commit", {"message": "Change tea", "all": True})

    assert status.ok
    assert commit.error is not None
    assert commit.error.code is Code.PERMISSION_DENIED
    assert git(repo, "rev-list", "--count", "HEAD") == "1"


@pytest.mark.parametrize(
    "text", ["", "\0", "\0# branch.ab", "\0" + "1 ", "\0" + "2 x", "\0u ", "\0? ", "a\0", "\0\0\0"]
)
def test_broken_status_output_is_read_without_an_exception(text: str) -> None:
    read_status(text)


@pytest.mark.parametrize("text", ["", "\0", "1", "1\t2", "1\t2\t", "1\t2\t\0a", "-\t-\tb\0\0patch", "x\ty\tz\0"])
def test_broken_diff_output_is_read_without_an_exception(text: str) -> None:
    read_diff(text)
