"""The workspace as a mount of its own, in which its owner appears as the box's user.

A box never runs as root, and root's folder is often the workspace. A mount with translated ids lets an ordinary user
write there: on disk everything keeps belonging to the workspace's owner.
"""

import os
import struct
from pathlib import Path

from toolwire.execute.sandbox.namespaces import enter_namespace
from toolwire.execute.sandbox.plan import LaunchPlan
from toolwire.execute.sandbox.syscalls import call

_EMPTY_PATH, _CLONE, _CLOSE_ON_EXEC = 0x1000, 1, 0o2000000
_NO_SUID, _NO_DEVICES, _TRANSLATED = 0x2, 0x4, 0x00100000
_NEW_USER_NAMESPACE = 0x10000000
_IDS = 2**32 - 1
_MOST_KEPT = 64


def detached_mount(folder: int, translation: int | None) -> int:
    """A mount of a folder that is nowhere yet, with ids translated when a user namespace is given. Raises OSError."""
    tree = call("open_tree", folder, b"\0", _CLONE | _CLOSE_ON_EXEC | _EMPTY_PATH)
    wanted = _NO_SUID | _NO_DEVICES | (_TRANSLATED if translation is not None else 0)
    attributes = struct.pack("QQQQ", wanted, 0, 0, translation or 0)
    try:
        call("mount_setattr", tree, b"\0", _EMPTY_PATH, attributes, len(attributes))
    except OSError:
        os.close(tree)
        raise
    return tree


class Translations:
    """User namespaces that say who is who, made once and kept. For the one thread that starts boxes."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, int], int] = {}

    def between(self, owner: int, group: int, user: int) -> int:
        """A namespace in which the owner of files on disk, and their group, appear as `user`. Raises OSError."""
        key = (owner, group, user)
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                os.close(self._kept.pop(next(iter(self._kept))))
            plan = LaunchPlan().call("unshare", _NEW_USER_NAMESPACE)
            self._kept[key] = enter_namespace(plan, (), "user", lambda process: _translate(process, *key))
        return self._kept[key]


def _translate(process: int, owner: int, group: int, user: int) -> None:
    Path(f"/proc/{process}/uid_map").write_text(_map(owner, user))
    Path(f"/proc/{process}/gid_map").write_text(_map(group, user))


def _map(on_disk: int, shown: int) -> str:
    """Lines that show one id as another and leave all others as they are; `shown` on disk belongs to no user."""
    low, high = sorted((on_disk, shown))
    spans = [(0, low), (low + 1, high), (high + 1, _IDS)]
    same = [f"{start} {start} {end - start}" for start, end in spans if end > start]
    return "\n".join([f"{on_disk} {shown} 1", *same])
