"""One database, two machines: who owns a turn, whatever happens to a process, a machine or a clock.

A machine here is a process with a state folder of its own; all they share is the libSQL server.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.loop.test_liveness import launching, lines, owner, results_of
from tests.record.conftest import migrated_server
from tests.record.hrana_server import HranaServer
from tests.record.samples import a_call, a_card, a_turn, success
from toolwire import Agent, Code, tool
from toolwire.errors import CallHeld, Fenced
from toolwire.protocol.records import CallCard
from toolwire.record.contract import Store
from toolwire.record.hrana import HranaConnection
from toolwire.record.libsql import LibsqlStore
from toolwire.testing import ScriptedModel, call

BOUND_S = 30
LONG_S = 10_000.0
"""A lease so long that no heartbeat comes while a test runs."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HranaServer]:
    with migrated_server(tmp_path) as server:
        yield server


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@asynccontextmanager
async def machine(
    server: HranaServer, name: str, *, lease_s: float = LONG_S, clock: Callable[[], float] = time.time
) -> AsyncIterator[LibsqlStore]:
    home = server.path.parent / name
    async with asyncio.timeout(BOUND_S), await LibsqlStore.on(server.url, home, lease_s=lease_s, clock=clock) as store:
        yield store


def run_out(server: HranaServer) -> None:
    """As much time passes in the database as a lease lasts that is not renewed."""
    server.later_s += LONG_S + 1


def home(server: HranaServer, name: str) -> Path:
    return server.path.parent / name


async def held(store: Store, turn_id: str) -> CallCard:
    """The card of a call that the process of this store runs."""
    card = await store.open(a_card(a_call("a"), a_turn(turn_id)), [])
    return await store.claim(card, [])


async def test_A8_a_living_owner_on_another_machine_keeps_its_turn_and_its_call(
    server: HranaServer, ledger: Path
) -> None:
    async with owner(home(server, "one"), ledger, "in_tool", server.url) as process, machine(server, "two") as store:
        [turn] = await store.turns(state="running")
        with pytest.raises(Fenced, match="living process"):
            await store.resume(turn.id)
        [card] = await store.calls(turn_id=turn.id)
        with pytest.raises(CallHeld):
            await store.claim(card, [])
        await process.communicate(b"go on\n")

        [done] = await store.turns()
        assert (done.state, lines(ledger)) == ("ended", ["one"])


async def test_A8_a_stopped_owner_on_another_machine_loses_its_turn_and_is_fenced_when_it_wakes(
    server: HranaServer, ledger: Path
) -> None:
    async with owner(home(server, "one"), ledger, "in_tool", server.url) as process, machine(server, "two") as store:
        process.send_signal(signal.SIGSTOP)
        run_out(server)
        [turn] = await store.turns(state="interrupted")
        answer = await Agent(ScriptedModel("done"), [launching(ledger)], store=store).resume(turn.id)
        process.send_signal(signal.SIGCONT)
        out, _ = await process.communicate(b"go on\n")

        events = [row.event for row in await store.audit_log(turn_id=turn.id)]
    [result] = results_of(answer)
    assert (result.error and result.error.code, out) == (Code.OUTCOME_UNKNOWN, b"fenced\n")
    assert ("late_result" in events, lines(ledger)) == (True, ["one"])


async def test_A8_a_killed_owner_on_another_machine_loses_its_turn_when_its_lease_has_run_out(
    server: HranaServer, ledger: Path
) -> None:
    async with owner(home(server, "one"), ledger, "in_tool", server.url) as process, machine(server, "two") as store:
        process.kill()
        await process.wait()
        [turn] = await store.turns()
        with pytest.raises(Fenced, match="living process"):
            await store.resume(turn.id)
        run_out(server)
        answer = await Agent(ScriptedModel("done"), [launching(ledger)], store=store).resume(turn.id)
    [result] = results_of(answer)
    assert (result.error and result.error.code, lines(ledger)) == (Code.OUTCOME_UNKNOWN, ["one"])


@pytest.mark.parametrize(("way", "launched"), [("in_tool", ["one"]), ("before", ["one"])])
async def test_A8_a_killed_owner_on_this_machine_loses_its_turn_at_once_and_its_notes_count(
    server: HranaServer, ledger: Path, way: str, launched: list[str]
) -> None:
    async with owner(home(server, "one"), ledger, way, server.url) as process:
        if way == "in_tool":
            process.kill()
        await process.wait()
    async with machine(server, "one") as store:
        [turn] = await store.turns(state="interrupted")
        answer = await Agent(ScriptedModel("done"), [launching(ledger)], store=store).resume(turn.id)
    [result] = results_of(answer)
    assert (result.ok, lines(ledger)) == (way == "before", launched)


async def test_A8_a_child_that_a_tool_forked_does_not_renew_the_lease_of_a_dead_owner(
    server: HranaServer, ledger: Path
) -> None:
    async with owner(home(server, "one"), ledger, "forks", server.url) as process, machine(server, "two") as store:
        process.kill()
        await process.wait()
        run_out(server)
        [turn] = await store.turns(state="interrupted")
        answer = await Agent(ScriptedModel("done"), [launching(ledger)], store=store).resume(turn.id)
    assert (answer.text, lines(ledger)) == ("done", ["one"])


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
async def test_A8_the_clock_of_a_machine_says_nothing_about_leases(server: HranaServer, jump_s: float) -> None:
    """It jumps by a day on the one that owns a turn and, the other way, on the one that looks."""
    jumped = 0.0
    async with (
        machine(server, "one", clock=lambda: time.time() + jumped) as one,
        machine(server, "two", clock=lambda: time.time() - jumped) as two,
    ):
        await one.begin(a_turn())
        mine = await held(one, a_turn().id)
        jumped = jump_s
        assert [turn.id for turn in await two.turns(state="running")] == [a_turn().id]
        with pytest.raises(Fenced, match="living process"):
            await two.resume(a_turn().id)
        with pytest.raises(CallHeld):
            await two.claim(replace(mine, token=""), [])
        assert one.holds(a_turn().id)

        run_out(server)
        assert (await two.resume(a_turn().id)).opening.epoch == 2


async def test_A8_the_heartbeat_renews_a_lease_for_as_long_as_its_process_lives(server: HranaServer) -> None:
    async with machine(server, "one", lease_s=0.3) as one, machine(server, "two") as two:
        await one.begin(a_turn())
        for _ in range(4):
            assert await asyncio.to_thread(server.renewals.acquire, timeout=BOUND_S)
        server.later_s += 0.5
        while server.renewals.acquire(blocking=False):
            pass
        assert await asyncio.to_thread(server.renewals.acquire, timeout=BOUND_S)
        server.later_s -= 0.5  # what was renewed by the later clock lasts, by the earlier one, for a while
        assert [turn.state for turn in await two.turns()] == ["running"]
        assert not one.holds(a_turn().id)  # in the database it had run out for a moment, and its owner knows


async def test_A8_a_lease_that_ran_out_while_the_tool_worked_loses_nothing_unless_taken_over(
    server: HranaServer,
) -> None:
    @tool
    def work() -> str:
        """Work for a long time."""
        run_out(server)
        return "worked"

    async with machine(server, "one") as one:
        answer = await Agent(ScriptedModel(call("work"), "done"), [work], store=one).ask("go")
        [card] = await one.calls()
    assert (answer.text, card.result and card.result.text) == ("done", "worked")


async def test_A8_the_result_of_an_owner_that_lost_its_turn_is_kept_by_its_token(server: HranaServer) -> None:
    async with machine(server, "one") as one, machine(server, "two") as two:
        await one.begin(a_turn())
        mine = await held(one, a_turn().id)
        run_out(server)
        await two.resume(a_turn().id)

        with pytest.raises(Fenced):
            await one.release(a_turn())
        assert await one.close(mine, success(mine.call), []) == success(mine.call)
        [card] = await two.calls()
    assert card.result == success(mine.call)


async def test_A8_a_machine_that_only_reads_writes_nothing(server: HranaServer) -> None:
    async with machine(server, "one") as one:
        assert await one.turns() == []
        connection = HranaConnection(server.url)
        rows = connection.execute("SELECT * FROM owner_leases").fetchall()
        connection.close()
    assert rows == []


async def test_A8_a_store_that_was_closed_leaves_no_row_and_its_turns_are_free(server: HranaServer) -> None:
    async with machine(server, "two") as two:
        async with machine(server, "one") as one:
            await one.begin(a_turn())
        assert (await two.resume(a_turn().id)).opening.epoch == 2
        connection = HranaConnection(server.url)
        rows = connection.execute("SELECT count(*) FROM owner_leases").fetchall()
        connection.close()
    assert rows == [(1,)]
