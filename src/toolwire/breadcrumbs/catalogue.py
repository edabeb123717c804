"""Keeps the `tool.catalog.v1` record of a project current: which tools are there, and which of them can be called.

There is one record for a project, whichever processes keep it. It gets a new version when tools come, go or change,
and otherwise only once in a while, so that `lastSeen` tells how fresh it is.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import RUNTIME
from toolwire.breadcrumbs.rules.catalogue import (
    HINTS,
    TOOL_CATALOG,
    catalogue_context,
    differs,
    oldest_sight,
)
from toolwire.breadcrumbs.service import RecordService
from toolwire.disclose.compact import compact_catalogue
from toolwire.disclose.offer import visible_tools
from toolwire.errors import Conflict, ToolwireError
from toolwire.protocol.breadcrumbs import Record, RecordQuery
from toolwire.protocol.tools import Grant, Tool

LOOK_S = 30.0
"""How often a process looks whether its tools have changed."""
SEEN_S = 15 * 60.0
"""How old `lastSeen` of a tool that is there may become."""
COMPACT_TOKENS = 4000
_ATTEMPTS = 5

_log = logging.getLogger(__name__)


class ToolCatalogue:
    """The record about the tools of a project."""

    def __init__(
        self, records: RecordService, *, clock: Callable[[], float] = time.time, seen_s: float = SEEN_S
    ) -> None:
        self._records = records
        self._clock = clock
        self._seen_s = seen_s

    async def refresh(self, tools: Iterable[Tool], grant: Grant) -> Record:
        """Have the record say what is there now. A tool is active if the grant covers it. Gives back the record."""
        listed = tuple(tools)
        for _ in range(_ATTEMPTS):
            try:
                return await self._refreshed(listed, grant)
            except Conflict:  # another process was faster; what it wrote is read first
                continue
        raise Conflict("the catalogue of tools was changed by other processes all the time")

    async def _refreshed(self, tools: tuple[Tool, ...], grant: Grant) -> Record:
        query = RecordQuery(schema_name=TOOL_CATALOG)
        found = await self._records.listed(query, RUNTIME, limit=1)
        before = found[0].value if found else None
        active = visible_tools(tools, grant)
        now = self._clock()
        context = catalogue_context(
            active,
            tools,
            before.context if before else {},
            now=now,
            at=datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
            workspace=self._records.project,
            compact=compact_catalogue(active, budget=COMPACT_TOKENS, grouped=True),
        )
        if before is None:
            new = NewRecord(TOOL_CATALOG, "Tools", ("tool:catalog",), context, HINTS)
            return await self._records.create(new, RUNTIME, key=TOOL_CATALOG)  # the key is taken by the first process
        if not differs(before.context, context) and now - oldest_sight(before.context) < self._seen_s:
            return before
        return await self._records.patch(before.id, {"context": context}, before.version, RUNTIME)


async def keep_catalogue(
    open_records: Callable[[], AbstractAsyncContextManager[RecordService]],
    look: Callable[[], tuple[Iterable[Tool], Grant]],
    *,
    every_s: float = LOOK_S,
) -> None:
    """Refresh the record until canceled. `look` gives the tools that are there now, and what the project may do."""
    failures = 0
    while True:
        try:
            tools, grant = await asyncio.to_thread(look)
            async with open_records() as records:
                await ToolCatalogue(records).refresh(tools, grant)
            failures = 0
        except ToolwireError as wrong:  # a setting that is wrong for a moment, a store that is away
            failures += 1
            _log.warning("the catalogue of tools could not be refreshed: %s", wrong)
        await asyncio.sleep(min(every_s, 2.0 ** min(failures, 10)) if failures else every_s)
