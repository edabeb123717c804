"""Which device a call was given to, on record before it is sent: sent again, it must not go to another one."""

import time
from collections.abc import Callable
from typing import Protocol

from toolwire.define.canonical import digest
from toolwire.errors import Conflict
from toolwire.protocol.context import Context
from toolwire.protocol.registrations import ResultCard
from toolwire.record.contract import Store

PLACE_ID = "device:"
"""How the ids of such notes begin; no card of a service may be called so."""

_NO_SERVICE = ""


class Placements(Protocol):
    """Keeps the choice of a device."""

    async def keep(self, context: Context, device_id: str) -> str:
        """Note that a call goes to a device; gives the device that was noted first."""
        ...


class StoredPlacements:
    """Keeps it in the store, beside the call."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    async def keep(self, context: Context, device_id: str) -> str:
        card_id = f"{PLACE_ID}{context.turn_id}:{context.call_id}"
        body = device_id.encode()
        card = ResultCard(
            context.project, card_id, context.turn_id, context.call_id, digest(device_id), body, _NO_SERVICE,
            self._clock(),
        )  # fmt: skip
        try:
            return (await self._store.keep_card(card)).body.decode()
        except Conflict:
            return (await self._store.result_card(card_id, project=context.project)).body.decode()
