"""The process in which templates, JSONPath and jq of records run. It answers one request a line, until its input ends.

The author of a record can write a jq program that never ends, that allocates without end, that reads the environment
(`$ENV`) or files (`import`), and a pattern that backtracks for years. So here is

- a limit of processor time for each request (`SIGPROF` ends the process, also within C code),
- a limit of memory beyond what the interpreter itself takes,
- no environment, since it was started without one,
- no file or socket that could be opened: the limit of open files is 0, except while an engine is imported,
- an end after a time without requests, so that none is left behind.

What dies here takes no record with it: `hint_process.py` starts another one for the next request.
"""

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from toolwire.breadcrumbs.rules.hints.reading import read_hints
from toolwire.breadcrumbs.rules.hints.transforms import load_engine
from toolwire.breadcrumbs.rules.hints.view import transform_context
from toolwire.errors import InvalidRecord

CPU_S = 0.5
MEMORY_BYTES = 256 * 2**20
IDLE_S = 60.0
_IMPORT_FILES = 64
_USUAL_PAGES = 2**17
_MAPPED_PAGES = 0  # the first number in /proc/self/statm


def main() -> None:
    """Answer requests from standard input on standard output, which is a stream of its own from then on."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what an engine prints is no answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    _allow_files(0)
    signal.setitimer(signal.ITIMER_REAL, IDLE_S)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(_answer(line)).encode() + b"\n")
        signal.setitimer(signal.ITIMER_REAL, IDLE_S)


def _answer(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
        hints = read_hints(request["hints"])
        _allow_files(_IMPORT_FILES)
        for transform in hints.transforms:
            load_engine(transform.kind)
        _limit_memory()
        _allow_files(0)
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        return {"view": transform_context(request["context"], hints)}
    except InvalidRecord as wrong:
        return {"wrong": str(wrong)}
    except MemoryError:
        return {"wrong": "they need too much memory"}
    except RecursionError:
        return {"wrong": "the context is nested too deeply"}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        _allow_files(0)


def _allow_files(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, _IMPORT_FILES))


def _limit_memory() -> None:
    """Leave so much beyond what is mapped now. Engines that were imported since the last request are counted in."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[_MAPPED_PAGES])
    except OSError:  # where /proc is not mounted
        pages = _USUAL_PAGES
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
