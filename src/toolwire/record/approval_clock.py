"""How long a question to people has been open, as far as the process that asked it knows.

On record are dates, which other processes go by. The one that asked measures how much time has passed, so that no
correction of the wall clock lets a question expire early or stay open for longer.
"""

from collections.abc import Callable

from toolwire.protocol.approvals import ApprovalCard

_MOST = 10_000


class ApprovalClock:
    """The open questions of one process: the date of each, and what the monotonic clock said then."""

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._since: dict[tuple[str, str], tuple[float, float]] = {}

    def add(self, card: ApprovalCard) -> None:
        if len(self._since) >= _MOST:
            del self._since[next(iter(self._since))]
        self._since[card.project, card.id] = (card.asked_at, self._monotonic())

    def forget(self, card: ApprovalCard) -> None:
        self._since.pop((card.project, card.id), None)

    def date(self, card: ApprovalCard) -> float:
        """Today's date, as a question's time goes; for the question of another process what the wall clock says."""
        return self._date((card.project, card.id))

    def earliest(self) -> float:
        """The earliest date that any question goes by: one that had expired by then has."""
        return min((self._clock(), *map(self._date, tuple(self._since))))

    def _date(self, key: tuple[str, str]) -> float:
        known = self._since.get(key)
        return self._clock() if known is None else known[0] + self._monotonic() - known[1]
