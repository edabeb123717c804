"""Which of our files run code between the start of `toolwire ask` and the first line of `Agent.ask`.

`python -m tests.cli.way_in` lists them in the order of the journey, with the functions that were entered. What merely
runs while a module is imported does not count; how many of our modules are loaded by then is said beside it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_TRACER = """
import json, os, sys, threading
import toolwire
from toolwire.cli import main

ROOT = os.path.dirname(toolwire.__file__) + os.sep
entered, seen = {}, set()

def is_ours(code):
    return code.co_filename.startswith(ROOT)

def is_importing(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and is_ours(frame.f_code):
            return True
        frame = frame.f_back
    return False

def watch(frame, event, arg):
    code = frame.f_code
    if event != "call" or code in seen or not is_ours(code) or code.co_name.startswith("<") or is_importing(frame):
        return
    seen.add(code)
    entered.setdefault(code.co_filename[len(ROOT):], []).append(code.co_qualname)
    if code.co_qualname == "Agent.ask":
        sys.setprofile(None)
        loaded = sum(name.partition(".")[0] == "toolwire" for name in sys.modules)
        os.write(1, json.dumps({"entered": entered, "loaded": loaded}).encode())
        os._exit(0)

sys.argv = ["toolwire", *sys.argv[1:]]
threading.setprofile(watch)
sys.setprofile(watch)
main()
"""


def traced(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run `toolwire` with these words in a folder of its own, as far as `Agent.ask`."""
    own = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "PATH": os.environ.get("PATH", "")}
    return subprocess.run(
        [sys.executable, "-c", _TRACER, *words],
        cwd=folder, env=own, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


if __name__ == "__main__":
    with TemporaryDirectory() as empty:
        found = json.loads(traced(Path(empty), "ask", "What is 12*12?").stdout)
    for file, functions in found["entered"].items():
        sys.stdout.write(f"{file}: {', '.join(functions)}\n")
    sys.stdout.write(f"{len(found['entered'])} files run; {found['loaded']} modules of ours are loaded\n")
