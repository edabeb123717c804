"""Which tests reach which line, and how long each takes."""

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.caches import clear_caches

Item = pytest.Item
Line = tuple[str, int]

_LONG_EXPRESSION = 12


class Coverage:
    """The tests of every line that was reached."""

    def __init__(self) -> None:
        self.took: dict[Item, float] = {}
        self._of_line: defaultdict[Line, list[Item]] = defaultdict(list)

    def add(self, item: Item, lines: Iterable[Line], took: float) -> None:
        self.took[item] = took
        for line in lines:
            self._of_line[line].append(item)

    def tests(self, path: str, line: int) -> list[Item]:
        """The tests that reach a line, the quickest first. The line of a long expression may be one further up."""
        near = range(line, max(line - _LONG_EXPRESSION, 0), -1)
        found = next((items for at in near if (items := self._of_line.get((path, at)))), [])
        return sorted((item for item in found if item in self.took), key=lambda item: self.took[item])

    def drop(self, items: Iterable[Item]) -> None:
        """Forget tests that say nothing about a mutant."""
        for item in items:
            del self.took[item]


def measure(items: Sequence[Item], files: Collection[str]) -> Coverage:
    """Run every test once, and note which lines of these files it reaches. What fails without a mutant is left out."""
    found = Coverage()
    for item in items:
        clear_caches()  # an answer kept from an earlier test would hide what a mutant answers
        began = time.thread_time()
        with traced(frozenset(files)) as lines:
            passed = passes(item)
        if passed:
            found.add(item, lines, time.thread_time() - began)
    return found


@contextmanager
def traced(files: frozenset[str]) -> Iterator[set[Line]]:
    """The lines of these files that are run inside of the block, by whatever thread."""
    lines: set[Line] = set()

    def in_frame(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return in_frame

    threading.settrace(in_frame)
    sys.settrace(in_frame)
    try:
        yield lines
    finally:
        sys.settrace(None)
        threading.settrace(None)


def passes(item: Item) -> bool:
    return all(report.passed for report in runtestprotocol(item, log=False, nextitem=None))
