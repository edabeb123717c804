"""Who is told when a model is waited for.

A context variable, so that neither the models in between nor callers who want only the reply have to know of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from toolwire.protocol.chat import Waiting

_watcher: ContextVar[Callable[[Waiting], None] | None] = ContextVar("toolwire-waits", default=None)


@contextmanager
def waits_told_to(watcher: Callable[[Waiting], None] | None) -> Iterator[None]:
    """Inside the block, whoever waits for a provider tells this watcher before it does."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell_wait(wait_s: float, reason: str) -> None:
    """Say that a provider is about to be waited for."""
    if (watcher := _watcher.get()) is not None:
        watcher(Waiting(wait_s, reason))
