"""Which device runs a call: the one that was named, else the one that a hash of the conversation picks. Pure.

The hash (rendezvous, highest weight wins) gives calls of the same conversation to the same device while the set of
devices stays the same, and moves only the calls of a device that leaves. One that has more than its fair part of the
calls at the moment is passed over, so that no device is busy while others are idle.
"""

import math
from collections.abc import Callable, Sequence
from hashlib import blake2b

OVER_AVERAGE = 1.25
"""How many times the average load a device may have before the next one is taken."""


def weight(key: str, device_id: str) -> int:
    """How well a device suits a key; the same in every process."""
    return int.from_bytes(blake2b(f"{key}\0{device_id}".encode("utf-8", "replace"), digest_size=8).digest())


def ranked(key: str, device_ids: Sequence[str]) -> list[str]:
    """The devices for a key, the best first."""
    return sorted(device_ids, key=lambda one: (-weight(key, one), one))


def choose(key: str, device_ids: Sequence[str], load: Callable[[str], int], slots: Callable[[str], int]) -> str:
    """The best device for a key that is not overloaded; if all are, the one with the most room. "" without any."""
    if not device_ids:
        return ""
    loads = {one: load(one) for one in device_ids}
    # A fair part of all calls with this one: rounded up, so that a lone call goes where its hash says.
    most = math.ceil(OVER_AVERAGE * (sum(loads.values()) + 1) / len(loads))
    order = ranked(key, device_ids)
    for one in order:
        if loads[one] < min(most, slots(one)):
            return one
    return min(order, key=lambda one: loads[one] / max(slots(one), 1))
