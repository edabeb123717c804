"""What only the store on disk can promise: it survives its process, is shared by many, and stays small."""

import asyncio
import sqlite3
import stat
import sys
import threading
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from toolwire.errors import Fenced, StoreUnavailable
from toolwire.protocol.chat import Note, Reply
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record.contract import LoopMetrics, Store, TurnStats
from toolwire.record.sqlite import SqliteStore

from .conftest import OpenStore
from .samples import a_call, a_card, a_row, a_turn, success


async def snapshot(store: Store) -> list[object]:
    return [await store.calls(), await store.audit_log(), await store.metrics(), await store.thread("t")]


async def test_everything_is_there_after_the_store_was_closed_and_opened_again(open_sqlite: OpenStore) -> None:
    turn, call = a_turn(thread="t"), a_call()
    store = await open_sqlite()
    await store.begin(turn)
    await store.append_reply(turn, Reply("Let me look.", calls=(call,)), [a_card(call, turn)], [a_row("accepted")])
    await store.claim(a_card(call, turn), [a_row("started")])
    await store.close(a_card(call, turn), success(call, elapsed_ms=3.0), [a_row("finished")])
    await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "21")), TurnStats(iterations=2))
    handle = await store.keep(b"large")
    before = [await store.turn(turn.id), await store.turns(), *await snapshot(store)]
    await store.close_store()

    again = await open_sqlite()

    assert [await again.turn(turn.id), await again.turns(), *await snapshot(again)] == before
    assert await again.fetch(handle) == b"large"


_LOOKS = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("SELECT * FROM turns").fetchall()
database.close()
"""


async def test_a_second_store_of_a_process_takes_no_lock_from_the_first_one(
    open_sqlite: OpenStore, tmp_path: Path
) -> None:
    """Otherwise another process that closes the database takes itself for the last one, and removes the log in use."""
    one = await open_sqlite()
    await one.open(a_card(a_call("1")), [])
    two = await open_sqlite()
    path = str(tmp_path / "home" / "store.db")
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", _LOOKS, path)
    assert await other.wait() == 0
    await one.open(a_card(a_call("2")), [])
    await two.open(a_card(a_call("3")), [])

    assert sorted(card.call.id for card in await two.calls()) == ["1", "2", "3"]


async def test_two_open_stores_see_each_others_changes_at_once(open_sqlite: OpenStore) -> None:
    one, two = await open_sqlite(), await open_sqlite()
    card = await one.open(a_card(), [a_row("accepted")])

    assert await two.close(card, success(), [a_row("finished")]) == success()
    assert await one.close(card, success(text="late"), []) == success()
    assert await snapshot(one) == await snapshot(two)


@pytest.mark.requirement("record.resume")
async def test_a_turn_is_taken_over_only_after_its_store_is_gone(open_sqlite: OpenStore) -> None:
    one, two = await open_sqlite(), await open_sqlite()
    await one.begin(a_turn())
    with pytest.raises(Fenced, match="living process"):
        await two.resume("turn-1")
    assert [turn.state for turn in await two.turns()] == ["running"]
    await one.close_store()

    assert [turn.state for turn in await two.turns()] == ["interrupted"]
    assert [turn.id for turn in await two.turns(state="interrupted")] == ["turn-1"]
    assert await two.turns(state="running") == []
    assert (await two.turn("turn-1")).state == "interrupted"
    assert (await two.resume("turn-1")).opening.epoch == 2
    assert [turn.state for turn in await two.turns()] == ["running"]


@pytest.mark.requirement("record.fenced")
async def test_a_store_that_lost_a_turn_to_another_notices_with_its_next_change(open_sqlite: OpenStore) -> None:
    one, two = await open_sqlite(), await open_sqlite()
    await one.begin(a_turn())
    card = await one.open(a_card(), [])
    await one.release(a_turn())
    await two.resume("turn-1")

    with pytest.raises(Fenced, match="taken over"):
        await one.close(card, success(), [])
    with pytest.raises(Fenced, match="taken over"):
        await one.append_note(a_turn(), Note("mine"))

    assert (await two.calls())[0].result is None


async def test_of_many_who_want_an_abandoned_turn_one_gets_it(open_sqlite: OpenStore) -> None:
    await (first := await open_sqlite()).begin(a_turn())
    await first.close_store()
    stores = [await open_sqlite() for _ in range(5)]

    outcomes = await asyncio.gather(*(store.resume("turn-1") for store in stores), return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Fenced"] * 4 + ["KeptTurn"]


async def test_the_files_of_dead_owners_are_swept(open_sqlite: OpenStore, tmp_path: Path) -> None:
    alive, other = await open_sqlite(), await open_sqlite()
    await alive.begin(a_turn())
    dead = tmp_path / "home" / "owners" / ("0" * 32)
    dead.touch()

    await other.begin(a_turn("turn-2"))

    assert not dead.exists()
    assert (await other.turn("turn-1")).state == "running"


async def test_a_store_takes_a_lease_with_its_first_change_and_makes_folders_when_they_are_needed(
    open_sqlite: OpenStore, tmp_path: Path
) -> None:
    def folders() -> set[str]:
        return {path.name for path in (tmp_path / "home").iterdir() if path.is_dir()}

    store = await open_sqlite()
    assert (await store.calls(), await store.metrics(), folders()) == ([], ([], LoopMetrics()), set())

    await store.begin(a_turn())
    assert folders() == {"owners"}

    await store.keep(b"large")
    assert folders() == {"owners", "artifacts"}


async def test_a_store_that_was_closed_before_its_first_use_is_not_opened_by_it(
    open_sqlite: OpenStore, tmp_path: Path
) -> None:
    store = await open_sqlite()
    await store.close_store()

    for use in (store.begin(a_turn()), store.calls(), store.turn("turn-1")):
        with pytest.raises(StoreUnavailable, match="was closed; open the store again"):
            await use
    assert not (tmp_path / "home" / "owners").exists()


async def test_only_its_user_can_look_into_the_store(open_sqlite: OpenStore, tmp_path: Path) -> None:
    home = tmp_path / "home"
    store = await open_sqlite()
    await store.open(a_card(), [])
    await store.keep(b"large")

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert {mode(path) for path in (home, *home.rglob("*")) if path.is_dir()} == {0o700}
    assert {path.name: mode(path) for path in home.rglob("*") if path.is_file() and mode(path) != 0o600} == {}


async def test_a_folder_that_is_made_for_the_store_is_kept_out_of_version_control(
    tmp_path: Path,
) -> None:
    made, found = tmp_path / "made", tmp_path / "found"
    found.mkdir()
    for home in (made, found):
        await (await SqliteStore.at(home)).close_store()
    assert (made / ".gitignore").read_text() == "*\n"
    assert not (found / ".gitignore").exists()  # it may hold more than ours


async def test_a_change_whose_asker_was_canceled_is_kept_all_the_same(open_sqlite: OpenStore) -> None:
    store = await open_sqlite()
    asking = asyncio.create_task(store.open(a_card(), []))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    await store.audit([])

    assert await store.calls() == [a_card()]


async def test_a_closed_store_refuses_and_can_be_closed_again(open_sqlite: OpenStore) -> None:
    store = await open_sqlite()
    pending = [asyncio.create_task(store.open(a_card(a_call(f"c{n}")), [])) for n in range(10)]
    await asyncio.sleep(0)
    await store.close_store()
    await store.close_store()

    assert len(await asyncio.gather(*pending)) == 10
    for ask in (store.open(a_card(), []), store.calls(), store.resume("turn-1")):
        with pytest.raises(StoreUnavailable, match="was closed"):
            await ask


async def test_one_store_serves_event_loops_in_several_threads(open_sqlite: OpenStore) -> None:
    store = await open_sqlite()

    async def many(name: str) -> None:
        async with asyncio.timeout(5):
            await asyncio.gather(*(store.open(a_card(a_call(f"{name}-{n}")), []) for n in range(50)))

    threads = [threading.Thread(target=asyncio.run, args=(many(name),)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    await many("d")
    for thread in threads:
        await asyncio.to_thread(thread.join)

    assert len(await store.calls(limit=1000)) == 200


async def test_a_change_that_breaks_does_not_harm_the_others_of_its_commit(open_sqlite: OpenStore) -> None:
    """A record without an id breaks a rule of the tables that no change checks by itself."""
    store = await open_sqlite()
    await store.open(a_card(a_call("first")), [])
    cards = [a_card(a_call(f"c{n}")) for n in range(10)]
    broken = replace(a_card(a_call("second")), record_id=cast(str, None))

    outcomes = await asyncio.gather(*(store.open(card, []) for card in [*cards, broken]), return_exceptions=True)

    assert outcomes[:-1] == cards
    assert isinstance(outcomes[-1], Exception)
    assert len(await store.calls()) == 11


@pytest.mark.threat("T68")
async def test_the_audit_log_can_be_neither_changed_nor_cut(open_sqlite: OpenStore, tmp_path: Path) -> None:
    await (await open_sqlite()).audit([a_row("accepted")])
    connection = sqlite3.connect(tmp_path / "home" / "store.db")

    for statement in ("UPDATE audit SET event = 'nothing'", "DELETE FROM audit"):
        with pytest.raises(sqlite3.IntegrityError, match="audit log is never"):
            connection.execute(statement)
    connection.close()


async def test_a_long_thread_grows_with_what_is_said_not_with_its_square(
    open_sqlite: OpenStore, tmp_path: Path
) -> None:
    store = await open_sqlite()

    async def grow(turns: range) -> int:
        for number in turns:
            turn = a_turn(f"turn-{number}", "Why?", *await store.thread("t"), thread="t")
            await store.begin(turn)
            await store.append_reply(turn, Reply("x" * 2000), [], [])
            await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "")), TurnStats())
        connection = sqlite3.connect(tmp_path / "home" / "store.db")
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.close()
        return int(pages)

    first = await grow(range(20))
    second = await grow(range(20, 40))

    assert len(await store.thread("t")) == 80
    assert second < 2.5 * first


async def test_a_body_lies_under_its_digest_and_nothing_unfinished_beside_it(
    open_sqlite: OpenStore, tmp_path: Path
) -> None:
    handle = await (await open_sqlite()).keep(b"whole")

    (kept,) = (path for path in (tmp_path / "home" / "artifacts").rglob("*") if path.is_file())

    assert f"sha256:{kept.parent.name}{kept.name}" == handle
    assert kept.read_bytes() == b"whole"


async def test_a_turn_without_a_question_is_kept_too(open_sqlite: OpenStore) -> None:
    store = await open_sqlite()
    await store.begin(Turn("bare"))

    assert (await store.turn("bare")).opening == Turn("bare")
