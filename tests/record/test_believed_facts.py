"""What a store believes without asking: it never changes what comes of a change, whatever others write meanwhile."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from tests.postgres_server import PostgresServer, new_schema
from toolwire.errors import CallHeld, Fenced, StoreError
from toolwire.protocol.chat import Reply
from toolwire.protocol.records import Dispatch
from toolwire.protocol.turns import Turn
from toolwire.record.contract import Store
from toolwire.record.pg_connection import PgConnection
from toolwire.record.postgres import PostgresStore
from toolwire.record.projects import of_project

from .samples import a_call, a_card, a_row, a_turn, success
from .test_postgres_store import opened

Machines = tuple[PostgresStore, PostgresStore]
CLAIMED = (
    "INSERT INTO starts (project, turn_id, call_id, starts, epoch, token) VALUES ('default', ?, 'call-1', 1, 1, 't')"
)


@pytest.fixture
async def machines(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Machines]:
    """Two that have both written, so that both write a transaction in one statement from now on."""
    schema = new_schema()
    async with opened(postgres.url, tmp_path / "a", schema) as a, opened(postgres.url, tmp_path / "b", schema) as b:
        for name, store in (("a", a), ("b", b)):
            await store.begin(a_turn(f"first of {name}"))
            await store.audit([a_row("before")])
        yield a, b


async def test_a_turn_that_another_machine_has_begun_is_refused_as_kept(machines: Machines) -> None:
    here, there = machines
    await there.begin(a_turn())

    for _ in range(2):
        with pytest.raises(StoreError, match="already kept"):
            await here.begin(a_turn())
    await here.begin(a_turn("turn-2"))


async def test_a_call_that_another_machine_wrote_down_comes_back_with_the_reply(machines: Machines) -> None:
    here, there = machines
    turn, later = a_turn(), a_turn(epoch=2)
    card, reply = a_card(a_call(), turn), Reply("I look.", calls=(a_call(),))
    await there.append_reply(await _begun(there), reply, [card], [a_row("allowed")])
    await there.release(turn)
    await here.resume(turn.id)

    [again] = await here.append_reply(later, reply, [replace(card, epoch=2)], [a_row("allowed")])

    assert again.record_id == card.record_id
    with pytest.raises(StoreError, match="kept with other arguments"):
        await here.append_reply(later, reply, [replace(card, epoch=2, args_digest="others")], [a_row("allowed")])


@pytest.mark.parametrize("meanwhile", ["claimed", "taken over", "ended"])
async def test_a_claim_sees_what_happened_since_its_call_was_read(machines: Machines, meanwhile: str) -> None:
    """A worker reads a card and then claims it. What it has read is not believed if that is not true any more."""
    here, there = machines
    turn, row = await _begun(there), a_row("dispatched")
    card = await there.open(a_card(a_call(), turn), [])
    await there.dispatch(
        Dispatch("default", turn.id, card.call.id, card.record_id, 1, "subject", "{}", 0.0, 9e9), [row]
    )
    _, read = await here.dispatched(card.record_id)
    match meanwhile:
        case "claimed":
            await there.claim(read, [], until=9e9)
            with pytest.raises(CallHeld):
                await here.claim(read, [])
        case "taken over":
            await there.release(turn)
            await there.resume(turn.id)
            with pytest.raises(Fenced):
                await here.claim(read, [])
        case _:
            await there.close(card, success(), [])
            assert (await here.claim(read, [])).result == success()


async def test_a_call_that_is_claimed_and_let_go_in_one_commit_has_not_begun(store: Store) -> None:
    turn = a_turn()
    await store.begin(turn)
    card = await store.open(a_card(a_call(), turn), [])
    await store.audit([a_row("before")])

    await asyncio.gather(store.claim(card, [], begins=False), store.release(turn))

    await store.resume(turn.id)
    assert [one.attempt for one in await store.calls(turn_id=turn.id)] == [0]


async def test_a_call_that_had_not_begun_is_not_noted_as_begun_by_who_takes_its_turn_over(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    schema, turn = new_schema(), a_turn()
    async with opened(postgres.url, tmp_path, schema) as here, opened(postgres.url, tmp_path, schema) as there:
        await there.begin(a_turn("first"))
        await here.begin(turn)
        await here.claim(await here.open(a_card(a_call(), turn), []), [], begins=False)
        here._owners._local.forked()  # type: ignore[attr-defined]  # as if its process had died

        await there.resume(turn.id)

        assert [one.attempt for one in await there.calls(turn_id=turn.id)] == [0]
        assert there._owners.begun(there._owners.name) == frozenset()


async def test_a_call_that_is_claimed_while_its_turn_is_taken_over_is_noted_as_begun(
    postgres: PostgresServer, machines: Machines
) -> None:
    """The calls of the turn are looked up before the transaction. One that changes meanwhile is looked up again."""
    here, there = machines
    turn = await _begun(there)
    await there.open(a_card(a_call(), turn), [])
    await there.release(turn)
    server = cast(PgConnection, here._writer._connection._connection)
    (schema,) = (await asyncio.to_thread(server.execute, "SELECT current_schema()")).fetchall()[0]
    claimed: list[str] = []

    def claim() -> None:
        with closing(PgConnection(postgres.url, schema=schema)) as late:
            late.execute(CLAIMED, (turn.id,))

    def meanwhile(record: object) -> None:
        if "turns_left" in str(record) and not claimed:
            claimed.append(turn.id)
            thread = threading.Thread(target=claim)
            thread.start()
            thread.join()

    server._connection.add_query_logger(meanwhile)
    await here.resume(turn.id)

    assert claimed
    assert [one.attempt for one in await here.calls(turn_id=turn.id)] == [1]
    assert len(here._owners.begun(here._owners.name) or ()) == 1


def test_writers_see_one_another_whatever_the_isolation_of_the_database(postgres: PostgresServer) -> None:
    with closing(PgConnection(postgres.url, schema=new_schema())) as connection:
        asked = "SELECT setting, source FROM pg_settings WHERE name = 'default_transaction_isolation'"
        assert connection.execute(asked).fetchall() == [("read committed", "client")]


async def test_a_turn_holds_nothing_of_another_project_that_has_calls_under_its_id(store: Store) -> None:
    turn, call = a_turn(project="mine"), a_call()
    await store.begin(turn)
    await store.append_reply(turn, Reply("I look.", calls=(call,)), [a_card(call, turn, project="mine")], [])
    other = a_card(call, turn, project="other")
    await of_project(store, "other").open(other, [])
    await of_project(store, "other").close(other, success(call, "injected"), [])

    assert "injected" not in repr(await store.turn(turn.id))
    assert "injected" not in repr(await store.turn(turn.id, project="mine"))


async def _begun(store: Store) -> Turn:
    turn = a_turn()
    await store.begin(turn)
    return turn
