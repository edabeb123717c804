"""A pure call begins before it is claimed: one that is quick is claimed and closed by one commit."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.fleet.conftest import Fleet
from tests.fleet.test_calls import command
from toolwire import tool
from toolwire.protocol.tools import Effect, Tier
from toolwire.testing import call


@pytest.mark.parametrize("effect", [Effect.PURE, Effect.IDEMPOTENT, Effect.UNSAFE])
async def test_a_quick_call_costs_its_worker_one_commit_where_it_is_pure(fleet: Fleet, effect: Effect) -> None:
    store, works, note = await fleet.store(), await fleet.store(), fleet.tool(effect)
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    message = await command(fleet, store, turn_id)
    commits: list[int] = []
    works.watch_commits(lambda changes, _: commits.append(changes))
    await fleet.worker([note], store=works)
    await fleet.bus.publish(message)

    card = await fleet.result(store, turn_id)

    assert (card.attempt, fleet.noted) == (1, ["milk"])
    assert await fleet.events(store, turn_id) == ["allowed", "dispatched", "started", "finished"]
    await works.audit([])  # one more commit, behind all others
    expected = 2 if effect is Effect.PURE else 3

    async def told() -> bool:
        return len(commits) >= expected

    await fleet.until(told)
    assert len(commits) == expected


async def test_a_slow_pure_call_is_claimed_while_it_runs(fleet: Fleet) -> None:
    store, runs, may_end = await fleet.store(), [0], asyncio.Event()

    @tool(effect=Effect.PURE, tier=Tier.WALK)
    async def note(words: str) -> str:
        """Write words down, later."""
        runs[0] += 1
        await may_end.wait()
        return f"noted {words}"

    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    message = await command(fleet, store, turn_id)
    for _ in range(2):
        await fleet.worker([note])
    await fleet.bus.publish(message)

    async def claimed() -> bool:
        return (await fleet.card(store, turn_id)).attempt == 1

    await fleet.until(claimed)
    await fleet.bus.publish(message)
    may_end.set()
    card = await fleet.result(store, turn_id)
    assert (card.attempt, runs, card.result.text if card.result else "") == (1, [1], "noted milk")


@pytest.mark.parametrize("effect", [Effect.PURE, Effect.IDEMPOTENT])
async def test_a_command_of_an_older_epoch_begins_nothing(fleet: Fleet, effect: Effect) -> None:
    store, note = await fleet.store(), fleet.tool(effect)
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    card, late = await fleet.card(store, turn_id), await command(fleet, store, turn_id)
    dispatch, _ = await store.dispatched(card.record_id, project=fleet.project)
    now = (await store.resume(turn_id, project=fleet.project)).opening.epoch
    await fleet.worker([note], at_once=1)
    await fleet.bus.publish(late)
    await store.audit([])
    await store.dispatch(replace(dispatch, epoch=now), [])
    await fleet.bus.publish(await command(fleet, store, turn_id))

    assert (await fleet.result(store, turn_id)).epoch == now
    assert fleet.noted == ["milk"]
