"""Notices a function that holds up the event loop, while it does: the loop itself cannot say so then.

An async function that computes for seconds, or calls something that waits without `await`, stops every other call of
its process. Each stretch that a tool runs on the loop between two awaits is written down here when it begins and taken
out when it ends. One thread for the whole process looks at what is there a few times a second, and ends when nothing
has been there for a while.
"""

import logging
import threading
from _thread import get_ident
from collections.abc import Callable, Coroutine, Generator
from time import perf_counter
from types import coroutine
from typing import Any

from msgspec import Struct

BLOCKED_S = 0.5
_LOOK_S = 0.1
_IDLE_LOOKS = 50
_log = logging.getLogger(__name__)


class LoopTime(Struct):
    """A call's code on the loop: `longest_s` is the longest that it ran there without a pause."""

    tool: str
    longest_s: float = 0.0


Running = tuple[str, float]  # a tool, and since when it runs without a pause


class LoopWatch:
    """What runs on the event loops of this process: a stack for each thread, innermost last.

    Every call passes here, so a stretch is one `append` and one `pop`.
    """

    def __init__(self) -> None:
        self._stacks: dict[int, list[Running]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def here(self) -> list[Running]:
        """The stack of this thread, which is watched from now on."""
        try:
            return self._stacks[get_ident()]
        except KeyError:
            return self._watch_here()

    def _watch_here(self) -> list[Running]:
        with self._lock:
            stack = self._stacks.setdefault(get_ident(), [])
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="toolwire-loop-watch", daemon=True)
                self._thread.start()
        return stack

    def _look(self) -> None:
        pause, idle, told = threading.Event(), 0, set[Running]()
        while idle < _IDLE_LOOKS or not self._is_over():
            pause.wait(_LOOK_S)
            now, running = perf_counter(), self._innermost()
            idle = 0 if running else idle + 1
            told &= running
            for one in running - told:
                tool, since = one
                if now - since >= BLOCKED_S:
                    told.add(one)
                    _tell(tool)

    def _innermost(self) -> set[Running]:
        return {one for stack in tuple(self._stacks.values()) for one in stack[-1:]}

    def _is_over(self) -> bool:
        """End the watch unless something has begun: from then on, the next stretch of a thread starts it again."""
        with self._lock:
            watched = dict(self._stacks)
            self._stacks.clear()
            if any(watched.values()):
                self._stacks.update(watched)
                return False
            self._thread = None
            return True


def _tell(tool: str) -> None:
    _log.warning(
        "the async tool %r has blocked the event loop for more than %g s, and all other calls wait for it; "
        "define it with `def`, which runs in a thread, or await what it waits for",
        tool,
        BLOCKED_S,
    )


WATCH = LoopWatch()


@coroutine
def measure_steps(begin: Callable[[], Coroutine[Any, Any, Any]], stretches: LoopTime) -> Generator[Any, Any, Any]:
    """Run the coroutine that `begin` makes, with each of its steps in the watch."""
    work: Coroutine[Any, Any, Any] | None = None
    value: Any = None
    error: BaseException | None = None
    while True:
        stack, began = WATCH.here(), perf_counter()
        stack.append((stretches.tool, began))
        try:
            if work is None:
                work = begin()
            paused = work.send(value) if error is None else work.throw(error)
        except StopIteration as done:
            return done.value
        finally:
            stack.pop()
            stretches.longest_s = max(stretches.longest_s, perf_counter() - began)
        value = error = None
        try:
            value = yield paused
        except GeneratorExit:  # the program ends: nothing runs any more
            work.close()
            raise
        except BaseException as thrown:  # a cancellation, most often: it belongs to the work
            error = thrown
