"""Marks of what untrusted turns wrote, by themselves: who gets one, who finds it again, and what too many become."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from toolwire import Grant, MemoryStore
from toolwire.execute.changed_files import file_time_ns, version_of
from toolwire.hub.provenance import MOST_IN_FOLDER, MOST_MARKS, ContextRecorder
from toolwire.protocol.context import Context
from toolwire.protocol.provenance import FILE, FOLDER, Touched, UntrustedMark
from toolwire.protocol.traffic import ReachedHost, RefusedHost, Traffic
from toolwire.testing import FrozenClock

EVIL = "https://evil.example"


class House:
    """A workspace, and the marks of its project."""

    def __init__(self, root: Path) -> None:
        self.root, self.store, self.clock = root, MemoryStore(), FrozenClock(7.0)
        self.recorder = ContextRecorder(self.store, self.clock, lambda text: text.replace("SECRET", "…"))

    def context(self, *told: Touched | Traffic | str, tainted_by: tuple[str, ...] = ()) -> Context:
        grant = Grant(roots=(str(self.root),))
        return Context("c", "t", "garden", "ann", grant, told=list(told), tainted_by=tainted_by)

    async def record(self, *told: Touched | Traffic | str, tainted_by: tuple[str, ...] = ()) -> Sequence[object]:
        """What the context knows after it was recorded, without what it was told."""
        context = self.context(*told, tainted_by=tainted_by)
        await self.recorder.record_told(context, "write")
        return context.told[len(told) :]

    async def marks(self) -> dict[str, UntrustedMark]:
        return {mark.resource: mark for mark in await self.recorder.marks("garden")}

    def file(self, name: str, text: str = "x") -> str:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return FILE + str(path)

    def rename(self, name: str, other: str) -> None:
        (self.root / name).rename(self.root / other)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def wrote(resource: str) -> Touched:
    return Touched(resource, writes=True)


def mark_of(resource: str, *origins: str, at: float = 7.0) -> UntrustedMark:
    status = Path(resource.removeprefix(FILE)).stat()
    return UntrustedMark(resource, origins, str(status.st_ino), version_of(status), at)


async def test_what_a_call_writes_is_marked_where_it_or_its_turn_has_read_something_untrusted(house: House) -> None:
    clean, read, tainted = house.file("clean"), house.file("read"), house.file("tainted")
    await house.record(wrote(clean))
    assert await house.marks() == {}
    await house.record(f"{EVIL}?SECRET", wrote(read), wrote("todos:one"), Touched(clean))
    await house.record(wrote(tainted), tainted_by=("page", "page", *"abcdef"))
    await house.record(EVIL, Touched(clean))
    assert await house.marks() == {
        read: mark_of(read, f"{EVIL}?…"),
        "todos:one": UntrustedMark("todos:one", (f"{EVIL}?…",), at=7.0),
        tainted: mark_of(tainted, "page", "a", "b", "c", "d"),
    }
    await house.record(EVIL, wrote(f"{FILE}{house.root}/gone"))
    assert (await house.marks())[f"{FILE}{house.root}/gone"] == UntrustedMark(
        f"{FILE}{house.root}/gone", (EVIL,), at=7.0
    )


async def test_hosts_that_were_reached_are_on_record_and_make_a_call_untrusted(house: House) -> None:
    written = house.file("a")
    refused = Traffic(refused=(RefusedHost("SECRET.example:443", "no", 1),))
    await house.record(refused, wrote(written))
    assert await house.marks() == {}
    await house.record(Traffic(reached=(ReachedHost("page.example:443", 1, 2, 3),)), wrote(written))
    rows = await house.store.audit_log(turn_id="t")
    assert [(row.event, row.project, row.agent, row.call_id, row.tool, row.at) for row in rows] == [
        ("network", "garden", "ann", "c", "write", 7.0)
    ] * 2
    assert "SECRET" not in str(rows)
    assert (await house.marks())[written].origins == ("network:page.example:443",)


async def test_who_reads_a_marked_thing_is_told_what_its_writer_had_read(house: House) -> None:
    one, other = house.file("sub/one"), house.file("other")
    await house.record(EVIL, wrote(one), wrote("todos:one"))
    assert await house.record(Touched(one)) == [f"{FILE}sub/one", EVIL]
    assert await house.record(Touched("todos:one")) == ["todos:one", EVIL]
    assert await house.record(Touched(other), Touched("todos:two")) == []
    assert await house.record(wrote(one)) == []
    outside = f"{FILE}/elsewhere/x"
    await house.record(EVIL, wrote(outside))
    assert await house.record(Touched(outside)) == [outside, EVIL]
    assert await house.record(Touched(outside), Touched(one), Touched(one)) == [
        outside, EVIL, f"{FILE}sub/one", EVIL,
    ]  # fmt: skip


async def test_a_file_is_known_by_its_inode_under_any_name_and_not_by_its_name_alone(house: House) -> None:
    marked = house.file("marked")
    await house.record(EVIL, wrote(marked))
    mark = mark_of(marked)
    seen_open = Touched(f"{FILE}{house.root}/other", inode=mark.inode, version=mark.version)
    assert await house.record(seen_open) == [f"{FILE}marked", EVIL]
    assert await house.record(Touched(seen_open.resource, inode=mark.inode, version="another")) == []
    assert await house.record(Touched(marked, inode="1", version=mark.version)) == []
    house.rename("marked", "moved")
    assert await house.record(Touched(f"{FILE}{house.root}/moved")) == [f"{FILE}marked", EVIL]
    assert await house.record(Touched(marked)) == [f"{FILE}marked", EVIL], "it lies on another machine, or is gone"
    house.file("keeps the inode of the first one busy")
    house.file("marked", "by another")
    assert await house.record(Touched(marked)) == []


async def test_what_a_command_has_changed_in_its_folder_is_marked(house: House) -> None:
    before = house.file("before")
    os.utime(before.removeprefix(FILE), ns=(1, 1))
    since = max(file_time_ns(), (house.root / "before").stat().st_ctime_ns + 1)
    changed = [house.file("new"), house.file("sub/new")]
    while (house.root / "sub/new").stat().st_ctime_ns < since or (house.root / "new").stat().st_ctime_ns < since:
        changed = [house.file("new", "again"), house.file("sub/new", "again")]  # the clock of files ticks slowly
    await house.record(EVIL, Touched(f"{FOLDER}{house.root}", writes=True, since_ns=since))
    assert await house.marks() == {one: mark_of(one, EVIL) for one in changed}


async def test_of_many_files_below_one_entry_the_entry_is_marked(house: House) -> None:
    for number in range(MOST_IN_FOLDER):
        house.file(f"few/{number}")
        house.file(f"many/{number}")
    house.file("many/one more")
    await house.record(EVIL, Touched(f"{FOLDER}{house.root}", writes=True, since_ns=1))
    marks = await house.marks()
    many = f"{FOLDER}{house.root}/many"
    assert len(marks) == MOST_IN_FOLDER + 1
    assert marks[many] == UntrustedMark(many, (EVIL,), str((house.root / "many").stat().st_ino), at=7.0)
    assert await house.record(Touched(f"{FILE}{house.root}/many/3")) == [many, EVIL]
    assert await house.record(Touched(f"{FILE}{house.root}/many")) == [many, EVIL]
    assert await house.record(Touched(f"{FILE}{house.root}/many more")) == []
    house.rename("many", "moved")
    (house.root / "many").mkdir()
    assert await house.record(Touched(house.file("many/new"))) == []


async def test_a_renamed_file_is_marked_again_by_a_turn_that_is_clean(house: House) -> None:
    marked, kept = house.file("marked"), house.file("kept")
    await house.record(EVIL, wrote(marked), wrote(kept), wrote("todos:one"))
    house.clock.advance(5)
    folder = Touched(f"{FOLDER}{house.root}", writes=True, since_ns=1)
    await house.record(folder)
    assert set(await house.marks()) == {marked, kept, "todos:one"}
    house.rename("marked", "moved")
    house.file("clean")
    await house.record(folder)
    moved = f"{FILE}{house.root}/moved"
    marks = await house.marks()
    assert set(marks) == {marked, kept, "todos:one", moved}
    assert marks[moved] == mark_of(moved, EVIL)


@pytest.mark.parametrize("there", [0, 1])
async def test_where_there_are_too_many_marks_the_workspace_is_marked(house: House, there: int) -> None:
    inode = str(house.root.stat().st_ino)
    old = [UntrustedMark(f"{FILE}{house.root}/gone{n}", (EVIL,), "1", "v") for n in range(MOST_MARKS - 1 - there)]
    lists = [UntrustedMark(f"todos:{n}", (EVIL,)) for n in range(there)]
    await house.store.mark_untrusted("garden", [*old, *lists])
    one, two = house.file("one"), house.file("two")
    await house.record(EVIL, wrote(one))
    assert len(await house.marks()) == MOST_MARKS
    assert one in await house.marks()
    await house.record(EVIL, wrote(two))
    assert set(await house.marks()) == {one, two, *(mark.resource for mark in lists)}, "those of files that are gone"
    full = [UntrustedMark(f"{FILE}{house.root}/far{n}", (EVIL,)) for n in range(MOST_MARKS - 2 - there)]
    await house.store.mark_untrusted("garden", full)
    await house.record("page", wrote(house.file("three")))
    whole = f"{FOLDER}{house.root}"
    marks = await house.marks()
    assert set(marks) == {whole, *(mark.resource for mark in lists)}
    assert marks[whole] == UntrustedMark(whole, ("page",), inode, at=7.0)
