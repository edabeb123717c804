"""Repositories that a box plants for the operator's own git: T23 and T34, with a real git on both sides of the wall."""

import os
from pathlib import Path

import pytest

from tests.sandbox.conftest import Open, git, names
from toolwire.execute.sandbox.git_index import links_of
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.protocol.operations import Command, shell

PLANT = """
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c
git init -q {path} && echo y > {path}/g && git -C {path} add g && git -C {path} commit -qm 1
git -C {path} config core.fsmonitor "touch {marker}; false"
git add {path} 2>/dev/null
"""
WAYS = {
    "plain": "",
    "deep": "",
    "version 4": "git update-index --index-version 4",
    "split": "git update-index --split-index",
    "by a file": "mv {path}/.git elsewhere && echo 'gitdir: ../elsewhere' > {path}/.git",
    "by a time that was set back": "touch -d @1 .git/index",
}
BARE = """
git init -q --bare x && mv x/* . && rmdir x && git config -f config core.bare false
git config -f config core.worktree . && git config -f config core.fsmonitor "touch {marker}; false"
"""


@pytest.fixture
def repository(workspace: Path) -> Path:
    git("init", "-q", str(workspace))
    (workspace / "file").write_text("x")
    git("-C", str(workspace), "add", "file")
    return workspace


async def looked_at(workspace: Path) -> None:
    """What an operator does next."""
    await Open().run(Command(("/usr/bin/git", "status"), str(workspace)))
    await Open().run(Command(("/usr/bin/git", "diff"), str(workspace)))


def planting(way: str, marker: Path) -> Command:
    path = "a/b/sub" if way == "deep" else "sub"
    text = f"mkdir -p a/b\n{PLANT}\n{WAYS[way]}".format(path=path, marker=marker)
    return Command(shell(text), str(marker.parent / "workspace"))


@pytest.mark.parametrize("way", WAYS)
async def test_T23_a_repository_planted_in_the_index_is_not_obeyed_outside(
    box: Sandbox, repository: Path, tmp_path: Path, way: str
) -> None:
    await box.run(planting(way, tmp_path / "marker"))
    await looked_at(repository)

    assert not (tmp_path / "marker").exists()
    planted = repository / ("a/b/sub" if way == "deep" else "sub")
    assert [name.partition("-")[0] for name in names(planted)] == [".git.held", "g"], "nothing of it is lost"


LINKED = {
    "index": "mv .git/index .git/other && ln -s other .git/index",
    "index far away": "mkdir x && mv .git/index x/other && ln -s /proc/self/cwd/x/other .git/index",
    "shared index": "git update-index --split-index && cd .git && s=$(ls -d shared*) && mv $s x && ln -s x $s",
}


@pytest.mark.parametrize("way", LINKED)
async def test_T83_a_repository_planted_in_an_index_that_is_a_link_is_not_obeyed_outside(
    box: Sandbox, repository: Path, tmp_path: Path, way: str
) -> None:
    text = PLANT.format(path="sub", marker=tmp_path / "marker") + LINKED[way]
    ran = await box.run(Command(shell(text), str(repository)))
    await looked_at(repository)

    assert ran.exit_code == 0
    assert not (tmp_path / "marker").exists()
    assert [note for note in ran.notes if "held-back" in note]


@pytest.mark.parametrize("way", LINKED)
async def test_T83_control_git_follows_an_index_that_is_a_link(repository: Path, tmp_path: Path, way: str) -> None:
    text = PLANT.format(path="sub", marker=tmp_path / "marker") + LINKED[way]
    await Open().run(Command(shell(text), str(repository)))
    (tmp_path / "marker").unlink(missing_ok=True)
    await looked_at(repository)

    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize("way", WAYS)
async def test_T23_control_without_a_box_it_is(repository: Path, tmp_path: Path, way: str) -> None:
    await Open().run(planting(way, tmp_path / "marker"))
    (tmp_path / "marker").unlink(missing_ok=True)
    await looked_at(repository)

    assert (tmp_path / "marker").exists()


async def test_T23_a_repository_that_was_there_before_stays_and_its_configuration_is_sealed(
    box: Sandbox, repository: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    await Open().run(Command(shell(PLANT.format(path="sub", marker="/dev/null")), str(repository)))
    mine = (repository / "sub" / ".git" / "config").read_text()
    attack = f"git -C sub config core.fsmonitor 'touch {marker}; false'; mv sub/.git sub/x"

    await box.run(Command(shell(f"{attack}; echo z > sub/new; git -C sub add new"), str(repository)))
    await looked_at(repository)

    assert not marker.exists()
    assert (repository / "sub" / ".git" / "config").read_text() == mine
    assert names(repository / "sub") == [".git", "g", "new"]


async def test_T23_a_workspace_made_into_a_repository_without_a_git_folder_is_not_obeyed(
    box: Sandbox, workspace: Path, tmp_path: Path
) -> None:
    marker, other = tmp_path / "marker", tmp_path / "other"
    other.mkdir()
    words = shell(BARE.format(marker=marker))

    await box.run(Command(words, str(workspace)))
    await looked_at(workspace)
    assert not marker.exists()
    assert "HEAD" not in names(workspace)

    await Open().run(Command(words, str(other)))
    await looked_at(other)
    assert marker.exists(), "the control: without a box it is"


async def test_T23_a_planted_repository_is_held_back_while_the_command_goes_on(
    box: Sandbox, repository: Path, tmp_path: Path
) -> None:
    planting = PLANT.format(path="sub", marker=tmp_path / "marker")
    watching = "while [ -e sub/.git ]; do sleep 0.02; done; echo held back"

    ran = await box.run(Command(shell(planting + watching), str(repository)))

    assert (ran.stdout.text, ran.limit) == ("held back\n", "")


async def test_T23_a_command_that_plants_again_and_again_is_ended(
    box: Sandbox, repository: Path, tmp_path: Path
) -> None:
    planting = PLANT.format(path="sub", marker=tmp_path / "marker")
    again = "while :; do [ -e sub/.git ] || mv sub/.git.held* sub/.git; sleep 0.01; done"

    ran = await box.run(Command(shell(planting + again), str(repository)))
    await looked_at(repository)

    assert (ran.limit, ran.exit_code) == ("repositories", None)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "index",
    [b"", b"DIRC", b"DIRC\0\0\0\2\xff\xff\xff\xff" + b"\0\0\xe0\0" * 50_000, b"DIRC\0\0\0\4\xff\xff\xff\xff\xe0" * 999],
)
def test_any_index_can_be_read(repository: Path, index: bytes) -> None:
    (repository / ".git" / "index").write_bytes(index)
    root = os.open(repository / ".git", os.O_RDONLY)
    try:
        assert links_of(root).paths == ()
    finally:
        os.close(root)


MADE = """
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c
test -d own || git init -q own && cd own && echo 1 >> g && git add g && git commit -qm 1
say() {{ printf '#!/bin/sh\\ntouch {marker}\\n' > "$1"; chmod +x "$1"; }}
"""
UNNAMED = {
    "a setting": "git config core.fsmonitor 'touch {marker}; false'",
    "an included file": "git config -f .git/x core.fsmonitor 'touch {marker}; false'; git config include.path x",
    "a hook": "say .git/hooks/post-index-change",
    "hooks elsewhere": "mkdir h; say h/post-index-change; git config core.hooksPath h",
    "hooks by a link": "mkdir h; say h/post-index-change; rm -r .git/hooks; ln -s ../h .git/hooks",
    "settings of a worktree": "git config extensions.worktreeConfig true; "
    "git config -f .git/config.worktree core.fsmonitor 'touch {marker}; false'",
    "a pointer": "cp -r .git ../e; git config -f ../e/config core.fsmonitor 'touch {marker}; false'; "
    "echo ../../e > .git/commondir",
    "a file": "git config core.fsmonitor 'touch {marker}; false'; mv .git ../e; echo 'gitdir: ../e' > .git",
    "a file that goes round": "git config core.fsmonitor 'touch {marker}; false'; mv .git ../e; "
    "ln -s ../e e; echo 'gitdir: /proc/self/cwd/e' > .git",
    "a link": "git config core.fsmonitor 'touch {marker}; false'; mv .git ../e; ln -s ../e .git",
    "a link to settings": "cp .git/config ../e; git config -f ../e core.fsmonitor 'touch {marker}; false'; "
    "ln -sf ../../e .git/config",
}
ADDED = """
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c
git add -A . ; git commit -qm all; touch -d @9 own/g file; git status; git diff; true
"""


def making(way: str, marker: Path) -> Command:
    return Command(shell((MADE + UNNAMED[way]).format(marker=marker)), str(marker.parent / "workspace"))


@pytest.mark.parametrize("was_there", [False, True])
@pytest.mark.parametrize("way", UNNAMED)
async def test_T108_a_repository_that_no_index_names_is_not_obeyed_once_it_is_added(
    box: Sandbox, repository: Path, tmp_path: Path, way: str, was_there: bool
) -> None:
    if was_there:
        await Open().run(Command(shell(MADE.format(marker="")), str(repository)))
    ran = await box.run(making(way, tmp_path / "marker"))
    await Open().run(Command(shell(ADDED), str(repository)))

    assert ran.exit_code == 0, ran.stderr.text
    assert not (tmp_path / "marker").exists()
    assert [note for note in ran.notes if "'own/.git'" in note and "toolwire release" in note]


@pytest.mark.parametrize("way", UNNAMED)
async def test_T108_control_git_obeys_what_it_has_added(repository: Path, tmp_path: Path, way: str) -> None:
    await Open().run(making(way, tmp_path / "marker"))
    (tmp_path / "marker").unlink(missing_ok=True)
    await Open().run(Command(shell(ADDED), str(repository)))

    assert (tmp_path / "marker").exists()


async def test_T108_ordinary_repositories_made_in_a_box_stay(box: Sandbox, repository: Path) -> None:
    text = (
        f"{MADE.format(marker='')} cd ..; git add file; git commit -qm 1; git clone -q . copy; git -C copy branch b"
        "; git clone -q --no-checkout --filter=blob:none file:///workspace part 2>/dev/null"
        "; git -C copy sparse-checkout set x"
        "; git -C copy worktree add -q ../tree b; git worktree add -q mine; git -C copy config user.name A"
    )
    first = await box.run(Command(shell(text), str(repository)))
    second = await box.run(
        Command(shell("git -C own commit -q --allow-empty -m 2; rm -r part; mv copy c"), str(repository))
    )

    assert (first.exit_code, first.stderr.text) == (0, "")
    assert not [note for note in (*first.notes, *second.notes) if "held-back" in note]
    assert [name for name in ("own", "c", "tree", "mine") if not (repository / name / ".git").exists()] == []


@pytest.mark.parametrize("way", ["ln -s c copy", "cp -r c copy"])
async def test_T108_what_a_worktree_leads_to_is_judged_again_where_it_was_moved(
    box: Sandbox, repository: Path, way: str
) -> None:
    text = f"{MADE.format(marker='')} cd ..; git clone -q own copy; git -C copy worktree add -q ../tree"
    await Open().run(Command(shell(text), str(repository)))
    ran = await box.run(Command(shell(f"mv copy c; git -C c config core.fsmonitor x; {way}"), str(repository)))

    assert ran.exit_code == 0, ran.stderr.text
    assert [note for note in ran.notes if "'tree/.git'" in note and "toolwire release" in note]
