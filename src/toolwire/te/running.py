"""Runs a program to its end in bounded memory, and no longer than it may."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

KEPT = 2 * 1024 * 1024
KEPT_TAIL = 1024 * 1024
_KEPT_OF_ERRORS = 16 * 1024
_PIECE = 65_536
_LOOK_EVERY_S = 0.1
TIMED_OUT = 124
NOT_EXECUTABLE = 126
NOT_THERE = 127


class ProgramRun(Struct, frozen=True):
    """What came of a program. `missing` bytes of its output were dropped before `tail`; `stopped` is size or time."""

    code: int
    out: bytes = b""
    tail: bytes = b""
    missing: int = 0
    errors: bytes = b""
    stopped: str = ""


def run(argv: Sequence[str], *, both_ends: bool = False, timeout_s: float | None = None) -> ProgramRun:
    """Run a program with this process's input. With `both_ends`, its error messages are part of its output.

    With `both_ends` it may say as much as it likes, and the middle is dropped; otherwise it is stopped when it has said
    enough.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - the user who types a command may run it
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if both_ends else subprocess.PIPE,
            env=None if both_ends else _in_utf8(os.environ),
            start_new_session=True,
        )
    except FileNotFoundError:
        return ProgramRun(NOT_THERE, errors=f"{argv[0]}: there is no such program".encode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return ProgramRun(NOT_EXECUTABLE, errors=f"{argv[0]}: it cannot be run: {reason}".encode("utf-8", "replace"))
    try:
        return _followed(process, both_ends, timeout_s)
    except BaseException:
        _end(process)
        raise
    finally:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _followed(process: "subprocess.Popen[bytes]", both_ends: bool, timeout_s: float | None) -> ProgramRun:
    heard = _Heard(both_ends)
    until = None if timeout_s is None else time.monotonic() + timeout_s
    stopped = ""
    with selectors.DefaultSelector() as pipes:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipes.register(pipe, selectors.EVENT_READ)
        while pipes.get_map() and not stopped:
            ended = process.poll() is not None
            ready = pipes.select(_LOOK_EVERY_S)
            if ended and not ready:
                break  # what it left running in the background may hold the pipe for ever
            for key, _ in ready:
                piece = os.read(key.fd, _PIECE)
                if not piece:
                    pipes.unregister(key.fileobj)
                heard.add(piece, is_error=key.fileobj is process.stderr)
            stopped = "size" if heard.enough else "time" if until and time.monotonic() > until else ""
    if stopped:
        _end(process)
    code = process.wait() if stopped or until is None else _code(process, until)
    stopped = stopped or ("time" if code is None else "")
    return heard.ran(_shown_code(code, stopped), stopped)


def _code(process: "subprocess.Popen[bytes]", until: float) -> int | None:
    """How a program ends that has closed its output; None if it had to be ended."""
    try:
        return process.wait(max(until - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        _end(process)
        process.wait()
        return None


def _shown_code(code: int | None, stopped: str) -> int:
    if stopped == "time" or code is None:
        return TIMED_OUT
    if stopped == "size":
        return 0
    return 128 - code if code < 0 else code


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a program and whatever it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _Heard:
    """What a program has said so far."""

    def __init__(self, both_ends: bool) -> None:
        self._both_ends = both_ends
        self._out, self._tail, self._errors = bytearray(), bytearray(), bytearray()
        self._missing = 0

    @property
    def enough(self) -> bool:
        return not self._both_ends and len(self._out) >= KEPT

    def add(self, piece: bytes, *, is_error: bool) -> None:
        if is_error:
            self._errors += piece[: max(_KEPT_OF_ERRORS - len(self._errors), 0)]
            return
        room = max(KEPT - len(self._out), 0)
        self._out += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * KEPT_TAIL:
            self._missing += len(self._tail) - KEPT_TAIL
            del self._tail[:-KEPT_TAIL]

    def ran(self, code: int, stopped: str) -> ProgramRun:
        return ProgramRun(code, bytes(self._out), bytes(self._tail), self._missing, bytes(self._errors), stopped)


def _in_utf8(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, with a language that has letters beyond ASCII if none is chosen."""
    chosen = any(environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return dict(environ) if chosen else {**environ, "LC_ALL": "C.UTF-8"}
