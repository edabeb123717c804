"""`toolwire edge list|ping|metrics|logs|drain|push|evolve`: the devices of a project, seen from its orchestrator."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from toolwire.assemble.project import ProjectFolder
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import AsJson, NoColor
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.json_output import plain
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean, duration
from toolwire.errors import BusUnavailable, SettingsError, ToolwireError
from toolwire.lazy import lazy_module

if TYPE_CHECKING:
    from toolwire.assemble import device_link, devices, stores
    from toolwire.assemble.device_link import DeviceLink
    from toolwire.edge.orchestrator import client as device_client
    from toolwire.edge.orchestrator import presence, skills
    from toolwire.record import rows
    from toolwire.wire.mqtt import commands
else:
    # Loaded where devices are asked: an agent on a device has the same commands, and little memory.
    device_link = lazy_module("toolwire.assemble.device_link")
    devices = lazy_module("toolwire.assemble.devices")
    stores = lazy_module("toolwire.assemble.stores")
    device_client = lazy_module("toolwire.edge.orchestrator.client")
    presence = lazy_module("toolwire.edge.orchestrator.presence")
    skills = lazy_module("toolwire.edge.orchestrator.skills")
    rows = lazy_module("toolwire.record.rows")
    commands = lazy_module("toolwire.wire.mqtt.commands")

T = TypeVar("T")

Device = Annotated[str, typer.Argument(metavar="NAME", help="The device.")]
Within = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for an answer.", min=0.1, max=600.0)
]
USUAL_S = 5.0
_LAST_DATE = 2.0**37
_LARGEST = 1e15


def list_devices(as_json: AsJson = False, no_color: NoColor = False) -> Exit:
    """List the devices that are known at the broker, whether each is there, and its tools."""
    place, screen = _stage(no_color)
    found = _with_devices(place, lambda link: link.nodes())
    if as_json:
        screen.json({"devices": found})
    elif not found:
        screen.say("No device is known at the broker. toolwire edge init sets one up, toolwire edge run starts it.")
    else:
        rows = [[one["name"], one["state"], one["load"], one["platform"], ", ".join(one["tools"])] for one in found]
        screen.table(("device", "state", "load", "platform", "tools"), [[clean(cell) for cell in row] for row in rows])
    return Exit.DONE


def ping(name: Device, timeout: Within = USUAL_S, as_json: AsJson = False, no_color: NoColor = False) -> Exit:
    """Ask a device whether it answers, and how fast. Ends with 1 if it does not."""
    place, screen = _stage(no_color)

    async def timed(link: "DeviceLink") -> float:
        began = asyncio.get_running_loop().time()
        await _ask(link, name, "ping", {}, timeout)
        return (asyncio.get_running_loop().time() - began) * 1000

    took_ms = _with_devices(place, timed)
    if as_json:
        screen.json({"device": name, "elapsed_ms": round(took_ms, 3)})
    else:
        screen.say(f"{name} answered in {duration(took_ms)}.")
    return Exit.DONE


def drain(
    name: Device,
    resume: Annotated[bool, typer.Option("--resume", help="Take calls again.")] = False,
    timeout: Within = USUAL_S,
    no_color: NoColor = False,
) -> Exit:
    """Have a device take no more calls; those that run may finish. With --resume it takes calls again."""
    place, screen = _stage(no_color)
    said = _with_devices(place, lambda link: _ask(link, name, "drain", {"resume": resume}, timeout))
    screen.say(f"{name} is {clean(str(said.get('result')))}.")
    return Exit.DONE


def metrics(name: Device, timeout: Within = USUAL_S, as_json: AsJson = False, no_color: NoColor = False) -> Exit:
    """Show what a device has counted: calls, errors by type and times of its tools, its load and its strategy."""
    place, screen = _stage(no_color)
    found = _with_devices(place, lambda link: _device_metrics(link, name, timeout))
    if as_json:
        screen.json({"device": name, **found})
        return Exit.DONE
    right = ("calls", "ok", "errors", "timeouts", "average")
    table = [[clean(cell) for cell in _count_cells(tool, one)] for tool, one in found["tools"].items()]
    if table:
        screen.table(("tool", *right, "last error"), [[*row] for row in table], right=right)
    else:
        screen.say(f"No tool has been called on {name} since its agent started.", "dim")
    load = _dict(found.get("load"))
    counted = ", ".join(f"{kind} {count}" for kind, count in found["errors_by_type"].items())
    running, queued, slots = (_number(load.get(key)) for key in ("running", "queued", "slots"))
    screen.pairs(
        {
            "errors": clean(counted) or "none",
            "load": f"{running:g} running, {queued:g} waiting, {slots:g} at most",
            "up": duration(_number(found.get("uptime_s")) * 1000),
        }
    )
    return Exit.DONE


def _count_cells(tool: str, counts: Any) -> list[str]:
    """The numbers of one tool, whatever a device says there."""
    said = _dict(counts)
    names = ("total_calls", "success_count", "error_count", "timeout_count")
    numbers = [f"{_number(said.get(name)):.0f}" for name in names]
    return [tool, *numbers, duration(_number(said.get("avg_latency_ms"))), str(said.get("last_error", ""))[:200]]


def logs(
    name: Device,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="The newest N rows.", min=1, max=500)] = 50,
    timeout: Within = USUAL_S,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Show what a device has done lately: its calls with how they ended, and the commands that it refused."""
    place, screen = _stage(no_color)
    said = _with_devices(place, lambda link: _ask(link, name, "logs", {"most": limit}, timeout)).get("result")
    found = [row for row in said if isinstance(row, dict)] if isinstance(said, list) else []
    if as_json:
        screen.json({"device": name, "rows": found})
    elif not found:
        screen.say(f"{name} has done nothing yet.", "dim")
    else:
        table = [[clean(cell) for cell in _log_cells(row)] for row in found]
        screen.table(("at", "what", "state", "took", "error"), [[*row] for row in table], right=("took",))
    return Exit.DONE


def _log_cells(row: dict[str, Any]) -> list[str]:
    took, at = row.get("elapsed_ms"), _number(row.get("at"))
    return [
        time.strftime("%m-%d %H:%M:%S", time.localtime(at)) if 0 < at < _LAST_DATE else "-",
        str(row.get("tool") or row.get("kind", "")),
        str(row.get("status") or row.get("state", "")),
        duration(_number(took)) if took is not None else "-",
        str(row.get("error", ""))[:200],
    ]


def push(
    skill: Annotated[Path, typer.Argument(metavar="SKILL", help="The folder of the skill.", exists=True)],
    to: Annotated[list[str], typer.Option("--to", metavar="NAME", help="A device; may be given again.")],
    allow_older: Annotated[
        bool, typer.Option("--allow-older", help="Also where the device has a newer version.")
    ] = False,
    timeout: Within = 30.0,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Install a skill on devices: signed, whole or not at all, and only where the device's own file accepts it.

    The version in its skill.toml must be higher than the one that the device has. Pushing it again is harmless.
    """
    place, screen = _stage(no_color)
    key = device_link.signing_key(place)
    if key is None:
        raise SettingsError("a skill must be signed: name the file with the key in edge.signing_key")

    async def send(link: "DeviceLink") -> list[dict[str, Any]]:
        installed = []
        for name in to:
            _require_there(link, name)
            head, body = await skills.push_skill(
                link.client, name, place.cwd / skill, key, allow_older=allow_older, within_s=timeout
            )
            installed.append({"device": name, "skill": head.skill, "version": head.version, "digest": head.digest})
            tools = ", ".join(map(str, body.get("tools", ()))) or "as before"
            screen.tell(clean(f"{name} has {head.skill} {head.version} now: {tools}."))
        return installed

    installed = _with_devices(place, send)
    if as_json:
        screen.json({"installed": installed})
    return Exit.DONE


def evolve(
    name: Device,
    strategy: Annotated[
        bool, typer.Option("--strategy", help="Send them as update_strategy in place of evolution.")
    ] = False,
    timeout: Within = 30.0,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Give a device's evolution engine the metrics of its tools, as the device and as this record has them.

    The device's file names the tool that receives them (hooks.evolution); it runs like every call on the device.
    """
    place, screen = _stage(no_color)

    async def feed(link: "DeviceLink") -> dict[str, Any]:
        own = await _record_metrics(place)
        payload = {"metrics": {"device": await _device_metrics(link, name, timeout), "orchestrator": own}}
        kind = "update_strategy" if strategy else "evolution"
        return await _ask(link, name, kind, payload, timeout)

    said = _with_devices(place, feed)
    if as_json:
        screen.json({"device": name, "said": said})
    else:
        screen.say(clean(str(said.get("result", ""))))
    return Exit.DONE


def _stage(no_color: bool) -> tuple[ProjectFolder, Screen]:
    place = current_project()
    if not place.uses_devices:
        raise SettingsError("no broker of devices is set: edge.url names it (toolwire edge init prints the settings)")
    return place, Screen.of(place.settings.output.color, no_color=no_color)


def _with_devices(place: ProjectFolder, use: "Callable[[DeviceLink], Awaitable[T]]") -> T:
    async def connected() -> T:
        async with AsyncExitStack() as closing:
            link = await devices.open_devices(place, None, closing)
            if not link.client.connected:
                problem = getattr(link.client.link, "problem", "")
                why = f": {problem}" if problem else "; is it running?"
                raise BusUnavailable(f"there is no connection to the broker at {place.settings.edge.url}{why}")
            await link.client.confirm_devices(presence.CONFIRM_S)
            return await use(link)

    return asyncio.run(connected())


def _require_there(link: "DeviceLink", name: str) -> None:
    """Raise SettingsError for a device that is not known, and BusUnavailable for one that would not answer."""
    states = {view.name: view.state for view in link.views()}
    if name not in states:
        there = f"there are {', '.join(sorted(states))}" if states else "there are none yet"
        raise SettingsError(f"no device {name[:80]!r} is known at the broker; {there}")
    device = link.registry.device(name)
    if device is not None and device.key_refusal(link.client.key_id):
        key = f"the key {link.client.key_id} of edge.signing_key" if link.client.key_id else "unsigned commands"
        look = "look whether keys.orchestrators in its file has that key, and edge.signing_key names it"
        raise BusUnavailable(f"{name} does not accept {key}; the broker says that it is {device.presence}, so {look}")
    if states[name] in ("offline", "unconfirmed"):
        raise BusUnavailable(f"{name} is offline; its agent is started with toolwire edge run, or by its service")


async def _ask(link: "DeviceLink", name: str, kind: str, payload: dict[str, Any], within_s: float) -> dict[str, Any]:
    """The body of a device's answer. Raises BusUnavailable where there is none, ToolwireError where it refuses."""
    _require_there(link, name)
    command = device_client.command_for(name, commands.CommandKind(kind), rows.new_id(), payload)
    report = await link.client.ask(command, within_s)
    if report is None:
        raise BusUnavailable(f"{name} did not answer within {within_s:g} s: {_silence(link, name)}")
    body = dict(report.body)
    if body.get("status") != "success":
        raise ToolwireError(f"{name}: {clean(str(body.get('error') or 'it gave no reason'))}")
    return body


def _silence(link: "DeviceLink", name: str) -> str:
    """Why a device may be silent. One that does not know who signed a command says nothing about it."""
    state = next((view.state for view in link.views() if view.name == name), "unknown")
    if state == "offline":
        return "it is offline"
    return f"it is {state}, so look whether keys.orchestrators in its file has the key of edge.signing_key"


async def _device_metrics(link: "DeviceLink", name: str, within_s: float) -> dict[str, Any]:
    result = (await _ask(link, name, "get_metrics", {}, within_s)).get("result")
    if not isinstance(result, dict) or not isinstance(result.get("tools"), dict):
        raise SettingsError(f"{name} gave no metrics that can be read")
    return {**result, "errors_by_type": _dict(result.get("errors_by_type"))}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float:
    """A number that can be shown; 0 for what is none, or is out of all bounds."""
    return float(value) if type(value) in (int, float) and abs(value) < _LARGEST else 0.0


async def _record_metrics(place: ProjectFolder) -> dict[str, Any]:
    if not place.store_exists:
        return {"tools": [], "loop": None}
    async with stores.store_of(place, only_reads=True) as store:
        tools, loop = await store.metrics(project=place.name)
    return {"tools": plain(tools), "loop": plain(loop)}


COMMANDS: dict[str, Callable[..., Exit]] = {
    "list": list_devices, "ping": ping, "metrics": metrics, "logs": logs, "drain": drain, "push": push,
    "evolve": evolve,
}  # fmt: skip
"""The commands of `toolwire edge` that speak to devices."""
