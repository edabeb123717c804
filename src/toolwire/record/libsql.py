"""The store in a libSQL server: the same tables, asked over HTTP."""

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from toolwire.record import schema
from toolwire.record.contract import BodyPlace, BodyStore
from toolwire.record.hrana import HranaConnection, http_address
from toolwire.record.liveness import LEASE_S
from toolwire.record.server_store import ServerStore


class LibsqlStore(ServerStore):
    """The store in a libSQL server such as sqld or Turso. Open with `await LibsqlStore.on(…)`."""

    @classmethod
    async def on(
        cls,
        url: str,
        home: Path | str,
        *,
        token: str = "",
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        patience_s: float = 10.0,
        lease_s: float = LEASE_S,
        bodies: BodyStore | BodyPlace = "database",
    ) -> "LibsqlStore":
        """Open the store at `libsql://host`, making what is missing. Raises StoreUnavailable and SettingsError.

        Large bodies lie in the database, in the folder, or where `bodies` keeps them.
        """
        address = http_address(url)
        migrate = partial(schema.migrate, path=address, identity=schema.SERVER_IDENTITY)
        connect = partial(_connected, url, token, patience_s)
        return await cls._on(address, connect, migrate, home, (clock, monotonic), lease_s, bodies)


def _connected(url: str, token: str, patience_s: float) -> sqlite3.Connection:
    # The store executes statements and reads rows; of that the other connection can do all.
    return cast(sqlite3.Connection, HranaConnection(url, token, patience_s=patience_s))
