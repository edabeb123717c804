"""The time that all machines of a store go by: the database's. Their own clocks may be wrong, and may jump."""

from collections.abc import Callable


class SharedClock:
    """Goes on by a clock of this machine that does not jump, from what the database said last."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._ahead = 0.0

    def __call__(self) -> float:
        return self._elapsed() + self._ahead

    def learn(self, asked: float, time: float) -> None:
        """The database was `asked`, by the clock of this machine, and said that it is this `time` now."""
        self._ahead = time - (asked + self._elapsed()) / 2
