"""Threads for synchronous tools. They are daemons, so a tool that hangs cannot keep the process from ending."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

Left = Future[None]  # done when a function that its caller gave up has returned


class _Job:
    """A function to run for a caller who waits in an event loop."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self.loop.create_future()
        self.worker: _Worker | None = None
        self.finished = False
        self.left: Left | None = None
        self._context = contextvars.copy_context()
        self._function = function
        self._args = args

    def run(self) -> None:
        try:
            value = self._context.run(self._function, *self._args)
        except BaseException as error:  # whatever a tool raises is for its caller to judge
            self._tell(_fail, error)
        else:
            self._tell(_succeed, value)

    def _tell(self, settle: Callable[["asyncio.Future[Any]", Any], None], outcome: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(settle, self.answer, outcome)
        except RuntimeError:
            return  # the loop has ended, so this answer is not awaited any more


class _Worker:
    """A thread with its own inbox. A retired one ends after its current job."""

    def __init__(self) -> None:
        self.inbox: SimpleQueue[_Job | None] = SimpleQueue()
        self.retired = False


class Threads:
    """Runs functions in idle threads, or in new ones up to `most`; beyond that they queue.

    A thread whose caller gave up (timeout, cancellation) is written off: it no longer counts, and ends when its
    function returns.
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._backlog: deque[_Job] = deque()
        self._alive = 0

    async def run(self, function: Callable[..., Any], *args: Any, on_left: Callable[[Left], None] | None = None) -> Any:
        """Give back what the function returns, or raise what it raises.

        When the caller gives up while the function runs, `on_left` is told of what goes on without it.
        """
        job = _Job(function, args)
        self._submit(job)
        try:
            return await job.answer
        except asyncio.CancelledError:
            left = self._abandon(job)
            if left is not None and on_left is not None:
                on_left(left)
            raise

    def close(self) -> None:
        """Let idle threads end."""
        with self._lock:
            for worker in self._idle:
                worker.inbox.put(None)
            self._alive -= len(self._idle)
            self._idle.clear()

    def _submit(self, job: _Job) -> None:
        with self._lock:
            if self._idle:
                job.worker = self._idle.pop()
            elif self._alive < self._most:
                self._alive += 1
                job.worker = _Worker()
                threading.Thread(target=self._work, args=(job.worker,), name="toolwire-tool", daemon=True).start()
            else:
                self._backlog.append(job)
                return
        job.worker.inbox.put(job)

    def _work(self, worker: _Worker) -> None:
        while (job := worker.inbox.get()) is not None:
            job.run()
            with self._lock:
                job.finished = True
                if worker.retired:
                    break
                if self._backlog:
                    waiting = self._backlog.popleft()
                    waiting.worker = worker
                    worker.inbox.put(waiting)
                else:
                    self._idle.append(worker)
        if job is not None and job.left is not None:
            job.left.set_result(None)

    def _abandon(self, job: _Job) -> Left | None:
        """Write off a job, and give what will say that its function has returned; None if it does not run."""
        with self._lock:
            if job.worker is None:
                self._backlog.remove(job)
                return None
            if job.finished:
                return None
            job.worker.retired = True
            job.left = Future()
            self._alive -= 1
            self._serve_backlog()
            return job.left

    def _serve_backlog(self) -> None:
        if self._backlog:
            self._alive += 1
            job = self._backlog.popleft()
            job.worker = _Worker()
            threading.Thread(target=self._work, args=(job.worker,), name="toolwire-tool", daemon=True).start()
            job.worker.inbox.put(job)


def _succeed(answer: "asyncio.Future[Any]", value: Any) -> None:
    if not answer.done():
        answer.set_result(value)


def _fail(answer: "asyncio.Future[Any]", error: BaseException) -> None:
    if isinstance(error, StopIteration):  # a future refuses to carry it
        error = RuntimeError(f"the function raised StopIteration({error.value!r})")
    if not answer.done():
        answer.set_exception(error)
