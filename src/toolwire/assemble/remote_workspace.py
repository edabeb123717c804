"""A workspace on another machine: file tools and commands go there over SSH, as `workspace.remote` says.

Files go over the `ssh` program, which knows the user's own keys and hosts; commands over a connection that is opened
when the first of them runs, and closed with the tools. The record, plans and pages stay on this machine.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.protocol.operations import Command, ExecOps, Listener, Ran
from toolwire.settings import RemoteFolder, Settings
from toolwire.toolbox.registry import ToolDependencies

if TYPE_CHECKING:
    from toolwire.execute import ssh
    from toolwire.toolbox.remote_files import client, transports
else:
    ssh = lazy_module("toolwire.execute.ssh")
    client = lazy_module("toolwire.toolbox.remote_files.client")
    transports = lazy_module("toolwire.toolbox.remote_files.transports")


class RemoteCommands:
    """Runs commands on another machine over one connection, opened when the first of them runs."""

    def __init__(
        self, connect: Callable[[], AbstractAsyncContextManager[ExecOps]], closing: AsyncExitStack | None
    ) -> None:
        self._connect = connect
        self._closing = closing
        self._opening = asyncio.Lock()
        self._ops: ExecOps | None = None

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        if self._closing is None:
            async with self._connect() as ops:
                return await ops.run(command, listener)
        async with self._opening:
            if self._ops is None:
                self._ops = await self._closing.enter_async_context(self._connect())
        return await self._ops.run(command, listener)


def on_remote(settings: Settings, given: ToolDependencies) -> ToolDependencies:
    """What tools are made from, on the machine of `workspace.remote`; the same where none is set.

    Raises SettingsError for settings that cannot hold on another machine.
    """
    if (folder := settings.remote()) is None:
        return given
    chosen = settings.workspace
    for key, is_set in (("tools.workspace_bytes", given.most_bytes is not None), ("tools.readable", given.readable)):
        if is_set:
            raise SettingsError(f"{key} is about this machine, and workspace.remote works on another; leave one out")
    send = transports.ProcessTransport(
        transports.ssh(folder.user_and_host, folder.path, python=chosen.python, options=_options(settings, folder))
    )
    if given.closing is not None:
        given.closing.callback(send.close)
    commands = RemoteCommands(lambda: _connect(settings, folder), given.closing)
    return replace(given, files=client.RemoteFiles(send), commands=commands)


def _options(settings: Settings, folder: RemoteFolder) -> tuple[str, ...]:
    chosen = settings.workspace
    return (
        *("-o", "StrictHostKeyChecking=yes"),  # as for commands: a machine that is not known is never spoken to
        *(("-p", str(folder.port)) if folder.port else ()),
        *(("-i", chosen.identity, "-o", "IdentitiesOnly=yes") if chosen.identity else ()),
        *(("-o", f"UserKnownHostsFile={chosen.known_hosts}") if chosen.known_hosts else ()),
    )


def _connect(settings: Settings, folder: RemoteFolder) -> AbstractAsyncContextManager[ExecOps]:
    chosen = settings.workspace
    try:
        connect = ssh.ssh_exec
    except ModuleNotFoundError as missing:
        raise SettingsError(
            f"commands on another machine need an extra: pip install 'toolwire[ssh]' ({missing})"
        ) from None
    return connect(
        folder.host,
        folder.path,
        port=folder.port or 22,
        username=folder.user or None,
        client_keys=(chosen.identity,) if chosen.identity else (),
        known_hosts=chosen.known_hosts,
        python=chosen.python,
    )
