"""Where large bodies lie is a contract of its own: what one store keeps elsewhere, another one finds by its handle."""

from pathlib import Path

import pytest

from toolwire.errors import NotFound
from toolwire.record.memory import MemoryStore
from toolwire.record.projects import of_project
from toolwire.record.sqlite import SqliteStore


async def test_bodies_can_lie_where_several_stores_reach_them(tmp_path: Path) -> None:
    elsewhere = MemoryStore()
    async with (
        await SqliteStore.at(tmp_path / "one", bodies=elsewhere) as one,
        await SqliteStore.at(tmp_path / "other", bodies=elsewhere) as other,
    ):
        handle = await of_project(one, "mine").keep(b"0123456789")

        assert await of_project(other, "mine").fetch(handle, offset=2, length=3) == b"234"
        with pytest.raises(NotFound):
            await of_project(other, "theirs").fetch(handle)
    assert not (tmp_path / "one" / "artifacts").exists()


async def test_bodies_in_a_folder_are_found_there_alone(tmp_path: Path) -> None:
    async with await SqliteStore.at(tmp_path / "one") as one, await SqliteStore.at(tmp_path / "other") as other:
        handle = await one.keep(b"0123456789")

        assert await one.fetch(handle) == b"0123456789"
        with pytest.raises(NotFound):
            await other.fetch(handle)
