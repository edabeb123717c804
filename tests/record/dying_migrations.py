"""Upgrades of a store, killed before their statements: `python -m tests.record.dying_migrations SQL FOLDER EVERY`.

Prints how many there were. The store of kill N lies in the folder N; with EVERY, not each statement has one.
"""

import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from toolwire.record import schema

NEVER = 1_000_000


class DyingConnection(sqlite3.Connection):
    """Kills its process before the statement of a number."""

    left = 0

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        if not sql.lstrip().startswith("SELECT"):
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
        return super().execute(sql, parameters)


def make(path: Path, statements: str) -> None:
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path)
    connection.executescript(statements)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def migrate(path: Path, killed_before: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None, factory=DyingConnection)
    connection.left = NEVER
    connection.execute("PRAGMA synchronous = OFF")  # a kill loses nothing that was written
    connection.left = killed_before
    schema.migrate(connection, path)
    connection.close()


def main(sql: str, folder: str, every: str = "1") -> None:
    fresh, number, status = Path(folder) / "fresh" / "store.db", 0, 1
    make(fresh, Path(sql).read_text(encoding="utf-8"))
    while status:
        path = Path(folder) / str(number) / "store.db"
        path.parent.mkdir()
        shutil.copyfile(fresh, path)
        if not (pid := os.fork()):
            migrate(path, number * int(every))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        number += 1
    sys.stdout.write(f"{number - 1}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
