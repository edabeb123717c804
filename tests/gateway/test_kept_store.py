"""`toolwire serve` keeps one store open, and notices when there is another one."""

import shutil
from pathlib import Path

import pytest

from tests.gateway.test_approvals import CARD
from toolwire import SqliteStore
from toolwire.assemble.kept_store import KeptStore
from toolwire.assemble.project import open_project
from toolwire.errors import NotFound


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TOOLWIRE_TRUST", str(tmp_path))
    return tmp_path / ".toolwire"


async def test_all_requests_use_one_store_that_is_opened_once_it_is_there(home: Path) -> None:
    kept = KeptStore(open_project())
    async with kept.use() as nothing:
        assert nothing is None
    async with await SqliteStore.at(home) as other:
        await other.request_approval(CARD, ())
    async with kept.use() as first, kept.use() as second:
        assert first is second
        assert first is not None
        assert (await first.approval(CARD.id)).id == CARD.id
    await kept.close()
    await kept.close()


async def test_a_store_that_was_replaced_is_opened_anew(home: Path) -> None:
    kept = KeptStore(open_project())
    async with await SqliteStore.at(home) as other:
        await other.request_approval(CARD, ())
    async with kept.use() as before:
        assert before is not None
    shutil.move(home, home.with_name("old"))
    async with await SqliteStore.at(home):
        pass
    async with kept.use() as after:
        assert after is not None
        assert after is not before
        with pytest.raises(NotFound):
            await after.approval(CARD.id)
    await kept.close()


@pytest.mark.usefixtures("home")
async def test_a_store_that_was_made_just_now_is_not_closed_by_the_next_request() -> None:
    kept = KeptStore(open_project())
    async with kept.open() as first, kept.open() as second:
        assert first is second
        await first.request_approval(CARD, ())
    await kept.close()
