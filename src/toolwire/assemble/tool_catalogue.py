"""Keeps the record about a project's tools current for as long as a server runs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.specs import grant_of
from toolwire.assemble.tools import toolbox_of
from toolwire.breadcrumbs.catalogue import LOOK_S, keep_catalogue
from toolwire.breadcrumbs.service import RecordService
from toolwire.define.toolbox import Toolbox
from toolwire.protocol.agents import GrantedByUser
from toolwire.protocol.tools import Grant


@asynccontextmanager
async def kept_catalogue(
    project: ProjectFolder,
    open_records: Callable[[], AbstractAsyncContextManager[RecordService]],
    *,
    every_s: float = LOOK_S,
) -> AsyncIterator[None]:
    """Look at the tools of the project now and then, and have the record say what is there."""

    def look() -> tuple[Toolbox, Grant]:
        toolbox = toolbox_of(project)
        return toolbox, grant_of(project, GrantedByUser(), toolbox)

    keeping = asyncio.create_task(keep_catalogue(open_records, look, every_s=every_s), name="tool catalogue")
    try:
        yield
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
