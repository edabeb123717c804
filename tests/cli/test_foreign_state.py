"""A `.toolwire` that came with a project: nothing in it is obeyed, and nothing is written through it.

The victim's home lies beside the project on the same file system, as it does on most machines, so that a rename could
reach it. It is compared byte for byte.
"""

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import Stage, scripted
from toolwire.cli.exits import Exit
from toolwire.toolbox.beneath import exchange

WRITING = ("--tools", "coding", "--tier", "run", "--allow", "file_write", "--allow", "file_read", "--yes")
WRITE = ("call", "write", "path=note.txt", "content=hello", *WRITING)
READ = ("call", "read", "path=README.md")


@dataclass(frozen=True, slots=True)
class Victim:
    """A user with a home, in a project that came from somewhere. Commands run in this process, since there are many."""

    run: Inside
    home: Path
    project: Path

    @property
    def state(self) -> Path:
        return self.project / ".toolwire"

    @property
    def changes(self) -> Path:
        return self.state / "changes"

    def stage(self) -> Stage:
        """The same in processes of their own."""
        return Stage(self.project, {"HOME": str(self.home), "TOOLWIRE_TRUST": ""})

    def outside(self) -> dict[str, tuple[int, bytes]]:
        """Everything in the home but toolwire's own notes: kind and content."""
        found = {}
        for path in sorted(self.home.rglob("*")):
            name = path.relative_to(self.home).as_posix()
            if not name.startswith(".local"):
                about = path.lstat()
                found[name] = stat.S_IFMT(about.st_mode), path.read_bytes() if path.is_file() else b""
        return found


@pytest.fixture
def victim(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Victim:
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home / ".ssh", home / "empty", project):
        folder.mkdir(parents=True)
    (home / ".bashrc").write_text("# mine\n")
    (home / ".ssh" / "id_rsa").write_text("PRIVATE\n")
    (project / "README.md").write_text("A project.\n")
    (project / "payload.sh").write_text("touch ran\n")
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ".local" / "state"))
    monkeypatch.setenv("TOOLWIRE_TRUST", "")
    return Victim(inside, home, project)


def plan(victim: Victim, **swap: object) -> None:
    """A plan as a process leaves it that dies in the middle of a change."""
    victim.changes.mkdir(parents=True, exist_ok=True)
    whole = {"path": "payload.sh", "action": "replace", "slot": "new-0", "inode": 1, "seen": []} | swap
    body = json.dumps({"swaps": [whole], "folders": [], "key": "", "note": ""})
    (victim.changes / "plan").write_text(body)


def through_a_path(victim: Victim) -> None:
    (victim.changes / "new-x").mkdir(parents=True)
    plan(victim, slot="new-x/../../../../home/.bashrc")


def through_a_number_with_a_path(victim: Victim) -> None:
    (victim.changes / "new-0").mkdir(parents=True)
    plan(victim, slot="new-0/../../../../home/.bashrc")


def through_a_link(victim: Victim) -> None:
    victim.changes.mkdir(parents=True)
    (victim.changes / "new-0").symlink_to(victim.home)
    plan(victim, slot="new-0/.bashrc")


def by_moving_a_key_in(victim: Victim) -> None:
    (victim.changes / "new-x").mkdir(parents=True)
    plan(victim, slot="new-x/../../../../home/.ssh/id_rsa", path="key.txt", action="create")


def by_a_new_file(victim: Victim) -> None:
    (victim.changes / "new-x").mkdir(parents=True)
    plan(victim, slot="new-x/../../../../home/.profile", action="remove")


def by_a_link_as_slot(victim: Victim) -> None:
    victim.changes.mkdir(parents=True)
    (victim.changes / "new-0").symlink_to(victim.home / ".ssh" / "id_rsa")
    plan(victim, path="key.txt", action="create", inode=(victim.changes / "new-0").lstat().st_ino)


def by_a_folder_as_slot(victim: Victim) -> None:
    (victim.changes / "new-0").mkdir(parents=True)
    plan(victim, path="hooks", action="create", inode=(victim.changes / "new-0").stat().st_ino)


def by_a_plain_slot(victim: Victim) -> None:
    """No way out: but what is in the project would still change without a question."""
    victim.changes.mkdir(parents=True)
    (victim.changes / "new-0").write_text("evil\n")
    plan(victim, path="README.md", inode=(victim.changes / "new-0").stat().st_ino)


PLANS = (
    through_a_path,
    through_a_number_with_a_path,
    through_a_link,
    by_moving_a_key_in,
    by_a_new_file,
    by_a_link_as_slot,
    by_a_folder_as_slot,
    by_a_plain_slot,
)


def test_T74_control_a_plan_that_is_carried_out_as_it_stands_overwrites_a_start_up_file(victim: Victim) -> None:
    through_a_path(victim)
    [swap] = json.loads((victim.changes / "plan").read_text())["swaps"]
    root, changes = (os.open(folder, os.O_RDONLY) for folder in (victim.project, victim.changes))
    exchange((changes, swap["slot"]), (root, swap["path"]))
    os.close(root)
    os.close(changes)
    assert (victim.home / ".bashrc").read_text() == "touch ran\n"


@pytest.mark.parametrize("planted", PLANS)
def test_T74_a_plan_that_came_with_a_project_is_not_carried_out(
    victim: Victim, planted: Callable[[Victim], None]
) -> None:
    planted(victim)
    before = victim.outside()
    for words in (READ, WRITE):
        told = victim.run(*words)
        assert (told.code, f"toolwire trust {victim.state}" in told.err) == (Exit.USAGE, True)
    elsewhere = ("--home", str(victim.home / ".local" / "elsewhere"))
    assert victim.run(*READ, *elsewhere).code == Exit.DONE
    told = victim.run(*WRITE, *elsewhere)
    assert (told.code, f"toolwire trust {victim.state}" in told.out + told.err) == (Exit.FAILED, True)
    assert victim.outside() == before
    assert (victim.project / "README.md").read_text() == "A project.\n"
    assert (victim.project / "payload.sh").read_text() == "touch ran\n"
    assert not (victim.project / "key.txt").exists()
    assert not (victim.project / "note.txt").exists()


@pytest.mark.parametrize("planted", PLANS)
def test_T74_not_even_in_a_folder_that_the_user_trusts(victim: Victim, planted: Callable[[Victim], None]) -> None:
    """`git pull` can bring such a plan into a folder that is the user's own; and trust is often given in haste."""
    planted(victim)
    before = victim.outside()
    assert victim.run("trust", ".toolwire").code == Exit.DONE
    assert victim.run(*READ).code == Exit.DONE
    victim.run(*WRITE)
    assert victim.outside() == before
    assert (victim.project / "README.md").read_text() == "A project.\n"
    assert (victim.project / "payload.sh").read_text() == "touch ran\n"
    assert not (victim.project / "key.txt").exists()


def as_a_pipe(victim: Victim) -> None:
    victim.changes.mkdir(parents=True)
    os.mkfifo(victim.changes / "plan")


def as_a_link(victim: Victim) -> None:
    victim.changes.mkdir(parents=True)
    (victim.changes / "plan").symlink_to(victim.home / ".bashrc")


def as_a_huge_file(victim: Victim) -> None:
    victim.changes.mkdir(parents=True)
    with (victim.changes / "plan").open("wb") as file:
        file.truncate(1 << 40)


def deeply_nested(victim: Victim) -> None:
    victim.changes.mkdir(parents=True)
    (victim.changes / "plan").write_text('{"swaps":' * 200_000)


def with_a_linked_folder_of_notes(victim: Victim) -> None:
    by_a_plain_slot(victim)
    (victim.changes / "done").symlink_to(victim.home / "empty")


def with_a_linked_journal(victim: Victim) -> None:
    victim.state.mkdir()
    victim.changes.symlink_to(victim.home / "empty")


def with_a_linked_lock(victim: Victim) -> None:
    victim.changes.mkdir(parents=True)
    (victim.changes / "lock").symlink_to(victim.home / "new")


@pytest.mark.parametrize(
    "planted",
    [
        as_a_pipe,
        as_a_link,
        as_a_huge_file,
        deeply_nested,
        with_a_linked_folder_of_notes,
        with_a_linked_journal,
        with_a_linked_lock,
    ],
)
def test_T74_a_journal_of_odd_parts_is_refused_and_leads_nowhere(
    victim: Victim, planted: Callable[[Victim], None]
) -> None:
    planted(victim)
    before = victim.outside()
    for words in (READ, WRITE):
        assert victim.run(*words).code == Exit.USAGE
    trusted = victim.run("trust", ".toolwire")
    assert trusted.code == (Exit.USAGE if planted is with_a_linked_journal else Exit.DONE)
    victim.run(*WRITE)
    assert victim.outside() == before


@pytest.mark.parametrize("planted", [through_a_path, by_moving_a_key_in, by_a_plain_slot])
def test_T74_every_granted_folder_is_looked_at_not_only_the_one_with_the_record(
    victim: Victim, planted: Callable[[Victim], None]
) -> None:
    planted(victim)
    own = victim.project.parent / "own"
    own.mkdir()
    here = replace(victim.stage(), folder=own)
    roots = ("--root", str(own), "--root", str(victim.project))
    before = victim.outside()
    assert here.run("call", "read", "path=README.md", *roots).code == Exit.DONE
    told = here.run("call", "write", f"path={victim.project}/note.txt", "content=x", *roots, *WRITING)
    assert (told.code, f"toolwire trust {victim.state}" in told.out + told.err) == (Exit.FAILED, True)
    assert here.run("call", "write", f"path={own}/note.txt", "content=x", *roots, *WRITING).code == Exit.DONE
    assert victim.outside() == before
    assert (victim.project / "README.md").read_text() == "A project.\n"


def test_T74_a_model_is_not_even_asked_in_a_project_with_state_of_another_maker(victim: Victim) -> None:
    through_a_path(victim)
    before = victim.outside()
    with scripted([("read", {"path": "README.md"})], "It is a project.") as model:
        for words in (["ask", "What is in README?"], ["ask", "--resume"], ["chat"]):
            told = victim.stage().run(*words, *model.flags, stdin=b"What is in README?\n")
            assert (told.code, "toolwire trust" in told.err) == (Exit.USAGE, True), words
        assert model.requests == []
        assert victim.outside() == before

        victim.state.rename(victim.project.parent / "removed")
        assert victim.stage().run("ask", "What is in README?", *model.flags).out == "It is a project.\n"
