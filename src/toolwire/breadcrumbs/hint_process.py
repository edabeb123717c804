"""Shows records to models as their hints say.

What include and exclude, constants and placeholders ask for is done here: it takes as long as the context is large.
Templates, JSONPath and jq are evaluated by a process with limits (`hint_worker.py`), which is started when the first of
them is needed. Hints that cannot be applied never hide a record: it is shown without them, with a note that says why.
"""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from typing import IO, Any

from msgspec import Struct

from toolwire.breadcrumbs.rules.hints.reading import read_hints
from toolwire.breadcrumbs.rules.hints.view import filter_context, transform_context
from toolwire.define.soundness import as_bytes
from toolwire.errors import InvalidRecord

WAIT_S = 20.0
"""How long an answer is awaited. The process ends itself after half a second of processor time, so this is for a
machine on which it gets none."""
MOST_FAILURES = 4_096
"""More than one would make by hand: each that is forgotten costs its limit again, and views wait for each other."""
MOST_VIEW_BYTES = 8 * 2**20
"""Views that are remembered, the last ones: fifty that take nearly their limit would hold up every search that finds
them, and with it all other views."""
FRESH_S = 600.0
"""For so long a view is remembered: a jq program may ask for the time."""
LARGEST_ANSWER = 4 * 2**20

_TOO_LONG = "they take too long"
_TOO_LARGE = "they need too much memory"
_ENDINGS = {-signal.SIGPROF: _TOO_LONG, -signal.SIGABRT: _TOO_LARGE, -signal.SIGSEGV: "their engine failed"}


class LlmView(Struct, frozen=True):
    """What a model is shown of a record's context. `note` says why hints were not applied, where they were not."""

    context: Any
    note: str = ""


class HintProcess:
    """Makes views, and keeps the process that evaluates engines. Can be used from any thread; `close` ends the process.

    A view is not made again for the same context and hints, and one that failed is not tried again: one record costs
    its limit once, not each time that it is listed.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._worker = _LimitedProcess()
        # Of its own, since those who wait for slow hints would otherwise hold the threads that all others share.
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="llm-hints")
        self._failed: OrderedDict[bytes, str] = OrderedDict()
        self._made: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        self._made_bytes = 0
        weakref.finalize(self, self._worker.end)

    async def view(self, context: Mapping[str, Any], llm_hints: object) -> LlmView:
        """What a model is shown of a context with these hints, as they stand in a record. Never raises for them."""
        filtered: Any = context
        try:
            hints = read_hints(llm_hints)
            filtered = {}  # where a filter fails, nothing is shown: it may be there to leave something out
            filtered = filter_context(context, hints)
            if not hints.needs_engine:
                return LlmView(transform_context(filtered, hints))
            loop = asyncio.get_running_loop()
            return LlmView(await loop.run_in_executor(self._threads, self._evaluate, filtered, llm_hints))
        except InvalidRecord as wrong:
            return LlmView(filtered, f"llm_hints were not applied: {wrong}.")

    def close(self) -> None:
        """End the process. The next view that needs one starts another."""
        with self._lock:
            self._worker.end()

    def _evaluate(self, filtered: Any, llm_hints: Any) -> Any:
        try:
            request = json.dumps({"context": filtered, "hints": llm_hints}).encode()
        except (TypeError, ValueError, RecursionError):
            raise InvalidRecord("the context is not JSON, or is nested too deeply") from None
        key = blake2b(request, digest_size=16).digest()
        with self._lock:
            if (known := self._failed.get(key)) is not None:
                raise InvalidRecord(known)
            if (made := self._made.get(key)) is not None and self._monotonic() - made[0] < FRESH_S:
                return json.loads(made[1])
            answer = self._worker.ask(request + b"\n")
            if (wrong := answer.get("wrong")) is None:
                if (view := as_bytes(answer["view"])) is not None:
                    self._remember(key, view)
                    return answer["view"]
                wrong = "they make a value that cannot be sent as JSON, such as a number of more than 64 bits"
            self._failed[key] = wrong
            if len(self._failed) > MOST_FAILURES:
                self._failed.popitem(last=False)
            raise InvalidRecord(wrong)

    def _remember(self, key: bytes, view: bytes) -> None:
        _, stale = self._made.pop(key, (0.0, b""))
        self._made[key] = self._monotonic(), view
        self._made_bytes += len(view) - len(stale)
        while self._made_bytes > MOST_VIEW_BYTES:
            _, (_, oldest) = self._made.popitem(last=False)
            self._made_bytes -= len(oldest)


class _LimitedProcess:
    """The process, started when it is needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: bytes) -> dict[str, Any]:
        """Its answer, or what was wrong. A process that ended for lack of requests is replaced."""
        until = time.monotonic() + WAIT_S
        for _ in range(2):
            process = self._running()
            try:
                line = _exchange(process, request, until)
            except TimeoutError:
                self.end()
                break
            if line.endswith(b"\n"):
                answer: dict[str, Any] = json.loads(line)
                return answer
            self.end()
            if process.returncode != -signal.SIGALRM:
                return {"wrong": _ENDINGS.get(process.returncode, "the process that evaluates them ended")}
        return {"wrong": _TOO_LONG}

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.end()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-m", "toolwire.breadcrumbs.hint_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            bufsize=0,
        )
        os.set_blocking(_fd(self._process.stdin), False)
        return self._process

    def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with process:  # closes its pipes and waits for it
            pass


def _fd(stream: IO[bytes] | None) -> int:
    assert stream is not None
    return stream.fileno()


def _exchange(process: "subprocess.Popen[bytes]", request: bytes, until: float) -> bytes:
    """Send all of a request and read a line, or what comes before the end. Raises TimeoutError."""
    into, out_of = _fd(process.stdin), _fd(process.stdout)
    poll = select.poll()
    poll.register(out_of, select.POLLIN)
    poll.register(into, select.POLLOUT)
    unsent, read = memoryview(request), bytearray()
    while not read.endswith(b"\n"):
        ready = dict(poll.poll(max(0.0, until - time.monotonic()) * 1000))
        if not ready or len(read) > LARGEST_ANSWER:
            raise TimeoutError
        if into in ready:
            with suppress(BrokenPipeError):  # the end of its output is seen below
                unsent = unsent[os.write(into, unsent[:65_536]) :]
            if not unsent or ready[into] & (select.POLLERR | select.POLLHUP):
                poll.unregister(into)
        if out_of in ready:
            chunk = os.read(out_of, 65_536)
            if not chunk:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                break
            read += chunk
    return bytes(read)
