"""The event loop of what runs for long: uvloop's where it is installed, which the extras nats, postgres and serve do.

It reads and writes sockets with less of the processor than asyncio's. A program that uses toolwire as a library has
chosen its own loop, and keeps it.
"""

import asyncio
import gc
from collections.abc import Coroutine
from importlib import import_module
from typing import Any, TypeVar, cast

T = TypeVar("T")
_NEW_OBJECTS = 20_000
"""How many objects may be new before garbage is looked for. Each look goes over all that the calls in flight hold."""


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop that nothing runs on yet."""
    try:
        quicker = import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    return cast("asyncio.AbstractEventLoop", quicker.new_event_loop())


def run_on_new_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run what a process is there for, as `asyncio.run` does."""
    gc.freeze()  # what was loaded stays until the end
    gc.set_threshold(_NEW_OBJECTS)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)
