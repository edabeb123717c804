"""C44: a store that is restored from an older backup, while processes of the time after that are still at work."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from toolwire import Agent, tool
from toolwire.errors import Fenced
from toolwire.protocol.chat import Note
from toolwire.protocol.context import Context
from toolwire.protocol.turns import RESTORED_EPOCHS, Turn
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import ScriptedModel, call

from .samples import a_turn

STALE = Note("of a time that the store has never seen")


@asynccontextmanager
async def restored(folder: Path, *, fences: bool) -> AsyncIterator[tuple[SqliteStore, Turn, Turn]]:
    """A store as its backup had it, with a turn as a process took it over since then, and as one has it now."""
    home, backup = folder / "home", folder / "backup"
    async with await SqliteStore.at(home) as store:
        await store.begin(a_turn(), runs=False)
    shutil.copytree(home, backup)
    async with await SqliteStore.at(home) as store:
        late = (await store.resume(a_turn().id)).opening
    async with await SqliteStore.at(backup) as store:
        if fences:
            await store.fence_restored()
        yield store, late, (await store.resume(late.id)).opening


async def test_a_process_of_the_time_after_the_backup_changes_nothing(tmp_path: Path) -> None:
    async with restored(tmp_path, fences=True) as (store, late, now):
        with pytest.raises(Fenced, match="taken over"):
            await store.append_note(late, STALE)
        kept = await store.turn(now.id)

    assert (late.epoch, now.epoch) == (2, RESTORED_EPOCHS + 2)
    assert kept.events == ()


async def test_control_without_a_fence_it_writes_into_a_turn_of_another_process(tmp_path: Path) -> None:
    async with restored(tmp_path, fences=False) as (store, late, now):
        await store.append_note(late, STALE)
        kept = await store.turn(now.id)

    assert late.epoch == now.epoch
    assert kept.events == (STALE,)


async def keys_of_a_step_made_twice(folder: Path, *, fences: bool) -> list[str]:
    """The idempotency keys under which a turn orders things: once, and once more, restored, when it wants another."""
    keys: list[str] = []

    @tool
    async def order(what: str, context: Context) -> str:
        """Order something."""
        keys.append(context.idempotency_key)
        return f"{what} is ordered"

    home, backup = folder / "home", folder / "backup"
    async with await SqliteStore.at(home) as store:
        turn = await Agent(ScriptedModel(), [order], store=store).begin("Order it")
    shutil.copytree(home, backup)
    for place, what in ((home, "tea"), (backup, "milk")):
        async with await SqliteStore.at(place) as store:
            if place is backup and fences:
                await store.fence_restored()
            await Agent(ScriptedModel(call("order", what=what), "Done."), [order], store=store).resume(turn.id)
    return keys


async def test_no_call_after_a_restore_has_the_id_of_one_of_the_lost_time(tmp_path: Path) -> None:
    first, second = await keys_of_a_step_made_twice(tmp_path, fences=True)

    assert first != second


async def test_control_without_a_fence_two_different_calls_have_one_key(tmp_path: Path) -> None:
    first, second = await keys_of_a_step_made_twice(tmp_path, fences=False)

    assert first == second
