"""Takes the reports of services from the bus, for as long as a process that serves their cards runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from toolwire.assemble.buses import open_bus
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.registry import registry_of
from toolwire.errors import BusError, SettingsError
from toolwire.fleet.reports import ReportReceiver
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Tool
from toolwire.record.contract import Store
from toolwire.record.projects import of_project

RETRY_S = 2.0

_log = logging.getLogger(__name__)


@asynccontextmanager
async def received_reports(project: ProjectFolder, store: Store, of_projects: Iterable[str]) -> AsyncIterator[None]:
    """Within the block the reports of these projects are received. A broker that is away is tried again and again."""
    receiving = asyncio.create_task(_receive(project, store, sorted(set(of_projects))), name="toolwire-reports")
    try:
        yield
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)


async def _receive(project: ProjectFolder, store: Store, of_projects: list[str]) -> None:
    while True:
        try:
            async with open_bus(project, name="toolwire serve") as bus, asyncio.TaskGroup() as tasks:
                for name in of_projects:
                    receiver = ReportReceiver(
                        store,
                        bus,
                        durable=f"reports-{name}",
                        project=name,
                        find_tool=partial(find_tool, project, store),
                    )
                    tasks.create_task(receiver.run(), name=f"toolwire-reports-{name}")
        except BusError as error:
            _log.warning("reports of services are not received: %s", error)
        except BaseExceptionGroup as errors:
            if errors.split(BusError)[1] is not None:
                raise
            _log.warning("reports of services are not received: %s", errors.exceptions[0])
        await asyncio.sleep(RETRY_S)


async def find_tool(project: ProjectFolder, store: Store, name: str, card: CallCard) -> Tool | None:
    """The registered tool that a card is about: of the store, or of a file that the settings of this project name."""
    try:
        found = await registry_of(replace(project, name=name), of_project(store, name))
    except SettingsError as wrong:  # what is wrong about some row must not cost the results of all the others
        _log.warning("the registered tools of project %s cannot be read: %s", name, wrong)
        return None
    sought = (card.call.name, card.tool_version)
    return next((one.tool for one in found.rows if (one.tool.name, one.tool.version) == sought), None)
