"""Ways to a far end: a process that talks over its pipes, such as `ssh`, or a server that takes HTTP requests."""

import errno
import os
import select
import subprocess
import threading
import time
from collections.abc import Sequence

import httpx2

from toolwire.tls import trust_for
from toolwire.toolbox.remote_files.client import LARGEST_MESSAGE

TIMEOUT_S = 30.0
_HEAD = 20


class ProcessTransport:
    """Carries messages to a program's standard input and its answers back: `ProcessTransport(ssh("user@host", root))`.

    The program is started when it is first needed, and again after it has ended. One message is under way at a time.
    """

    def __init__(self, argv: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> None:
        self._argv = tuple(argv)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, message: bytes) -> bytes:
        with self._lock:
            until = time.monotonic() + self._timeout_s
            process = self._running()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                _write(process.stdin.fileno(), b"%d\n%s" % (len(message), message), until)
                return _read(process.stdout.fileno(), until)
            except OSError:
                self._stop()
                raise

    def close(self) -> None:
        """End the program. Harmless when called twice."""
        with self._lock:
            self._stop()

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - the operator chose the program
                self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
            )
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
        return self._process

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None


def ssh(host: str, *roots: str, python: str = "python3", options: Sequence[str] = ()) -> tuple[str, ...]:
    """The command that starts a far end on another machine, where toolwire is installed too.

    It never asks for anything, and no part of it is read by a shell as more than a word.
    """
    if host.startswith("-") or not host:
        raise ValueError(f"{host!r} is not a host")
    words = (python, "-m", "toolwire.toolbox.remote_files.server", *roots)
    return ("ssh", "-T", "-o", "BatchMode=yes", *options, "--", host, " ".join(map(_quoted, words)))


class HttpTransport:
    """Carries messages to a server by POST. Give the client what it needs to be let in: a header, a certificate."""

    def __init__(self, url: str, client: httpx2.Client | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url
        self._client = client or httpx2.Client(
            timeout=timeout_s, follow_redirects=False, trust_env=False, verify=trust_for(url, trust_env=False)
        )

    def __call__(self, message: bytes) -> bytes:
        try:
            with self._client.stream("POST", self._url, content=message) as response:
                if response.status_code != 200:
                    raise OSError(errno.ECONNREFUSED, f"the far end answered with HTTP {response.status_code}")
                return _body(response)
        except httpx2.HTTPError as error:
            raise OSError(errno.EHOSTUNREACH, f"the far end cannot be reached ({type(error).__name__})") from None

    def close(self) -> None:
        """Let go of connections. Harmless when called twice."""
        self._client.close()


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def _body(response: httpx2.Response) -> bytes:
    parts, size = [], 0
    for part in response.iter_bytes():
        size += len(part)
        if size > LARGEST_MESSAGE:
            raise OSError(errno.EMSGSIZE, "the answer of the far end is too large")
        parts.append(part)
    return b"".join(parts)


def _wait(descriptor: int, until: float, *, to_write: bool = False) -> None:
    left = until - time.monotonic()
    waiting = select.poll()
    waiting.register(descriptor, select.POLLOUT if to_write else select.POLLIN)
    if left <= 0 or not waiting.poll(left * 1000):
        raise TimeoutError(errno.ETIMEDOUT, "the far end did not answer in time")


def _write(descriptor: int, data: bytes, until: float) -> None:
    view = memoryview(data)
    while view:
        _wait(descriptor, until, to_write=True)
        view = view[os.write(descriptor, view) :]


def _read(descriptor: int, until: float) -> bytes:
    data = bytearray()
    while b"\n" not in data[:_HEAD]:
        if len(data) >= _HEAD:
            raise OSError(errno.EPROTO, "the far end does not speak our way")
        data += _some(descriptor, _HEAD - len(data), until)
    head, _, rest = bytes(data).partition(b"\n")
    if not head.isdigit() or int(head) > LARGEST_MESSAGE:
        raise OSError(errno.EPROTO, "the far end does not speak our way")
    body = bytearray(rest)
    while len(body) < int(head):
        body += _some(descriptor, int(head) - len(body), until)
    return bytes(body)


def _some(descriptor: int, most: int, until: float) -> bytes:
    _wait(descriptor, until)
    piece = os.read(descriptor, min(most, 1 << 20))
    if not piece:
        raise OSError(errno.EPIPE, "the far end ended")
    return piece
