"""Which files a command may touch, said to the kernel once more, from inside: defence in depth."""

import struct

from toolwire.execute.sandbox.plan import LaunchPlan
from toolwire.execute.sandbox.syscalls import call

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_ALL_OF_FIRST = 0x1FFF
_SINCE = ((2, 0x2000), (3, 0x4000), (5, 0x8000))  # moving between folders, truncating, ioctl on devices
_TCP = 0x3
_SCOPES = 0x3  # abstract sockets and signals
READ = _EXECUTE | _READ_FILE | _READ_DIR


def abi() -> int:
    """The version of landlock in this kernel; 0 where there is none."""
    try:
        return call("landlock_create_ruleset", 0, 0, 1)
    except OSError:
        return 0


def confine(plan: LaunchPlan, version: int, readable: list[str], writable: list[str], *, tcp: bool) -> LaunchPlan:
    """Leave the command these folders, and no TCP unless it may have it."""
    rights = _ALL_OF_FIRST | sum(bit for since, bit in _SINCE if version >= since)
    attributes = [rights]
    if version >= 4:
        attributes.append(0 if tcp else _TCP)
    if version >= 6:
        attributes.append(_SCOPES)
    rules = [(READ, path) for path in readable] + [(rights, path) for path in writable]
    return plan.landlock(struct.pack(f"{len(attributes)}Q", *attributes), rules)
