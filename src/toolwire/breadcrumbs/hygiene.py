"""Drops records whose time is over, in batches, so that those who follow changes hear of it soon."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from toolwire.errors import ToolwireError
from toolwire.protocol.breadcrumbs import Record

EVERY_S = 30.0
BATCH = 200
_LONGEST_PAUSE_S = 600.0
_log = logging.getLogger("toolwire.records")


class ExpiringStore(Protocol):
    """What hygiene needs of a store."""

    async def expire_records(self, *, limit: int = 1000, project: str = "default") -> Sequence[Record]: ...


async def expire_once(store: ExpiringStore, project: str, *, batch: int = BATCH) -> int:
    """Drop all records of a project whose time is over; how many there were. Others get a turn between batches."""
    count = 0
    while dropped := await store.expire_records(limit=batch, project=project):
        count += len(dropped)
        if len(dropped) < batch:
            break
        await asyncio.sleep(0)
    if count:
        _log.info("%d records of project %s have expired", count, project)
    return count


async def expire_forever(store: ExpiringStore, project: str, *, every_s: float = EVERY_S) -> None:
    """Do so until canceled. A store that is away is tried again after a pause, which grows."""
    pause_s = every_s
    while True:
        try:
            await expire_once(store, project)
            pause_s = every_s
        except ToolwireError as error:
            _log.warning("expired records cannot be dropped: %s", error)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        await asyncio.sleep(pause_s)
