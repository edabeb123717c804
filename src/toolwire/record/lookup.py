"""Questions of one statement that look up rows by many keys at once."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from toolwire.record.rows import Row

Key = TypeVar("Key")
Found = TypeVar("Found")


class Lookup(Struct, Generic[Key, Found], frozen=True):
    """What is asked about keys, and how the answer is read. It needs no connection for either."""

    sql: str
    parameters: Callable[[Sequence[Key]], Sequence[Any]]
    read: Callable[[Sequence[Key], Sequence[Row]], Mapping[Key, Found]]

    def __call__(self, connection: sqlite3.Connection, keys: Sequence[Key]) -> Mapping[Key, Found]:
        return self.read(keys, connection.execute(self.sql, self.parameters(keys)).fetchall())
