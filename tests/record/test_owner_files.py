"""Leases as files of one machine: who is alive, which calls had begun, and what is swept. Two stores in one process."""

import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from toolwire.record.owners import Owners, mark_key
from toolwire.testing import FrozenClock

LEASE_S = 30.0
BOUND_S = 20

Open = Callable[[], Owners]


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "owners"


@pytest.fixture
def owner(folder: Path, clock: FrozenClock) -> Iterator[Open]:
    made: list[Owners] = []

    def make() -> Owners:
        made.append(Owners(folder, lease_s=LEASE_S, monotonic=clock))
        return made[-1]

    yield make
    for one in made:
        one.close()


def killed(one: Owners, folder: Path, name: str = "killed") -> str:
    """An owner whose file is as this one's, with no process that locks it."""
    shutil.copy(folder / one.name, folder / name)
    return name


def test_an_owner_is_alive_while_it_holds_its_lock_and_its_lease(owner: Open, folder: Path, clock: FrozenClock) -> None:
    one, two = owner(), owner()
    assert (one.alive(one.name), two.alive(one.name), two.is_gone(one.name)) == (True, True, False)
    with closing(sqlite3.connect(":memory:")) as connection:
        assert two.alive_on(connection)(one.name)
    assert (two.alive("nobody"), two.is_gone("nobody")) == (False, False)
    gone = killed(one, folder)
    assert (two.alive(gone), two.is_gone(gone)) == (False, True)

    clock.advance(LEASE_S)
    assert two.alive(one.name)
    clock.advance(0.01)
    assert (two.alive(one.name), two.is_gone(one.name)) == (False, False)
    assert (one.lapses, one.lapses, two.alive(one.name)) == (1, 1, True)
    clock.advance(LEASE_S)
    assert one.lapses == 1
    one.close()
    one.close()
    assert (one.alive(one.name), two.alive(one.name), two.is_gone(one.name)) == (False, False, False)
    assert not (folder / one.name).exists()
    clock.advance(LEASE_S)
    assert one.lapses == 2  # it still says so, and writes nothing


@pytest.mark.parametrize("header", [b"another-start 5.000\n", b"", b"THIS-START 12..5\n"])
def test_a_locked_file_without_a_lease_of_this_start_belongs_to_a_living_process(
    owner: Open, folder: Path, clock: FrozenClock, header: bytes
) -> None:
    one, two = owner(), owner()
    path = folder / one.name
    started = path.read_bytes().split(b" ")[0]
    clock.advance(10 * LEASE_S)
    path.write_bytes(header.replace(b"THIS-START", started).ljust(128))
    assert two.alive(one.name)
    gone = killed(one, folder)
    assert two.is_gone(gone) == header.startswith(b"THIS-START")
    assert two.begun(gone) is None


def test_notes_about_calls_tell_what_had_begun(owner: Open, folder: Path) -> None:
    one, two = owner(), owner()
    one.mark("turn", "a")
    one.mark("turn", "b")
    one.mark("turn", "a")
    keys = {mark_key("turn", "a"), mark_key("turn", "b")}
    assert len(keys) == 2
    assert mark_key("turn", "a\ud800") != mark_key("turn", "a")
    assert one.begun(one.name) == keys
    begun = two.begun(killed(one, folder))
    assert begun is not None
    assert {key for key in begun if any(key)} == keys
    assert two.begun(one.name) is None  # it lives, and may begin the next one at any time
    assert two.begun("nobody") is None

    one.unmark("turn", "a")  # its place is free, and what was noted there stays until it is used
    assert one.begun(one.name) == {mark_key("turn", "b")}
    assert keys <= set(two.begun(killed(one, folder)) or ())
    one.erase("turn", "b")
    one.erase("turn", "b")
    one.erase("turn", "never")
    one.unmark("turn", "never")
    assert one.begun(one.name) == set()
    assert mark_key("turn", "b") not in set(two.begun(killed(one, folder)) or (mark_key("turn", "b"),))
    one.close()
    assert one.begun(one.name) is None


def test_places_are_used_again_and_an_owner_without_one_left_says_that_it_has_no_notes(
    owner: Open, folder: Path
) -> None:
    one, two = owner(), owner()
    for number in range(3000):
        one.mark("turn", str(number))
        one.mark("turn", str(number))
        one.unmark("turn", str(number))
    for number in range(1024):
        one.mark("turn", str(number))
    assert len(one.begun(one.name) or ()) == 1024
    assert set(two.begun(killed(one, folder)) or ()) == set(one.begun(one.name) or ())
    one.mark("turn", "one too many")
    assert one.begun(one.name) is None
    assert two.begun(killed(one, folder)) is None
    assert two.alive(one.name)
    one.mark("turn", "more")
    one.erase("turn", "1")
    one.unmark("turn", "2")
    assert one.begun(one.name) is None


def test_only_files_of_the_dead_that_nothing_needs_are_swept(owner: Open, folder: Path) -> None:
    one, two = owner(), owner()
    killed(one, folder, "needed")
    killed(one, folder, "not needed")
    two.sweep({"needed"})
    assert {path.name for path in folder.iterdir()} == {one.name, two.name, "needed"}


def test_a_child_lets_go_of_the_lock_and_its_parent_keeps_it(owner: Open, folder: Path) -> None:
    one, two = owner(), owner()
    if not (pid := os.fork()):
        fine = False
        try:
            one.mark("turn", "child")
            one.close()
            fine = not one.alive(one.name) and one.begun(one.name) is None and (folder / one.name).exists()
        finally:
            os._exit(0 if fine else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert two.alive(one.name)
    assert one.begun(one.name) == set()
    one.forked()
    one.forked()
    assert (one.alive(one.name), two.is_gone(one.name), one.begun(one.name)) == (False, True, None)


def test_the_lease_is_renewed_by_itself_and_not_lost_while_it_lasts(folder: Path, clock: FrozenClock) -> None:
    renewed = threading.Semaphore(0)

    def monotonic() -> float:
        if threading.current_thread().name == "toolwire-store-lease":
            renewed.release()
        return clock()

    one = Owners(folder, lease_s=0.03, monotonic=monotonic)
    try:
        clock.advance(0.03)
        for _ in range(2):  # the first one may have begun before
            assert renewed.acquire(timeout=BOUND_S)
        assert one.lapses == 0
    finally:
        one.close()


def test_its_file_is_its_own_and_nothing_keeps_a_process_from_ending(owner: Open, folder: Path) -> None:
    one = owner()
    kept = (folder / one.name).stat()
    assert (stat.S_IMODE(kept.st_mode), kept.st_size) == (0o600, 128 + 1024 * 16)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("toolwire-store")]
    assert threads
    assert all(thread.daemon for thread in threads)
    (folder / one.name).unlink()
    one.close()
