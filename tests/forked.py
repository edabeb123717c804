"""Start a command in a fork of a process that has it imported, instead of in a new interpreter."""

import atexit
import fcntl
import functools
import json
import os
import select
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fork_server import LARGEST

COMMAND, TE = (str(Path(sys.executable).parent / name) for name in ("toolwire", "te"))
_LOCALE = ("LANG", "LC_ALL")
_LIMIT_S = 120


def start(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    at_terminal: bool = False,
    anew: bool = False,
) -> "subprocess.Popen[bytes]":
    """Start a command with exactly this environment; `at_terminal` makes standard input its terminal.

    It is forked where a fork is as good as a new interpreter, unless it shall be started `anew`.
    """
    request = _request(words, cwd, env, at_terminal=at_terminal)
    if not anew and _can_be_forked(words, cwd, env) and len(request) <= LARGEST:
        return Forked(request, words, stdin=stdin, stdout=stdout, stderr=stderr)
    return subprocess.Popen(
        words,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=at_terminal,
        preexec_fn=_take_terminal if at_terminal else None,
    )


def python(
    *words: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = subprocess.PIPE,
    stderr: int | None = None,
    ahead: tuple[str, ...] = (),
) -> "subprocess.Popen[bytes]":
    """Start a Python program of a test in a fork: `-c CODE`, `-m MODULE` or a script, then its arguments.

    It finds toolwire imported, for which a new interpreter takes half a second of CPU. Modules that it shall find as
    well are named `ahead`: they have a server of their own, since no command may find them.
    """
    whole = [sys.executable, *words]
    request = _request(whole, cwd or Path.cwd(), os.environ if env is None else env)
    return Forked(request, whole, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, ahead=ahead)


def run_python(
    *words: str,
    text: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    ahead: tuple[str, ...] = (),
) -> "subprocess.CompletedProcess[str]":
    """Run such a program to its end, with a text as its standard input."""
    with python(*words, env=env, cwd=cwd, stderr=subprocess.PIPE, ahead=ahead) as process:
        out, err = process.communicate(text.encode(), timeout=_LIMIT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())


def _request(words: Sequence[str], folder: Path, env: Mapping[str, str], *, at_terminal: bool = False) -> bytes:
    told = {"words": list(words), "folder": str(folder), "environ": dict(env), "at_terminal": at_terminal}
    return json.dumps(told).encode()


def _can_be_forked(words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> bool:
    """Whether a fork is as good as a new interpreter: nothing is told to its start, and no module could be shadowed."""
    if words[0] not in (COMMAND, TE) or env.get("PYTHONUTF8") != "1":
        return False
    if any(name.startswith(("PYTHON", "LD_")) and name != "PYTHONUTF8" for name in env):
        return False
    if any(env.get(name) != os.environ.get(name) for name in _LOCALE):
        return False
    return not any(path.stem in sys.modules for path in cwd.iterdir() if path.suffix == ".py" or path.is_dir())


def _take_terminal() -> None:
    """Make the terminal the controlling one, so that Ctrl-C reaches the process as a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Forked(subprocess.Popen[bytes]):
    """A process whose end we are told, since the one to wait for it is the server that forked it.

    It replaces the three methods in which `Popen` asks the system to start a process or to wait for it.
    """

    def __init__(
        self,
        request: bytes,
        words: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int | None,
        ahead: tuple[str, ...] = (),
    ) -> None:
        self._request, self._report, self._waiting = request, -1, threading.RLock()
        self._ahead = ahead
        super().__init__(words, stdin=stdin, stdout=stdout, stderr=stderr)

    def _execute_child(self, *given: Any) -> None:
        stdin, stdin_here, stdout_here, stdout, stderr_here, stderr = given[10:16]
        self._report, report = os.pipe()
        streams = [number if handle == -1 else handle for number, handle in enumerate((stdin, stdout, stderr))]
        socket.send_fds(_server(*self._ahead), [self._request], [*streams, report])
        os.close(report)
        for handle, here in ((stdin, stdin_here), (stdout, stdout_here), (stderr, stderr_here)):
            if here != -1:
                os.close(handle)
        if (nowhere := getattr(self, "_devnull", None)) is not None:
            os.close(nowhere)
        self._closed_child_pipe_fds = True
        self.pid = int(self._line())
        self._child_created = True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        """The exit code, once it is told within this time."""
        with self._waiting:
            if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
                self.returncode = int(self._line())
                os.close(self._report)
            return self.returncode

    def _line(self) -> bytes:
        """What the server says next."""
        said = b""
        while not said.endswith(b"\n"):
            said += os.read(self._report, 1) or b"the server of a forked command is gone\n"
        return said


_servers: list["subprocess.Popen[bytes]"] = []


def server_pids() -> list[int]:
    """The process ids of the servers that are started."""
    return [server.pid for server in _servers]


@functools.cache
def _server(*ahead: str) -> socket.socket:
    """The server of this test process that has these modules imported, too; started when it is first needed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fork_server", str(theirs.fileno()), *ahead],
        cwd=Path(__file__).parent.parent,
        env={**environ, "PYTHONUTF8": "1"},
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    theirs.close()
    _servers.append(process)

    def end() -> None:
        _servers.remove(process)
        ours.close()
        process.wait()

    atexit.register(end)
    return ours
