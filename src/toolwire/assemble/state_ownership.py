"""Whether a record was made by the user who opens it: the approvals and turns in it count as theirs.

A cloned project can bring a `.toolwire` of its own, with approvals that were never given and turns with any grant. So
the folder is signed with the user's key, and the store in it holds a signature of its own, since `git pull` can put
another store into a folder that is the user's. A store that holds nothing yet says nothing: a process that died while
it made its record leaves such a one behind.
"""

import asyncio
import os
import shlex
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from toolwire.errors import SettingsError, StoreError, StoreUnavailable
from toolwire.protocol.files import UntrustedState
from toolwire.protocol.obeyed import OWN_STATE
from toolwire.record.checkpoints import adopt_key
from toolwire.record.faults import to_store_error
from toolwire.record.ownership import (
    FOLDER_FLAGS,
    adopt,
    disown,
    is_signed,
    open_own,
    prepare,
    real_path,
    signature,
)
from toolwire.record.schema import APPLICATION_ID, migrate
from toolwire.settings import forget, is_trusted, state_folder

STORE_FILE = "store.db"
_KIND = "store"
_FILES = ("", "-wal", "-journal")
_PATIENCE_S = 5.0
_LOOKS = 20
_BETWEEN_LOOKS_S = 0.05
_OWN = "CREATE TABLE IF NOT EXISTS own (token TEXT NOT NULL) STRICT"


def is_record(folder: Path) -> bool:
    """Whether a folder holds a store. An empty file is none: the process that wanted to make it died."""
    return any(file.is_file() and file.stat().st_size for file in (folder / f"{STORE_FILE}{end}" for end in _FILES))


def is_state(folder: Path) -> bool:
    """Whether a folder is one of toolwire's own state, with or without a store."""
    return folder.name == OWN_STATE or is_record(folder)


def adopt_state(home: Path) -> None:
    """Take the state in this folder for the user's own from now on. Raises SettingsError and StoreUnavailable."""
    try:
        adopt(home)
        adopt_key(home)
        if is_record(home):
            _sign_store(home / STORE_FILE)
    except OSError as wrong:
        raise SettingsError(_sentence(wrong, home)) from None


def release(home: Path) -> None:
    """Take the state in this folder for the user's own no longer. Raises SettingsError."""
    forget(home / STORE_FILE, state_folder())
    try:
        disown(home)
        if is_record(home):
            with _opened(home / STORE_FILE) as store:
                store.execute("DROP TABLE IF EXISTS own")
    except OSError as wrong:
        raise SettingsError(_sentence(wrong, home)) from None


async def require_own(home: Path, environ: Mapping[str, str], *, named: bool = False, store: bool = True) -> None:
    """Raise SettingsError for a state folder that is not the user's, or whose store was put there by someone else.

    A missing one is made, with a `store`. One that the user has just `named` may have been made by a program.
    """
    if named:
        _prepare(home)
        return
    _claim(home, environ)
    if store and is_record(home):
        await _require_own_store(home / STORE_FILE, environ)
    elif store:
        _begin(home)


def _claim(home: Path, environ: Mapping[str, str]) -> None:
    """The folder as a whole, before anything in it is used."""
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        os.close(open_own(home))
    except UntrustedState as refused:
        if not _is_from_before(home, environ):
            raise SettingsError(refused.sentence) from None
        adopt_state(home)
    except OSError as wrong:
        raise StoreUnavailable(_sentence(wrong, home)) from None


def _is_from_before(home: Path, environ: Mapping[str, str]) -> bool:
    """Whether the folder is unsigned because an older version made it, whose token the state folder knows."""
    file = home / STORE_FILE
    try:
        _prepare(home)
        is_users = home.lstat().st_uid == os.geteuid()
        token = _token(file) if is_users and is_record(home) else ""
    except (SettingsError, StoreError, OSError):
        return False
    return bool(token) and is_trusted(file, token, environ, state_folder())


def _prepare(home: Path) -> None:
    try:
        prepare(home)
    except UntrustedState as refused:
        raise SettingsError(refused.sentence) from None
    except OSError as wrong:
        raise StoreUnavailable(_sentence(wrong, home)) from None


async def _require_own_store(file: Path, environ: Mapping[str, str]) -> None:
    for _ in range(_LOOKS):  # another process may be about to make it
        if _is_own_store(file, environ):
            return
        await asyncio.sleep(_BETWEEN_LOOKS_S)
    if _sign_blank(file):
        return
    raise SettingsError(
        f"the record in {file.parent} was not made here by you: it may contain approvals and turns that are not yours. "
        f"If you restored it from a backup, or if you trust it, run: toolwire trust {shlex.quote(str(file.parent))}\n"
        "Otherwise remove it."
    )


def _is_own_store(file: Path, environ: Mapping[str, str]) -> bool:
    token = _token(file)
    try:
        if is_signed(token, _KIND, real_path(file)):
            return True
    except OSError as wrong:
        raise StoreUnavailable(_sentence(wrong, file.parent)) from None
    return is_trusted(file, token or "none", environ, state_folder())


def _begin(home: Path) -> None:
    """Begin a store that is the user's own from its first byte, so that it still is if its maker dies.

    Where nothing can be written, opening it says so.
    """
    with suppress(SettingsError, StoreError, OSError):
        folder = os.open(home, FOLDER_FLAGS)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(STORE_FILE, flags, 0o600, dir_fd=folder))
        finally:
            os.close(folder)
        _sign_store(home / STORE_FILE)


def _token(file: Path) -> str:
    with _opened(file) as store:
        if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'own'").fetchone():
            return ""
        found = store.execute("SELECT token FROM own").fetchone()
        return str(found[0]) if found else ""


def _sign_store(file: Path) -> None:
    token = signature(_KIND, real_path(file))
    with _opened(file) as store:
        store.execute("BEGIN IMMEDIATE")
        if not store.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            store.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
        store.execute(_OWN)
        store.execute("DELETE FROM own")
        store.execute("INSERT INTO own VALUES (?)", (token,))


def _sign_blank(file: Path) -> bool:
    """Sign a store that holds nothing and is made as ours are, without a trigger more; whether it is such a one."""
    with _opened(file) as store, closing(sqlite3.connect(":memory:", isolation_level=None)) as pristine:
        migrate(pristine, file)
        store.execute("BEGIN IMMEDIATE")
        for each in (store, pristine):
            each.execute(_OWN)
        if _made_of(store) != _made_of(pristine) or _holds_more(store, pristine):
            store.rollback()
            return False
        store.execute("DELETE FROM own")
        store.execute("INSERT INTO own VALUES (?)", (signature(_KIND, real_path(file)),))
        return True


def _made_of(store: sqlite3.Connection) -> set[tuple[str, str, str]]:
    return set(store.execute("SELECT type, name, sql FROM sqlite_master"))


def _holds_more(store: sqlite3.Connection, pristine: sqlite3.Connection) -> bool:
    """Whether any table but the token's has a row that a new store does not have."""
    from_start = set(_rows(pristine))
    return any(row not in from_start for row in _rows(store))


def _rows(store: sqlite3.Connection) -> Iterator[str]:
    for line in store.iterdump():
        if line.startswith("INSERT ") and not line.startswith('INSERT INTO "own"'):
            yield line


def _sentence(wrong: OSError, home: Path) -> str:
    if isinstance(wrong, UntrustedState):
        return wrong.sentence
    return f"{home} cannot be used ({wrong.strerror or wrong}); check the folder, its owner and its free space"


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(file, timeout=_PATIENCE_S)) as store, store:
            yield store
    except sqlite3.Error as wrong:
        raise to_store_error(wrong, file) from None
