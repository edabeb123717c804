"""Names that file tools may not write, or only after approval, because other programs obey what is in them.

That holds whether they exist or not, however they are spelled; `protocol/obeyed.py` has the list.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from toolwire.protocol.files import Protected
from toolwire.protocol.obeyed import OWN_STATE, Obeyed, class_of, is_own_state, plain_name

__all__ = ["OWN_STATE", "asks_about", "asks_about_path", "is_own_state", "refuse_own_state", "refuse_protected"]

# With the user's key a tool could sign a state folder, and the plan in it, somewhere below.
_USER_KEY = ("state", "toolwire", "key")


def refuse_protected(path: str, *, approved: bool = False) -> None:
    """Raise `Protected` if a part of the path is a name that tools may not write, or may only when it is approved."""
    found = class_of(path)
    if found is not None and found[0] > (Obeyed.ASKED if approved else Obeyed.TOLD):
        raise Protected(found[1])


def refuse_own_state(path: str) -> None:
    """Raise `Protected` if the path leads into what toolwire itself keeps, which no tool may read."""
    parts = path.split("/")
    for part in parts:
        if is_own_state(part):
            raise Protected(part)
    if len(parts) >= len(_USER_KEY) and tuple(map(plain_name, parts[-3:])) == _USER_KEY:
        raise Protected(parts[-1])


def asks_about_path(arguments: Mapping[str, Any], roots: tuple[str, ...]) -> str:
    """Why a change of one file needs approval whatever is confirmed; "" for an ordinary file."""
    return asks_about([str(arguments.get("path", ""))], roots)


def asks_about(paths: Iterable[str], roots: tuple[str, ...]) -> str:
    """The same for several files. What is never written is refused later and needs no approval."""
    for path in paths:
        found = class_of(_inside(path, roots))
        if found is not None and found[0] is Obeyed.ASKED:
            return f"Other programs obey {found[1]!r}, so it is written only after approval."
    return ""


def _inside(path: str, roots: tuple[str, ...]) -> str:
    """A path without the granted folder that it begins with, whose own name does not matter."""
    return next((path.removeprefix(root) for root in roots if path.startswith(f"{root}/")), path)
