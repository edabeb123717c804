"""What it costs to begin: an import in a fresh interpreter, and the first words of the command line."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMPORTS = {
    "interpreter": "pass",
    "toolwire": "import toolwire",
    "toolwire_agent": "from toolwire import Agent, tool",
    "smolagents": "import smolagents",
    "pydantic-ai": "import pydantic_ai",
    "openai-agents": "import agents",
    "langchain": "from langchain.agents import create_agent",
    "langgraph": "from langgraph.prebuilt import create_react_agent",
}
REPORT = """
import os, time
cpu_ms = time.process_time() * 1000
with open("/proc/self/statm") as pages:
    print(cpu_ms, int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20)
"""

_warm: set[tuple[str, ...]] = set()


def import_figures(python: str, name: str) -> dict[str, float]:
    """CPU time and memory of an interpreter that did nothing but this import."""
    command = [python, "-W", "ignore", "-c", IMPORTS[name] + REPORT]
    _warm_up(command)
    cpu_ms, rss_mib = map(float, _run(command).stdout.split()[-2:])
    return {"import_ms": cpu_ms, "rss_mib": rss_mib}


def help_ms() -> float:
    """Wall time of `toolwire --help`, as a user would start it."""
    command = [str(_command()), "--help"]
    _warm_up(command)
    began = time.perf_counter()
    _run(command)
    return (time.perf_counter() - began) * 1000


CALLS = {
    "calculator": ["call", "calculator", "expression=1+1"],
    "read": ["call", "read", "path=README.md", "--tools", "coding"],
    "bash": ["call", "bash", "command=ls", "--tools", "shell", "--tier", "run", "--allow", "shell", "-y"],
}


def call_figures(name: str) -> dict[str, float]:
    """Processor time of one `toolwire call`, with everything that it starts, in a folder of its own."""
    return {f"call_{name}_ms": _cpu_ms([str(_command()), *CALLS[name]])}


def no_call_figures() -> dict[str, float]:
    """The same of an interpreter that does nothing."""
    cpu_ms = _cpu_ms([sys.executable, "-c", "pass"])
    return {f"call_{name}_ms": cpu_ms for name in CALLS}


def _cpu_ms(command: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "README.md").write_text("A project.\n")
        _warm_up(command)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _run(command, folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def nothing_ms() -> float:
    """Wall time of an interpreter that does nothing."""
    began = time.perf_counter()
    _run([sys.executable, "-c", "pass"])
    return (time.perf_counter() - began) * 1000


def _warm_up(command: list[str]) -> None:
    """Run a command once before it is measured: the first run after a change compiles what it loads.

    It is done in a folder of its own, so that what is measured finds nothing of it. Once for each command: later runs
    would change nothing.
    """
    if tuple(command) not in _warm:
        _warm.add(tuple(command))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "README.md").write_text("A project.\n")
            _run(command, folder)


def _run(command: list[str], folder: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command as users do: what it compiles is kept, whatever the environment of the benchmark says."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True, timeout=120)


def _command() -> Path:
    return Path(sys.executable).with_name("toolwire")
