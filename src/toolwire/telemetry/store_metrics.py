"""Metrics of the store and the bus: how its changes go in this process, and what it says about all processes."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from toolwire.bus.contract import Bus
from toolwire.errors import CallHeld, Fenced, NotFound, ToolwireError
from toolwire.record.contract import Store, Workload
from toolwire.record.sqlite import SqliteStore
from toolwire.telemetry.metrics import Metrics

CACHE_S = 5.0
_PATIENCE_S = 3.0
_WRITES = ("begin", "append_reply", "open", "claim", "renew", "close", "end", "release", "dispatch")


def measure_store(store: Store, metrics: Metrics) -> None:
    """Time the changes of a store from now on, and count what becomes of claims."""
    for name in _WRITES:
        if hasattr(store, name):
            setattr(store, name, _timed(name, getattr(store, name), metrics))
    commits, changes = metrics.of("store_commit_seconds"), metrics.of("store_commit_changes")

    def committed(count: int, took_s: float) -> None:
        commits.observe(took_s)
        changes.observe(count)

    if isinstance(store, SqliteStore):
        store.watch_commits(committed)


def _timed(name: str, write: Callable[..., Awaitable[Any]], metrics: Metrics) -> Callable[..., Awaitable[Any]]:
    took, count = metrics.of("store_write_seconds", name), _COUNTED.get(name)

    @wraps(write)
    async def timed(*args: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            done = await write(*args, **named)
        except ToolwireError as error:
            if count is not None:
                count(metrics, error)
            raise
        took.observe(time.perf_counter() - began)
        if count is not None:
            count(metrics, None)
        return done

    return timed


def _claimed(metrics: Metrics, error: ToolwireError | None) -> None:
    held = isinstance(error, CallHeld | Fenced | NotFound)
    metrics.of("claims_total", "claimed" if error is None else "held" if held else "failed").inc()


def _renewed(metrics: Metrics, error: ToolwireError | None) -> None:
    lost = isinstance(error, Fenced | NotFound)
    metrics.of("lease_renewals_total", "renewed" if error is None else "lost" if lost else "failed").inc()


def _closed(metrics: Metrics, error: ToolwireError | None) -> None:
    if isinstance(error, Fenced):
        metrics.of("late_results_total").inc()


_COUNTED = {"claim": _claimed, "renew": _renewed, "close": _closed}


class SharedState:
    """What the store and the bus say, read when metrics are and not more often than every few seconds.

    A thread that reads metrics asks the loop for it, for a bounded time.
    """

    def __init__(
        self,
        metrics: Metrics,
        read: Callable[[], Awaitable[Workload]],
        bus: Bus | None = None,
        *,
        cache_s: float = CACHE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._read = read
        self._bus = bus
        self._cache_s = cache_s
        self._monotonic = monotonic
        self._next = 0.0
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        metrics.before_reading.append(self.wait_for_refresh)

    def wait_for_refresh(self) -> None:
        """Have the loop read, if another thread asks: one that runs on the loop has refreshed before."""
        if threading.get_ident() != self._thread and not self._loop.is_closed():
            try:
                asyncio.run_coroutine_threadsafe(self.refresh(), self._loop).result(_PATIENCE_S)
            except (TimeoutError, RuntimeError):
                self._metrics.of("store_read_failures_total").inc()

    async def refresh(self) -> None:
        """Read what is older than the cache allows."""
        now = self._monotonic()
        if now < self._next:
            return
        self._next = now + self._cache_s
        try:
            async with asyncio.timeout(_PATIENCE_S):
                self._show(await self._read())
        except (ToolwireError, TimeoutError):
            self._metrics.of("store_read_failures_total").inc()
        if self._bus is not None:
            health, kind = await self._bus.health(), type(self._bus).__name__
            self._metrics.of("bus_connected", kind).set(health.connected)
            self._metrics.of("bus_reconnects", kind).set(health.reconnects)

    def _show(self, found: Workload) -> None:
        for state, count in (
            ("running", found.running), ("waiting", found.waiting), ("interrupted", found.interrupted)
        ):  # fmt: skip
            self._metrics.of("store_turns", state).set(count)
        self._metrics.of("store_approvals_pending").set(found.approvals)
        self._metrics.of("store_dispatches").set(found.dispatches)
        self._metrics.of("store_dispatch_overdue_seconds").set(found.overdue_s)
