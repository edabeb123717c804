"""Machines that share a database: each has an audit chain of its own, and one check covers all of them."""

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolwire.protocol.records import AuditRow
from toolwire.record.chain import AuditChain
from toolwire.record.checkpoints import faults, sign
from toolwire.record.libsql import LibsqlStore
from toolwire.record.retention import KeepLimits, Retention

from .conftest import NOW, migrated_server

DAY_S = 86_400.0


@asynccontextmanager
async def machines(folder: Path, clock: list[float] | None = None) -> AsyncIterator[tuple[LibsqlStore, LibsqlStore]]:
    """Two stores with a folder of their own each, on one database."""
    now = clock or [NOW]
    with migrated_server(folder) as server:
        async with (
            await LibsqlStore.on(server.url, folder / "one", clock=lambda: now[0]) as one,
            await LibsqlStore.on(server.url, folder / "other", clock=lambda: now[0]) as other,
        ):
            yield one, other


async def audit(stores: Sequence[LibsqlStore], order: Sequence[int]) -> None:
    for number, which in enumerate(order):
        await stores[which].audit([AuditRow(NOW, f"event-{number}")])


async def chain_after(folder: Path, statement: str, seqs: Sequence[int] = ()) -> AuditChain:
    """The chain after someone with the database has changed it."""
    connection = sqlite3.connect(folder / "server.db")
    for trigger in ("audit_is_never_changed", "audit_is_never_cut"):
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute(statement)
    connection.commit()
    connection.close()
    async with machines(folder) as (one, _):
        return await one.audit_chain(seqs)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(order=st.lists(st.sampled_from([0, 1]), min_size=1, max_size=8))
def test_each_machine_counts_and_chains_its_own_rows(order: list[int]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with machines(Path(folder)) as stores:
                await audit(stores, order)
                chain = await stores[0].audit_chain(range(1, len(order) + 1))
                assert chain == await stores[1].audit_chain(range(1, len(order) + 1))
        assert (chain.rows, chain.broken_at) == (len(order), None)
        assert sorted(count for count, _ in chain.writers.values()) == sorted(order.count(who) for who in set(order))
        assert len(set(chain.heads.values())) == len(order)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("statement", "broken_at"),
    [
        ("UPDATE audit SET event = 'other' WHERE seq = 3", 3),
        ("DELETE FROM audit WHERE seq = 3", 4),
        ("UPDATE audit_writers SET writer = (SELECT writer FROM audit_writers WHERE seq = 2) WHERE seq = 3", 3),
        ("UPDATE audit_writers SET number = number + 1 WHERE seq = 3", 3),
        ("DELETE FROM audit_writers WHERE seq = 3", 3),
    ],
)
async def test_T68_an_edit_of_a_shared_log_shows_where_it_was_made(
    tmp_path: Path, statement: str, broken_at: int
) -> None:
    async with machines(tmp_path) as stores:
        await audit(stores, [0, 1, 0, 1, 0])
        assert (await stores[0].audit_chain()).broken_at is None

    assert (await chain_after(tmp_path, statement)).broken_at == broken_at


async def test_T68_a_checkpoint_of_a_shared_log_covers_all_machines(tmp_path: Path) -> None:
    async with machines(tmp_path) as stores:
        await audit(stores, [0, 1, 0, 1])
        checkpoint = sign(tmp_path / "one", await stores[0].audit_chain(), NOW)
        await audit(stores, [0])
        assert faults([checkpoint], await stores[1].audit_chain([checkpoint.seq])) == []

    cut = await chain_after(tmp_path, "DELETE FROM audit WHERE seq > 3", [checkpoint.seq])
    assert cut.broken_at is None
    assert "its tail was cut" in faults([checkpoint], cut)[0]


async def test_a_shared_log_that_was_pruned_still_proves_itself(tmp_path: Path) -> None:
    clock = [NOW]
    async with machines(tmp_path, clock) as stores:
        await audit(stores, [0, 1, 1, 0])
        clock[0] += 3 * DAY_S
        await stores[0].audit([AuditRow(clock[0], "later")])
        for _ in range(2):  # the second time, the heads of the first cut go on
            pruned = await stores[0].prune(Retention(audit=KeepLimits(days=1)))
            assert pruned.audit_rows
            clock[0] += 3 * DAY_S
            await stores[0].audit([AuditRow(clock[0], "later")])
        await stores[1].audit([AuditRow(clock[0], "from the one whose rows have gone")])
        chain = await stores[1].audit_chain()

    assert (chain.broken_at, chain.cut_is_signed, chain.dropped > 4) == (None, True, True)
    assert len(chain.writers) == 2
    assert min(count for count, _ in chain.writers.values()) == 3
