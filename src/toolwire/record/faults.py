"""SQLite's and the file system's complaints, said as a StoreError with what to do about it."""

import sqlite3
from pathlib import Path

from toolwire.errors import StoreError, StoreUnavailable
from toolwire.protocol.files import UntrustedState

_LOCKED = "is locked by another process; close whatever holds it (a backup, a database browser) and try again"
_CLOSED_DOOR = "cannot be opened for writing; check that its folder exists and belongs to this user"

_SENTENCES = {
    sqlite3.SQLITE_FULL: "has no room left; free some space on its disk and try again",
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: _CLOSED_DOOR,
    sqlite3.SQLITE_CANTOPEN: _CLOSED_DOOR,
    sqlite3.SQLITE_PERM: _CLOSED_DOOR,
    sqlite3.SQLITE_IOERR: "could not be read or written; check its disk and the space left on it, and try again",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore a copy, or move it away to begin with an empty store",
    sqlite3.SQLITE_NOTADB: "is not a store; move it away, or choose another home",
    sqlite3.SQLITE_PROTOCOL: _LOCKED,
    sqlite3.SQLITE_NOMEM: "needs more memory than there is; close other programs and try again",
}
_PRIMARY = 0xFF


def to_store_error(error: Exception, path: Path | str) -> Exception:
    """What the caller should see: our own words for foreign errors, anything else unchanged."""
    match error:
        case StoreError():
            return error
        case sqlite3.Error():
            return _of_sqlite(error, path)
        case UntrustedState():
            return StoreUnavailable(error.sentence)
        case OSError():
            reason = error.strerror or str(error)
            return StoreUnavailable(f"{path} cannot be used ({reason}); check the folder, its owner and its free space")
        case _:
            return error


def _of_sqlite(error: sqlite3.Error, path: Path | str) -> StoreError:
    sentence = _SENTENCES.get(getattr(error, "sqlite_errorcode", -1) & _PRIMARY)
    if sentence is None:
        return StoreError(f"{path} refused a change ({error})")
    return StoreUnavailable(f"{path} {sentence} ({error})")
