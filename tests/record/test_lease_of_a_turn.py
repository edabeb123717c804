"""A turn is held under the lease of the transaction that gave it to its owner, not of one before or after."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from toolwire.errors import StoreError
from toolwire.protocol.provenance import UntrustedMark
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import FrozenClock

from .conftest import OnServer, database_server
from .samples import a_turn


@pytest.fixture(params=["libsql", "postgres"])
def on(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OnServer]:
    with database_server(request.param, tmp_path, request) as opens:
        yield opens


async def fails_half_way(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="refused a change"):
        await store.mark_untrusted("default", [UntrustedMark("file", inode=cast(str, object()))])


async def test_a_turn_that_begins_after_a_first_write_that_failed_is_held(on: OnServer, tmp_path: Path) -> None:
    turn = a_turn()
    async with await on(tmp_path / "one") as one:
        await fails_half_way(one)
        await one.begin(turn)
        assert one.holds(turn.id, project=turn.project)
        await one.release(turn)
        async with await on(tmp_path / "two") as two:
            await fails_half_way(two)
            await two.resume(turn.id, project=turn.project)
            assert two.holds(turn.id, project=turn.project)


async def test_a_turn_whose_lease_ran_out_while_it_was_resumed_is_not_held(
    on: OnServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, elapsed = a_turn(), FrozenClock()
    async with await on(tmp_path / "one") as one, await on(tmp_path / "two", monotonic=elapsed) as two:
        await one.begin(turn)
        await one.release(turn)
        read = two.turn

        async def slowly(*names: Any, **rest: Any) -> Any:
            kept = await read(*names, **rest)
            elapsed.advance(300)
            return kept

        monkeypatch.setattr(two, "turn", slowly)
        await two.resume(turn.id, project=turn.project)
        assert not two.holds(turn.id, project=turn.project)
