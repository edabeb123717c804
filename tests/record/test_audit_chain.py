"""The audit log shows what was done to it: by its chain, and by checkpoints kept elsewhere."""

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolwire.protocol.records import AuditRow
from toolwire.record.checkpoints import Checkpoint, faults, read, sign
from toolwire.record.contract import Store
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW, OpenStore

ROWS = [AuditRow(NOW + n, "allowed", turn_id="t", call_id=f"c{n}", tool="a\ud800\n", detail={"n": n}) for n in range(9)]


async def filled(home: Path) -> None:
    async with await SqliteStore.at(home) as store:
        for row in ROWS:
            await store.audit([row])


def tamper(home: Path, *statements: str) -> None:
    """What someone with the file could do; the table's own triggers are no obstacle to them."""
    connection = sqlite3.connect(home / "store.db")
    for trigger in ("audit_is_never_changed", "audit_is_never_cut"):
        connection.execute(f"DROP TRIGGER {trigger}")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


async def chain_of(home: Path, seqs: tuple[int, ...] = ()) -> tuple[int, int | None]:
    async with await SqliteStore.at(home) as store:
        chain = await store.audit_chain(seqs)
    return chain.rows, chain.broken_at


@pytest.mark.contrast("T68")
async def test_an_untouched_log_is_whole(store: Store) -> None:
    await store.audit(ROWS[:4])
    await store.audit(ROWS[4:])
    chain = await store.audit_chain([3])
    assert (chain.rows, chain.last, chain.broken_at, chain.unchained) == (9, 9, None, 0)
    assert len(chain.head) == len(chain.heads[3]) == 64


async def test_the_processes_of_one_folder_and_one_in_memory_make_the_same_chain(open_sqlite: OpenStore) -> None:
    one, other, memory = await open_sqlite(), await open_sqlite(), MemoryStore()
    for place, row in enumerate(ROWS):
        await (one if place % 2 else other).audit([row])
        await memory.audit([row])
    assert (await one.audit_chain()).head == (await memory.audit_chain()).head


@pytest.mark.parametrize(
    ("statement", "broken_at"),
    [
        ("UPDATE audit SET tool = 'other' WHERE seq = 4", 4),
        ("UPDATE audit SET at = at + 1 WHERE seq = 4", 4),
        ("UPDATE audit SET detail = '{}' WHERE seq = 4", 4),
        ("DELETE FROM audit WHERE seq = 4", 5),
        ("DELETE FROM audit WHERE seq < 4", 4),
        ("UPDATE audit SET seq = -seq WHERE seq = 4", -4),
        ("UPDATE audit SET digest = '' WHERE seq < 4", 4),
        ("INSERT INTO audit SELECT 20, at, event, project, agent, turn_id, call_id, tool, rule, status, code, "
         "args_digest, elapsed_ms, detail, digest FROM audit WHERE seq = 3", 20),
        ("INSERT INTO audit SELECT 0, at, event, project, agent, turn_id, call_id, tool, rule, status, code, "
         "args_digest, elapsed_ms, detail, '' FROM audit WHERE seq = 3", 0),
        ("UPDATE audit SET seq = seq + 100 WHERE seq > 5", 106),
    ],
)  # fmt: skip
async def test_T68_an_edit_shows_where_it_was_made(tmp_path: Path, statement: str, broken_at: int) -> None:
    await filled(tmp_path)
    assert (await chain_of(tmp_path))[1] is None
    tamper(tmp_path, statement)
    assert (await chain_of(tmp_path))[1] == broken_at


async def test_T68_a_clock_that_was_set_back_shows(store: Store) -> None:
    await store.audit([*ROWS, replace(ROWS[0], at=ROWS[0].at - 86_400)])
    chain = await store.audit_chain()
    assert (chain.broken_at, chain.set_back_at) == (None, len(ROWS) + 1)


async def test_T68_a_cut_tail_shows_only_against_a_checkpoint(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with await SqliteStore.at(tmp_path) as store:
        kept = sign(tmp_path, await store.audit_chain(), NOW)
    tamper(tmp_path, "DELETE FROM audit WHERE seq > 5")
    assert (await chain_of(tmp_path))[1] is None
    async with await SqliteStore.at(tmp_path) as store:
        [fault] = faults([kept], await store.audit_chain([kept.seq]))
    assert "its tail was cut" in fault


async def test_T68_a_log_made_anew_with_the_key_does_not_fit_an_earlier_checkpoint(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with await SqliteStore.at(tmp_path) as store:
        kept = sign(tmp_path, await store.audit_chain(), NOW)
    tamper(tmp_path, "DELETE FROM audit")
    async with await SqliteStore.at(tmp_path) as store:
        for row in ROWS:
            await store.audit([replace(row, tool="innocent")])
        chain = await store.audit_chain([kept.seq])
        assert faults([sign(tmp_path, chain, NOW)], chain) == []
        assert "the log was changed" in faults([kept], chain)[0]


async def test_checkpoints_are_read_back_and_bound_to_their_key(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with await SqliteStore.at(tmp_path) as store:
        chain = await store.audit_chain([9])
    kept = sign(tmp_path, chain, NOW)
    (tmp_path / "kept.jsonl").write_text(f"{kept.line()}\n\n{kept.line()}\n", encoding="utf-8")
    assert read(tmp_path / "kept.jsonl") == [kept, kept]
    assert (tmp_path / "audit.key").stat().st_mode & 0o777 == 0o600
    assert faults([kept], chain, kept.key) == []
    forged = replace(kept, head="0" * 64)
    assert "signature" in faults([forged], chain)[0]
    assert "another key" in faults([kept], chain, "ab" * 32)[0]
    assert "signature" in faults([Checkpoint(9, "x", NOW, "zz", "not hex")], chain)[0]
