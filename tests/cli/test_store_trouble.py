"""Store trouble in the middle of a turn: the disk is full, or another process holds the store.

The trouble is real: a limit that the operating system puts on the size of the command's files, and a lock that another
connection takes. Both begin while the model ponders, when the turn has been written down.
"""

import resource
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import LIMIT_S, Script, Stage, scripted
from toolwire.cli.entry.exits import Exit

Trouble = Callable[[Stage, "subprocess.Popen[bytes]"], AbstractContextManager[None]]
GO_ON = "The turn is kept; go on with: toolwire "


@contextmanager
def full_disk(_: Stage, process: "subprocess.Popen[bytes]") -> Iterator[None]:
    before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    if process.poll() is None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def locked_store(stage: Stage, _: "subprocess.Popen[bytes]") -> Iterator[None]:
    connection = sqlite3.connect(stage.folder / ".toolwire" / "store.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


def pondering(model: Script, number: int) -> threading.Event:
    gate = model.gates[number] = threading.Event()
    return gate


def test_a_store_that_cannot_be_read_is_told_with_what_to_do(inside: Inside, tmp_path: Path) -> None:
    """Whose a store is, is looked at before it is opened, and says the same about it."""
    assert inside("call", "echo", "message=hi").code == Exit.DONE
    (tmp_path / ".toolwire" / "store.db").write_text("These are notes. " * 100, encoding="utf-8")

    ran = inside("call", "echo", "message=hi")
    assert ran.code == Exit.STORE
    assert "store.db is not a store; move it away, or choose another home" in ran.err


def test_ask_says_how_to_go_on_and_the_turn_goes_on(stage: Stage) -> None:
    with scripted("never kept", "Here I am.") as model:
        gate = pondering(model, 1)
        process = stage.start("ask", "Are you there?", *model.flags)
        model.wait_for_request(process)
        with full_disk(stage, process):
            gate.set()
            out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == Exit.STORE
        assert "try again" in err.decode()
        assert "Traceback" not in err.decode()
        [line] = [line for line in err.decode().splitlines() if line.startswith(GO_ON)]
        ran = stage.run(*line.removeprefix(GO_ON).split())
    assert (ran.code, ran.out) == (Exit.DONE, "Here I am.\n")
    assert b"Here I am." not in out


@pytest.mark.parametrize("trouble", [full_disk, locked_store])
def test_chat_tells_of_the_trouble_and_goes_on_once_it_is_over(stage: Stage, trouble: Trouble) -> None:
    with scripted("never kept", "Here I am.") as model:
        gate = pondering(model, 1)
        process = stage.start("chat", *model.flags, stdin=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"Are you there?\n")
        process.stdin.flush()
        model.wait_for_request(process)
        with trouble(stage, process):
            gate.set()
            told = next(line for line in process.stderr if b"store.db" in line)
        out, err = process.communicate(b"And now?\n", timeout=LIMIT_S)
    assert b"try again" in told
    assert (process.returncode, out.splitlines()[-1:]) == (Exit.DONE, [b"Here I am."])
    assert b"Traceback" not in err
    assert [message["content"] for message in model.requests[1]["messages"]] == ["And now?"]


def test_a_store_that_can_own_no_turn_is_told_before_the_model_is_asked(stage: Stage) -> None:
    """Its lease is taken with the first turn; a model that is asked before would be paid for nothing."""
    assert stage.run("call", "echo", "message=hi").code == Exit.DONE
    owners = stage.folder / ".toolwire" / "owners"
    owners.rmdir()
    owners.touch()

    with scripted("never said") as model:
        told = stage.run("ask", "Are you there?", *model.flags)

    assert (told.code, model.requests) == (Exit.STORE, [])
    assert "store.db cannot be used (Not a directory); check the folder" in told.err


def test_a_record_that_could_not_be_made_for_want_of_room_is_the_users_own_all_the_same(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWIRE_TRUST", "")
    for room in (3_000, 10_000, 40_000):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            squeezed = inside("call", "echo", "message=hi")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (squeezed.code, room) == (Exit.STORE, room)
        made = inside("call", "echo", "message=hi")
        assert (made.code, made.err.count("not made here")) == (Exit.DONE, 0)
        shutil.rmtree(".toolwire")
