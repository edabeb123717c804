"""The plan of a change to several files, as it is written down before the first of them is touched."""

import errno
import json

from msgspec import Struct, to_builtins

from toolwire.record.ownership import is_signed, read_file, signature

LARGEST_PLAN = 8 * 1024 * 1024
_KIND = "plan"
_PROOF = 65  # the signature in hexadecimal and a line end


class Swap(Struct, frozen=True):
    """One planned swap. `action` is replace, create or remove; `inode` is that of the file that moves."""

    path: str
    action: str
    slot: str
    inode: int
    seen: tuple[int, ...] = ()


class ChangePlan(Struct, frozen=True):
    """Every swap of a change, the folders it makes, and the note to keep under its key."""

    swaps: tuple[Swap, ...]
    folders: tuple[str, ...] = ()
    key: str = ""
    note: str = ""


def encode_plan(plan: ChangePlan, where: str) -> bytes:
    """The plan with proof that this user's toolwire wrote it for the journal at `where`. Raises OSError."""
    body = json.dumps(to_builtins(plan)).encode()
    if len(body) > LARGEST_PLAN:
        raise OSError(errno.E2BIG, "the names of so many files are too long to be changed at once")
    return f"{signature(_KIND, where, body)}\n".encode() + body


def read_plan(folder: int, name: str, where: str) -> ChangePlan | None:
    """A kept plan; None if there is none, or what is there was not written by this user's toolwire.

    The proof is looked at first: what lacks it is not even parsed.
    """
    try:
        proof, _, body = read_file(name, folder, LARGEST_PLAN + _PROOF).partition(b"\n")
        if not is_signed(proof.decode("ascii", "replace"), _KIND, where, body):
            return None
        found = json.loads(body)
        swaps = tuple(_read_swap(number, swap) for number, swap in enumerate(found["swaps"]))
        return ChangePlan(swaps, tuple(map(str, found["folders"])), str(found["key"]), str(found["note"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def slot_name(number: int) -> str:
    """Where the new content of a plan's swap lies, and afterwards the old one."""
    return f"new-{number}"


def _read_swap(number: int, body: dict[str, object]) -> Swap:
    path, action, slot, inode, seen = (body[name] for name in ("path", "action", "slot", "inode", "seen"))
    if not (isinstance(path, str) and isinstance(inode, int) and isinstance(seen, list)):
        raise TypeError("not a swap")
    if action not in {"replace", "create", "remove"} or slot != slot_name(number):
        raise ValueError("not a swap")
    return Swap(path, str(action), slot_name(number), inode, tuple(seen))
