"""What a store lets go of, and what it never does."""

import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.record.conftest import database_server
from tests.record.samples import a_call, a_card, a_row, a_turn, success
from toolwire.errors import NotFound
from toolwire.protocol.approvals import Approval, ApprovalCard, Scope
from toolwire.protocol.chat import Reply
from toolwire.protocol.turns import Ending, EndReason
from toolwire.record.contract import TurnStats
from toolwire.record.retention import KeepLimits, Retention
from toolwire.record.sqlite import SqliteStore
from toolwire.record.upkeep import MARKER, pruned_in_background
from toolwire.testing import FrozenClock

START = 1_700_000_000.0
DAY_S = 86_400.0
A_WEEK = Retention(turns=KeepLimits(days=7), audit=KeepLimits(days=7))


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(START)


@pytest.fixture(params=["sqlite", "libsql", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock) -> AsyncIterator[SqliteStore]:
    if request.param == "sqlite":
        async with await SqliteStore.at(tmp_path / "home", clock=clock) as opened:
            yield opened
        return
    with database_server(request.param, tmp_path, request) as on:
        async with await on(tmp_path / "home", clock=clock) as opened:
            yield opened


async def talk(store: SqliteStore, turn_id: str, thread: str = "") -> None:
    """A whole turn with one call and one audit row."""
    history = await store.thread(thread) if thread else ()
    turn, call = a_turn(turn_id, "And now?", *history, thread=thread), a_call(f"{turn_id}-call")
    await store.begin(turn)
    await store.append_reply(turn, Reply(calls=(call,)), [a_card(call, turn)], [a_row("allowed", a_card(call, turn))])
    await store.close(a_card(call, turn), success(call), [])
    await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "21")), TurnStats(calls=1))


async def test_old_turns_go_and_sums_stay(store: SqliteStore, clock: FrozenClock) -> None:
    await talk(store, "old")
    clock.advance(8 * DAY_S)
    await talk(store, "new")

    pruned = await store.prune(A_WEEK)

    assert (pruned.turns, pruned.calls, pruned.audit_rows) == (1, 1, 1)
    assert [turn.id for turn in await store.turns()] == ["new"]
    assert [card.turn_id for card in await store.calls()] == ["new"]
    with pytest.raises(NotFound):
        await store.turn("old")
    tools, loop = await store.metrics()
    assert (tools[0].calls, loop.turns) == (2, 2)
    assert (await store.spent("agent", START)).calls == 1
    chain = await store.audit_chain()
    assert (chain.broken_at, chain.dropped, chain.cut_is_signed) == (None, 1, True)


async def test_a_thread_goes_as_a_whole_or_not_at_all(store: SqliteStore, clock: FrozenClock) -> None:
    await talk(store, "live-1", "live")
    await talk(store, "dead-1", "dead")
    clock.advance(8 * DAY_S)
    await talk(store, "live-2", "live")

    await store.prune(A_WEEK)

    assert len(await store.thread("live")) == 6
    assert await store.thread("dead") == ()


async def test_what_is_open_or_pending_stays_with_its_audit_rows(store: SqliteStore, clock: FrozenClock) -> None:
    turn, call = a_turn("open"), a_call()
    await store.begin(turn)
    await store.append_reply(turn, Reply(calls=(call,)), [a_card(call, turn)], [a_row("allowed", a_card(call, turn))])
    asked = ApprovalCard("ask", "open", call.id, "send", {}, "digest", expires_at=START + 90 * DAY_S)
    await store.request_approval(asked, [])
    await store.release(turn)
    clock.advance(30 * DAY_S)

    pruned = await store.prune(A_WEEK)

    assert (pruned.turns, pruned.audit_rows) == (0, 0)
    assert (await store.resume("open")).opening.id == "open"
    assert len(await store.approvals(only_open=True)) == 1


async def test_a_call_that_runs_while_the_store_is_pruned_is_closed(store: SqliteStore, clock: FrozenClock) -> None:
    """What is known of other turns is not forgotten with those that go."""
    await talk(store, "old")
    clock.advance(8 * DAY_S)
    turn, call = a_turn("running"), a_call("slow")
    await store.begin(turn)
    card = await store.open(a_card(call, turn), [])

    assert (await store.prune(A_WEEK)).turns == 1
    assert await store.close(card, success(call), []) == success(call)


async def test_a_question_that_its_turn_has_left_unanswered_goes_with_it(
    store: SqliteStore, clock: FrozenClock
) -> None:
    await talk(store, "asked")
    await store.request_approval(ApprovalCard("ask", "asked", "c", "send", {}, "d", expires_at=START + 90 * DAY_S), [])
    clock.advance(30 * DAY_S)

    assert (await store.prune(A_WEEK)).turns == 1
    assert await store.approvals() == []


async def test_an_approval_of_a_pattern_outlives_its_turn(store: SqliteStore, clock: FrozenClock) -> None:
    turn = a_turn("old")
    await store.begin(turn)
    await store.request_approval(ApprovalCard("ask", "old", "c", "send", {}, "d", expires_at=START + 60), [])
    await store.answer("ask", Approval(True, "ann", scope=Scope.PATTERN, pattern="to is *", lasts_s=20 * DAY_S))
    await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "21")), TurnStats())
    clock.advance(8 * DAY_S)

    await store.prune(A_WEEK)

    assert await store.turns() == []
    assert [card.id for card in await store.active_patterns()] == ["ask"]


async def test_a_second_store_reads_a_thread_that_was_pruned_meanwhile(tmp_path: Path, clock: FrozenClock) -> None:
    home = tmp_path / "home"
    async with await SqliteStore.at(home, clock=clock) as store, await SqliteStore.at(home, clock=clock) as other:
        await talk(store, "one", "chat")
        assert len(await other.thread("chat")) == 3
        clock.advance(8 * DAY_S)
        await store.prune(A_WEEK)

        assert await other.thread("chat") == ()
        await talk(other, "two", "chat")
        assert len(await other.thread("chat")) == 3


async def test_bodies_are_kept_for_open_turns_whatever_their_age(store: SqliteStore, clock: FrozenClock) -> None:
    turn, call = a_turn("open"), a_call()
    needed, old = await store.keep(b"needed"), await store.keep(b"old")
    await store.begin(turn)
    await store.append_reply(turn, Reply(calls=(call,)), [a_card(call, turn)], [])
    await store.close(a_card(call, turn), success(call, handle=needed), [])
    clock.advance(time.time() - START + 30 * DAY_S)

    pruned = await store.prune(Retention(bodies=KeepLimits(days=1)))

    assert pruned.bodies == 1
    assert await store.fetch(needed) == b"needed"
    with pytest.raises(NotFound):
        await store.fetch(old)


async def test_staging_files_of_dead_processes_are_swept_by_one_that_lives_on(tmp_path: Path) -> None:
    async with await SqliteStore.at(tmp_path / "home") as store:
        old, young = tmp_path / "home/artifacts/new-old", tmp_path / "home/artifacts/new-young"
        old.parent.mkdir()
        for path in (old, young):
            path.write_bytes(b"half")
        os.utime(old, (1.0, 1.0))

        await store.keep(b"another body")

        assert (old.exists(), young.exists()) == (False, True)


async def test_other_processes_write_while_a_store_is_pruned(tmp_path: Path, clock: FrozenClock) -> None:
    home = tmp_path / "home"
    async with await SqliteStore.at(home, clock=clock) as store, await SqliteStore.at(home, clock=clock) as other:
        for number in range(5):
            await talk(store, f"old-{number}")
        clock.advance(8 * DAY_S)
        heard: list[str] = []
        await talk(other, "meanwhile")
        await store.prune(A_WEEK, tell=heard.append)
        await talk(other, "afterwards")
        chain = await other.audit_chain()

    assert heard == ["5 of 5 turns", "5 of 5 audit rows"]
    assert (chain.broken_at, chain.dropped) == (None, 5)


def store_at(home: Path, clock: FrozenClock) -> Callable[[], Awaitable[SqliteStore]]:
    return partial(SqliteStore.at, home, clock=clock)


async def never_opened() -> SqliteStore:
    raise AssertionError("opened")


async def test_a_store_with_limits_is_pruned_while_it_is_used_once_a_day(tmp_path: Path, clock: FrozenClock) -> None:
    home = tmp_path / "home"
    async with await SqliteStore.at(home, clock=clock) as store:
        for number in range(45):  # more than are dropped at once
            await talk(store, f"old-{number}")
        clock.advance(8 * DAY_S)
        await talk(store, "new")

        async with pruned_in_background(store_at(home, clock), home, A_WEEK, clock=clock) as done:
            await done.wait()

        assert [turn.id for turn in await store.turns()] == ["new"]
        assert [row.event for row in await store.audit_log(limit=1)] == ["pruned"]
        chain = await store.audit_chain()
        assert (chain.broken_at, chain.dropped, chain.cut_is_signed) == (None, 45, True)

        clock.advance(DAY_S / 2)
        async with pruned_in_background(never_opened, home, A_WEEK, clock=clock) as done:
            await done.wait()
        clock.advance(7 * DAY_S)
        async with pruned_in_background(store_at(home, clock), home, A_WEEK, clock=clock) as done:
            await done.wait()
        assert await store.turns() == []


async def test_without_limits_nothing_is_opened_in_the_background(tmp_path: Path, clock: FrozenClock) -> None:
    async with pruned_in_background(never_opened, tmp_path, Retention(logs=KeepLimits(days=7)), clock=clock) as done:
        await done.wait()
    assert not (tmp_path / MARKER).exists()


async def test_a_log_that_is_not_whole_is_not_pruned_in_the_background_and_that_is_logged(
    tmp_path: Path, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    async with await SqliteStore.at(home, clock=clock) as store:
        for number in range(3):
            await talk(store, f"old-{number}")
    with closing(sqlite3.connect(home / "store.db")) as behind_its_back:
        behind_its_back.execute("DROP TRIGGER audit_is_never_changed")
        behind_its_back.execute("UPDATE audit SET agent = 'another' WHERE seq = 2")
        behind_its_back.commit()
    clock.advance(8 * DAY_S)
    async with pruned_in_background(store_at(home, clock), home, A_WEEK, clock=clock) as done:
        await done.wait()

    assert "row 2 of the audit log" in caplog.text
    async with await SqliteStore.at(home, clock=clock) as store:
        assert len(await store.audit_log()) == 3
