"""Whether a record was made by the user who opens it: what it says people allowed counts as their word.

A cloned project can bring a `.toolwire` of its own, with yeses that nobody here gave and turns with any grant. So a new
record gets a token, which is kept in the user's state folder too; another one is opened only with the user's word. One
that holds nothing yet speaks for nobody: a process that died while it made its record leaves such a one behind.
"""

import asyncio
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from toolwire.errors import SettingsError, StoreUnavailable
from toolwire.record.schema import APPLICATION_ID, migrate
from toolwire.record.sqlite import make_home
from toolwire.settings import is_trusted, state_folder, trust

STORE_FILE = "store.db"
_FILES = ("", "-wal", "-journal")
_PATIENCE_S = 5.0
_LOOKS = 20
_BETWEEN_LOOKS_S = 0.05
_OWN = "CREATE TABLE IF NOT EXISTS own (token TEXT NOT NULL) STRICT"


def is_record(folder: Path) -> bool:
    """Whether a folder holds a record. A file without a byte is none: whoever wanted to make it did not get far."""
    return any(file.is_file() and file.stat().st_size for file in (folder / f"{STORE_FILE}{end}" for end in _FILES))


def own(home: Path) -> None:
    """Take the record in this folder for the user's own from now on. Raises SettingsError and StoreUnavailable."""
    file = home / STORE_FILE
    trust(file, _token(file, make=True), state_folder())


def own_new(home: Path) -> None:
    """Begin a record that is the user's own from its first byte, so that it still is if nobody gets to finish it.

    Where nothing can be written or remembered, opening it or the next look at it says so.
    """
    with suppress(SettingsError, StoreUnavailable, OSError):
        make_home(home)
        os.close(os.open(home / STORE_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        own(home)


async def require_own(home: Path, environ: Mapping[str, str]) -> None:
    """Raise SettingsError for a record that somebody else made, or that was put in the place of the user's."""
    file = home / STORE_FILE
    for _ in range(_LOOKS):  # another process may be about to make it
        if is_trusted(file, _token(file, make=False) or "none", environ, state_folder()):
            return
        await asyncio.sleep(_BETWEEN_LOOKS_S)
    if token := _token_of_blank(file):
        trust(file, token, state_folder())
        return
    raise SettingsError(
        f"the record in {home} was not made here by you: yeses and turns of somebody else may be in it. "
        f"Remove it, or if you trust it, run: toolwire trust {home}"
    )


def _token(file: Path, *, make: bool) -> str:
    with _opened(file) as store:
        if make:
            store.execute("BEGIN IMMEDIATE")
            if not store.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                store.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
            store.execute(_OWN)
            store.execute("INSERT INTO own SELECT ? WHERE NOT EXISTS (SELECT * FROM own)", (secrets.token_hex(32),))
        elif not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'own'").fetchone():
            return ""
        found = store.execute("SELECT token FROM own").fetchone()
        return str(found[0]) if found else ""


def _token_of_blank(file: Path) -> str:
    """A new token in a record that holds nothing and is made as ours are, without a trigger more; "" for any other."""
    with _opened(file) as store, closing(sqlite3.connect(":memory:", isolation_level=None)) as pristine:
        migrate(pristine, file)
        store.execute("BEGIN IMMEDIATE")
        for each in (store, pristine):
            each.execute(_OWN)
        if _made_of(store) != _made_of(pristine) or _holds_anything(store):
            store.rollback()
            return ""
        token = secrets.token_hex(32)
        store.execute("DELETE FROM own")
        store.execute("INSERT INTO own VALUES (?)", (token,))
        return token


def _made_of(store: sqlite3.Connection) -> set[tuple[str, str, str]]:
    return set(store.execute("SELECT type, name, sql FROM sqlite_master"))


def _holds_anything(store: sqlite3.Connection) -> bool:
    """Whether any table but the token's has a row."""
    return any(line.startswith("INSERT ") and not line.startswith('INSERT INTO "own"') for line in store.iterdump())


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(file, timeout=_PATIENCE_S)) as store, store:
            yield store
    except sqlite3.Error as wrong:
        raise StoreUnavailable(f"the record {file} cannot be read: {wrong}") from None
