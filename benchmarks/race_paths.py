"""Files against an attacker who swaps a folder for a link that leads out, as fast as the kernel can.

`make race` runs it for a minute. Nothing may lead out; the naive way, which checks a path and then opens it, does.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolwire.protocol.files import Change
from toolwire.toolbox import LocalFiles

ATTACKER = """
import os, sys
from toolwire.toolbox.disk.beneath import exchange
folder = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
print("ready", flush=True)
while True:
    exchange((folder, "place"), (folder, "trap"))
"""


@dataclass(slots=True)
class Tally:
    """How often a way was tried, how often it reached the file inside, and how often one outside."""

    tries: int = 0
    inside: int = 0
    escapes: int = 0


@contextmanager
def attacked() -> Iterator[tuple[Path, Path]]:
    """A workspace under attack, and the folder outside to which the attacker's link leads."""
    with tempfile.TemporaryDirectory() as folder:
        workspace, outside = Path(folder) / "workspace", Path(folder) / "outside"
        for place in (workspace / "place", outside):
            place.mkdir(parents=True)
        (workspace / "place" / "a.txt").write_text("inside")
        (outside / "a.txt").write_text("SECRET")
        (workspace / "trap").symlink_to(outside)
        command = [sys.executable, "-c", ATTACKER, str(workspace)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
            assert attacker.stdout is not None
            attacker.stdout.readline()
            try:
                yield workspace, outside
            finally:
                attacker.kill()


def read_beneath(workspace: Path, outside: Path) -> str:
    with LocalFiles().open(str(workspace), "place/a.txt") as file:
        return file.read().decode()


def write_beneath(workspace: Path, outside: Path) -> str:
    LocalFiles(sync=lambda _: None).change(str(workspace), [Change("place/w.txt", b"x")])
    return "SECRET" if (outside / "w.txt").exists() else "inside"


def read_naively(workspace: Path, outside: Path) -> str:
    path = workspace / "place" / "a.txt"
    if not path.resolve().is_relative_to(workspace):
        raise PermissionError("leads out")
    return path.read_text()


WAYS: dict[str, Callable[[Path, Path], str]] = {
    "read": read_beneath,
    "write": write_beneath,
    "naive read": read_naively,
}


def race(way: str, go_on: Callable[[Tally], bool]) -> Tally:
    """Try one way again and again while the attacker swaps."""
    tally = Tally()
    with attacked() as (workspace, outside):
        while go_on(tally):
            tally.tries += 1
            try:
                seen = WAYS[way](workspace, outside)
            except OSError:
                continue
            tally.inside += seen == "inside"
            tally.escapes += seen == "SECRET"
    return tally


def main(seconds: float) -> int:
    print(f"{os.cpu_count()} cores, {seconds:g} s for each way")
    tallies = {}
    for way in WAYS:
        until = time.monotonic() + seconds
        tallies[way] = tally = race(way, lambda _, until=until: time.monotonic() < until)  # type: ignore[misc]
        print(f"{way:10}  {tally.tries:9,} tries  {tally.inside:9,} inside  {tally.escapes:7,} escapes", flush=True)
    safe = all(tallies[way].escapes == 0 for way in ("read", "write"))
    return 0 if safe and tallies["naive read"].escapes > 0 else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0))
