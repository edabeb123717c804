"""Names that no file tool may write, because something later runs or obeys what is in them.

They are refused whether they exist or not, however they are spelled; `protocol/obeyed.py` has the list.
"""

from toolwire.protocol.files import Protected
from toolwire.protocol.obeyed import OWN_STATE, Obeyed, class_of, is_own_state

__all__ = ["OWN_STATE", "is_own_state", "refuse_own_state", "refuse_protected"]


def refuse_protected(path: str, *, approved: bool = False) -> None:
    """Raise `Protected` if a part of the path is a name that tools may not write, or may only when it is approved."""
    found = class_of(path)
    if found is not None and found[0] > (Obeyed.ASKED if approved else Obeyed.TOLD):
        raise Protected(found[1])


def refuse_own_state(path: str) -> None:
    """Raise `Protected` if the path leads into what toolwire itself keeps, which no tool may read."""
    for part in path.split("/"):
        if is_own_state(part):
            raise Protected(part)
