"""What turns use, in every store: while they run, when they end, and what their sub-agents hold."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolwire.protocol.budgets import Allotment, Spending
from toolwire.protocol.chat import Note, Reply, Usage
from toolwire.protocol.turns import Ending, EndReason, Limits, Turn
from toolwire.record.contract import Store, TurnStats
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import FrozenClock

from .conftest import NOW, database_server
from .samples import a_call, a_card, a_turn, success

ASKS = Reply(calls=(a_call("a"), a_call("b")), usage=Usage(100, 20, 0, 0.25))


@dataclass(slots=True)
class Kept:
    """A store, and the clock that it looks at."""

    store: Store
    clock: FrozenClock

    async def say(self, turn: Turn, reply: Reply = ASKS) -> None:
        await self.store.append_reply(turn, reply, [a_card(call, turn) for call in reply.calls], [])


@pytest.fixture(params=["memory", "sqlite", "libsql", "postgres"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    clock = FrozenClock(NOW)
    match request.param:
        case "memory":
            yield Kept(MemoryStore(clock=clock, monotonic=clock), clock)
        case "sqlite":
            async with await SqliteStore.at(tmp_path / "home", clock=clock, monotonic=clock) as opened:
                yield Kept(opened, clock)
        case kind:
            with database_server(kind, tmp_path, request) as on:
                async with await on(tmp_path / "home", clock=clock, monotonic=clock) as opened:
                    yield Kept(opened, clock)


async def test_what_a_running_turn_has_used_counts_from_its_reply_on(kept: Kept) -> None:
    turn = a_turn()
    await kept.store.begin(turn)
    kept.clock.advance(10)
    await kept.say(turn)
    kept.clock.advance(50)

    assert await kept.store.spent("agent", kept.clock()) == Spending(2, 120, 0.25, 10)
    assert await kept.store.spent("agent", kept.clock(), but=turn.id) == Spending()
    assert await kept.store.spent("somebody", kept.clock()) == Spending()
    assert (await kept.store.turn(turn.id)).ran_s == 10


async def test_an_ended_turn_counts_once(kept: Kept) -> None:
    turn = a_turn()
    await kept.store.begin(turn)
    await kept.say(turn)
    stats = TurnStats(calls=2, input_tokens=100, output_tokens=20, cost_usd=0.25, wall_s=12.5)
    await kept.store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "so")), stats)

    assert await kept.store.spent("agent", kept.clock()) == Spending(2, 120, 0.25, 12.5)


async def test_a_turn_counts_on_the_day_on_which_it_last_did_something(kept: Kept) -> None:
    turn = a_turn()
    await kept.store.begin(turn)
    await kept.say(turn)
    kept.clock.advance(86_400)
    assert await kept.store.spent("agent", kept.clock()) == Spending()
    await kept.store.append_note(replace(turn, calls=2, usage=ASKS.usage), Note("go on"))
    assert (await kept.store.spent("agent", kept.clock())).tokens == 120


async def test_time_that_is_somebody_elses_is_not_counted_but_known(kept: Kept) -> None:
    turn = a_turn(limits=Limits(own_time=False))
    await kept.store.begin(turn)
    kept.clock.advance(10)
    await kept.say(turn)

    assert await kept.store.spent("agent", kept.clock()) == Spending(2, 120, 0.25)
    assert (await kept.store.turn(turn.id)).ran_s == 10


async def test_a_released_turn_keeps_what_it_used_and_its_time_stands_still(kept: Kept) -> None:
    """People were waited for 30 of the 40 seconds; then nobody ran it for an hour, and again somebody for 5."""
    turn = a_turn()
    await kept.store.begin(turn)
    await kept.say(turn)
    kept.clock.advance(40)
    await kept.store.release(replace(turn, waited_s=30.0))
    kept.clock.advance(3600)
    assert await kept.store.spent("agent", kept.clock()) == Spending(2, 120, 0.25, 10)

    resumed = await kept.store.resume(turn.id)
    kept.clock.advance(5)
    await kept.say(replace(resumed.opening, calls=2, usage=ASKS.usage), Reply("so"))

    assert resumed.ran_s == 10
    assert (await kept.store.turn(turn.id)).ran_s == 15


@pytest.mark.parametrize(("elapsed_ms", "ran_s"), [(7_000, 17), (90_000, 30)])
async def test_of_a_killed_process_counts_what_is_on_record(tmp_path: Path, elapsed_ms: float, ran_s: float) -> None:
    """Its last reply came after 10 seconds, a result 20 seconds later: what that took, but no more than passed."""
    clock, turn = FrozenClock(NOW), a_turn()
    async with await SqliteStore.at(tmp_path, clock=clock, monotonic=clock) as store:
        await store.begin(turn)
        clock.advance(10)
        await Kept(store, clock).say(turn)
        clock.advance(20)
        await store.close(a_card(a_call("a"), turn), success(a_call("a"), elapsed_ms=elapsed_ms), [])
    clock.advance(86_400)

    async with await SqliteStore.at(tmp_path, clock=clock, monotonic=clock) as other:
        assert (await other.resume(turn.id)).ran_s == ran_s


async def test_shares_are_taken_from_what_the_question_itself_leaves(kept: Kept) -> None:
    """Of 10 calls and 500 tokens the question has used 2 and 120; half of the rest goes to each who comes."""
    turn, question = a_turn(), Allotment(10, 500, 32, 1.25)
    await kept.store.begin(turn)
    await kept.say(turn)

    first = await kept.store.reserve_share(turn.id, Allotment(10), 10, question=question)
    second = await kept.store.reserve_share(turn.id, Allotment(10, 240), 10, question=question)

    assert (first, second) == (Allotment(4, 190, 1, 0.5), Allotment(2, 25, 1, 0.25))
    assert await kept.store.reserved_shares(turn.id) == Spending(6, 215, 0.75)
    await kept.store.release_unused(turn.id, Spending(3, 200, 0.5))
    assert await kept.store.reserved_shares(turn.id) == Spending(3, 15, 0.25)


async def test_a_purse_without_money_or_agents_left_gives_nothing(kept: Kept) -> None:
    assert await kept.store.reserve_share("root", Allotment(10, None, 32, 0.0), 10) is None
    assert await kept.store.reserve_share("root", Allotment(10, None, 1), 10) == Allotment(5, None, 1)
    assert await kept.store.reserve_share("root", Allotment(10, None, 1), 10) is None
    await kept.store.release_unused("nobody", Spending(3))
    assert await kept.store.reserved_shares("nobody") == Spending()
