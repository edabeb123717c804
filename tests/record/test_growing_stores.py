"""Questions that stay cheap as a store grows: what they cost is counted in steps of SQLite, not in seconds."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.record.samples import a_call, a_card, a_turn, success
from toolwire.protocol.approvals import ApprovalCard
from toolwire.protocol.chat import Message, Reply
from toolwire.protocol.records import AuditRow
from toolwire.protocol.turns import Ending, EndReason
from toolwire.record import reads, schema
from toolwire.record.approval_clock import ApprovalClock
from toolwire.record.contract import Store, TurnStats
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import FrozenClock

Question = Callable[[sqlite3.Connection], Any]
CLOCK = FrozenClock(1_700_000_000.0)
ASKED = ApprovalClock(CLOCK, CLOCK)


async def grown(home: Path, turns: int) -> None:
    """A store with so many ended turns and twice as many audit rows; a rare tool and an interrupted turn are first."""
    async with await SqliteStore.at(home, clock=CLOCK) as store:
        await store.audit([AuditRow(1.0, "finished", tool="rare")])
        left = a_turn("left")
        await store.begin(left)
        await store.request_approval(question("left"), [])
        await store.release(left)
        for number in range(turns):
            turn = a_turn(f"turn-{number}")
            await store.begin(turn)
            await store.request_approval(replace(question(turn.id), expires_at=1.0), [])
            await store.audit([AuditRow(1.0, "finished", tool="usual")] * 2)
            await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "yes")), TurnStats())


def question(turn_id: str) -> ApprovalCard:
    return ApprovalCard(f"ask-{turn_id}", turn_id, "call-1", "send", {}, "digest", expires_at=CLOCK() + 60)


def steps(home: Path, ask: Question) -> int:
    """About how many steps SQLite takes to answer."""
    connection = schema.connect(home / "store.db", busy_timeout_s=1.0)
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.set_progress_handler(count, 10)
    try:
        assert ask(connection)
    finally:
        connection.close()
    return taken * 10


QUESTIONS: dict[str, Question] = {
    "audit rows of a rare tool": lambda connection: reads.audit_log(connection, None, "rare", 50, 0),
    "interrupted turns": lambda connection: reads.turns(connection, 20, "interrupted", lambda _: lambda _: True),
    "newest turns": lambda connection: reads.turns(connection, 1, None, lambda _: lambda _: True),
    "pending approvals": lambda connection: reads.approvals(connection, None, True, 50, ASKED),
    "active patterns": lambda connection: [reads.active_patterns(connection, 50, CLOCK())],
    "approvals of a turn": lambda connection: reads.approvals(connection, "left", False, 50, ASKED),
    "pending approvals of a turn": lambda connection: reads.approvals(connection, "left", True, 50, ASKED),
}


@pytest.fixture(scope="module")
async def homes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    small, large = tmp_path_factory.mktemp("small") / "home", tmp_path_factory.mktemp("large") / "home"
    await grown(small, 10)
    await grown(large, 400)
    return small, large


@pytest.mark.parametrize("name", QUESTIONS)
async def test_what_a_question_costs_does_not_grow_with_the_store(homes: tuple[Path, Path], name: str) -> None:
    small, large = homes

    assert steps(large, QUESTIONS[name]) <= steps(small, QUESTIONS[name]) + 100


async def talk(store: Store, turn_id: str) -> tuple[Message, ...]:
    """A turn of a thread with one call; gives back the history that it began with."""
    history = await store.thread("chat")
    turn, called = a_turn(turn_id, "And now?", *history, thread="chat"), a_call(f"{turn_id}-call")
    await store.begin(turn)
    await store.append_reply(turn, Reply(calls=(called,)), [a_card(called, turn)], [])
    await store.close(a_card(called, turn), success(called), [])
    await store.append_reply(turn, Reply("Still 21."), [], [])
    await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "Still 21.")), TurnStats())
    return history


async def test_a_thread_that_grows_is_read_as_one_that_is_read_anew(tmp_path: Path) -> None:
    """A long thread is read on from where it was read before, in every process that speaks in it."""
    async with await SqliteStore.at(tmp_path / "home") as store, await SqliteStore.at(tmp_path / "home") as other:
        for number in range(4):
            history = await talk(store if number % 2 else other, f"turn-{number}")
            assert len(history) == number * 4
        async with await SqliteStore.at(tmp_path / "home") as fresh:
            assert await store.thread("chat") == await other.thread("chat") == await fresh.thread("chat")
            opening = (await fresh.turn("turn-3")).opening

    assert opening.messages[:-1] == history


async def test_a_long_thread_is_read_once_for_each_turn(tmp_path: Path) -> None:
    """What is read for a turn is what was said since the last one: the cost of a turn does not grow with its thread."""
    async with await SqliteStore.at(tmp_path / "home") as store:
        for number in range(30):
            await talk(store, f"turn-{number}")
        cache = store._threads

        def read(connection: sqlite3.Connection) -> Any:
            return cache.read(connection, "default", "chat", lambda _: lambda _: True).said

        steps(tmp_path / "home", read)
        assert steps(tmp_path / "home", read) < 500


async def test_an_old_store_gets_its_indexes_and_keeps_everything(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    connection = schema.connect(home / "store.db", busy_timeout_s=1.0)
    schema.migrate(connection, home / "store.db", schema.STEPS[:12])
    connection.execute(
        "INSERT INTO audit VALUES (1, 1.0, 'finished', 'default', '', '', '', 'rare', '', '', '', '', NULL, '{}', '')"
    )
    connection.close()

    async with await SqliteStore.at(home) as store:
        rows = await store.audit_log(tool="rare")

    assert [(row.seq, row.event) for row in rows] == [(1, "finished")]
    assert steps(home, QUESTIONS["audit rows of a rare tool"]) < 200
