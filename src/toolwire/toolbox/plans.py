"""The plan of a change to several files, as it is written down before the first of them is touched."""

import json
import os
import stat
from dataclasses import asdict, dataclass

from toolwire.protocol.files import NotAFile

_LARGEST_PLAN = 4 * 1024 * 1024
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Swap:
    """One planned swap. `action` is replace, create or remove; `inode` is that of the file that moves."""

    path: str
    action: str
    slot: str
    inode: int
    seen: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Every swap of a change, the folders it makes, and the note to keep under its key."""

    swaps: tuple[Swap, ...]
    folders: tuple[str, ...] = ()
    key: str = ""
    note: str = ""


def encode_plan(plan: Plan) -> bytes:
    return json.dumps(asdict(plan)).encode()


def read_plan(folder: int, name: str) -> Plan | None:
    """A kept plan; None if there is none, or what is there was not written by us."""
    try:
        with open(os.open(name, _OLD, dir_fd=folder), "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotAFile
            body = json.loads(file.read(_LARGEST_PLAN))
        swaps = tuple(_read_swap(swap) for swap in body["swaps"])
        return Plan(swaps, tuple(map(str, body["folders"])), str(body["key"]), str(body["note"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _read_swap(body: dict[str, object]) -> Swap:
    path, action, slot, inode, seen = (body[name] for name in ("path", "action", "slot", "inode", "seen"))
    if not (isinstance(path, str) and isinstance(inode, int) and isinstance(seen, list)):
        raise TypeError("not a swap")
    if action not in {"replace", "create", "remove"} or not str(slot).startswith("new-"):
        raise ValueError("not a swap")
    return Swap(path, str(action), str(slot), inode, tuple(seen))
