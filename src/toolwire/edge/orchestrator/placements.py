"""Which device a call was given to, on record before it is sent: sent again, it must not go to another one.

And until when a call waits for its device: a process that takes its turn up again waits no longer.
"""

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
_END = ":until"


class Placements(Protocol):
    """Keeps the choice of a device."""

    async def keep(self, context: Context, device_id: str) -> str:
        """Note that a call goes to a device; gives the device that was noted first."""
        ...

    async def keep_end(self, context: Context, end: float) -> float:
        """Note until when a call waits for its device; gives the time that was noted first."""
        ...


class StoredPlacements:
    """Keeps it in the store, beside the call."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    async def keep(self, context: Context, device_id: str) -> str:
        return await self._keep_first(context, "", device_id)

    async def keep_end(self, context: Context, end: float) -> float:
        return float(await self._keep_first(context, _END, repr(end)))

    async def _keep_first(self, context: Context, kind: str, text: str) -> str:
        card_id = f"{PLACE_ID}{context.turn_id}:{context.call_id}{kind}"
        body = text.encode()
        card = ResultCard(
            context.project, card_id, context.turn_id, context.call_id, digest(text), body, _NO_SERVICE,
            self._clock(),
        )  # fmt: skip
        try:
            return (await self._store.keep_card(card)).body.decode()
        except Conflict:
            return (await self._store.result_card(card_id, project=context.project)).body.decode()
