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
import socket
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import toolwire
from tests.caches import clear_caches
from toolwire.cli import main
from toolwire.toolbox.registry import ToolDependencies, tools_of

LARGEST = 150_000
"""A request takes one packet, and must fit into a socket's buffer."""

# The line editor reads the terminal's name when it is imported, and the embedded engine starts threads.
_NOT_AHEAD = ("toolwire.cli.commands.chat", "toolwire.models.local")

_STREAMS = ((0, "r", -1, "surrogateescape"), (1, "w", -1, "surrogateescape"), (2, "w", 1, "backslashreplace"))


def serve(control: socket.socket) -> None:
    """Fork for each request until the asking side is gone."""
    while True:
        request, handles, *_ = socket.recv_fds(control, LARGEST + 1, 4)
        if not request:
            return
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                """A supervisor that has done its work."""
        if os.fork() == 0:
            control.close()
            _supervise(json.loads(request), handles)
            return
        for handle in handles:
            os.close(handle)


def _supervise(request: dict[str, Any], handles: list[int]) -> None:
    """Tell the process id of the command, and its status once it has ended. Returns, in time, as the command."""
    *streams, report = handles
    if pid := os.fork():
        for handle in streams:
            os.close(handle)
        os.write(report, f"{pid}\n".encode())
        status = os.waitpid(pid, 0)[1]
        os.write(report, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    os.close(report)
    _become(request, streams)


def _become(request: dict[str, Any], streams: list[int]) -> None:
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
    _end(_exit_code(main))


def _run_python() -> None:
    """Do what an interpreter does with its words. It may change its user: what was found out before is forgotten."""
    clear_caches()
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


def _import_ahead() -> None:
    for module in pkgutil.walk_packages(toolwire.__path__, "toolwire."):
        if not module.name.startswith(_NOT_AHEAD) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    tools_of(["all"], ToolDependencies())  # the schemas of tools are made once in a process
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _import_ahead()
    serve(socket.socket(fileno=int(sys.argv[1])))
