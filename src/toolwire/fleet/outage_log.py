"""Warnings about something that is away, for those who try it again every second."""

import logging
import time
from collections.abc import Callable

AGAIN_S = 60.0
"""The same warning is logged again after this time: an outage of an hour is not thousands of lines."""


class OutageLog:
    """Logs a warning when it is new, and the same one again only after a minute."""

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._said_at: dict[str, float] = {}

    def warn(self, what: str, error: Exception) -> None:
        line, now = f"{what}: {error}", self._monotonic()
        self._said_at = {said: at for said, at in self._said_at.items() if now - at < AGAIN_S}
        if line not in self._said_at:
            self._said_at[line] = now
            self._log.warning("%s", line)
