"""Agents over every store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolwire import MemoryStore, SqliteStore
from toolwire.record.contract import Store


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else await SqliteStore.at(tmp_path / "home")
    yield made
    await made.close_store()
