"""The stores under test, and small values to keep in them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from toolwire.record.contract import Store
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore

NOW = 1_700_000_000.0

OpenStore = Callable[[], Awaitable[SqliteStore]]


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore(clock=lambda: NOW)
        return
    async with await SqliteStore.at(tmp_path / "home", clock=lambda: NOW) as opened:
        yield opened


@pytest.fixture
async def open_sqlite(tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens stores on one home; all are closed with the test."""
    opened: list[SqliteStore] = []

    async def open_one() -> SqliteStore:
        opened.append(await SqliteStore.at(tmp_path / "home", clock=lambda: NOW, busy_timeout_s=0.2))
        return opened[-1]

    yield open_one
    for one in opened:
        await one.close_store()
