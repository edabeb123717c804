"""What `toolwire doctor` says about sandboxes: which engines really work here, and what each does not give."""

import asyncio
import os
import platform
from collections.abc import Iterator

from msgspec import Struct

from toolwire.errors import ToolFailure
from toolwire.execute.egress.outward import PYTHON, way_out
from toolwire.execute.egress.proxy import BRIDGE_PORT
from toolwire.execute.sandbox import landlock
from toolwire.execute.sandbox.cgroups import Cgroups
from toolwire.execute.sandbox.contract import EngineReport
from toolwire.execute.sandbox.engines import cgroups, local_sandbox
from toolwire.execute.sandbox.examination import ProbeFinding, examine
from toolwire.execute.sandbox.git_notes import recover
from toolwire.execute.sandbox.name_watch import recover_names
from toolwire.execute.sandbox.probes import PROBES, QUICK, Probe
from toolwire.execute.sandbox.syscalls import known
from toolwire.protocol.engines import DEFAULT_ENGINE, ENGINES
from toolwire.protocol.operations import Command, ExecLimits

_NOT_ON_LINUX = "commands can be confined on Linux only"


class Line(Struct, frozen=True):
    """One line about sandboxes: `ok`, `warn`, `missing` or `unsafe`, what was found, and what to do.

    `more` has one sentence for each promise that is weaker here.
    """

    what: str
    state: str
    said: str
    advice: str = ""
    more: tuple[str, ...] = ()


class ExaminedEngine(Struct, frozen=True):
    """An engine with its answers to all probes; none where it cannot be used."""

    report: EngineReport
    findings: tuple[ProbeFinding, ...] = ()

    @property
    def not_given(self) -> tuple[str, ...]:
        return tuple(f"{one.probe.tries} ({one.probe.name})" for one in self.findings if not one.given)


def sandbox_lines() -> Iterator[Line]:
    """Engines by running something in each, and the limits that hold."""
    if platform.system() != "Linux":
        yield Line("sandbox", "missing", _NOT_ON_LINUX, "run toolwire in a Linux machine or container")
        return
    looked, network = asyncio.run(_look_quickly())
    yield _usual(next(each.report for each in looked if each.report.engine == DEFAULT_ENGINE))
    yield from map(engine_line, looked)
    yield network
    yield _kernel()
    yield _limits(cgroups())
    yield _user()
    yield left_behind_line()
    yield Line(
        "workspace",
        "warn",
        "has no size limit that the kernel holds; one command takes at most tools.disk_share of what is free",
        "set tools.workspace_bytes too, or put workspaces on a filesystem with a quota",
    )


def left_behind_line() -> Line:
    """What killed boxes have left for git and other programs; held back by looking."""
    found = [*recover(), *recover_names()]
    if not found:
        said = "no command that was killed has left anything that git or other programs would obey"
        return Line("left behind", "ok", said)
    more = tuple(f"{one.workspace}: {text}" for one in found for text in (*one.held, *one.failed))
    failed = any(one.failed for one in found)
    said = "commands that were killed have left what git or other programs would obey"
    advice = (
        "remove what could not be moved aside" if failed else "it was moved aside; look at it before you release it"
    )
    return Line("left behind", "unsafe" if failed else "warn", said, advice, more)


def examine_all() -> list[ExaminedEngine]:
    """Every engine, asked every probe. Takes a minute or two."""
    return asyncio.run(_examine(PROBES))


async def _examine(probes: tuple[Probe, ...]) -> list[ExaminedEngine]:
    return [await _examined(name, probes) for name in reversed(ENGINES)]


async def _look_quickly() -> tuple[list[ExaminedEngine], Line]:
    looked = await asyncio.gather(*(_examined(name, QUICK) for name in reversed(ENGINES) if name != "none"))
    bare = ExaminedEngine(await local_sandbox(floor="none", default="none").report("none"))
    found = [*looked, bare]
    return found, await _doors([each.report.engine for each in found if each.report.usable])


async def _examined(name: str, probes: tuple[Probe, ...]) -> ExaminedEngine:
    sandbox = local_sandbox(floor=name, default=name)
    report = await sandbox.report(name)
    answers = [one async for one in examine(sandbox, probes)] if report.usable else []
    return ExaminedEngine(report, tuple(answers))


def table(found: list[ExaminedEngine]) -> Iterator[tuple[str, str]]:
    """The examination as lines of text, each with the style it is shown in."""
    for each in found:
        report = each.report
        if not report.usable:
            yield f"{report.engine}: cannot be used here: {report.reason}", "dim"
            continue
        given = len(each.findings) - len(each.not_given)
        style = "bold red" if report.engine == "none" else "bold"
        yield f"{report.engine} {report.version}: gives {given} of {len(PROBES)}", style
        yield from ((f"  not given: {sentence}", "yellow") for sentence in each.not_given)
        yield from ((f"  weaker here: {sentence}", "yellow") for sentence in report.weaker)


def _usual(report: EngineReport) -> Line:
    if report.usable:
        return Line(
            "sandbox",
            "ok",
            f"commands run in {DEFAULT_ENGINE}; `toolwire doctor --sandbox` shows what each engine gives",
        )
    refused = f"{DEFAULT_ENGINE} cannot be used, so commands are refused (sandbox_unavailable): {report.reason}"
    return Line("sandbox", "warn", refused, "on Debian: apt install bubblewrap")


def engine_line(each: ExaminedEngine) -> Line:
    """An engine by what came of trying it."""
    report, what = each.report, f"sandbox {each.report.engine}"
    if not report.usable:
        return Line(what, "missing", report.reason, "needed only where a policy or a tool asks for it")
    if report.engine == "none":
        advice = "choose it only for commands that you would run yourself"
        return Line(what, "unsafe", "no walls at all", advice, report.weaker)
    if each.not_given:
        said = f"{report.version} did not hold: {', '.join(each.not_given)}"
        return Line(what, "unsafe", said, "run nothing in it that you would not run yourself", report.weaker)
    held = f"{report.version} held against all {len(each.findings)} quick probes"
    if report.weaker:
        return Line(what, "warn", f"{held}; weaker:", "prefer another engine where this matters", report.weaker)
    return Line(what, "ok", held)


async def _doors(usable: list[str]) -> Line:
    """In which engines a command can have a way to granted hosts, by asking the proxy of one for a host that is not."""
    answers = await asyncio.gather(*map(_has_door, usable))
    has = [name for name, opened in zip(usable, answers, strict=True) if opened]
    if DEFAULT_ENGINE not in has:
        said = f"commands in {DEFAULT_ENGINE} get no way to granted hosts"
        return Line("network", "warn", said, "on Debian: apt install python3-minimal")
    without = ", ".join(name for name in usable if name not in has)
    refused = f"; where hosts are granted, the engine {without} refuses to run" if without else ""
    return Line("network", "ok", f"none but one proxy to granted hosts, in {', '.join(has)}{refused}")


_KNOCK = """
import socket
proxy = socket.create_connection(("127.0.0.1", {port}), 5)
proxy.sendall(b"GET http://other.example/ HTTP/1.1\\r\\nhost: other.example\\r\\n\\r\\n")
print(proxy.recv(100))
"""


async def _has_door(engine: str) -> bool:
    knock = Command((PYTHON, "-I", "-S", "-c", _KNOCK.format(port=BRIDGE_PORT)), limits=ExecLimits(10))
    try:
        async with way_out(knock, ("granted.example",)) as ready:
            ran = await local_sandbox(floor=engine, default=engine).run(ready)
    except (ToolFailure, OSError):
        return False
    return "403" in ran.stdout.text


def _kernel() -> Line:
    machine, abi = platform.machine(), landlock.abi()
    said = f"{platform.release()}, landlock {f'version {abi}' if abi else 'missing'}, seccomp for {machine}"
    if not known(machine):
        return Line("kernel", "warn", f"no system call filter is known for {machine}", "commands are refused here")
    return (
        Line("kernel", "ok", said) if abi else Line("kernel", "warn", said, "use a kernel with landlock, 5.13 or newer")
    )


def _limits(found: Cgroups) -> Line:
    names = {"memory": "memory", "pids": "processes", "cpu": "cores", "kill": "end of the whole tree"}
    holds = [text for name, text in names.items() if name in found.holds]
    lacks = [text for name, text in names.items() if name not in found.holds]
    if not lacks:
        return Line("limits", "ok", f"held by cgroups ({found.versions}) for the whole tree: {', '.join(holds)}")
    held = f"; held: {', '.join(holds)}" if holds else ""
    said = f"not held by cgroups ({found.versions}), but for each process or not at all: {', '.join(lacks)}{held}"
    return Line(
        "limits", "warn", said, "run as root, or let your session delegate cgroups (systemd-run --user -p Delegate=yes)"
    )


def _user() -> Line:
    if os.geteuid() == 0:
        return Line("box user", "ok", "root is dropped to an ordinary user before a box is opened")
    return Line("box user", "ok", f"boxes run as you (uid {os.geteuid()}), in a user namespace")
