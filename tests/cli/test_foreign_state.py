"""A `.toolwire` that came with a project: nothing in it is obeyed, and nothing is written through it.

The victim's home lies beside the project on the same file system, as it does on most machines, so that a rename could
reach it. It is compared byte for byte.
"""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.cli.conftest import Inside
from tests.cli.stage import Stage, scripted
from toolwire import Agent, Grant, Status, Tier
from toolwire.cli.entry.command import report_internal_error
from toolwire.cli.entry.exits import Exit
from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.files import Change, UntrustedState
from toolwire.settings import state_folder, trust
from toolwire.te.kept import PagedOutput, fetch, keep
from toolwire.testing import ScriptedModel
from toolwire.toolbox import LocalFiles, read_tool, write_tool
from toolwire.toolbox.disk.beneath import exchange
from toolwire.toolbox.remote_files.client import RemoteFiles
from toolwire.toolbox.remote_files.transports import ProcessTransport
from toolwire.toolbox.user.canvas import canvas_tool
from toolwire.toolbox.user.todos import FileTodos

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


def test_T74_a_gateway_does_not_start_on_state_of_another_maker(victim: Victim) -> None:
    through_a_path(victim)
    before = victim.outside()
    words = ("serve", "--upstream", "http://127.0.0.1:9", "--port", "0", "--token-env", "ANN")
    told = victim.stage().run(*words, ANN="a-token-that-is-long-enough-0123456789")
    assert (told.code, f"toolwire trust {victim.state}" in told.err) == (Exit.USAGE, True)
    assert victim.outside() == before


def own(victim: Victim) -> None:
    """The user has worked in this project before."""
    assert victim.run("call", "echo", "message=hi").code == Exit.DONE


NAMES = (
    "logs owners artifacts canvas todos changes store.db store.db-wal store.db-shm store.db-journal audit.key "
    "errors.log history signature .gitignore"
).split()
LOOKING = (["logs"], ["approvals"], ["audit", "verify"])
WORKING = (["call", "echo", "message=hi"], ["audit", "checkpoint"])


def test_T75_control_what_is_written_through_a_link_lands_outside(victim: Victim) -> None:
    victim.state.mkdir()
    (victim.state / "logs").symlink_to(victim.home / "empty")
    before = victim.outside()
    (victim.state / "logs" / "audit.jsonl").write_text("a row\n")
    assert victim.outside().keys() - before.keys() == {"empty/audit.jsonl"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("whose", ["cloned", "own"])
def test_T75_nothing_is_written_or_read_through_a_link_in_a_state_folder(victim: Victim, name: str, whose: str) -> None:
    if whose == "own":
        own(victim)
        part = victim.state / name
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)
    victim.state.mkdir(exist_ok=True)
    is_file = "." in name or name in {"history", "signature"}
    (victim.state / name).symlink_to(victim.home / ("new" if is_file else "empty"))
    before = victim.outside()
    for words in WORKING:
        assert victim.run(*words).code in {Exit.USAGE, Exit.STORE, Exit.NOT_FOUND}, words
    for words in LOOKING:
        victim.run(*words)
    assert victim.run("trust", ".toolwire").code == Exit.USAGE
    assert victim.outside() == before


@pytest.mark.parametrize("target", ["empty", "missing", ".ssh"])
def test_T75_a_state_folder_that_is_a_link_is_refused(victim: Victim, target: str) -> None:
    victim.state.symlink_to(victim.home / target)
    before = victim.outside()
    for words in (*WORKING, *LOOKING, ["trust", ".toolwire"], [*WRITE, "--home", str(victim.home / ".local" / "x")]):
        told = victim.run(*words)
        assert words in LOOKING or told.code in {Exit.USAGE, Exit.NOT_FOUND, Exit.FAILED}, (words, told)
    assert "is a link" in victim.run("call", "echo", "message=hi").err
    assert victim.outside() == before


def test_T75_the_doctor_tells_of_a_state_folder_that_is_a_link_and_tries_nothing_in_it(victim: Victim) -> None:
    victim.state.symlink_to(victim.home / "empty")
    before, changed_at = victim.outside(), (victim.home / "empty").stat().st_mtime_ns
    found = {one["what"]: one["state"] for one in victim.run("doctor", "--json").json["findings"]}
    assert (found["home"], found["store"]) == ("ok", "broken")
    assert (victim.outside(), (victim.home / "empty").stat().st_mtime_ns) == (before, changed_at)


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o770])
def test_T75_a_state_folder_of_the_users_own_is_closed_to_others(victim: Victim, mode: int) -> None:
    own(victim)
    victim.state.chmod(mode)
    own(victim)
    assert stat.S_IMODE(victim.state.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o700])
@pytest.mark.parametrize("content", ["todos/a.json", "canvas/main.html", "logs/audit-2026-01-01.jsonl", "unknown"])
def test_T75_a_state_folder_of_another_maker_is_refused_without_a_store_too(
    victim: Victim, mode: int, content: str
) -> None:
    (victim.state / content).parent.mkdir(parents=True)
    (victim.state / content).write_text("[]")
    victim.state.chmod(mode)
    told = victim.run("call", "echo", "message=hi")
    assert (told.code, f"toolwire trust {victim.state}" in told.err) == (Exit.USAGE, True)
    assert not (victim.state / "store.db").exists()
    assert victim.run("trust", ".toolwire").code == Exit.DONE
    own(victim)
    assert stat.S_IMODE(victim.state.stat().st_mode) == 0o700


def test_a_state_folder_with_nothing_in_it_is_taken(victim: Victim) -> None:
    """A project may keep the folder with its `.gitignore`; a process may die right after it made it."""
    victim.state.mkdir(mode=0o777)
    (victim.state / ".gitignore").write_text("*\n")
    (victim.state / "signature").write_text("forged\n")
    own(victim)
    assert stat.S_IMODE(victim.state.stat().st_mode) == 0o700


def test_the_stand_in_of_an_open_sandbox_is_waited_for_and_not_called_foreign(victim: Victim) -> None:
    victim.state.touch()
    os.utime(victim.state, (1, 1))
    with pytest.raises(BlockingIOError):
        LocalFiles().change(str(victim.project), [Change("a.txt", b"x")])
    victim.state.write_text("of someone")
    with pytest.raises(UntrustedState, match="is not a folder"):
        LocalFiles().change(str(victim.project), [Change("a.txt", b"x")])


def test_without_a_folder_for_the_key_it_lies_in_a_temporary_one(victim: Victim, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    stage = victim.stage()
    stage.environ |= {"XDG_STATE_HOME": "/proc/nowhere", "TMPDIR": str(tmp_path / "temporary")}
    for _ in range(2):
        assert stage.run(*WRITE).code == Exit.DONE
    [key] = (tmp_path / "temporary").rglob("key")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (key.parent, key)] == [0o700, 0o600]
    os.chown(key.parent, 54_321, -1)
    assert stage.run(*WRITE).code == Exit.STORE


def test_T75_a_state_folder_of_another_user_of_the_machine_is_refused(victim: Victim) -> None:
    own(victim)
    for mode in (0o777, 0o700):
        victim.state.chmod(mode)
        os.chown(victim.state, 54_321, -1)
        told = victim.run("call", "echo", "message=hi")
        assert (told.code, "belongs to another user" in told.err) == (Exit.USAGE, True)
        assert victim.run("trust", ".toolwire").code == Exit.USAGE
        os.chown(victim.state, os.geteuid(), -1)
    own(victim)


def test_T75_a_copy_of_a_state_folder_is_not_the_users_until_they_say_so(victim: Victim) -> None:
    own(victim)
    copy = victim.project.parent / "copy"
    shutil.copytree(victim.project, copy)
    there = replace(victim.stage(), folder=copy)
    assert there.run("call", "echo", "message=hi").code == Exit.USAGE
    assert there.run("trust", ".toolwire").code == Exit.DONE
    assert there.run("call", "echo", "message=hi").code == Exit.DONE


def checkpoint_key(victim: Victim) -> str:
    return str(json.loads(victim.run("audit", "checkpoint").out)["key"])


FORGED = bytes(range(32))
FORGED_PUBLIC = Ed25519PrivateKey.from_private_bytes(FORGED).public_key().public_bytes_raw().hex()


def test_T75_a_key_of_another_maker_signs_no_checkpoint(victim: Victim) -> None:
    own(victim)
    mine = checkpoint_key(victim)
    assert (checkpoint_key(victim), mine == FORGED_PUBLIC) == (mine, False)

    (victim.state / "audit.key").write_bytes(FORGED)
    told = victim.run("audit", "checkpoint")
    assert (told.code, told.out, "was not made here by your toolwire" in told.err) == (Exit.USAGE, "", True)
    (victim.state / "audit.key").unlink()
    assert checkpoint_key(victim) not in {mine, FORGED_PUBLIC}


def test_T75_control_a_key_that_the_user_trusts_signs(victim: Victim) -> None:
    """An older version made keys without proof; to trust the folder is to trust the key in it."""
    own(victim)
    (victim.state / "audit.key").write_bytes(FORGED)
    assert victim.run("trust", ".toolwire").code == Exit.DONE
    assert checkpoint_key(victim) == FORGED_PUBLIC


def test_T75_a_key_in_a_folder_that_is_only_named_signs_nothing(victim: Victim) -> None:
    assert victim.run("call", "echo", "message=hi", "--home", "kept").code == Exit.DONE
    (victim.project / "kept" / "audit.key").write_bytes(FORGED)
    told = victim.run("audit", "checkpoint", "--home", "kept")
    assert (told.code, told.out) == (Exit.USAGE, "")


def test_T75_a_relative_home_in_the_environment_does_not_make_a_clones_folder_the_users(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWIRE_STORE__HOME", "kept")
    own(victim)
    monkeypatch.setenv("XDG_STATE_HOME", str(victim.home / "of-another"))
    assert victim.run("call", "echo", "message=hi").code == Exit.USAGE


def test_a_record_of_an_older_version_is_still_the_users_own(victim: Victim) -> None:
    """It had a token in the store and in the state folder, and no signature."""
    own(victim)
    token = "1" * 64
    with closing(sqlite3.connect(victim.state / "store.db")) as store, store:
        store.execute("UPDATE own SET token = ?", (token,))
    (victim.state / "signature").unlink()
    (victim.state / "audit.key").write_bytes(FORGED)
    assert victim.run("call", "echo", "message=hi").code == Exit.USAGE
    trust(victim.state / "store.db", token, state_folder())
    own(victim)
    assert (victim.state / "signature").is_file()
    assert checkpoint_key(victim) == FORGED_PUBLIC
    assert victim.run(*WRITE).code == Exit.DONE


def test_T75_pages_and_plans_are_kept_nowhere_that_another_maker_chose(victim: Victim) -> None:
    """Also where the record is in memory, and for programs that use these tools without a record."""
    for name in ("canvas", "todos"):
        victim.state.mkdir(exist_ok=True)
        (victim.state / name).symlink_to(victim.home / "empty")
    before = victim.outside()
    show = ("call", "canvas", "title=Hi", "--tools", "canvas", "--yes")
    assert victim.run(*show).code == Exit.USAGE
    victim.project.joinpath("toolwire.toml").write_text('[store]\nkind = "memory"\n')
    assert victim.run("trust").code == Exit.DONE
    assert victim.run(*show).code == Exit.USAGE
    with pytest.raises(ToolFailure, match="link or a special file"):
        canvas_tool(victim.state / "canvas").in_process.invoke({"title": "Hi"}, Context())
    for work in (
        FileTodos(victim.state / "todos").read,
        lambda name: FileTodos(victim.state / "todos").write(name, []),
    ):
        with pytest.raises(UntrustedState):
            work("conversation")
    assert victim.outside() == before

    shutil.rmtree(victim.state)
    assert victim.run(*show).code == Exit.DONE
    FileTodos(victim.state / "todos").write("conversation", [])
    assert FileTodos(victim.state / "todos").read("conversation") == []


def test_T75_an_error_is_logged_through_no_link_and_into_no_folder_of_another_maker(victim: Victim) -> None:
    victim.state.mkdir()
    (victim.state / "errors.log").symlink_to(victim.home / ".bashrc")
    before = victim.outside()
    for _ in range(2):
        assert report_internal_error(RuntimeError("odd")) == Exit.UNEXPECTED
        (victim.state / "errors.log").unlink()
        (victim.state / "errors.log").write_text("theirs")
    assert victim.outside() == before
    assert (victim.state / "errors.log").read_text() == "theirs"
    (victim.state / "errors.log").unlink()
    report_internal_error(RuntimeError("odd"))
    assert "RuntimeError: odd" in (victim.state / "errors.log").read_text()


def test_T75_outputs_of_te_are_kept_in_no_folder_of_another_maker(victim: Victim) -> None:
    victim.state.mkdir()
    (victim.state / "artifacts").symlink_to(victim.home / "empty")
    before = victim.outside()
    kept = PagedOutput("ls", "lines", 1, (("a",),))
    environ = {"TOOLWIRE_STORE__HOME": ".toolwire"}
    handle = keep(kept, environ)
    assert fetch(handle, environ) == kept
    assert victim.outside() == before


async def test_T74_an_agent_in_python_writes_beside_no_state_of_another_maker(victim: Victim) -> None:
    through_a_path(victim)
    before = victim.outside()
    grant = Grant(Tier.RUN, frozenset({"file_read", "file_write"}), (str(victim.project),), confirmed=frozenset({"*"}))
    agent = Agent(ScriptedModel(), [read_tool(LocalFiles()), write_tool(LocalFiles())], grant=grant)
    assert (await agent.call("read", {"path": "README.md"})).status is Status.SUCCESS
    told = await agent.call("write", {"path": "note.txt", "content": "x"})
    assert (told.status, "toolwire trust" in told.text) == (Status.FAILED, True)
    assert victim.outside() == before
    shutil.rmtree(victim.state)
    assert (await agent.call("write", {"path": "note.txt", "content": "x"})).status is Status.SUCCESS


def test_T74_the_far_end_on_another_machine_refuses_it_too(victim: Victim) -> None:
    through_a_path(victim)
    before, root = victim.outside(), str(victim.project)
    send = ProcessTransport((sys.executable, "-m", "toolwire.toolbox.remote_files.server", root))
    try:
        files = RemoteFiles(send)
        with files.open(root, "README.md") as file:
            assert file.read() == b"A project.\n"
        with pytest.raises(UntrustedState, match="toolwire trust"):
            files.change(root, [Change("note.txt", b"x")])
        assert victim.outside() == before
        shutil.rmtree(victim.state)
        files.change(root, [Change("note.txt", b"x")])
    finally:
        send.close()


DYING = """
import os, sys
from pathlib import Path
from toolwire.protocol.files import Change
from toolwire.toolbox import LocalFiles

def sync(descriptor):
    if (Path(sys.argv[1]) / ".toolwire" / "changes" / "plan").exists():
        os._exit(9)

LocalFiles(sync).change(sys.argv[1], [Change("a.txt", b"new", before="")])
"""


def test_T74_a_plan_of_the_users_own_counts_only_where_it_was_written(tmp_path: Path) -> None:
    """Control: in its own folder the same plan is carried out by the next write."""
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        root.mkdir()
        LocalFiles().change(str(root), [Change("b.txt", b"made here")])
    assert subprocess.run([sys.executable, "-c", DYING, str(first)]).returncode == 9
    for name in ("plan", "new-0"):
        os.link(first / ".toolwire" / "changes" / name, second / ".toolwire" / "changes" / name)
    assert [(root / "a.txt").exists() for root in (first, second)] == [False, False]
    for root in (second, first):
        LocalFiles().change(str(root), [Change("b.txt", b"again")])
    assert [(root / "a.txt").exists() for root in (first, second)] == [True, False]


def test_T74_the_key_that_signs_is_shown_by_no_tool(victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    """With it a command could sign a state folder of its own making below the workspace."""
    monkeypatch.chdir(victim.home)
    key = victim.home / ".local" / "state" / "toolwire" / "key"
    key.parent.mkdir(parents=True)
    key.write_bytes(b"needle".ljust(32, b"."))
    (victim.home / "link").symlink_to(key.parent)
    (victim.home / "needle.txt").write_text("needle\n")
    for path in (".local/state/toolwire/key", ".local/State/toolwire./key", "link/key", str(key)):
        told = victim.run("call", "read", f"path={path}", "--tools", "read_only", "--allow", "file_read", "--yes")
        assert (told.code, "needle" in told.out) == (Exit.FAILED, False), path
    found = victim.run("call", "grep", "pattern=needle", "--tools", "read_only", "--allow", "file_read", "--json").out
    assert ("needle.txt" in found, "toolwire/key" in found) == (True, False)
    words = ("--tools", "shell", "--tier", "run", "--allow", "shell", "--yes")
    for text in ("cat .local/state/toolwire/key", "cat .local/state/toolwire/key; touch made"):
        told = victim.run("call", "bash", f"command={text}", *words)
        assert "needle" not in told.out
    assert (victim.home / "made").exists()


def git(folder: Path, *words: str) -> None:
    named = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def pulled(victim: Victim) -> Callable[[Callable[[Path], object]], None]:
    """A project that the user has worked in, and whose next pull brings what `plant` puts into its state folder."""
    upstream = victim.project.parent / "upstream"
    git(victim.project.parent, "init", "-q", str(upstream))
    (upstream / "README.md").write_text("A project.\n")
    git(upstream, "add", "-A")
    git(upstream, "commit", "-qm", "first")
    shutil.rmtree(victim.project)
    git(victim.project.parent, "clone", "-q", str(upstream), str(victim.project))
    os.chdir(victim.project)
    own(victim)
    assert victim.run(*WRITE).code == Exit.DONE

    def pull(plant: Callable[[Path], object]) -> None:
        (upstream / ".toolwire").mkdir()
        plant(upstream / ".toolwire")
        git(upstream, "add", "-Af")
        git(upstream, "commit", "-qm", "second")
        git(victim.project, "pull", "-q")

    return pull


Pull = Callable[[Callable[[Path], object]], None]


def test_T76_control_a_pull_replaces_what_lies_in_an_ignored_folder(victim: Victim, pulled: Pull) -> None:
    before = (victim.state / "store.db").read_bytes()
    pulled(lambda state: (state / "store.db").write_bytes(b"theirs"))
    assert (victim.state / "store.db").read_bytes() == b"theirs" != before


def test_T76_a_plan_that_a_pull_brings_is_not_carried_out(victim: Victim, pulled: Pull) -> None:
    def plant(state: Path) -> None:
        planted = replace(victim, project=state.parent)
        by_a_plain_slot(planted)

    pulled(plant)
    assert victim.run(*READ).code == Exit.DONE
    assert victim.run(*WRITE).code == Exit.DONE
    assert (victim.project / "README.md").read_text() == "A project.\n"
    assert sorted(path.name for path in victim.changes.iterdir()) == ["done", "lock"]


def test_T76_a_store_that_a_pull_brings_is_refused(victim: Victim, pulled: Pull, tmp_path: Path) -> None:
    stranger = Stage(tmp_path, {"HOME": str(tmp_path / "stranger"), "TOOLWIRE_TRUST": ""})
    assert stranger.run("call", "echo", "message=hi", "--home", "theirs").code == Exit.DONE
    pulled(lambda state: shutil.copy(tmp_path / "theirs" / "store.db", state))
    told = victim.run("call", "echo", "message=hi")
    assert (told.code, "toolwire trust" in told.err) == (Exit.USAGE, True)


def test_T76_a_key_and_a_link_that_a_pull_brings_lead_nowhere(victim: Victim, pulled: Pull) -> None:
    def plant(state: Path) -> None:
        (state / "audit.key").write_bytes(FORGED)
        (state / "canvas").symlink_to(victim.home / "empty")

    pulled(plant)
    before = victim.outside()
    told = victim.run("audit", "checkpoint")
    assert (told.code, told.out) == (Exit.USAGE, "")
    (victim.state / "canvas").unlink()
    told = victim.run("audit", "checkpoint")
    assert (told.code, told.out) == (Exit.USAGE, "")
    assert victim.outside() == before
