"""A libSQL server (sqld, Turso) asked over HTTP, with as much of a SQLite connection as the store uses.

The protocol is Hrana 2: each post carries statements of one stream, and the stream is a connection on the server. A
stream lives for one transaction here, since servers end idle ones after seconds.
"""

import base64
import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import orjson

from toolwire.errors import SettingsError, StoreUnavailable
from toolwire.record.lone_questions import LONE_QUESTIONS
from toolwire.tls import trust_for

Row = tuple[Any, ...]
LARGEST_ANSWER = 256 * 1024 * 1024
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PATH = "/v2/pipeline"
_CLOSE = {"type": "close"}
# What a file needs and a server decides itself; it refuses to be told.
_NOT_OURS = ("PRAGMA journal_", "PRAGMA synchronous", "PRAGMA wal_", "PRAGMA busy_timeout", "PRAGMA application_id")


def http_address(url: str) -> str:
    """The server's HTTP address: `libsql://host` means TLS, unless it ends in `?tls=0`. Raises SettingsError."""
    parts = urlsplit(url)
    if parts.scheme not in ("libsql", "http", "https") or not parts.hostname:
        raise SettingsError(f"a libSQL store is at libsql://host, https://host or http://host, not {url[:200]!r}")
    if parts.username is not None or parts.password is not None:
        raise SettingsError("the address of a store must not contain a user name or password; give the token apart")
    plain = parts.scheme == "http" or parse_qs(parts.query).get("tls") == ["0"]
    return f"{'http' if plain else 'https'}://{parts.netloc}{parts.path.rstrip('/')}"


class Cursor:
    """The rows of one statement, all of them here already."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: Iterable[Row] = (), rowcount: int = 0) -> None:
        self._rows = iter(rows)
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Row]:
        return self._rows

    def fetchone(self) -> Row | None:
        return next(self._rows, None)

    def fetchall(self) -> list[Row]:
        return list(self._rows)


class HranaConnection:
    """One writer's or reader's way to the server. What it raises is sqlite3.Error or StoreUnavailable."""

    def __init__(self, url: str, token: str = "", *, patience_s: float = 10.0) -> None:
        self._address = http_address(url)
        host = urlsplit(self._address).hostname
        headers = {"authorization": f"Bearer {token}"} if token else {}
        # A proxy of the environment is meant for the world, not for a server on this machine.
        trust_env = host not in _LOOPBACK
        verify = trust_for(self._address, trust_env=trust_env)
        self._http = httpx2.Client(headers=headers, timeout=patience_s, trust_env=trust_env, verify=verify)
        self._versions = itertools.count(1)
        self._end_stream()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor:
        """One statement. A transaction holds the stream from its BEGIN to its COMMIT or ROLLBACK."""
        if sql.startswith(_NOT_OURS):
            return Cursor()
        if sql == "PRAGMA data_version":
            # The server's number is about one connection of its own, and each transaction here has another one.
            return Cursor([(next(self._versions),)])
        word = sql.split(None, 1)[0].upper()
        if word == "BEGIN":
            self._end_stream()
            self._begin = sql  # said with the first statement, and not at all where nothing or one question follows
            return Cursor()
        if word in ("COMMIT", "ROLLBACK"):
            return self._ended(sql)
        statement = _statement(sql, parameters)
        if not self._begin:
            return self._asked([statement])[0]
        if word != "SELECT":
            self._begun([])  # a server that refuses it would carry out what comes with it all the same
            return self._asked([statement])[0]
        if self._begin == "BEGIN" and sql in LONE_QUESTIONS:
            return self._again_if_lost([statement])[0]
        return self._begun([statement])[1]

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> Cursor:
        """The same statement with each of these rows, in one post."""
        if self._begin:
            self._begun([])
        done = self._asked([_statement(sql, row) for row in rows])
        return Cursor((), sum(cursor.rowcount for cursor in done))

    def close(self) -> None:
        """Let go of the server. An open transaction is rolled back there."""
        self._http.close()

    def _begun(self, following: list[Any]) -> list[Cursor]:
        """Begin the transaction, and ask what goes with that."""
        begin, self._begin = _statement(self._begin, ()), ""
        self._open = True
        try:
            return self._again_if_lost([begin, *following])
        except StoreUnavailable:
            self._end_stream()
            raise

    def _again_if_lost(self, requests: list[Any]) -> list[Cursor]:
        """Ask what may be asked twice: a kept connection may have died meanwhile."""
        try:
            return self._asked(requests)
        except StoreUnavailable:
            return self._asked(requests)

    def _ended(self, sql: str) -> Cursor:
        """The last word of a stream. One that has ended already was rolled back, so that need not be said again."""
        if self._begin:
            self._end_stream()
            return Cursor()
        if not self._open and sql == "COMMIT":
            raise sqlite3.OperationalError("cannot commit - no transaction is active")
        try:
            return self._asked([_statement(sql, ())], last=True)[0] if self._open else Cursor()
        finally:
            self._end_stream()

    def _end_stream(self) -> None:
        self._open = False
        self._begin = ""
        self._baton: str | None = None
        self._base = self._address

    def _asked(self, requests: list[Any], *, last: bool = False) -> list[Cursor]:
        if not requests:
            return []
        closes = last or not self._open
        answer = self._post({"baton": self._baton, "requests": [*requests, _CLOSE] if closes else requests})
        if not closes:
            self._baton = answer.get("baton")
            self._base = _next_address(answer.get("base_url"), self._address) or self._base
        results = answer.get("results")
        if not isinstance(results, list) or len(results) < len(requests):
            raise StoreUnavailable(f"{self._address} did not answer as a libSQL server does; check the address")
        return [_cursor(result) for result in results[: len(requests)]]

    def _post(self, body: Any) -> dict[str, Any]:
        try:
            with self._http.stream("POST", self._base + _PATH, content=orjson.dumps(body)) as response:
                data = _bounded(response)
        except (httpx2.HTTPError, httpx2.InvalidURL) as lost:
            raise StoreUnavailable(
                f"{self._address} could not be reached ({type(lost).__name__}); check the address and the network"
            ) from lost
        if response.status_code in (401, 403):
            raise StoreUnavailable(f"{self._address} refused the token; check the variable that holds it")
        try:
            answer = orjson.loads(data)
        except ValueError:
            answer = None
        if response.status_code != 200 or not isinstance(answer, dict):
            said = data[:200].decode("utf-8", "replace")
            raise StoreUnavailable(f"{self._address} answered {response.status_code}: {said}")
        return answer


def _bounded(response: httpx2.Response) -> bytes:
    pieces, size = [], 0
    for piece in response.iter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_ANSWER:
            raise StoreUnavailable(f"a libSQL server answered with more than {LARGEST_ANSWER} bytes")
    return b"".join(pieces)


def _next_address(given: Any, first: str) -> str | None:
    """Where a server wants the rest of a stream. The token goes along, so never to a place without TLS."""
    found = given if isinstance(given, str) else ""
    schemes = ("https",) if first.startswith("https:") else ("http", "https")
    return found.rstrip("/") if urlsplit(found).scheme in schemes else None


def _statement(sql: str, parameters: Sequence[Any]) -> dict[str, Any]:
    return {"type": "execute", "stmt": {"sql": sql, "args": [_written(value) for value in parameters]}}


def _written(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {"type": "null"}
        case int():  # as text, since JSON numbers lose the last digits of large ones
            return {"type": "integer", "value": str(int(value))}
        case float():
            return {"type": "float", "value": value} if value == value else {"type": "null"}
        case bytes():
            return {"type": "blob", "base64": base64.b64encode(value).decode()}
        case str():
            return {"type": "text", "value": value}
    raise sqlite3.InterfaceError(f"a value of type {type(value).__name__} cannot be kept")


def _read(value: dict[str, Any]) -> Any:
    match value:
        case {"type": "integer", "value": found}:
            return int(found)
        case {"type": "float", "value": found}:
            return float(found)
        case {"type": "text", "value": found}:
            return found
        case {"type": "blob", "base64": found}:
            return base64.b64decode(found + "=" * (-len(found) % 4))
        case _:
            return None


def _cursor(result: Any) -> Cursor:
    match result:
        case {
            "type": "ok",
            "response": {"type": "execute", "result": {"rows": list(rows), "affected_row_count": count}},
        }:
            return Cursor([tuple(_read(value) for value in row) for row in rows], count)
        case {"type": "error", "error": {"message": message, **more}}:
            raise _error(str(message), str(more.get("code")))
        case _:
            raise StoreUnavailable(
                "the libSQL server sent an unexpected response; check the address and the version of the server"
            )


def _error(message: str, code: str) -> sqlite3.Error:
    kind = sqlite3.IntegrityError if code.startswith("SQLITE_CONSTRAINT") else sqlite3.OperationalError
    error = kind(message)
    timed_out = code in ("TRANSACTION_TIMEOUT", "TRANSACTION_BUSY")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY if timed_out else getattr(sqlite3, code, sqlite3.SQLITE_ERROR)
    return error
