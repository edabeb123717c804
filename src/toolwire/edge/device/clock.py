"""What time it is at the orchestrator, so that a wrong clock on the device does no harm.

A command says when it was sent and until when it may begin, both by the clock of its sender. Comparing these with a
device's own clock would run late commands where that clock is slow, and refuse all where it is fast. So the device uses
its clock only to measure how much time passes, and learns the sender's from the signed commands themselves:

* A message sent at S and received at the moment M shows that the sender's clock was at least at S then. The largest
  S - M of all messages is therefore a lower bound of the difference, off by no more than the fastest delivery took.
* A command that repeats the session of this very connection was sent after it began. So the sender's clock was also no
  further than S plus the age of the connection, which makes up for a sender whose clock was set back.

  A command of this session that seems to be late may come from such a sender, too: then the device begins another
  session, and is greeted anew.

Until a command of this session has come, the device does not know how long others have waited in the broker. It holds
them for a moment, since orchestrators greet a device that connects; after that, its own clock decides, unless that may
be wrong: it is behind a sender's, was set back, or the machine was off, after which many count on from where they were.

Time must pass while the device sleeps, too: what waited in the broker meanwhile is as old as it is.
"""

import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from toolwire.wire.mqtt.commands import EdgeCommand
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage

TOLERANCE_S = 60.0
"""How far the device's own clock may be behind that of a sender before it is not believed."""


def steady_s() -> float:
    """Seconds that no one sets, and that go on while the machine is suspended, where its kernel counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def machine_boot() -> str:
    """What tells the runs of this machine apart; empty where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class _Difference(Struct):
    """The sender's clock less the device's steady one: at least `least`, and `known` by a command of a session."""

    least: float
    known: bool


class SenderClocks:
    """The clocks of all who send commands, each known by its key."""

    def __init__(self, steady: Callable[[], float], own: Callable[[], float], *, max_age_s: float) -> None:
        self._steady = steady
        self._own = own
        self._max_age_s = max_age_s
        self._own_began = own() - steady()
        self.machine_was_off = False
        self.session = ""
        self._since = 0.0
        self._differences: dict[str, _Difference] = {}

    def begin_session(self, session: str) -> None:
        """A connection was made now."""
        self.session, self._since = session, self._steady()

    def hear(self, command: EdgeCommand) -> None:
        """Learn from a command that has just come in, whatever it says. Its signature must have been checked."""
        if not command.key_id:
            return
        steady = self._steady()
        least = command.sent_at - steady
        difference = self._differences.setdefault(command.key_id, _Difference(least, known=False))
        difference.least = max(difference.least, least)
        if self.is_of_session(command):
            difference.least = min(difference.least, command.sent_at - self._since)
            difference.known = True

    def is_of_session(self, command: EdgeCommand) -> bool:
        """Whether a command was sent after this session began."""
        return bool(command.session) and command.session == self.session

    def knows(self, command: EdgeCommand) -> bool:
        """Whether it can be told how old a command is without asking the device's own clock."""
        difference = self._differences.get(command.key_id)
        return difference is not None and difference.known

    def confirms_own(self) -> bool:
        """Whether the device's own clock agrees with that of a sender whose time is known."""
        drift = self._own() - self._steady()
        return any(one.known and abs(one.least - drift) <= TOLERANCE_S for one in self._differences.values())

    def _doubt(self, command: EdgeCommand) -> str:
        """Why it cannot be told how old a command is: its sender has not told the time, and the own clock is wrong."""
        if not command.key_id or self.knows(command):
            return ""
        heard = self._differences.get(command.key_id)
        behind = 0.0 if heard is None else self._steady() + heard.least - self._own()
        set_back = self._own_began - (self._own() - self._steady())
        if behind > TOLERANCE_S:
            return f"the clock of this device is {behind:.0f} s behind, so it may be of any age; set that clock"
        if set_back > TOLERANCE_S:
            return f"the clock of this device was set back by {set_back:.0f} s, so it may be of any age; send it again"
        if self.machine_was_off:
            return "this machine was off, and may not know for how long, so it may be of any age; send it again"
        return ""

    def seconds_left(self, command: EdgeCommand) -> float | RefusedMessage:
        """How long the command may still begin, or why it may not."""
        if not command.key_id and not command.sent_at:  # the plain format has no dates at all
            return self._max_age_s
        if why := self._doubt(command):
            return RefusedMessage(RefusalCode.STALE, f"the command was not started: {why}", "sent_at")
        now = self._now(command)
        if now < command.sent_at - TOLERANCE_S:
            why = f"it was sent {command.sent_at - now:.0f} s in the future by the clock of this device; set that clock"
            return RefusedMessage(RefusalCode.STALE, f"the command was not started: {why}", "sent_at")
        until = command.sent_at + self._max_age_s if command.deadline is None else command.deadline
        if now < until:
            return until - now
        code = RefusalCode.STALE if command.deadline is None else RefusalCode.EXPIRED
        return RefusedMessage(code, f"the command was not started: it came {now - until:.1f} s too late", "deadline")

    def _now(self, command: EdgeCommand) -> float:
        if self.knows(command):
            return self._steady() + self._differences[command.key_id].least
        heard = self._differences.get(command.key_id)
        return self._own() if heard is None else max(self._own(), self._steady() + heard.least)
