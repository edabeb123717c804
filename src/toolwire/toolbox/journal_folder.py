"""The folder in which a journal lies: made when it is needed, held by one process at a time, kept small."""

import fcntl
import os
import time
from contextlib import suppress

from toolwire.toolbox.beneath import BeneathDir
from toolwire.toolbox.protected import OWN_STATE

FOLDER = f"{OWN_STATE}/changes"
LONGEST_WAIT_S = 4.0
_MOST_DONE = 4096
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def own_folder(place: BeneathDir) -> int:
    """The folder of the journal, made if need be. What it holds is not for version control."""
    with suppress(FileExistsError):
        os.mkdir(OWN_STATE, 0o700, dir_fd=place.fd)
    above, _ = place.parent(FOLDER)
    try:
        with suppress(FileExistsError), open(os.open(".gitignore", _NEW, 0o644, dir_fd=above), "w") as ignore:  # noqa: PTH123
            ignore.write("*\n")
        for folder in (FOLDER.rpartition("/")[2], f"{FOLDER.rpartition('/')[2]}/done"):
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700, dir_fd=above)
    finally:
        os.close(above)
    return place.folder(FOLDER, links=False)


def locked(folder: int) -> int:
    """A descriptor that holds the journal until it is closed. Raises BlockingIOError after a few seconds."""
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    until = time.monotonic() + LONGEST_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(lock)
                raise
            time.sleep(0.005)
        else:
            return lock


def mend(folder: int, slot: str) -> None:
    """Finish a swap that was made of single steps because the file system knows no other."""
    with suppress(FileNotFoundError):
        try:
            os.stat(slot, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(f"{slot}.old", slot, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.unlink(f"{slot}.old", dir_fd=folder)


def forget_oldest(folder: int) -> None:
    """Keep the number of notes about finished changes in bounds."""
    done = os.open("done", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        names = os.listdir(done)  # noqa: PTH208 - a descriptor, not a path
        if len(names) > _MOST_DONE:
            by_age = sorted(names, key=lambda name: os.stat(name, dir_fd=done, follow_symlinks=False).st_mtime_ns)
            for name in by_age[: _MOST_DONE // 4]:
                os.unlink(name, dir_fd=done)
    finally:
        os.close(done)
