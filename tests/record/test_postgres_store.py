"""What a PostgreSQL server can do to a store: refuse, be killed, or belong to another program."""

import asyncio
import signal
import socket
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from tests.forked import run_python
from tests.postgres_server import PostgresServer, new_schema, postgres_server
from toolwire.errors import Fenced, SettingsError, StoreUnavailable
from toolwire.protocol.chat import Reply, Usage
from toolwire.record import reads
from toolwire.record import schema as tables
from toolwire.record.pg_connection import Connection, PgConnection, address_of
from toolwire.record.pg_dialect import to_postgres
from toolwire.record.postgres import PostgresStore
from toolwire.record.transaction import ADD_CHARGE, StaleCache

from .conftest import NOW
from .samples import a_call, a_card, a_row, a_turn, success

_CLAIMS_AND_DIES = """
import asyncio, os, signal, sys
from tests.record.samples import a_call, a_card, a_turn
from toolwire.record.postgres import PostgresStore

async def main(url, home, schema):
    store = await PostgresStore.on(url, home, schema=schema)
    await store.claim(a_card(a_call(), a_turn()), [])
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""
_WAITING = """
    SELECT pid FROM pg_locks WHERE NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@asynccontextmanager
async def opened(url: str, home: Path, schema: str, lease_s: float = 30.0) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.on(url, home, schema=schema, clock=lambda: NOW, lease_s=lease_s)
    try:
        yield store
    finally:
        await store.close_store()


@pytest.fixture
def mortal() -> Iterator[PostgresServer]:
    """A server of the test's own, which it may kill."""
    with postgres_server() as server:
        yield server


def test_parameters_and_hints_are_said_as_postgresql_does() -> None:
    said = to_postgres("SELECT '?', a FROM t INDEXED BY i WHERE b = ?2 AND (?1 IS NULL OR c = ?1) AND d = 'what?'")

    assert said == "SELECT '?', a FROM t WHERE b = $2 AND (CAST($1 AS TEXT) IS NULL OR c = $1) AND d = 'what?'"
    assert to_postgres("UPDATE t SET a = ?, b = ?") == "UPDATE t SET a = $1, b = $2"


@pytest.mark.parametrize("url", ["", "store.db", "http://host", "postgresql:///db", "postgresql://ada:secret@host/db"])
def test_an_address_that_is_none_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        address_of(url)
    assert "secret" not in str(refused.value)


async def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:  # a port that refuses connections
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(StoreUnavailable, match="could not be reached"):
            async with opened(f"postgresql://ada@127.0.0.1:{taken.getsockname()[1]}/db", tmp_path, new_schema()):
                pass


async def test_a_database_that_is_missing_is_said(postgres: PostgresServer, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match='"gone" does not exist'):
        async with opened(postgres.url.replace("/postgres", "/gone"), tmp_path, new_schema()):
            pass


async def test_tables_of_another_program_stay_as_they_are(postgres: PostgresServer, tmp_path: Path) -> None:
    schema = new_schema()
    foreign = await asyncio.to_thread(PgConnection, postgres.url, schema=schema)
    try:
        await asyncio.to_thread(foreign.make_schema)
        await asyncio.to_thread(foreign.run, "CREATE TABLE turns (mine text); INSERT INTO turns VALUES ('still here')")
        with pytest.raises(StoreUnavailable, match="another program's tables"):
            async with opened(postgres.url, tmp_path, schema):
                pass
        kept = await asyncio.to_thread(foreign.execute, "SELECT mine FROM turns")
        assert kept.fetchall() == [("still here",)]
    finally:
        await asyncio.to_thread(foreign.close)


async def test_a_store_of_a_later_version_is_not_touched(postgres: PostgresServer, tmp_path: Path) -> None:
    schema = new_schema()
    async with opened(postgres.url, tmp_path, schema) as store:
        await store.begin(a_turn())
    later = await asyncio.to_thread(PgConnection, postgres.url, schema=schema)
    await asyncio.to_thread(later.execute, "UPDATE store_version SET version = ?", (len(tables.STEPS) + 1,))
    await asyncio.to_thread(later.close)

    with pytest.raises(StoreUnavailable, match="made by a newer toolwire"):
        async with opened(postgres.url, tmp_path, schema):
            pass


async def test_many_who_make_a_new_store_at_once_make_one(postgres: PostgresServer, tmp_path: Path) -> None:
    schema = new_schema()

    async def begin(number: int) -> None:
        async with opened(postgres.url, tmp_path / str(number), schema) as store:
            await store.begin(a_turn(f"turn-{number}"))

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(begin(number))

    async with opened(postgres.url, tmp_path / "home", schema) as store:
        assert {one.id for one in await store.turns()} == {f"turn-{number}" for number in range(4)}


async def test_who_lost_a_turn_to_another_machine_is_fenced(postgres: PostgresServer, tmp_path: Path) -> None:
    """What one connection has learned is not believed once another one has written."""
    schema = new_schema()
    async with opened(postgres.url, tmp_path / "here", schema) as here:
        await here.begin(a_turn())
        rows = await asyncio.to_thread(PgConnection, postgres.url, schema=schema)
        await asyncio.to_thread(rows.execute, "UPDATE owner_leases SET until = 0")
        await asyncio.to_thread(rows.close)
        async with opened(postgres.url, tmp_path / "there", schema) as there:
            await there.resume(a_turn().id)

            with pytest.raises(Fenced):
                await here.release(a_turn())


async def test_a_call_of_a_process_that_was_killed_is_free_at_once_although_another_was_started_in_its_place(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    schema, turn = new_schema(), a_turn()
    async with opened(postgres.url, tmp_path, schema) as store:
        await store.begin(turn)
        card = await store.open(a_card(a_call(), turn), [])
        claiming = ["-c", _CLAIMS_AND_DIES, postgres.url, str(tmp_path), schema]
        killed = await asyncio.to_thread(run_python, *claiming)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        async with opened(postgres.url, tmp_path, schema):
            assert (await store.claim(card, [])).attempt == 2


async def test_a_result_that_another_machine_kept_first_wins_over_what_was_known_here(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """The rows of a call go to the server at once, and it adds none if another connection has committed meanwhile."""
    schema, turn, call = new_schema(), a_turn(), a_call()
    async with (
        opened(postgres.url, tmp_path / "here", schema) as here,
        opened(postgres.url, tmp_path / "there", schema) as there,
    ):
        await here.begin(turn)
        card = await here.open(a_card(call, turn), [a_row("allowed")])
        first = await there.close(card, success(call, "there"), [a_row("finished")])

        assert await here.close(card, success(call, "here"), [a_row("finished")]) == first
        assert await here.open(a_card(call, turn), []) == (await there.calls())[0]
        assert [row.event for row in await here.audit_log()] == ["allowed", "finished", "late_result"]
        assert (await here.audit_chain()).broken_at is None


async def test_rows_that_the_server_did_not_add_are_not_taken_for_kept(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    schema = new_schema()
    async with opened(postgres.url, tmp_path, schema):

        def write() -> None:
            with closing(PgConnection(postgres.url, schema=schema)) as mine:
                mine.execute("BEGIN IMMEDIATE")
                mine.execute("PRAGMA data_version")
                mine.executemany(ADD_CHARGE, [("default", "turn-1", 1)])
                with closing(PgConnection(postgres.url, schema=schema)) as other:
                    other.execute("SELECT nextval('commits')")  # as a restored dump or an administrator may do
                with pytest.raises(StaleCache):
                    mine.execute("COMMIT")

        await asyncio.to_thread(write)


def written_by(*stores: PostgresStore) -> list[str]:
    """What these stores ask from now on where they write: on the event loop, and in their threads."""
    asked: list[str] = []
    for store in stores:
        thread = cast(PgConnection, store._writer._connection._connection)
        for connection in (thread._connection, store._loop_writes._connection):
            assert connection is not None
            connection.add_query_logger(lambda record: asked.append(record.query))
    return asked


async def test_the_rows_of_a_call_take_one_way_to_the_server(postgres: PostgresServer, tmp_path: Path) -> None:
    schema, turn = new_schema(), a_turn()
    async with opened(postgres.url, tmp_path, schema) as store:
        for _ in range(2):  # the end of the audit chain is read once, in the thread
            await store.audit([a_row("before")])
        await store.begin(turn)
        asked = written_by(store)
        for number in range(3):
            call = a_call(f"call-{number}")
            card = await store.open(a_card(call, turn), [a_row("allowed")])
            held = await store.renew(await store.claim(card, [a_row("started")], until=NOW + 9), NOW + 99)
            await store.close(held, success(call), [a_row("finished")])

        assert [query for query in asked if "write_calls" not in query] == []
        assert len(asked) == 3 * 4
        assert [one.result for one in await store.calls()] == [success(a_call(f"call-{n}")) for n in (2, 1, 0)]


async def test_what_is_written_for_calls_goes_to_the_server_from_the_event_loop(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """A thread makes what needs more of the server, in the order in which it was asked for."""
    async with opened(postgres.url, tmp_path, new_schema()) as store:
        await store.begin(a_turn("first"))  # the thread writes that this store lives
        for _ in range(2):
            await store.audit([a_row("before")])
        thread = cast(PgConnection, store._writer._connection._connection)
        asked: list[str] = []
        thread._connection.add_query_logger(lambda record: asked.append(record.query))
        turn, call, other = a_turn(), a_call(), a_call("call-2")
        await store.begin(turn)
        card = await store.open(a_card(call, turn), [a_row("allowed")])
        await store.open(a_card(other, turn), [])
        held = await store.claim(card, [a_row("started")])
        await store.close(held, success(call), [a_row("finished")])
        assert asked == []
        await asyncio.gather(
            store.audit([a_row("one")]), store.detach(a_card(other, turn)), store.audit([a_row("two")])
        )
        assert asked != []
        await store.audit([a_row("three")])

        assert [row.event for row in await store.audit_log()][-3:] == ["one", "two", "three"]
        assert (await store.audit_chain()).broken_at is None


async def test_another_event_loop_writes_as_well(postgres: PostgresServer, tmp_path: Path) -> None:
    async with opened(postgres.url, tmp_path, new_schema()) as store:
        await store.begin(a_turn("first"))
        there = [a_turn(f"there-{number}") for number in range(5)]

        async def begin_all() -> None:
            await asyncio.gather(*map(store.begin, there))

        here = [store.begin(a_turn(f"here-{number}")) for number in range(5)]
        await asyncio.gather(asyncio.to_thread(asyncio.run, begin_all()), *here)
        assert len(await store.turns(limit=100)) == 11


async def test_a_change_that_cannot_be_sent_takes_none_with_it_of_those_beside_it(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    async with opened(postgres.url, tmp_path, new_schema()) as store:
        for _ in range(2):  # from here on the loop writes
            await store.audit([a_row("before")])
        await store.begin(turn := a_turn())
        told = Reply("hello", usage=Usage(10**30))  # a provider may say anything
        done = await asyncio.gather(
            store.audit([a_row("one")]),
            store.append_reply(turn, told, [], []),
            store.audit([a_row("two")]),
            return_exceptions=True,
        )

        assert (done[0], isinstance(done[1], Exception), done[2]) == (None, True, None)
        assert [row.event for row in await store.audit_log()] == ["before", "before", "one", "two"]


async def cancel_writing(steps: int) -> None:
    """Cancel what writes on this loop after so many of its steps, as the end of a loop cancels all tasks."""
    writing: list[asyncio.Task[Any]] = []
    while not writing:
        await asyncio.sleep(0)
        writing = [task for task in asyncio.all_tasks() if task.get_name() == "toolwire-write"]
    for _ in range(steps):
        await asyncio.sleep(0)
    writing[0].cancel()


@pytest.mark.parametrize("steps", [0, 1])
async def test_what_is_canceled_before_it_was_sent_is_written_all_the_same(
    postgres: PostgresServer, tmp_path: Path, steps: int
) -> None:
    async with opened(postgres.url, tmp_path, new_schema()) as store, asyncio.timeout(20):
        asked = [asyncio.ensure_future(store.audit([a_row("one")]))]
        await cancel_writing(steps)
        await asyncio.gather(*asked, store.audit([a_row("two")]))
        assert [row.event for row in await store.audit_log()] == ["one", "two"]


async def test_who_waits_for_what_is_canceled_after_it_was_sent_hears_of_it(
    mortal: PostgresServer, tmp_path: Path
) -> None:
    schema = new_schema()
    async with opened(mortal.url, tmp_path, schema) as store, asyncio.timeout(20):
        for _ in range(2):
            await store.audit([a_row("before")])
        other = await asyncio.to_thread(PgConnection, mortal.url, schema=schema)
        await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")  # so that others wait for the lock
        asked = asyncio.ensure_future(store.audit([a_row("one")]))
        while not (await asyncio.to_thread(other.execute, _WAITING)).fetchall():
            pass
        await cancel_writing(0)
        with pytest.raises(StoreUnavailable, match="not waited for"):
            await asked
        await asyncio.to_thread(other.close)
        await store.audit([a_row("two")])
        assert (await store.audit_log())[-1].event == "two"


async def all_connections(url: str) -> AsyncIterator[Connection]:
    """As many as the server lets in."""
    with suppress(asyncpg.TooManyConnectionsError):
        while True:
            yield await asyncpg.connect(url)


async def test_a_server_that_lets_in_no_more_is_written_to_by_who_is_in(mortal: PostgresServer, tmp_path: Path) -> None:
    owner = await asyncpg.connect(mortal.url)
    await owner.execute("CREATE ROLE ada LOGIN; GRANT CREATE ON DATABASE postgres TO ada")
    async with opened(url := mortal.url.replace("toolwire@", "ada@"), tmp_path, new_schema()) as store:
        await store.audit([a_row("one")])
        here = store._loop_writes._connection
        assert here is not None
        await owner.execute("SELECT pg_terminate_backend($1)", here.get_server_pid())
        taken = [one async for one in all_connections(url)]
        await store.audit([a_row("two")])
        for one in taken:
            one.terminate()
        assert [row.event for row in await store.audit_log()] == ["one", "two"]
    await owner.close()


async def test_a_store_that_is_closed_keeps_what_was_being_written(postgres: PostgresServer, tmp_path: Path) -> None:
    schema, turns = new_schema(), [a_turn(f"turn-{number}") for number in range(100)]
    async with opened(postgres.url, tmp_path, schema) as store:
        await store.begin(a_turn("first"))
        beginning = [asyncio.ensure_future(store.begin(turn)) for turn in turns]
        await asyncio.sleep(0)
    assert [task.exception() for task in beginning if task.done()] == [None] * len(turns)
    async with opened(postgres.url, tmp_path, schema) as store:
        assert len(await store.turns(limit=200)) == 101


async def test_calls_of_two_processes_take_few_ways_to_the_server_side_by_side(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """A call that another process claims is looked up once; nothing else is asked, though both write in turns."""
    schema, turn = new_schema(), a_turn()
    async with (
        opened(postgres.url, tmp_path / "home", schema) as runs,
        opened(postgres.url, tmp_path / "home", schema) as works,
    ):
        for store in (runs, works, runs, works):
            await store.audit([a_row("before")])
        await runs.begin(turn)
        asked = written_by(runs, works)
        for number in range(3):
            call = a_call(f"call-{number}")
            card = await runs.open(a_card(call, turn), [a_row("allowed")])
            held = await works.claim(card, [a_row("started")])
            await works.close(held, success(call), [a_row("finished")])

        names = [query.split("SELECT ")[1].removeprefix("* FROM ").split("_calls")[0] for query in asked]
        assert names == ["write", "known", "write", "write"] * 3
        assert (await runs.audit_chain()).broken_at is None
        assert [row.event for row in await runs.audit_log()].count("finished") == 3


@pytest.mark.parametrize("text", ["a\x00b", "\x00", "\ue000", "\ue0000\x001", "\\u0000", "��"])
async def test_every_text_comes_back_as_it_was(postgres: PostgresServer, tmp_path: Path, text: str) -> None:
    async with opened(postgres.url, tmp_path, new_schema()) as store:
        turn = a_turn(f"turn {text}", text)
        await store.begin(turn)

        assert (await store.turn(turn.id)).opening.question == text
        assert [one.id for one in await store.turns()] == [turn.id]


async def test_what_was_kept_survives_the_death_of_the_server(mortal: PostgresServer, tmp_path: Path) -> None:
    """A killed server is an outage with a sentence; the same store goes on once the server is back."""
    schema, turn, call = new_schema(), a_turn(), a_call()
    async with opened(mortal.url, tmp_path, schema) as store:
        await store.begin(turn)
        card = await store.open(a_card(call, turn), [])
        await asyncio.to_thread(mortal.kill)
        with pytest.raises(StoreUnavailable):
            await store.begin(a_turn("meanwhile"))
        await asyncio.to_thread(mortal.start)

        await store.close(card, success(call), [])

        assert [one.id for one in await store.turns()] == [turn.id]
        assert (await store.calls(turn_id=turn.id))[0].result == success(call)


async def test_a_call_is_looked_up_after_its_connection_has_died_and_on_any_loop(
    mortal: PostgresServer, tmp_path: Path
) -> None:
    turn, card = a_turn(), a_card()
    async with opened(mortal.url, tmp_path, new_schema()) as store:
        assert await store.open(card, [], begins=turn) == await store.call(turn.id, card.call.id)
        await asyncio.to_thread(mortal.kill)
        with pytest.raises(StoreUnavailable):
            await store.call(turn.id, card.call.id)
        await asyncio.to_thread(mortal.start)

        assert await store.call(turn.id, card.call.id) == card
        assert await asyncio.to_thread(asyncio.run, store.call(turn.id, card.call.id)) == card
        many = await asyncio.gather(*(store.call_and_end(turn.id, card.call.id) for _ in range(3)))
        assert many == [(card, False)] * 3
    with pytest.raises(StoreUnavailable, match="was closed"):
        await store.call(turn.id, card.call.id)


async def test_a_killed_server_leaves_no_gap_in_the_audit_log(mortal: PostgresServer, tmp_path: Path) -> None:
    """Sequences skip numbers after a crash and after a rollback; a gap counts as rows that were taken out."""
    async with opened(mortal.url, tmp_path, new_schema()) as store:
        await store.audit([a_row("accepted")])
        await asyncio.to_thread(mortal.kill)
        await asyncio.to_thread(mortal.start)
        await store.audit([a_row("allowed")])

        assert (await store.audit_chain()).broken_at is None
        assert len(await store.audit_log()) == 2


async def test_a_character_zero_in_a_call_and_its_result_harms_no_later_question(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    schema, turn, call = new_schema(), a_turn(), a_call(path="a\x00b \\u0000 \ue000 \\ue0000")
    async with opened(postgres.url, tmp_path / "one", schema) as store:
        await store.begin(turn)
        card = await store.open(a_card(call, turn), [])
        await store.close(card, success(call, "null: \x00, written \\u0000, and \\ue0001"), [])
        await store.open(a_card(a_call("call-2", path="\x00"), turn), [])
        await store.release(turn)

        assert [one.calls for one in (await store.metrics())[0]] == [1]
    async with opened(postgres.url, tmp_path / "two", schema) as store:
        await store.resume(turn.id)
        assert {one.call.arguments["path"] for one in await store.calls(turn_id=turn.id)} == {
            "a\x00b \\u0000 \ue000 \\ue0000",
            "\x00",
        }


async def test_a_list_of_turns_is_read_once_and_not_for_each_row(postgres: PostgresServer, tmp_path: Path) -> None:
    def explained(schema: str, question: str) -> str:
        with closing(PgConnection(postgres.url, schema=schema)) as connection:
            project = None if "?1 IS NULL" in question else "default"
            rows = connection.execute(f"EXPLAIN {question}", (project, '["a","b"]')).fetchall()
        return "\n".join(row[0] for row in rows)

    with postgres.schemas.empty() as schema:
        async with opened(postgres.url, tmp_path, schema):
            for question in (*reads.RESULTS_OF_TURNS, *reads.SENT_BEFORE):
                plan = await asyncio.to_thread(explained, schema, question)
                assert "InitPlan" in plan
                assert "(turn_id = ANY ($" in plan


async def test_a_long_answer_comes_in_pages(postgres: PostgresServer) -> None:
    """One that never ends is read as far as it is wanted; other questions are answered meanwhile."""
    endless = "WITH RECURSIVE n(i) AS (SELECT CAST(?1 AS INTEGER) UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    connection = await asyncio.to_thread(PgConnection, postgres.url, schema=new_schema())

    def read() -> tuple[list[int], list[int]]:
        connection.execute("BEGIN")
        rows, others = connection.execute(endless, (7,)), connection.execute(endless, (1,))
        found = [number for (number,) in islice(rows, 1_300)], [number for (number,) in islice(others, 3)]
        connection.execute("COMMIT")
        return found

    try:
        assert await asyncio.to_thread(read) == (list(range(7, 1_307)), [1, 2, 3])
    finally:
        await asyncio.to_thread(connection.close)


async def test_a_question_that_fails_half_way_is_said(postgres: PostgresServer) -> None:
    connection = await asyncio.to_thread(PgConnection, postgres.url, schema=new_schema())

    def read() -> None:
        connection.execute("BEGIN")
        connection.execute("SELECT 1 / (900 - i) FROM generate_series(1, 2000) i").fetchall()

    try:
        with pytest.raises(sqlite3.OperationalError, match="division by zero"):
            await asyncio.to_thread(read)
        await asyncio.to_thread(connection.roll_back)
        assert (await asyncio.to_thread(connection.execute, "SELECT 1")).fetchall() == [(1,)]
    finally:
        await asyncio.to_thread(connection.close)


async def test_a_writer_that_stops_half_way_is_ended_by_the_server(postgres: PostgresServer) -> None:
    connection = await asyncio.to_thread(PgConnection, postgres.url, schema=new_schema())
    limits = [
        (await asyncio.to_thread(connection.execute, f"SHOW {name}")).fetchall()[0][0]
        for name in ("idle_in_transaction_session_timeout", "tcp_keepalives_idle")
    ]
    await asyncio.to_thread(connection.close)

    assert limits == ["20s", "10"]


async def test_what_was_used_is_counted_in_whole_numbers(postgres: PostgresServer, tmp_path: Path) -> None:
    async with opened(postgres.url, tmp_path, new_schema()) as store:
        await store.begin(a_turn())
        assert type((await store.spent("agent", NOW)).tokens) is int


async def test_a_schema_that_is_used_again_by_tests_is_as_a_new_one(postgres: PostgresServer, tmp_path: Path) -> None:
    """Otherwise what one test has kept would be seen by the next."""

    async def kept(schema: str) -> dict[str, Any]:
        connection = await asyncio.to_thread(PgConnection, postgres.url, schema=schema)
        try:
            return await asyncio.to_thread(_all_rows, connection)
        finally:
            await asyncio.to_thread(connection.close)

    fresh = new_schema()
    async with opened(postgres.url, tmp_path / "fresh", fresh):
        pass
    with postgres.schemas.empty() as used:
        async with opened(postgres.url, tmp_path / "used", used) as store:
            await store.begin(a_turn())
            assert (await kept(used))["turns"]
    async with asyncio.timeout(30):
        again = ""
        while again != used:  # for a moment the server may not have noticed that all are gone
            with postgres.schemas.empty() as again:
                found = await kept(again) if again == used else {}

    assert found == await kept(fresh)


def _all_rows(connection: PgConnection) -> dict[str, Any]:
    tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
    rows: dict[str, Any] = {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in tables}
    return {**rows, "commits": connection.execute("SELECT last_value FROM commits").fetchall()}
