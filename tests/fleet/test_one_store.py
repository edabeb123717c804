"""A runner, a relay and a worker of one process that share its store: what each holds is its own all the same."""

import asyncio
from typing import Any

from tests.fleet.conftest import Fleet
from toolwire import Effect, Tier, tool
from toolwire.testing import call, says


class _Watched:
    """A store that releases turns only once a call of theirs has begun, and counts how often a relay looked."""

    def __init__(self, store: Any, begun: asyncio.Event) -> None:
        self._store = store
        self._begun = begun
        self.looked = 0
        self.is_released = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def release(self, turn: Any) -> None:
        await self._begun.wait()
        await self._store.release(turn)
        self.is_released = True

    async def take_due(self, *args: Any, **more: Any) -> Any:
        self.looked += self.is_released
        return await self._store.take_due(*args, **more)


async def test_a_call_that_was_claimed_before_its_turn_was_released_is_not_given_up(fleet: Fleet) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @tool(effect=Effect.UNSAFE, tier=Tier.WALK)
    async def note() -> str:
        """Write words down."""
        begun.set()
        await may_end.wait()
        return "noted"

    store: Any = _Watched(await fleet.store(), begun)
    await fleet.worker([note], store=store)
    await fleet.relay(store=store, pause=lambda _: 0.0)
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], says("", call("note"))))

    async def has_looked_again() -> bool:
        return bool(store.looked > 3)

    await fleet.until(has_looked_again)
    may_end.set()
    ended = await fleet.result(store, turn_id)

    assert ended.result is not None
    assert ended.result.text == "noted", ended.result
