"""A process that has the commands imported and forks itself for each one that is to run.

A new interpreter takes 0.3 s of CPU to import what a command needs, and tests start commands by the thousand. What a
fork runs is a process like any other: its own arguments, environment, folder, descriptors, signals and exit code.
See `tests.forked` for the side that asks.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import toolwire
from tests.caches import caches_of
from toolwire.cli import main
from toolwire.record.schema import newest
from toolwire.te.main import main as te
from toolwire.toolbox.registry import STANDARD, TOOLS, ToolDependencies, make_tools
from toolwire.wire.replies.offered import Offered
from toolwire.wire.text.triggers import triggers

LARGEST = 150_000
"""A request takes one packet, and must fit into a socket's buffer."""

# The line editor reads the terminal's name when it is imported, and the embedded engine starts threads.
_NOT_AHEAD = ("toolwire.cli.commands.chat", "toolwire.models.local")

# What others import only when it is first used, and most commands use.
_USED_BY_MOST = ("anyio._backends._asyncio", "anyio.streams.tls", "rich._emoji_codes", "uvicorn.lifespan.on")

_caches: list[Any] = []
"""Found before the first fork: to look for them writes to the pages of every module, which a fork has to copy first."""

_STREAMS = ((0, "r", -1, "surrogateescape"), (1, "w", -1, "surrogateescape"), (2, "w", 1, "backslashreplace"))


def serve(control: socket.socket) -> None:
    """Fork for each request, and tell how each command ended, until the asking side is gone."""
    poll, running = select.poll(), dict[int, _Running]()
    poll.register(control, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != control.fileno():
                poll.unregister(ready)
                _tell_end(ready, running.pop(ready))
                continue
            request, handles, *_ = socket.recv_fds(control, LARGEST + 1, 4)
            if not request:
                return
            *streams, report = handles
            if (pid := os.fork()) == 0:
                control.close()
                for handle in (report, *running, *(one.report for one in running.values())):
                    os.close(handle)
                _become(json.loads(request), streams)
            for handle in streams:
                os.close(handle)
            os.write(report, f"{pid}\n".encode())
            ended = os.pidfd_open(pid)
            running[ended] = _Running(pid, report)
            poll.register(ended, select.POLLIN)


class _Running(NamedTuple):
    """A command, and the pipe to which its process id was written and its status will be."""

    pid: int
    report: int


def _tell_end(ended: int, command: _Running) -> None:
    status = os.waitpid(command.pid, 0)[1]
    with suppress(BrokenPipeError):  # the one who asked may not care any more
        os.write(command.report, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os.close(command.report)
    os.close(ended)


def _become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be as a process that was just started, and run the program."""
    if request["at_terminal"]:
        os.setsid()
    for number, handle in enumerate(streams):
        os.dup2(handle, number)
        os.close(handle)
    if request["at_terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    coerced = os.environ.get("LC_CTYPE")  # an interpreter that finds no locale chooses one, and so did the server
    os.environ.clear()
    os.environ.update(request["environ"] | ({"LC_CTYPE": coerced} if coerced else {}))
    tempfile.tempdir = None  # found in the environment when it is first asked for
    _open_streams()
    sys.argv = request["words"]
    if sys.argv[0] == sys.executable:
        _end(_exit_code(_run_python))
    sys.path[0] = str(Path(sys.argv[0]).parent)
    _end(_exit_code(te if Path(sys.argv[0]).name == "te" else main))


def _run_python() -> None:
    """Do what an interpreter does with its words. It may change its user: what was found out before is forgotten."""
    for cache in _caches:
        cache.cache_clear()
    del sys.argv[0]
    match sys.argv:
        case ["-c", code, *_]:
            sys.argv[:2] = ["-c"]
            sys.path[0] = ""
            module = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), vars(module))
        case ["-m", name, *_]:
            del sys.argv[0]
            sys.path[0] = str(Path.cwd())
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case [script, *_]:
            sys.path[0] = str(Path(script).parent)
            runpy.run_path(script, run_name="__main__")


def _exit_code(program: Callable[[], object]) -> int:
    """Run a program, and say with what code an interpreter would end."""
    try:
        program()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> NoReturn:
    """End as an interpreter does, but for taking its modules apart, which takes longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120
    os._exit(code)


def _open_streams() -> None:
    """As an interpreter opens them in UTF-8 mode. Those of the server know what its own descriptors were."""
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering, "utf-8", errors, "\n", closefd=False)  # noqa: SIM115 -- they live as long as the process
        for number, mode, buffering, errors in _STREAMS
    )


def _import_ahead(more: Iterable[str]) -> None:
    for module in pkgutil.walk_packages(toolwire.__path__, "toolwire."):
        if not module.name.startswith(_NOT_AHEAD) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in (*_USED_BY_MOST, *more):
        importlib.import_module(name)
    tools = {tool.name: tool for tool in make_tools(TOOLS, ToolDependencies())}
    triggers(Offered([tools[name] for name in STANDARD]))  # the patterns that find calls in text are made once
    newest()  # and so are the statements that make a new store
    _caches.extend(caches_of())
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background of a script has it ignored
    _import_ahead(sys.argv[2:])
    serve(socket.socket(fileno=int(sys.argv[1])))
