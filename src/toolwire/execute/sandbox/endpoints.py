"""Sockets and named pipes in a workspace: whether a program outside of the box answers there."""

import errno
import os
import socket
import stat


def is_answered(root: int, path: str) -> bool:
    """Whether a socket belongs to a live program, or a pipe could. A dead socket stays dead, and is only a name.

    A live one is not disturbed: it is asked for another type of socket than most are, and no word is sent.
    """
    try:
        found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except OSError:
        return False
    try:
        if not stat.S_ISSOCK(os.fstat(found).st_mode):
            return True
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            return asking.connect_ex(f"/proc/self/fd/{found}") != errno.ECONNREFUSED
    finally:
        os.close(found)
