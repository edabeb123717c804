"""What `toolwire doctor` says about sandboxes: which engines really work here, and what each does not give."""

import asyncio
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass

from toolwire.execute.sandbox import landlock
from toolwire.execute.sandbox.cgroups import Cgroups
from toolwire.execute.sandbox.contract import Report
from toolwire.execute.sandbox.engines import cgroups, engines, local_sandbox
from toolwire.execute.sandbox.examination import Finding, examined
from toolwire.execute.sandbox.ops import DEFAULT, STRENGTH
from toolwire.execute.sandbox.probes import PROBES
from toolwire.execute.sandbox.syscalls import known

_NOT_ON_LINUX = "commands can be confined on Linux only"


@dataclass(frozen=True, slots=True)
class Line:
    """One line about sandboxes: `ok`, `warn`, `missing` or `unsafe`, what was found, and what to do."""

    what: str
    state: str
    said: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Examined:
    """An engine with its answers to all probes; none where it cannot be used."""

    report: Report
    findings: tuple[Finding, ...] = ()

    @property
    def not_given(self) -> tuple[str, ...]:
        return tuple(f"{one.probe.tries} ({one.probe.name})" for one in self.findings if not one.given)


def sandbox_lines() -> Iterator[Line]:
    """Engines by running something in each, and the limits that hold."""
    if platform.system() != "Linux":
        yield Line("sandbox", "missing", _NOT_ON_LINUX, "run toolwire in a Linux machine or container")
        return
    reports = [engines()[name].probe() for name in reversed(STRENGTH)]
    yield _usual({report.engine: report for report in reports}[DEFAULT])
    yield from map(_engine, reports)
    yield _kernel()
    yield _limits(cgroups())
    yield _user()
    yield Line(
        "workspace",
        "warn",
        "has no size limit of its own",
        "put workspaces on a filesystem with a quota where it matters",
    )


def examine_all() -> list[Examined]:
    """Every engine, asked every probe. Takes a minute or two."""
    return asyncio.run(_examine_all())


async def _examine_all() -> list[Examined]:
    found = []
    for name in reversed(STRENGTH):
        sandbox = local_sandbox(floor=name, default=name)
        report = await sandbox.report(name)
        answers = [one async for one in examined(sandbox)] if report.usable else []
        found.append(Examined(report, tuple(answers)))
    return found


def table(found: list[Examined]) -> Iterator[tuple[str, str]]:
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


def _usual(report: Report) -> Line:
    if report.usable:
        return Line(
            "sandbox", "ok", f"commands run in {DEFAULT}; `toolwire doctor --sandbox` shows what each engine gives"
        )
    refused = f"{DEFAULT} cannot be used, so commands are refused (sandbox_unavailable): {report.reason}"
    return Line("sandbox", "warn", refused, "on Debian: apt install bubblewrap")


def _engine(report: Report) -> Line:
    what = f"sandbox {report.engine}"
    if not report.usable:
        return Line(what, "missing", report.reason, "needed only where a policy or a tool asks for it")
    if report.engine == "none":
        return Line(what, "unsafe", "no walls at all", "choose it only for commands that you would run yourself")
    weaker = f"; weaker: {'; '.join(report.weaker)}" if report.weaker else ""
    advice = "prefer another engine where this matters" if weaker else ""
    return Line(what, "warn" if weaker else "ok", f"{report.version} ran a command{weaker}", advice)


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
        return Line("limits", "ok", f"held by cgroups for the whole tree: {', '.join(holds)}")
    said = f"not held by cgroups: {', '.join(lacks)}" + (f"; held: {', '.join(holds)}" if holds else "")
    return Line(
        "limits", "warn", said, "run as root, or let your session delegate cgroups (systemd-run --user -p Delegate=yes)"
    )


def _user() -> Line:
    if os.geteuid() == 0:
        return Line("box user", "ok", "root is dropped to an ordinary user before a box is opened")
    return Line("box user", "ok", f"boxes run as you (uid {os.geteuid()}), in a user namespace")
