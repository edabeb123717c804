"""An event loop in virtual time, shared by simulated processes. Real ones cannot be stopped so exactly.

Each process has a queue of its own, first in, first out, as a loop of its own would have; which process comes next is
drawn from the seed. One that is killed is never run again: none of its cleanup happens, as after `kill -9`. One that is
paused keeps its queue, and timers that are over meanwhile wait in it.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar
from random import Random
from typing import Any

_MOST_CLOSES = 50


class SimulatedProcess:
    """One process: it can be paused and go on, and be killed for good. `dies_at` is the step before which it dies."""

    def __init__(self, name: str, loop: "VirtualLoop") -> None:
        self.name = name
        self.loop = loop
        self.queue: deque[asyncio.Handle] = deque()
        self.is_dead = False
        self.is_paused = False
        self.steps = 0
        self.dies_at: int | None = None
        self.on_death: Callable[[], None] = lambda: None
        self.context = Context()
        self.context.run(PROCESS.set, self)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        return self.loop.create_task(work, name=name, context=self.context.copy())

    def kill(self) -> None:
        self.is_dead = True
        self.queue.clear()
        self.loop.ready.remove(self)

    def pause(self) -> None:
        self.is_paused = True
        self.loop.ready.remove(self)

    def go_on(self) -> None:
        self.is_paused = False
        if self.queue:
            self.loop.ready.add(self)


PROCESS: ContextVar[SimulatedProcess] = ContextVar("simulated process")


class _Ready:
    """What can run now, by process. It takes the place of the loop's own queue."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._processes: list[SimulatedProcess] = []
        self.world: SimulatedProcess

    def __bool__(self) -> bool:
        return bool(self._processes)

    def __len__(self) -> int:
        return sum(len(process.queue) for process in self._processes)

    def clear(self) -> None:
        self._processes.clear()

    def append(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(PROCESS, self.world)  # type: ignore[attr-defined]
        if process.is_dead:
            return
        process.queue.append(handle)
        if len(process.queue) == 1 and not process.is_paused:
            self._processes.append(process)

    def add(self, process: SimulatedProcess) -> None:
        self._processes.append(process)

    def remove(self, process: SimulatedProcess) -> None:
        with suppress(ValueError):
            self._processes.remove(process)

    def take(self) -> tuple[SimulatedProcess, asyncio.Handle]:
        processes = self._processes
        place = int(self._random.random() * len(processes))
        process = processes[place]
        handle = process.queue.popleft()
        if not process.queue:
            processes[place] = processes[-1]
            processes.pop()
        return process, handle


class Stuck(Exception):
    """Nothing can run, and nothing will."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Its clock jumps to the next timer when nothing is ready."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._now = 1_000_000.0
        self._tasks: list[asyncio.Task[Any]] = []
        self.steps = 0
        self.is_disposed = False
        self.surroundings: Any = None
        self.ready = _Ready(random)
        self._ready = self.ready
        self._clock_resolution = 1e-9
        self.world = self.ready.world = SimulatedProcess("world", self)

    def time(self) -> float:
        return self._now

    def create_task(self, *args: Any, **more: Any) -> "asyncio.Task[Any]":
        task = super().create_task(*args, **more)
        self._tasks.append(task)
        return task

    def _run_once(self) -> None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if not self.ready:
            while scheduled and scheduled[0].cancelled():
                heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]
            if not scheduled:
                raise Stuck("no process has anything to do")
            self._now = max(self._now, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self._now:
            due = heapq.heappop(scheduled)
            due._scheduled = False  # type: ignore[attr-defined]
            if not due.cancelled():
                self.ready.append(due)
        if not self.ready:
            return
        process, handle = self.ready.take()
        if handle.cancelled():
            return
        self.steps += 1
        process.steps += 1
        if process.steps == process.dies_at:
            process.kill()
            process.on_death()
            return
        handle._run()

    def _process_events(self, _events: object) -> None:
        """There is no input but timers."""

    def _write_to_self(self) -> None:
        """No other thread waits for this loop."""

    def dispose(self) -> None:
        """Let go of all that was interrupted, without a word: what its cleanup wants to do comes too late."""
        self.is_disposed = True
        self.set_exception_handler(lambda *_: None)
        asyncio._set_running_loop(self)  # cleanup that asks for a loop must not get a new one, which would stay open
        try:
            for task in self._tasks:  # those that cleanup makes are added, and closed as well
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _close(task)
        finally:
            asyncio._set_running_loop(None)
        self.close()


def _close(task: "asyncio.Task[Any]") -> None:
    work = task.get_coro()
    assert isinstance(work, Coroutine)
    for _ in range(_MOST_CLOSES):  # each await in its cleanup refuses once
        try:
            work.close()
        except BaseException:
            continue
        return
