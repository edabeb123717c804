"""Places where a box may plant something for git or another program and that are easily passed by."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import forked
from tests.sandbox.conftest import Open, git
from tests.sandbox.git_place import ORDINARY, place_for
from tests.sandbox.test_obeyed import below, run
from toolwire.cli.views.sandbox_engines import left_behind_line
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.protocol.operations import Command, shell

IDENTITY = """
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c
"""
PLANTED = """
mkdir -p {path} && git init -q {path} && echo 1 > {path}/g && git -C {path} add g && git -C {path} commit -qm 1
git -C {path} config core.fsmonitor "touch {marker}; false"
"""
PLACES = {
    "a package": ("node_modules/x", ""),
    "in a package": ("a/node_modules/@s/x/lib/deep", ""),
    "our own folder": ("sub/.toolwire", ""),
    "in our own folder": ("sub/.toolwire/q", ""),
    "a document": ("docs/AGENTS.md", ""),
    "in a document": ("x.pth/n", ""),
    "in other version control": (".svn/n", ""),
    "in names within names": (".vscode/.idea/.claude/.cursor/.zed/.fleet/n", ""),
    "moved out of another repository": ("n/.git/foo/bar/objects/n", "sleep 0.5; mv n/.git/foo foo"),
}
ADDED = "git add -A . ; git commit -qm all; find . -name g -exec touch -d @9 {} + ; git status; git diff; true"
WORKTREE = """
git init -q e; echo 1 > e/g; git -C e add g; git -C e commit -qm 1
git -C e config core.fsmonitor "touch {marker}; false"
mkdir tree admin; mv e/g tree; mv e/.git evil; rmdir e; cp evil/HEAD evil/index admin
echo ../evil > admin/commondir; echo ../tree/.git > admin/gitdir
"""
LINKS = {
    "a worktree": "mkdir -p .git/worktrees; ln -s ../../admin .git/worktrees/t",
    "all worktrees": "mkdir all; mv admin all/t; echo ../../evil > all/t/commondir; ln -s ../all .git/worktrees",
}


@pytest.fixture
def repository(workspace: Path) -> Path:
    git("init", "-q", str(workspace))
    (workspace / "file").write_text("x")
    git("-C", str(workspace), "add", "file")
    return workspace


def planting(place: str, marker: Path) -> str:
    path, then = PLACES[place]
    return IDENTITY + PLANTED.format(path=path, marker=marker) + then


def linking(way: str, marker: Path) -> str:
    pointer = "echo 'gitdir: ../.git/worktrees/t' > tree/.git"
    return f"{IDENTITY}{WORKTREE.format(marker=marker)}{LINKS[way]}\n{pointer}"


async def added(workspace: Path) -> None:
    """What the user does next."""
    await Open().run(Command(shell(IDENTITY + ADDED), str(workspace)))


@pytest.mark.parametrize("place", PLACES)
async def test_T126_a_repository_is_not_obeyed_wherever_it_was_planted(
    box: Sandbox, repository: Path, tmp_path: Path, place: str
) -> None:
    ran = await run(box, repository, planting(place, tmp_path / "marker"))
    await added(repository)

    assert ran.exit_code == 0, ran.stderr.text
    assert not (tmp_path / "marker").exists()
    assert [note for note in ran.notes if "/.git'" in note and "toolwire release" in note]


@pytest.mark.parametrize("place", PLACES)
async def test_T126_control_git_obeys_it_at_each_of_these_places(repository: Path, tmp_path: Path, place: str) -> None:
    await Open().run(Command(shell(planting(place, tmp_path / "marker")), str(repository)))
    (tmp_path / "marker").unlink(missing_ok=True)
    await added(repository)

    assert (tmp_path / "marker").exists()


async def test_T126_the_users_own_repository_among_packages_stays(
    box: Sandbox, repository: Path, tmp_path: Path
) -> None:
    theirs = IDENTITY + PLANTED.format(path="node_modules/x", marker=tmp_path / "marker")
    await Open().run(Command(shell(f"{theirs}\nsleep 0.1"), str(repository)))
    ran = await run(box, repository, "touch node_modules/x/h node_modules/y; git -C node_modules/x log")

    assert not [note for note in ran.notes if "held-back" in note]
    assert (repository / "node_modules/x/.git").is_dir()


@pytest.mark.parametrize("way", LINKS)
async def test_T127_a_link_in_place_of_a_worktree_is_not_followed_to_settings(
    box: Sandbox, repository: Path, tmp_path: Path, way: str
) -> None:
    ran = await run(box, repository, linking(way, tmp_path / "marker"))
    await added(repository)

    assert ran.exit_code == 0, ran.stderr.text
    assert not (tmp_path / "marker").exists()
    assert [note for note in ran.notes if "is a link, which leads git to another place" in note]


@pytest.mark.parametrize("way", LINKS)
async def test_T127_control_git_follows_it(repository: Path, tmp_path: Path, way: str) -> None:
    await Open().run(Command(shell(linking(way, tmp_path / "marker")), str(repository)))
    (tmp_path / "marker").unlink(missing_ok=True)
    await added(repository)

    assert (tmp_path / "marker").exists()


ALONE = """
git commit -qm 1; git worktree add -q wt; cd .git/worktrees/wt; cp -r ../../objects ../../refs ../../config .
git config -f config core.fsmonitor "touch {marker}; false"; cd -; echo 'gitdir: ../.git/worktrees/wt' > wt/.git
"""
POINTERS = {
    "missing": "rm .git/worktrees/wt/commondir",
    "itself": "echo . > .git/worktrees/wt/commondir",
    "a link": "echo . > e; ln -sf ../../../e .git/worktrees/wt/commondir",
}


@pytest.mark.parametrize("pointer", POINTERS)
async def test_T127_a_worktree_has_no_settings_of_its_own(
    box: Sandbox, repository: Path, tmp_path: Path, pointer: str
) -> None:
    ran = await run(box, repository, IDENTITY + ALONE.format(marker=tmp_path / "marker") + POINTERS[pointer])
    await added(repository)

    assert ran.exit_code == 0, ran.stderr.text
    assert not (tmp_path / "marker").exists()
    assert [note for note in ran.notes if "'wt/.git'" in note and "toolwire release" in note]


@pytest.mark.parametrize("pointer", POINTERS)
async def test_T127_control_git_takes_them_from_there(repository: Path, tmp_path: Path, pointer: str) -> None:
    text = IDENTITY + ALONE.format(marker=tmp_path / "marker") + POINTERS[pointer]
    await Open().run(Command(shell(text), str(repository)))
    (tmp_path / "marker").unlink(missing_ok=True)
    await added(repository)

    assert (tmp_path / "marker").exists()


SETTINGS = (".jj/repo/config.toml", "sub/.jj/repo/config.toml", "sub/.hg/hgrc")


def lay_settings(workspace: Path) -> None:
    for path in SETTINGS:
        (workspace / path).parent.mkdir(parents=True)
        (workspace / path).write_text("ours\n")


CHANGED = "; ".join(f"echo evil > {path}" for path in SETTINGS)


async def test_T128_settings_of_mercurial_and_jujutsu_are_not_changed_at_any_depth(
    box: Sandbox, workspace: Path
) -> None:
    lay_settings(workspace)
    ran = await run(box, workspace, f"{CHANGED}; mkdir -p new/.jj/repo; echo evil > new/.jj/repo/config.toml")

    assert [(workspace / path).read_text() for path in SETTINGS] == ["ours\n"] * len(SETTINGS)
    assert not (workspace / "new/.jj").exists()
    assert [note for note in ran.notes if "'new/.jj'" in note and "toolwire release" in note]


async def test_T128_control_without_a_box_they_are(workspace: Path) -> None:
    lay_settings(workspace)
    await Open().run(Command(shell(CHANGED), str(workspace)))

    assert [(workspace / path).read_text() for path in SETTINGS] == ["evil\n"] * len(SETTINGS)


def lay_links(workspace: Path) -> Path:
    (workspace / "me.github.io/.vscode").mkdir(parents=True)
    (workspace / "shared").mkdir()
    (workspace / "shared/tasks.json").write_text("ours\n")
    (workspace / "me.github.io/.vscode/tasks.json").symlink_to("../../shared/tasks.json")
    return workspace / "me.github.io/.vscode/tasks.json"


async def test_T129_what_a_link_leads_to_is_sealed_below_a_folder_named_like_git(box: Sandbox, workspace: Path) -> None:
    obeyed = lay_links(workspace)
    ran = await run(box, workspace, "echo evil > shared/tasks.json; echo fine > shared/other.json")

    assert obeyed.read_text() == "ours\n"
    assert (workspace / "shared/other.json").read_text() == "fine\n"
    assert [note for note in ran.notes if "toolwire protects 'shared/tasks.json'" in note]


async def test_T129_control_without_a_box_it_is_changed(workspace: Path) -> None:
    obeyed = lay_links(workspace)
    await Open().run(Command(shell("echo evil > shared/tasks.json"), str(workspace)))

    assert obeyed.read_text() == "evil\n"


KILLED = (
    "import asyncio, os, sys\n"
    "from toolwire.execute.sandbox.engines import local_sandbox\n"
    "from toolwire.protocol.operations import Command, shell\n"
    "ended = lambda _stream, piece: os.kill(os.getpid(), 9)\n"
    "command = Command(shell(sys.argv[2] + '\\necho done; sleep 60'), sys.argv[1])\n"
    "asyncio.run(local_sandbox().run(command, ended))\n"
)
LEFT = {
    "was there": "git -C vendor/lib config core.fsmonitor 'touch {marker}; false'",
    "a package": PLANTED.replace("{path}", "node_modules/x"),
    "among many names": PLANTED.replace("{path}", "own"),
}
THEIRS = f"""{IDENTITY}
git init -q vendor/lib; echo 1 > vendor/lib/g; git -C vendor/lib add g; git -C vendor/lib commit -qm 1
"""


def kill_a_box(repository: Path, way: str, marker: Path) -> None:
    """Have a box change a repository, and kill its toolwire. With many names the note about the box is a long one."""
    subprocess.run(["/bin/bash", "-c", THEIRS], cwd=repository, check=True)
    for folder in range(60) if way == "among many names" else ():
        inner = repository / "docs" / f"{folder}-{'long' * 50}" / ("name" * 50)
        inner.mkdir(parents=True)
        for number in range(180):
            (inner / f"{number}.pth").touch()
    text = IDENTITY + LEFT[way].format(marker=marker)
    killed = forked.run_python("-c", KILLED, str(repository), text)
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.parametrize("way", LEFT)
async def test_T130_what_a_killed_box_did_to_a_repository_is_held_back_by_the_next(
    box: Sandbox, repository: Path, tmp_path: Path, way: str
) -> None:
    kill_a_box(repository, way, tmp_path / "marker")
    ran = await run(box, repository, "touch next")
    await added(repository)

    assert not (tmp_path / "marker").exists()
    assert [note for note in ran.notes if "/.git'" in note and "toolwire release" in note]


@pytest.mark.parametrize("way", ["was there", "a package"])
async def test_T145_doctor_moves_aside_what_a_killed_box_did_to_a_repository(
    repository: Path, tmp_path: Path, way: str
) -> None:
    kill_a_box(repository, way, tmp_path / "marker")
    line = await asyncio.to_thread(left_behind_line)
    await added(repository)

    assert not (tmp_path / "marker").exists()
    assert (line.state, [one for one in line.more if one.startswith(f"{repository}: ")] != []) == ("warn", True)


@pytest.mark.parametrize("way", ["was there", "a package"])
async def test_T145_control_without_doctor_git_obeys_it(repository: Path, tmp_path: Path, way: str) -> None:
    kill_a_box(repository, way, tmp_path / "marker")
    await added(repository)

    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize("way", LEFT)
async def test_T130_control_before_the_next_box_git_obeys_it(repository: Path, tmp_path: Path, way: str) -> None:
    kill_a_box(repository, way, tmp_path / "marker")
    await added(repository)

    assert (tmp_path / "marker").exists()


HOOKS = (
    "for n in $(seq 450); do echo x > .git/hooks/a$n; done\n"
    "printf '#!/bin/sh\\ntouch MARKER\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"
)
COMMITTED = "echo y > file; git commit -qam next"


def test_T131_a_hook_among_hundreds_of_files_is_found_where_nothing_is_sealed() -> None:
    with place_for(ORDINARY) as place:
        place.shell("for n in $(seq 450); do echo ours > .git/hooks/z$n; done")
        told = place.boxed(HOOKS, "none")
        place.shell(COMMITTED)

        assert not place.marker.exists()
        assert (place.top / ".git/hooks/z450").read_text() == "ours\n"
        assert "441 more were moved aside; `toolwire release` lists them." in told["notes"]


def test_T131_control_without_a_box_it_runs() -> None:
    with place_for(ORDINARY) as place:
        place.shell(HOOKS)
        place.shell(COMMITTED)

        assert place.marker.exists()


PIPES = "mkfifo .npmrc sub/.envrc fine; (echo evil > .npmrc) & (echo evil > sub/.envrc) & sleep 0.1; echo made"


async def test_T133_a_pipe_or_socket_with_an_obeyed_name_is_held_back(box: Sandbox, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    socket = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\".vscode\")'"
    ran = await run(box, workspace, f"{PIPES}; {socket}")

    assert ran.stdout.text == "made\n"
    pipes = [path.name.partition(".held")[0] for path in below(workspace) if path.is_fifo()]
    assert sorted(pipes) == [".envrc", ".npmrc", "fine"]
    assert not [name for name in (".npmrc", "sub/.envrc", ".vscode") if (workspace / name).exists()]
    assert len([note for note in ran.notes if "toolwire release" in note]) == 3
    again = await run(box, workspace, "mkfifo .toolrc fine2 && ls -A | wc -l")
    assert again.exit_code == 0
    assert not [note for note in again.notes if "toolwire release" in note]


def test_T133_control_a_program_reads_a_pipe_like_a_file(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    text = f"{PIPES}; timeout 10 cat .npmrc sub/.envrc"
    read = subprocess.run(["/bin/bash", "-c", text], cwd=workspace, capture_output=True, text=True, check=False)

    assert read.stdout == "made\nevil\nevil\n"


async def test_T133_pipes_and_sockets_of_the_user_with_such_names_stop_no_command(
    box: Sandbox, workspace: Path
) -> None:
    os.mkfifo(workspace / ".npmrc")
    ran = await run(box, workspace, "timeout 1 cat .npmrc; touch made")

    assert (workspace / "made").exists()
    assert (workspace / ".npmrc").is_fifo()
    assert not [note for note in ran.notes if "toolwire release" in note]
