"""`toolwire edge`: the agent on a device."""

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolwire.cli.commands import edge_fleet, edge_init
from toolwire.cli.entry.command import LOOK, CliCommand, Group
from toolwire.cli.entry.exits import Exit
from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module

if TYPE_CHECKING:
    from toolwire.assemble import edge_device
    from toolwire.edge.device import config as device_config
else:
    # Loaded where an agent runs: the MQTT client and a library for cryptography come with it.
    edge_device = lazy_module("toolwire.assemble.edge_device")
    device_config = lazy_module("toolwire.edge.device.config")

edge = typer.Typer(**LOOK, cls=Group, help="Run tools on devices, over MQTT.")


@edge.callback()
def _group() -> None:
    """Run tools on devices, over MQTT."""


edge.command("init", cls=CliCommand)(edge_init.init)
edge.command("sign", cls=CliCommand)(edge_init.sign)
edge.command("accept", cls=CliCommand)(edge_init.accept)
for _name, _command in edge_fleet.COMMANDS.items():
    edge.command(_name, cls=CliCommand)(_command)

# A text and not a path: what checks a path takes 8 MiB, and a device has few.
Config = Annotated[
    str, typer.Option("--config", metavar="FILE", help="What this device is and obeys; edge init writes it.")
]


@edge.command("run", cls=CliCommand)
def run(config: Config = "edge.toml") -> Exit:
    """Offer the tools of this device to orchestrators, and run what they ask for.

    Only signed commands of the orchestrators in the file are obeyed, and never beyond the capabilities that it grants.
    Each call runs once, however often its command comes; its report is kept until the broker has it. Ctrl-C or SIGTERM
    ends it: it takes no more calls, and those that run may finish.
    """
    try:
        asyncio.run(_run(device_config.read_config(Path(config))))
    except ImportError as missing:
        raise SettingsError(f"toolwire edge needs an extra: pip install 'toolwire[edge]' ({missing})") from None
    return Exit.DONE


async def _run(chosen: "device_config.DeviceConfig") -> None:
    where = f"{chosen.broker.host}:{chosen.broker.port}"

    def say_ready() -> None:
        typer.echo(f"{chosen.name} is online at {where}.", err=True)

    agent = edge_device.open_device(chosen, os.environ, say_ready)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, agent.stop)
    typer.echo(f"{chosen.name} connects to {where} …", err=True)
    await agent.run()
