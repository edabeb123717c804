"""Calls that were given up while their work goes on elsewhere: what they touch is free when that has ended."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from toolwire.execute.threads import Left


class Endings:
    """The ends that are waited for, by the idempotency keys of their calls."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left: dict[str, Left] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def leftover(self, key: str) -> Left | None:
        """What is done when the work of a call has ended; None where none goes on."""
        return self._left.get(key)

    def wait_for(self, key: str, end: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Keep what the call touches until this is over."""
        left = self._left[key] = Left()
        ending = asyncio.get_running_loop().create_task(end, name=self._name)
        self.tasks.add(ending)

        def ended(task: "asyncio.Task[None]") -> None:
            self.tasks.discard(task)
            self._left.pop(key, None)
            left.set_result(None)

        ending.add_done_callback(ended)
        return ending
