"""Notices a function that holds up the event loop, while it does: the loop itself cannot say so then.

An async function that computes for seconds, or calls something that waits without `await`, stops every other call of
its process. Each stretch that a tool runs on the loop between two awaits is written down here when it begins and taken
out when it ends. One thread for the whole process looks at what is there a few times a second, and ends when nothing
has been there for a while.
"""

import logging
import threading
from _thread import get_ident
from collections.abc import Coroutine, Generator
from time import perf_counter
from types import coroutine
from typing import Any

from toolwire.protocol.values import dataclass

BLOCKED_S = 0.5
_LOOK_S = 0.1
_IDLE_LOOKS = 50
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Stretch:
    """A tool's code that runs on the loop now, and the longest that it did so without a pause."""

    tool: str
    began: float = 0.0
    longest_s: float = 0.0
    told: bool = False

    @property
    def blocked_ms(self) -> float:
        """How long it held up the loop; nothing where that is not worth a word."""
        return self.longest_s * 1000 if self.longest_s >= BLOCKED_S else 0.0


class LoopWatch:
    """Everything that runs on event loops of this process, by thread."""

    def __init__(self) -> None:
        self._running: dict[int, Stretch] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, stretch: Stretch) -> Stretch | None:
        """A stretch begins in this thread. Gives back the one around it, if there is one."""
        running, me = self._running, get_ident()
        around = running.get(me)
        stretch.began = perf_counter()
        running[me] = stretch
        if self._thread is None:
            self._start()
        return around

    def end(self, stretch: Stretch, around: Stretch | None) -> None:
        took = perf_counter() - stretch.began
        if took > stretch.longest_s:
            stretch.longest_s = took
        if around is None:
            self._running.pop(get_ident(), None)
        else:
            self._running[get_ident()] = around

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="toolwire-loop-watch", daemon=True)
                self._thread.start()

    def _look(self) -> None:
        pause, idle = threading.Event(), 0
        while idle < _IDLE_LOOKS:
            pause.wait(_LOOK_S)
            now, idle = perf_counter(), idle + 1
            for stretch in tuple(self._running.values()):
                idle = 0
                if now - stretch.began >= BLOCKED_S and not stretch.told:
                    stretch.told = True
                    _tell(stretch.tool)
        self._thread = None


def _tell(tool: str) -> None:
    _log.warning(
        "the async tool %r has blocked the event loop for more than %g s, and all other calls wait for it; "
        "define it with `def`, which runs in a thread, or await what it waits for",
        tool,
        BLOCKED_S,
    )


WATCH = LoopWatch()


@coroutine
def watched(work: Coroutine[Any, Any, Any], stretch: Stretch) -> Generator[Any, Any, Any]:
    """Run a coroutine, with each of its steps written down in the watch."""
    value: Any = None
    error: BaseException | None = None
    while True:
        around = WATCH.begin(stretch)
        try:
            paused = work.send(value) if error is None else work.throw(error)
        except StopIteration as done:
            return done.value
        finally:
            WATCH.end(stretch, around)
        value = error = None
        try:
            value = yield paused
        except GeneratorExit:  # the program ends: nothing runs any more
            work.close()
            raise
        except BaseException as thrown:  # a cancellation, most often: it belongs to the work
            error = thrown
