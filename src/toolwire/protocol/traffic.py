"""Where a call went on the network, and where it was not let: a bounded account for the audit log."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace


class ReachedHost(Struct, frozen=True):
    """A host that connections were opened to. `place` is host:port; `up` and `down` are bytes of ended connections."""

    place: str
    connections: int = 0
    up: int = 0
    down: int = 0


class RefusedHost(Struct, frozen=True):
    """A host that was asked for and refused, with the first reason."""

    place: str
    reason: str = ""
    count: int = 0


class Traffic(Struct, frozen=True):
    """What the egress proxy saw of a call. Hosts beyond those listed are only counted."""

    reached: tuple[ReachedHost, ...] = ()
    refused: tuple[RefusedHost, ...] = ()
    more_reached: int = 0
    more_refused: int = 0

    def __bool__(self) -> bool:
        return bool(self.reached or self.refused)

    @property
    def origins(self) -> tuple[str, ...]:
        """The hosts that were really reached, as places where something was read."""
        return tuple(f"network:{one.place}" for one in self.reached)

    def cleaned(self, clean: Callable[[str], str]) -> "Traffic":
        """The same with every text passed through `clean`: a name that was asked for can carry a secret."""
        return replace(
            self,
            reached=tuple(replace(one, place=clean(one.place)) for one in self.reached),
            refused=tuple(replace(one, place=clean(one.place), reason=clean(one.reason)) for one in self.refused),
        )

    def detail(self) -> dict[str, Any]:
        """As it stands in an audit row: lists of host, count and bytes, and how many more there were."""
        rows = {
            "reached": [
                {"host": one.place, "connections": one.connections, "up": one.up, "down": one.down}
                for one in self.reached
            ],
            "refused": [{"host": one.place, "count": one.count, "reason": one.reason} for one in self.refused],
            "more_reached": self.more_reached,
            "more_refused": self.more_refused,
        }
        return {name: value for name, value in rows.items() if value}


NO_TRAFFIC = Traffic()
