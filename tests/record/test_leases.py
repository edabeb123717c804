"""Leases of calls, in every store: one holder at a time, and its result is never lost."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolwire.errors import CallHeld, Fenced, NotFound
from toolwire.protocol.chat import Reply
from toolwire.protocol.turns import Ending, EndReason
from toolwire.record.contract import Store, TurnStats
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW, database_server
from .samples import a_call, a_card, a_row, a_turn, success

Open = Callable[[], Awaitable[Store]]


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "libsql", "postgres"])
async def opens(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Open]:
    """Opens a store as another process would; what is kept in memory has one store."""
    home, opened, memory = tmp_path / "home", [], MemoryStore(clock=clock)

    async def kept_in_memory() -> Store:
        return memory

    async def sqlite() -> Store:
        opened.append(await SqliteStore.at(home, clock=clock))
        return opened[-1]

    async def in_server() -> Store:
        opened.append(await on(home, clock=clock))
        return opened[-1]

    if request.param == "memory":
        yield kept_in_memory
    elif request.param == "sqlite":
        yield sqlite
    else:
        with database_server(request.param, tmp_path, request) as on:
            yield in_server
            for store in opened:
                await store.close_store()
            opened = []
    for store in opened:
        await store.close_store()


async def events(store: Store) -> list[str]:
    return [row.event for row in await store.audit_log()]


@pytest.mark.parametrize("until", [None, NOW + 60])
async def test_a_call_has_one_holder_at_a_time(opens: Open, until: float | None) -> None:
    one, other = await opens(), await opens()
    turn = a_turn()
    await one.begin(turn)
    card = await one.open(a_card(turn=turn), [])
    mine = await one.claim(card, [a_row("started")], until=until)

    with pytest.raises(CallHeld, match="held by another claim") as held:
        await other.claim(card, [a_row("started")], until=until)

    assert held.value.until == until
    assert (mine.attempt, bool(mine.token)) == (1, True)
    assert await events(one) == ["started"]
    assert [one.token for one in await other.calls()] == [""]


async def test_a_call_that_was_opened_as_claimed_is_held_by_who_opened_it(opens: Open) -> None:
    one, other = await opens(), await opens()
    turn = a_turn()
    await one.begin(turn)
    card = a_card(turn=turn, attempt=1, token="turn-1/call-1")
    await one.append_reply(turn, Reply(calls=(card.call,)), [card], [])
    found = await other.open(a_card(turn=turn, attempt=1), [])

    assert (found.attempt, found.token) == (1, "")
    with pytest.raises(CallHeld):
        await other.claim(found, [])
    assert await one.close(card, success(), []) == success()


@pytest.mark.parametrize("ends", ["released", "resumed", "ended"])
@pytest.mark.parametrize("until", [None, NOW + 60])
async def test_the_result_of_the_holder_is_kept_whatever_has_become_of_the_turn(
    opens: Open, clock: Clock, ends: str, until: float | None
) -> None:
    one, other = await opens(), await opens()
    turn = a_turn()
    await one.begin(turn)
    mine = await one.claim(await one.open(a_card(turn=turn), []), [], until=until)
    if ends == "ended":
        await one.end(replace(turn, ending=Ending(EndReason.STOPPED, "")), TurnStats())
    else:
        await one.release(turn)
    if ends == "resumed":
        await other.resume(turn.id)
    clock.now += 3600  # a lease that ran out while the tool worked

    assert await one.close(mine, success(), [a_row("finished")]) == success()

    assert [card.result for card in await other.calls()] == [success()]
    assert await events(other) == ["finished"]
    (tool,), _ = await other.metrics()
    assert tool.calls == 1


async def test_whoever_resumes_a_turn_waits_for_a_lease_that_is_not_the_turns(opens: Open, clock: Clock) -> None:
    one, other = await opens(), await opens()
    turn = a_turn()
    await one.begin(turn)
    mine = await one.claim(await one.open(a_card(turn=turn), []), [], owner="worker-7", until=NOW + 60)
    await one.release(turn)
    taken = (await other.resume(turn.id)).opening

    found = await other.open(a_card(turn=taken), [])
    assert (found.attempt, found.owner, found.until) == (1, "worker-7", NOW + 60)
    for change in (other.claim(found, []), other.close(found, success(text="unknown"), [])):
        with pytest.raises(CallHeld) as held:
            await change
        assert (held.value.owner, held.value.until) == ("worker-7", NOW + 60)

    clock.now += 61
    theirs = await other.claim(found, [])
    assert (theirs.attempt, theirs.epoch) == (2, 2)
    assert theirs.token != mine.token


async def test_a_claim_that_outlives_its_turn_is_held_after_its_own_store_released_that(opens: Open) -> None:
    """As that of a worker that shares the store of a runner."""
    store = await opens()
    turn = a_turn()
    await store.begin(turn)
    card = await store.open(a_card(turn=turn), [])
    mine = await store.claim(card, [], outlives_turn=True)
    await store.release(turn)

    with pytest.raises(CallHeld):
        await store.claim(card, [])
    assert await store.close(mine, success(), []) == success()


async def test_a_denied_card_does_not_end_a_call_that_a_worker_holds(opens: Open) -> None:
    store = await opens()
    turn = a_turn()
    await store.begin(turn)
    mine = await store.claim(await store.open(a_card(turn=turn), []), [], until=NOW + 60)

    found = await store.open(a_card(turn=turn, result=success(text="denied")), [])

    assert found.result is None
    assert await store.close(mine, success(), []) == success()


async def test_a_result_under_the_token_of_an_older_claim_is_refused_and_audited(opens: Open, clock: Clock) -> None:
    one, other = await opens(), await opens()
    turn = a_turn()
    await one.begin(turn)
    card = await one.open(a_card(turn=turn), [])
    mine = await one.claim(card, [], until=NOW + 60)
    clock.now += 61
    theirs = await other.claim(card, [], until=NOW + 120)

    with pytest.raises(Fenced, match="not held under this token"):
        await one.close(mine, success(text="late"), [a_row("finished")])
    with pytest.raises(Fenced, match="not held under this token"):
        await one.renew(mine, NOW + 600)

    assert await events(one) == ["late_result"]
    assert await other.close(theirs, success(), []) == success()
    assert await one.close(mine, success(text="later"), []) == success()


@pytest.mark.parametrize("token", ["foreign", "turn-1/call-2"])
async def test_a_foreign_token_changes_nothing(opens: Open, token: str) -> None:
    store = await opens()
    mine = await store.claim(await store.open(a_card(), []), [], until=NOW + 60)
    before = await store.calls()

    with pytest.raises(CallHeld):
        await store.claim(replace(mine, token=token), [])
    for change in (store.renew(replace(mine, token=token)), store.close(replace(mine, token=token), success(), [])):
        with pytest.raises(Fenced, match="not held under this token"):
            await change

    assert await store.calls() == before


async def test_a_lease_is_renewed_by_its_token_and_then_lasts_longer(opens: Open, clock: Clock) -> None:
    one, other = await opens(), await opens()
    card = await one.open(a_card(), [])
    mine = await one.claim(card, [], until=NOW + 60)
    clock.now += 61  # nobody has claimed it since, so the holder may hold on

    longer = await one.renew(mine, NOW + 120)

    assert (longer.attempt, longer.token, longer.until) == (1, mine.token, NOW + 120)
    with pytest.raises(CallHeld):
        await other.claim(card, [], until=NOW + 600)


async def test_a_claim_of_the_process_that_runs_the_turn_becomes_a_lease_of_its_own(opens: Open) -> None:
    one, other = await opens(), await opens()
    turn = a_turn()
    await one.begin(turn)
    card = await one.open(a_card(turn=turn, attempt=1), [])
    await one.renew(card, NOW + 60)
    await one.release(turn)
    taken = (await other.resume(turn.id)).opening

    with pytest.raises(CallHeld):
        await other.claim(await other.open(a_card(turn=taken), []), [])
    assert await one.close(card, success(), []) == success()


async def test_a_claim_of_the_process_that_ran_the_turn_is_not_renewed_after_another_took_it(opens: Open) -> None:
    one, other = await opens(), await opens()
    turn = a_turn()
    await one.begin(turn)
    card = await one.open(a_card(turn=turn, attempt=1), [])
    one.begins(turn.id, card.call.id)
    await one.release(turn)
    await other.resume(turn.id)

    with pytest.raises(Fenced, match="taken over"):
        await one.renew(card)


async def test_a_call_that_was_not_delivered_was_not_started(opens: Open) -> None:
    """A call that waits for an executor elsewhere is claimed by that one, and not by the turn that asked for it."""
    one, other = await opens(), await opens()
    turn = a_turn()
    await one.begin(turn)
    card = a_card(turn=turn)
    await one.append_reply(turn, Reply(calls=(card.call,)), [card], [])
    await one.release(turn)
    taken = (await other.resume(turn.id)).opening

    assert (await other.open(a_card(turn=taken), [])).attempt == 0


async def test_an_ended_call_is_neither_claimed_nor_renewed(opens: Open) -> None:
    store = await opens()
    mine = await store.claim(await store.open(a_card(), []), [a_row("started")])
    await store.close(mine, success(), [])

    assert (await store.claim(mine, [a_row("started")])).result == success()
    assert (await store.renew(mine, NOW + 60)).result == success()
    assert await events(store) == ["started"]
    with pytest.raises(NotFound):
        await store.renew(a_card(a_call("never opened")))
