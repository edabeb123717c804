"""Tools on devices among those of a project. What connects to their broker is loaded where the settings name one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolwire.assemble.project import ProjectFolder
from toolwire.define.toolbox import Toolbox
from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.protocol.tools import Edge, Tool
from toolwire.record.contract import Store

if TYPE_CHECKING:
    from toolwire import agent
    from toolwire.assemble import device_link
    from toolwire.assemble.device_link import DeviceLink
    from toolwire.edge.orchestrator import offered
else:
    # The agent comes with the whole hub, which the process on a device does without.
    agent = lazy_module("toolwire.agent")
    device_link = lazy_module("toolwire.assemble.device_link")
    offered = lazy_module("toolwire.edge.orchestrator.offered")

RefreshTools = Callable[[Toolbox], Toolbox | None]


async def open_devices(project: ProjectFolder, store: Store | None, closing: AsyncExitStack) -> "DeviceLink":
    """The link to the devices of a project, held until the end; their tools are known then. Raises SettingsError."""
    try:
        link = await closing.enter_async_context(device_link.device_link(project, store))
    except ImportError as missing:
        raise SettingsError(f"devices need an extra: pip install 'toolwire[edge]' ({missing})") from None
    project.known_devices[:] = [tuple(link.devices())]
    return link


@asynccontextmanager
async def holding_devices(project: ProjectFolder, store: Store) -> AsyncIterator[None]:
    """Within the block this process stays connected to its devices, if it has any."""
    async with AsyncExitStack() as closing:
        if project.uses_devices:
            await open_devices(project, store, closing)
        yield


def device_tools(project: ProjectFolder, taken: Collection[str]) -> tuple[Tool, ...]:
    """The tools of its devices, none of which has a name that is taken. Asks the broker where that was not done yet."""
    if not project.uses_devices or project.settings.edge.offer == "agents":
        return ()
    if not project.known_devices and not _in_loop():
        agent.run_sync(_ask_broker(project))
    return tools_of_known_devices(project, taken)


def tools_of_known_devices(project: ProjectFolder, taken: Collection[str]) -> tuple[Tool, ...]:
    """The same of devices that were heard of before, also where only their agents have them."""
    return offered.offered_tools(project.known_devices[0], taken) if project.known_devices else ()


def refreshing(project: ProjectFolder, link: "DeviceLink", skill_news: RefreshTools | None) -> RefreshTools:
    """Gives the tools as they are now, between turns: those of skills, and of devices that have come or changed."""
    seen = link.registry.version

    def refresh(toolbox: Toolbox) -> Toolbox | None:
        nonlocal seen
        news = skill_news(toolbox) if skill_news is not None else None
        if link.registry.version == seen:
            return news
        seen = link.registry.version
        project.known_devices[:] = [tuple(link.devices())]
        own = [tool for tool in news or toolbox if not isinstance(tool.target, Edge)]
        chosen = project.settings.tools
        found = [
            tool
            for tool in device_tools(project, [tool.name for tool in own])
            if tool.name not in chosen.exclude and (not chosen.include or tool.name in chosen.include)
        ]
        return Toolbox(*own, *found)

    return refresh


def is_device(project: ProjectFolder, name: str) -> bool:
    """Whether an agent of this name is on a device."""
    return any(one.id == name for one in (project.known_devices[0] if project.known_devices else ()))


def pinned_toolbox(project: ProjectFolder, device_id: str, own: Toolbox) -> Toolbox:
    """The tools of one device, under the names that they have beside a project's `own` tools, for that device alone."""
    device = next(one for one in project.known_devices[0] if one.id == device_id)
    taken = [tool.name for tool in own if not isinstance(tool.target, Edge)]
    found = []
    for tool in tools_of_known_devices(project, taken):
        target = tool.target
        if isinstance(target, Edge) and target.device in ("", device_id) and device.has(target.tool):
            schema = offered.tool_of(device, target.tool).input_schema
            found.append(replace(tool, target=Edge(device_id, target.tool), input_schema=schema))
    return Toolbox(*found)


async def _ask_broker(project: ProjectFolder) -> None:
    async with AsyncExitStack() as closing:
        await open_devices(project, None, closing)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
