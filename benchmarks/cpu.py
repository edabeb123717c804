"""CPU time of something small, repeated."""

import gc
import time
from collections.abc import Callable, Iterable


def cpu_us(work: Callable[[], object], seconds: float) -> float:
    """Microseconds of this process's CPU for one go, from about this many seconds of going."""
    rounds = 1
    gc.collect()
    while True:
        taken_us = _taken_us(work for _ in range(rounds))
        if taken_us >= seconds * 1e6 / 2:
            return taken_us / rounds
        rounds *= 2


def cpu_us_after(prepare: Callable[[], Callable[[], object]], seconds: float) -> float:
    """The same for work that can be done only once after each preparation, which is not counted."""
    done, taken_us = 0, 0.0
    batch = 100 if seconds else 1
    gc.collect()
    while not done or taken_us < seconds * 1e6 / 4:
        taken_us += _taken_us([prepare() for _ in range(batch)])
        done += batch
    return taken_us / done


def _taken_us(works: Iterable[Callable[[], object]]) -> float:
    began = time.process_time_ns()
    for work in works:
        work()
    return (time.process_time_ns() - began) / 1000
