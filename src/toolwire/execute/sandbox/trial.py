"""Whether an engine really works here: by running a command in it."""

import os
import subprocess

from toolwire.errors import ToolFailure
from toolwire.execute.sandbox.contract import Engine, EngineReport
from toolwire.execute.sandbox.plan import PERL
from toolwire.execute.sandbox.starter import STARTER
from toolwire.protocol.operations import Command

_WITHIN_S = 20.0


def examine_engine(engine: Engine, program: str | None = None, missing: str = "") -> EngineReport:
    """Whether an engine can be used here, by running a command in it. One that needs no program names none."""
    if program == "":
        return EngineReport(engine.name, usable=False, reason=missing)
    if not os.access(PERL, os.X_OK):
        return EngineReport(
            engine.name, usable=False, reason=f"{PERL} is not installed (Debian: apt install perl-base)"
        )
    reason = trouble(engine)
    return EngineReport(
        engine.name, not reason, version(program, "--version") if program else "", reason, engine.weaker
    )


def trouble(engine: Engine) -> str:
    """Why nothing can be run in an engine; empty when it can."""
    try:
        box = STARTER.do(lambda: engine.launch(Command(("/bin/true",)))).result(_WITHIN_S)
    except (ToolFailure, OSError) as error:
        return str(error)
    try:
        code = box.process.wait(_WITHIN_S)
        status, said = _read(box.status), _read(box.stderr)
    except subprocess.TimeoutExpired:
        return f"it did not finish within {_WITHIN_S:g} s"
    finally:
        box.close()
    if code == 0 and status.count("ready") == box.stages:
        return ""
    return (status.replace("ready", "") + said).strip()[:500] or f"it ended with {code}"


def _read(descriptor: int) -> str:
    try:
        return os.read(descriptor, 4096).decode("utf-8", "replace")
    except BlockingIOError:
        return ""


def version(*argv: str) -> str:
    """What a program says its version is: the last word of its first line."""
    said = subprocess.run(argv, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, check=False).stdout  # noqa: S603 - our own words
    return said.strip().splitlines()[0].rpartition(" ")[2] if said.strip() else ""
