"""Keeps account of what an egress proxy did for one command, within bounds that the command cannot stretch."""

from msgspec.structs import replace

from toolwire.execute.egress.caps import TrafficEvent
from toolwire.protocol.traffic import ReachedHost, RefusedHost, Traffic

MOST_HOSTS = 20
"""So many hosts are listed, of those reached and of those refused; connections to others are counted together."""

_LONGEST_REASON = 200


class TrafficLog:
    """An `Audit` for a proxy. It can be read while the command goes on: `places` are all hosts reached so far."""

    def __init__(self) -> None:
        self.places: dict[str, None] = {}
        self._begin()

    def _begin(self) -> None:
        self._reached: dict[str, ReachedHost] = {}
        self._refused: dict[str, RefusedHost] = {}
        self._more_reached = self._more_refused = 0

    def __call__(self, noted: TrafficEvent) -> None:
        if noted.event == "refused":
            self._refuse(noted)
        else:
            self._reach(noted)

    def take(self) -> Traffic:
        """What was noted since the last time."""
        reached, refused = tuple(self._reached.values()), tuple(self._refused.values())
        traffic = Traffic(reached, refused, self._more_reached, self._more_refused)
        self._begin()
        return traffic

    def _reach(self, noted: TrafficEvent) -> None:
        opened = noted.event == "allowed"
        if opened and len(self.places) < MOST_HOSTS:
            self.places[noted.place] = None
        elif not opened and noted.place not in self.places:
            return  # the end of what was never opened
        known = self._reached.get(noted.place)
        if known is None and len(self._reached) >= MOST_HOSTS:
            self._more_reached += opened
            return
        known = known or ReachedHost(noted.place)
        self._reached[noted.place] = replace(
            known, connections=known.connections + opened, up=known.up + noted.up, down=known.down + noted.down
        )

    def _refuse(self, noted: TrafficEvent) -> None:
        known = self._refused.get(noted.place)
        if known is None and len(self._refused) >= MOST_HOSTS:
            self._more_refused += 1
            return
        known = known or RefusedHost(noted.place, noted.reason[:_LONGEST_REASON])
        self._refused[noted.place] = replace(known, count=known.count + 1)
