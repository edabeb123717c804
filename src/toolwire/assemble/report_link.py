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
from toolwire.assemble.served_projects import PROJECT_MARK
from toolwire.errors import BusError, SettingsError
from toolwire.fleet.reports import ReportReceiver
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Tool
from toolwire.record.contract import Store
from toolwire.record.projects import of_project
from toolwire.task_groups import TaskGroup

RETRY_S = 2.0
_ALL_REPORTS = "all-reports"
"""The durable name of those who receive the reports of all projects; no project's is called so."""


_log = logging.getLogger(__name__)


@asynccontextmanager
async def received_reports(project: ProjectFolder, store: Store, of_projects: Iterable[str]) -> AsyncIterator[None]:
    """Within the block the reports of these projects (`*`: of all) are received.

    A broker that is away is tried again and again.
    """
    receiving = asyncio.create_task(_receive(project, store, sorted(set(of_projects))), name="toolwire-reports")
    try:
        yield
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)


async def _receive(project: ProjectFolder, store: Store, of_projects: list[str]) -> None:
    async with TaskGroup() as tasks:
        for names in _by_login(project, of_projects):
            tasks.create_task(_receive_of(project, store, names), name="toolwire-reports")


def _by_login(project: ProjectFolder, of_projects: list[str]) -> list[list[str]]:
    """The projects that are reached with the same key."""
    if PROJECT_MARK in (project.settings.bus.credentials or ""):
        return [[name] for name in of_projects]
    return [of_projects]


async def _receive_of(project: ProjectFolder, store: Store, names: list[str]) -> None:
    said = ""
    while True:
        try:
            folder = replace(project, name=names[0])
            async with open_bus(folder, name="toolwire reports") as bus, TaskGroup() as tasks:
                said = ""
                for name in names:
                    receiver = ReportReceiver(
                        store,
                        bus,
                        durable=_ALL_REPORTS if name == "*" else f"reports-{name}",
                        project=name,
                        find_tool=partial(find_tool, project, store),
                    )
                    tasks.create_task(receiver.run(), name=f"toolwire-reports-{name}")
        except BusError as error:
            said = _warn_once(error, said)
        except BaseExceptionGroup as errors:
            if errors.split(BusError)[1] is not None:
                raise
            said = _warn_once(errors.exceptions[0], said)
        await asyncio.sleep(RETRY_S)


def _warn_once(error: BaseException, said: str) -> str:
    """Not at every attempt."""
    if str(error) != said:
        _log.warning("reports of services are not received: %s", error)
    return str(error)


async def find_tool(project: ProjectFolder, store: Store, name: str, card: CallCard) -> Tool | None:
    """The registered tool that a card is about: of the store, or of a file that the settings of this project name."""
    try:
        found = await registry_of(replace(project, name=name), of_project(store, name))
    except SettingsError as wrong:  # what is wrong about some row must not cost the results of all the others
        _log.warning("the registered tools of project %s cannot be read: %s", name, wrong)
        return None
    sought = (card.call.name, card.tool_version)
    return next((one.tool for one in found.rows if (one.tool.name, one.tool.version) == sought), None)
