"""The thread that starts boxes. It lives as long as the process, because a box dies with the thread that made it."""

import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from msgspec import Struct

from toolwire.errors import SandboxUnavailable

Value = TypeVar("Value")


class Starter:
    """Does what it is given, one after the other, in a daemon thread of its own."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def do(self, work: Callable[[], Value]) -> "Future[Value]":
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="toolwire-boxes", daemon=True)
                self._thread.start()
        answer: Future[Value] = Future()
        self._inbox.put((answer, work))
        return answer

    def _serve(self) -> None:
        while True:
            answer, work = self._inbox.get()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(work())
            except BaseException as error:  # the caller that waits for the answer judges it
                answer.set_exception(error)


STARTER = Starter()


def memory(content: bytes, name: str) -> int:
    """A descriptor of a file in memory that holds these bytes, to be read from its beginning."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, content[written:], written)  # which leaves it at its beginning
    return descriptor


def spawn(argv: Sequence[str], fds: Sequence[int], stdin: int, stdout: int, stderr: int) -> "subprocess.Popen[bytes]":
    """Start a program with an empty environment, in a session of its own, with these descriptors and no others."""
    try:
        return subprocess.Popen(  # noqa: S603 - argv is made by engines, never read by a shell
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={},
            cwd="/",
            close_fds=True,
            pass_fds=[fd for fd in fds if fd > 2],
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxUnavailable(f"{argv[0]} cannot be started: {error.strerror}") from None


class Streams(Struct, frozen=True):
    """The standard streams of a box and its status pipe: our ends to read, its ends to write."""

    stdout: int
    stderr: int
    status: int
    stdin: int
    to_stdout: int
    to_stderr: int
    to_status: int


class Descriptors:
    """Descriptors that are needed until a box has started, closed together."""

    def __init__(self) -> None:
        self.all: list[int] = []

    def keep(self, descriptor: int) -> int:
        self.all.append(descriptor)
        return descriptor

    def pipe(self) -> tuple[int, int]:
        """The reading end, which is the caller's to close, and the writing end, which is kept here."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reading, False)
        return reading, self.keep(writing)

    def streams(self, stdin: bytes, user: int) -> Streams:
        """New streams. They belong to the box's user, who may open them once more by name (/dev/stdout)."""
        (out, to_out), (err, to_err), (status, told) = self.pipe(), self.pipe(), self.pipe()
        given = self.keep(memory(stdin, "stdin")) if stdin else subprocess.DEVNULL
        if os.geteuid() == 0:
            for descriptor in (to_out, to_err, *([given] if stdin else [])):
                os.fchown(descriptor, user, -1)
        return Streams(out, err, status, given, to_out, to_err, told)

    def __enter__(self) -> "Descriptors":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self.all:
            os.close(descriptor)
