"""Links and folders on the way to a name that other programs obey: a box cannot exchange what lies behind them."""

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import forked
from tests.sandbox.conftest import ENGINES, Open, git
from tests.sandbox.test_obeyed import below, run
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.protocol.operations import Command

OTHERS = {
    ".claude": "settings.json",
    ".vscode": "tasks.json",
    "sub/.cursor": "mcp.json",
    ".envrc": "",
    ".husky/pre-commit": "",
}
OF_GIT = {".git/hooks": "pre-commit", "tools/hooks/commit-msg": ""}
HOOK = {".git/hooks/pre-push": ""}
"""Names as they lie in a workspace, and what lies in those that are folders."""

WAYS = {
    "a link on the way": "rm cfg; ln -s evil cfg",
    "a link on the way that is moved over": "ln -s evil e; mv -fT e cfg",
    "a folder in place of a link": "rm cfg; cp -r evil cfg",
    "a folder on the way": "mv conf old; cp -r evil conf",
    "a folder on the way, removed": "chmod -R u+w conf; rm -rf conf; cp -r evil conf",
    "what it leads to": "for f in conf/*; do rm -rf $f; cp -r evil/${f##*/} $f; done",
    "what is written there": "echo evil | tee conf/* conf/*/*",
    "links to the same": "rm cfg; ln -s conf2 cfg; ln -s evil conf2",
}


def lay_out(workspace: Path, obeyed: dict[str, str] = OTHERS) -> None:
    """Every name is a link by `cfg`, itself a link, to a folder or file in `conf`; the same in `evil` is other."""
    git("init", "-q", "--template=", str(workspace))
    if "tools/hooks/commit-msg" in obeyed:
        git("-C", str(workspace), "config", "core.hooksPath", "tools/hooks")
    for place, text in (("conf", "ours\n"), ("evil", "evil\n")):
        for number, inner in enumerate(obeyed.values()):
            held = workspace / place / f"n{number}" / inner
            held.parent.mkdir(parents=True, exist_ok=True)
            held.write_text(text)
    (workspace / "cfg").symlink_to("conf")
    for number, name in enumerate(obeyed):
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(workspace / f"cfg/n{number}", path.parent))


def obeyed_and_made_in_the_box(workspace: Path, obeyed: dict[str, str] = OTHERS) -> list[str]:
    paths = [workspace / name / inner for name, inner in obeyed.items()]
    return [str(path) for path in paths if path.exists() and path.read_text() != "ours\n"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("engine", "obeyed"), [*((engine, OTHERS) for engine in ENGINES), ("bubblewrap", OF_GIT), ("bubblewrap", HOOK)]
)
async def test_T112_what_is_obeyed_by_a_link_is_not_what_a_box_wrote(
    boxed_by: Callable[[str], Sandbox], workspace: Path, engine: str, obeyed: dict[str, str], way: str
) -> None:
    lay_out(workspace, obeyed)

    ran = await run(boxed_by(engine), workspace, f"{WAYS[way]}; echo done")

    assert ran.stdout.text.endswith("done\n"), ran.stderr.text
    assert obeyed_and_made_in_the_box(workspace, obeyed) == []


@pytest.mark.parametrize("way", WAYS)
async def test_T112_control_without_a_box_it_is(workspace: Path, way: str) -> None:
    lay_out(workspace)

    await run(Open(), workspace, WAYS[way])

    assert obeyed_and_made_in_the_box(workspace) != []


async def test_T112_a_link_that_was_exchanged_is_put_back_and_told(box: Sandbox, workspace: Path) -> None:
    lay_out(workspace)

    ran = await run(box, workspace, WAYS["a link on the way"])

    assert str((workspace / "cfg").readlink()) == "conf"
    assert (workspace / ".claude/settings.json").read_text() == "ours\n"
    assert len([note for note in ran.notes if "'cfg'" in note and "`toolwire release cfg.held-back-" in note]) == 1


@pytest.mark.parametrize("made", ["ln -s evil cfg", "mkdir cfg; cp -r evil/n0 cfg/n0"])
async def test_T112_what_fills_a_link_that_led_nowhere_is_held_back(box: Sandbox, workspace: Path, made: str) -> None:
    lay_out(workspace)
    (workspace / "cfg").unlink()

    ran = await run(box, workspace, made)

    assert obeyed_and_made_in_the_box(workspace) == []
    assert [note for note in ran.notes if "held-back" in note]


async def test_T112_a_link_is_put_back_while_the_box_is_open(box: Sandbox, workspace: Path) -> None:
    lay_out(workspace)
    text = f"{WAYS['a link on the way']}; while [ $(readlink cfg) = evil ]; do sleep 0.05; done; readlink cfg"

    ran = await run(box, workspace, text)

    assert ran.stdout.text == "conf\n"


def test_T112_what_a_killed_box_exchanged_is_held_back_by_the_next(workspace: Path) -> None:
    lay_out(workspace)
    script = (
        "import asyncio, os, sys\n"
        "from toolwire.execute.sandbox.engines import local_sandbox\n"
        "from toolwire.protocol.operations import Command, shell\n"
        "ended = lambda _stream, piece: os.kill(os.getpid(), 9)\n"
        "text = 'rm cfg; ln -s evil cfg; echo up; sleep 100'\n"
        "asyncio.run(local_sandbox().run(Command(shell(text), sys.argv[1]), ended))\n"
    )
    forked.run_python("-c", script, str(workspace))
    assert obeyed_and_made_in_the_box(workspace) != []

    ran = asyncio.run(local_sandbox().run(Command(("/bin/true",), str(workspace))))

    assert obeyed_and_made_in_the_box(workspace) == []
    assert [note for note in ran.notes if "held-back" in note]


@pytest.mark.parametrize("engine", ["bubblewrap", "none"])
def test_T112_it_holds_for_an_ordinary_user_too(engine: str) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        workspace = Path(home, "workspace")
        workspace.mkdir()
        lay_out(workspace)
        user = 60_001 if os.geteuid() == 0 else 0
        for path in (Path(home), workspace, *below(workspace)) if user else ():
            os.chown(path, user, user, follow_symlinks=False)
        words = ["-m", "tests.sandbox.ordinary_user", str(user), engine, str(workspace)]
        forked.run_python(*words, text=WAYS["a link on the way"]).check_returncode()

        assert obeyed_and_made_in_the_box(workspace) == []


async def test_a_document_behind_a_link_is_told_when_it_changes(box: Sandbox, workspace: Path) -> None:
    (workspace / "docs").mkdir()
    (workspace / "docs/guide.md").write_text("ours\n")
    (workspace / "CLAUDE.md").symlink_to("docs/guide.md")

    quiet = await run(box, workspace, "cat CLAUDE.md; echo x > docs/other.md")
    ran = await run(box, workspace, "echo more >> docs/guide.md")

    assert quiet.notes == ()
    assert (workspace / "docs/guide.md").read_text() == "ours\nmore\n"
    assert ["CLAUDE.md" in note for note in ran.notes] == [True]


async def test_links_that_lead_to_nothing_obeyed_are_free(box: Sandbox, workspace: Path) -> None:
    lay_out(workspace)
    (workspace / "releases/1").mkdir(parents=True)
    (workspace / "current").symlink_to("releases/1")
    (workspace / "root").symlink_to(".")
    (workspace / ".idea").mkdir()
    (workspace / ".idea/top").symlink_to("..")
    text = (
        "mkdir releases/2; ln -sfn releases/2 current; mv evil good; echo x > conf/more; mkdir conf/d; mv conf/d/ d; "
        "rm root; ln -s releases root; git status --short >/dev/null && echo fine"
    )

    ran = await run(box, workspace, text)

    assert ran.stdout.text == "fine\n", ran.stderr.text
    assert ran.notes == ()
    assert str((workspace / "current").readlink()) == "releases/2"
    assert (workspace / "conf/more").exists()


async def test_a_link_that_a_command_removes_stays_removed(box: Sandbox, workspace: Path) -> None:
    lay_out(workspace)

    ran = await run(box, workspace, "rm .claude cfg")

    assert ran.notes == ()
    assert not (workspace / ".claude").is_symlink()
    assert not (workspace / "cfg").is_symlink()
