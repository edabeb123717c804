"""The folder in which a journal lies: made when it is needed, held by one process at a time, kept small."""

import fcntl
import os
import shlex
import time
from contextlib import suppress

from toolwire.protocol.files import UntrustedState
from toolwire.protocol.obeyed import OWN_STATE
from toolwire.record.ownership import open_folder, open_own
from toolwire.toolbox.disk.beneath import BeneathDir

_NAME = "changes"
_DONE = "done"
FOLDER = f"{OWN_STATE}/{_NAME}"
LONGEST_WAIT_S = 4.0
KEPT_DAYS = 30
_MOST_DONE = 4096
_FORGOTTEN = "forgotten"
_LOOKS = ("00", "40", "80", "c0")  # names of notes are digests: one change in 64 looks through all of them


def own_folder(place: BeneathDir) -> tuple[int, str]:
    """The folder of the journal, made if need be, and its real path. Raises UntrustedState for one of another maker.

    The state folder must be this user's, and neither it nor the journal may hold a link: what is in the journal is
    carried out later.
    """
    above = os.path.realpath(place.root)
    where = os.path.join(above, OWN_STATE)  # noqa: PTH118 - as text, for signatures
    state = open_own(OWN_STATE, above=place.fd, where=where)
    try:
        folder = open_folder(_NAME, state)
    finally:
        os.close(state)
    try:
        with suppress(FileExistsError):
            os.mkdir(_DONE, 0o700, dir_fd=folder)
        _refuse_odd(folder, f"{where}/{_NAME}")
    except BaseException:
        os.close(folder)
        raise
    return folder, f"{where}/{_NAME}"


def _refuse_odd(folder: int, where: str) -> None:
    """Raise UntrustedState where the journal holds anything but files and the folder of notes."""
    with os.scandir(folder) as found:
        for entry in found:
            usual = entry.is_dir if entry.name == _DONE else entry.is_file
            if not usual(follow_symlinks=False):
                raise UntrustedState(
                    f"{where} holds {entry.name!r}, which was not made by toolwire; "
                    f"no file is changed beside it. Remove {shlex.quote(where)}"
                )


def lock_journal(folder: int) -> int:
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


def forget_oldest(folder: int, name: str) -> None:
    """Remove notes that are both old and too many, now and then: `name` is that of the newest note.

    A note of a call without a result is still needed, and the journal does not know which calls have one. So no note
    goes before its time, however many there are, and a mark says that some are gone: see `has_forgotten`.
    """
    if not name.startswith(_LOOKS):
        return
    done = os.open(_DONE, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        names = os.listdir(done)  # noqa: PTH208 - a descriptor, not a path
        if len(names) <= _MOST_DONE:
            return
        before = time.time() - KEPT_DAYS * 86_400
        ages = {name: os.stat(name, dir_fd=done, follow_symlinks=False).st_mtime for name in names}
        old = sorted((name for name in names if ages[name] < before), key=ages.__getitem__)[: len(names) - _MOST_DONE]
        if old:
            os.close(os.open(_FORGOTTEN, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder))
            os.fsync(folder)
        for name in old:
            os.unlink(name, dir_fd=done)
    finally:
        os.close(done)


def has_forgotten(folder: int) -> bool:
    """Whether notes were ever removed, so that a missing one says nothing."""
    try:
        os.stat(_FORGOTTEN, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
