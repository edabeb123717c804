"""Who is told when a model is waited for, and how long that may take.

Context variables, so that neither the models in between nor callers who want only the reply have to know of it.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from toolwire.protocol.chat import ProviderWait

_watcher: ContextVar[Callable[[ProviderWait], None] | None] = ContextVar("toolwire-waits", default=None)


@contextmanager
def waits_told_to(watcher: Callable[[ProviderWait], None] | None) -> Iterator[None]:
    """Inside the block, code that waits for a provider tells this watcher before it does."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


_deadline: ContextVar[float | None] = ContextVar("toolwire-deadline", default=None)


@contextmanager
def waits_end_in(left_s: float | None) -> Iterator[None]:
    """Inside the block, no wait for a provider is begun that cannot end in time; None sets no limit."""
    token = _deadline.set(None if left_s is None else asyncio.get_running_loop().time() + left_s)
    try:
        yield
    finally:
        _deadline.reset(token)


def time_to_wait_s() -> float | None:
    """The seconds that are left to wait for a provider, None where nothing limits them."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())


def tell_wait(wait_s: float, reason: str) -> None:
    """Say that a provider is about to be waited for."""
    if (watcher := _watcher.get()) is not None:
        watcher(ProviderWait(wait_s, reason))
