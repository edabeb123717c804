"""Where and with what the numbers were taken."""

import os
import platform
import sqlite3
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

VERSIONS = (
    "import importlib.metadata as m;"
    "print(', '.join(f'{n} {m.version(n)}' for n in"
    " ('smolagents', 'pydantic-ai-slim', 'openai-agents', 'langchain', 'langgraph')))"
)
LIBRARIES = ("toolwire", "orjson", "msgspec", "jsonschema-rs", "pydantic")


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts to print with every table."""

    date: str
    processor: str
    cores: int
    python: str
    system: str
    load_before: float
    load_after: float
    repetitions: int
    libraries: str
    peers: str
    probe_us: float | None

    def words(self) -> str:
        probe = "" if self.probe_us is None else f" Disk probe: append 300 B + fdatasync {self.probe_us:,.0f} µs."
        return (
            f"{self.date}; {self.processor}, {self.cores} cores; {self.system}; Python {self.python}; "
            f"1-minute load {self.load_before:.1f} before and {self.load_after:.1f} after.{probe}\n"
            f"Versions: {self.libraries}. Peers: {self.peers}."
        )


def load() -> float:
    return os.getloadavg()[0]


def describe(load_before: float, repetitions: int, peers_python: Path, probe_us: float | None) -> Machine:
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return Machine(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        processor=_processor(),
        cores=os.cpu_count() or 0,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        load_before=load_before,
        load_after=load(),
        repetitions=repetitions,
        libraries=f"{libraries}, SQLite {sqlite3.sqlite_version}",
        peers=peer_versions(peers_python),
        probe_us=probe_us,
    )


def peer_versions(python: Path) -> str:
    if not python.exists():
        return "not installed (`make bench-peers` installs them beside the project)"
    done = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() or "incomplete (`make bench-peers` installs them anew)"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
