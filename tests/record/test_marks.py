"""Marks of what untrusted turns wrote, however long the name of a resource is."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from toolwire.protocol.provenance import UntrustedMark
from toolwire.record.contract import Store
from toolwire.record.sqlite import SqliteStore

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789äßж語🙂"


def name_of(size: int, seed: int = 0) -> str:
    """A path of so many bytes that cannot be compressed much."""
    chosen = random.Random(seed)
    parts = ["file:/"]
    missing = size - len(parts[0])
    while missing > 0:
        parts.append(chosen.choice(LETTERS))
        missing -= len(parts[-1].encode())
    if missing < 0:
        missing += len(parts.pop().encode())
    return "".join(parts) + "x" * missing


@pytest.mark.parametrize("size", [900, 1_023, 1_024, 1_025, 1_089, 1_090, 2_705, 4_095, 100_000])
async def test_a_resource_with_a_long_name_is_marked_and_unmarked(store: Store, size: int) -> None:
    name, other = name_of(size - 1) + "x", name_of(size - 1) + "y"
    first, second = UntrustedMark(name, ("web",), "1:2", "3:4", 5.0), UntrustedMark(other, ("mail", "web"))
    again = UntrustedMark(name, ("mail",), "1:2", "3:5", 6.0)

    await store.mark_untrusted("default", [first, second])
    assert set(await store.untrusted("default")) == {first, second}
    await store.mark_untrusted("default", [again])
    assert set(await store.untrusted("default")) == {again, second}
    assert list(await store.untrusted("elsewhere")) == []
    await store.mark_untrusted("default", [], [name])
    assert list(await store.untrusted("default")) == [second]


async def test_names_that_begin_alike_are_told_apart(store: Store) -> None:
    marks = {UntrustedMark(name_of(3_000) + end, (end,)) for end in ("", "/a", "/b", "/a/b")}
    await store.mark_untrusted("default", list(marks))
    assert [one.origins[0] for one in await store.untrusted("default")] == ["", "/a", "/a/b", "/b"]
    assert set(await store.untrusted("default")) == marks
    await store.mark_untrusted("default", [], [name_of(3_000)])
    assert set(await store.untrusted("default")) == {one for one in marks if one.origins != ("",)}


@pytest.mark.parametrize("goes", [False, True])
async def test_a_long_name_that_an_earlier_version_marked_is_marked_once(tmp_path: Path, goes: bool) -> None:
    name = name_of(3_000)
    async with await SqliteStore.at(tmp_path / "home") as store:
        with closing(sqlite3.connect(tmp_path / "home" / "store.db")) as connection:
            connection.execute("INSERT INTO untrusted VALUES ('default', ?, '', '', '[\"web\"]', 1.0)", (name,))
            connection.commit()
        assert await store.untrusted("default") == [UntrustedMark(name, ("web",), at=1.0)]
        new = [] if goes else [UntrustedMark(name, ("mail",), at=2.0)]
        await store.mark_untrusted("default", new, [name] if goes else [])
        assert await store.untrusted("default") == new
