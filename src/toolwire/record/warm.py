"""The audit log beside the store: its newest rows in memory, those of a week in files that any program can read.

The store is the truth. What is written here has been committed there; where a file cannot be written, only the
file is missing.
"""

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path

import orjson

from toolwire.record.ownership import open_folder
from toolwire.record.rows import Row

KEPT_DAYS = 7
HOT_ROWS = 1000
MOST_WAITING = 50_000
ROWS_AT_ONCE = 200
GATHER_S = 0.2
_SECONDS_OF_A_DAY = 86_400
_FIRST_DAY = date(1970, 1, 1).toordinal()
# A pipe in place of the file would wait for a reader.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FILE = re.compile(r"audit-(\d{4}-\d\d-\d\d)\.jsonl", re.ASCII)


class WarmLog:
    """Keeps rows of the audit table, each with its digest: the newest in memory, and a file for each day (UTC)."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._hot: deque[Row] = deque(maxlen=HOT_ROWS)
        self._waiting: deque[Row] = deque(maxlen=MOST_WAITING)
        self._news = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._swept: date | None = None

    def add(self, rows: Sequence[Row]) -> None:
        """Take rows that were just committed. Waits for nothing: a thread writes them, a few times a second."""
        self._hot.extend(rows)
        self._waiting.extend(rows)
        if not self._news.is_set():
            self._news.set()
            if self._thread is None:
                self._start()

    def newest(self, limit: int) -> list[Row]:
        """The newest rows of this process, oldest first."""
        return list(self._hot)[-limit:] if limit > 0 else []

    def close(self) -> None:
        """Write what waits, and stop. Harmless when called twice."""
        self._closing.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join()
        self._write()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="toolwire-warm-log", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._news.wait()
            self._closing.wait(GATHER_S)  # more rows may come, and one write is enough for all of them
            self._news.clear()
            self._write()

    def _write(self) -> None:
        """Write all that waits, a little at a time, so that calls in this process need not wait for it."""
        while rows := _taken(self._waiting, ROWS_AT_ONCE):
            try:
                with self._opened() as folder:
                    self._sweep(folder)
                    for day, group in _by_day(rows):
                        _append(folder, _file_of(day), _lines(group))
            except (OSError, ValueError, TypeError, OverflowError):
                self._swept = None  # the folder may be gone; it is looked for again

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The folder, made if it is missing; a link in its place is not followed."""
        folder = open_folder(self._folder)
        try:
            yield folder
        finally:
            os.close(folder)

    def _sweep(self, folder: int) -> None:
        """Once a day, remove the files whose days are over."""
        today = datetime.fromtimestamp(self._clock(), UTC).date()
        if self._swept == today:
            return
        self._swept = today
        oldest = (today - timedelta(days=KEPT_DAYS)).isoformat()
        for name in os.listdir(folder):
            named = _FILE.fullmatch(name)
            if named is not None and named[1] < oldest:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)


def _taken(rows: deque[Row], most: int) -> list[Row]:
    """The oldest rows that wait. This thread alone takes any, so that there are at least as many as a moment ago."""
    take = rows.popleft
    return [take() for _ in range(min(most, len(rows)))]


def _by_day(rows: Sequence[Row]) -> Iterable[tuple[int, Iterable[Row]]]:
    """The rows with the days on which they were written, counted from 1970: one, nearly always."""
    days = {int(row[0] // _SECONDS_OF_A_DAY) for row in rows}
    return [(days.pop(), rows)] if len(days) == 1 else groupby(rows, key=lambda row: int(row[0] // _SECONDS_OF_A_DAY))


def _file_of(day: int) -> str:
    return f"audit-{date.fromordinal(_FIRST_DAY + day)}.jsonl"


def _lines(rows: Iterable[Row]) -> bytearray:
    """The rows as lines of one buffer: many small ones would be given back to the system and asked for again."""
    lines = bytearray()
    for row in rows:
        lines += _line(*row)
    return lines


def _line(
    at: float, event: str, project: str, agent: str, turn_id: str, call_id: str, tool: str, rule: str, status: str,
    code: str, args_digest: str, elapsed_ms: float | None, detail: str, chain: str,
) -> bytes:  # fmt: skip
    """Every row comes through, and a dictionary that is written out takes half the time of one that is put together."""
    body = {
        "at": at, "event": event, "project": project, "agent": agent, "turn_id": turn_id, "call_id": call_id,
        "tool": tool, "rule": rule, "status": status, "code": code, "args_digest": args_digest,
        "elapsed_ms": elapsed_ms, "detail": orjson.Fragment(detail), "chain": chain,
    }  # fmt: skip
    return orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE)


def _append(folder: int, name: str, lines: bytearray) -> None:
    descriptor = os.open(name, _APPEND, 0o600, dir_fd=folder)
    try:
        os.write(descriptor, lines)  # one write, so that lines of several processes do not mix
    finally:
        os.close(descriptor)
