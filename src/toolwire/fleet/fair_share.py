"""Who is next: work of many projects on the slots of one process, so that a project with much of it delays no other.

Each project has a queue of its own. A free slot goes to the projects in turn, and no project has more than its share of
the slots at a time, so that there is one left for a project that comes late. What waits here is bounded: of more, the
project with the longest queue has its newest work put back to the broker.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from toolwire.bus.contract import Delivered

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
WAITING = 1_024
"""So many commands wait in a process that serves several projects."""

PUT_BACK_S = 0.5
_KEEP_EVERY_S = 8.0
Work = Callable[[Delivered], Coroutine[Any, Any, None]]


def share_of(at_once: int) -> int:
    """How many of the slots one of many projects may have at a time: not all, so that another finds one free."""
    return max(1, at_once - max(1, at_once // 4))


class FairQueue(Generic[K, T]):
    """Items of many projects. `take` gives the next one that may start, until it is released. Nothing here waits."""

    def __init__(self, at_once: int, per_project: int | None = None) -> None:
        self._at_once = at_once
        self._per_project = per_project or at_once
        self._queues: dict[K, deque[T]] = {}
        self._ready: OrderedDict[K, None] = OrderedDict()  # with items, and less than their share at work
        self._running: dict[K, int] = {}
        self.waiting = 0
        self.running = 0

    def add(self, project: K, item: T) -> None:
        self._queues.setdefault(project, deque()).append(item)
        self.waiting += 1
        self._note(project)

    def add_first(self, project: K, item: T) -> None:
        """Put an item back that was taken, before all others of its project, and released."""
        self._queues.setdefault(project, deque()).appendleft(item)
        self.waiting += 1
        self._note(project)

    def starts_at_once(self, project: K) -> bool:
        """Whether an item of this project would start as soon as it is added."""
        has_share = self._running.get(project, 0) < self._per_project
        return self.running < self._at_once and has_share and project not in self._queues

    def take(self) -> tuple[K, T] | None:
        """The next item; None while no slot is free for any that waits."""
        if self.running >= self._at_once or not self._ready:
            return None
        project, _ = self._ready.popitem(last=False)
        item = self._pop(project, last=False)
        self.running += 1
        self._running[project] = self._running.get(project, 0) + 1
        self._note(project)
        return project, item

    def release(self, project: K) -> None:
        """An item of this project is done."""
        self.running -= 1
        left = self._running[project] - 1
        if left:
            self._running[project] = left
        else:
            del self._running[project]
        self._note(project)

    def shed(self) -> T:
        """The newest item of the project that has most of them."""
        longest = max(self._queues, key=lambda project: len(self._queues[project]))
        return self._pop(longest, last=True)

    def projects(self) -> list[K]:
        """Those of which something waits."""
        return list(self._queues)

    def list_waiting(self) -> list[T]:
        return [item for queue in self._queues.values() for item in queue]

    def clear(self) -> list[T]:
        """Give up all that waits."""
        left = self.list_waiting()
        self._queues.clear()
        self._ready.clear()
        self.waiting = 0
        return left

    def _pop(self, project: K, *, last: bool) -> T:
        queue = self._queues[project]
        item = queue.pop() if last else queue.popleft()
        self.waiting -= 1
        if not queue:
            del self._queues[project]
            self._ready.pop(project, None)
        return item

    def _note(self, project: K) -> None:
        """Have a project come at its turn, if it has an item that may start."""
        if project in self._queues and self._running.get(project, 0) < self._per_project:
            self._ready.setdefault(project)
        else:
            self._ready.pop(project, None)


class FairSlots:
    """Runs what comes from the bus, on `at_once` slots. Any number of subscriptions may share them."""

    def __init__(self, at_once: int, per_project: int | None = None, *, waiting: int = 0) -> None:
        self._queue: FairQueue[str, tuple[Delivered, Work]] = FairQueue(at_once, per_project)
        # A message is acknowledged a moment before its slot is free: the next one may come in between.
        self._most_waiting = at_once + waiting
        self.capacity = at_once + waiting
        """So many messages may be in the hands of this process."""
        self.tasks: set[asyncio.Task[None]] = set()
        self._returning: set[asyncio.Task[None]] = set()

    @classmethod
    def shared(cls, at_once: int, per_project: int | None = None) -> "FairSlots":
        """For a process that serves several projects."""
        return cls(at_once, min(per_project or share_of(at_once), at_once), waiting=WAITING)

    @property
    def running(self) -> int:
        return self._queue.running

    def has_room(self, project: str) -> bool:
        """Whether a message of this project would be handled at once."""
        return self._queue.starts_at_once(project)

    def submit(self, project: str, delivered: Delivered, work: Work) -> None:
        """Have a message handled as soon as its project has its turn."""
        self._queue.add(project, (delivered, work))
        self._start()
        while self._queue.waiting > self._most_waiting:
            self._return(self._queue.shed()[0], PUT_BACK_S)

    def put_back(self) -> None:
        """Give what waits back to the broker."""
        for delivered, _ in self._queue.clear():
            self._return(delivered, 0.0)

    async def keep_waiting(self) -> None:
        """Tell the broker of what waits that it is not lost, until canceled."""
        while True:
            await asyncio.sleep(_KEEP_EVERY_S)
            for delivered, _ in self._queue.list_waiting():
                await delivered.progress()

    def _start(self) -> None:
        while (taken := self._queue.take()) is not None:
            project, (delivered, work) = taken
            task = asyncio.create_task(work(delivered), name="toolwire-served")
            self.tasks.add(task)
            task.add_done_callback(lambda done, project=project: self._ended(project, done))  # type: ignore[misc]

    def _ended(self, project: str, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._queue.release(project)
        self._start()

    def _return(self, delivered: Delivered, delay_s: float) -> None:
        task = asyncio.ensure_future(delivered.nak(delay_s))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)
