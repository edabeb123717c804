"""What a turn waits for. Kept with the turn, so that any process can tell when it can go on.

A turn that waits for several things can go on as soon as one of them has come: what can run then runs, and the turn
waits for the rest.
"""

from msgspec import Struct


class ForApproval(Struct, frozen=True):
    """An approval request is pending; it is over when that is approved, denied or expired."""

    approval_id: str

    def __str__(self) -> str:
        return f"approval {self.approval_id}"


class ForResult(Struct, frozen=True):
    """Another process runs a call of the turn. Over with its result, or when its lease ends (`until`)."""

    call_id: str
    until: float | None = None

    def __str__(self) -> str:
        return f"the result of call {self.call_id}"


class ForTurn(Struct, frozen=True):
    """A sub-agent's turn has not ended."""

    turn_id: str

    def __str__(self) -> str:
        return f"turn {self.turn_id} of a sub-agent"


class Until(Struct, frozen=True):
    """A time must come (seconds since 1970). A turn that waits until a time in the past can go on at once."""

    at: float
    reason: str = ""

    def __str__(self) -> str:
        return self.reason or f"time {self.at:.0f}"


Wait = ForApproval | ForResult | ForTurn | Until
