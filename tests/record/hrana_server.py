"""A libSQL server on loopback, made of Python's own SQLite: Hrana 2 over HTTP, as strict as sqld about statements."""

import base64
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import orjson

REFUSED = ("pragma journal_size_limit", "pragma wal_autocheckpoint", "pragma application_id", "pragma busy_timeout")
"""What sqld 0.24.32 calls an unsupported statement."""
_RENEWAL = "INSERT INTO owner_leases"
_NAMES = {sqlite3.SQLITE_CONSTRAINT: "SQLITE_CONSTRAINT", sqlite3.SQLITE_BUSY: "SQLITE_BUSY"}


class HranaServer(ThreadingTCPServer):
    """Keeps its streams by their batons; each is a connection to one file.

    Its clock is `later_s` ahead. `renewals` counts how often an owner has renewed its lease.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path, token: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.path = path
        self.token = token
        self.streams: dict[str, sqlite3.Connection] = {}
        self.idle: list[sqlite3.Connection] = []
        self.posts = 0
        self.later_s = 0.0
        self.patience_s = 60.0
        self.renewals = threading.Semaphore(0)
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"libsql://127.0.0.1:{self.server_address[1]}?tls=0"

    def forget_streams(self) -> None:
        """Roll back and end every stream, as a server does that was started again."""
        for connection in (*self.streams.values(), *self.idle):
            connection.close()
        self.streams.clear()
        self.idle.clear()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        baton = body["baton"]
        with self.lock:
            self.posts += 1
            known = self.streams.pop(baton, None) if baton else self._connected()
        if known is None:
            return {"error": "The stream has expired due to inactivity"}
        results = [_done(known, request) for request in body["requests"]]
        if any(_RENEWAL in request.get("stmt", {}).get("sql", "") for request in body["requests"]):
            self.renewals.release()
        if body["requests"][-1]["type"] == "close":
            self._let_go(known)
            return {"baton": None, "base_url": None, "results": results}
        following = secrets.token_hex(8)
        self.streams[following] = known
        return {"baton": following, "base_url": None, "results": results}

    def _connected(self) -> sqlite3.Connection:
        if self.idle:
            return self.idle.pop()
        connection = sqlite3.connect(self.path, timeout=self.patience_s, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # no test cuts the power of this machine
        connection.execute("PRAGMA foreign_keys = ON")
        connection.create_function("julianday", 1, lambda _: (time.time() + self.later_s) / 86_400 + 2_440_587.5)
        return connection

    def _let_go(self, connection: sqlite3.Connection) -> None:
        """Keep the connection for a later stream, which must find it as a new one."""
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("PRAGMA foreign_keys = ON")
        self.idle.append(connection)


def _done(connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
    if request["type"] == "close":
        return {"type": "ok", "response": {"type": "close"}}
    sql, args = request["stmt"]["sql"], [_read(value) for value in request["stmt"]["args"]]
    if sql.lower().startswith(REFUSED):
        return {"type": "error", "error": {"message": "unsupported statement", "code": "SQL_PARSE_ERROR"}}
    try:
        cursor = connection.execute(sql, args)
        rows = [[_written(value) for value in row] for row in cursor.fetchall()]
    except sqlite3.Error as wrong:
        name = _NAMES.get(wrong.sqlite_errorcode & 0xFF, "SQLITE_ERROR")
        return {"type": "error", "error": {"message": f"SQLite error: {wrong}", "code": name}}
    columns = [{"name": one[0], "decltype": None} for one in cursor.description or ()]
    count = max(cursor.rowcount, 0)
    result = {"cols": columns, "rows": rows, "affected_row_count": count, "last_insert_rowid": str(cursor.lastrowid)}
    return {"type": "ok", "response": {"type": "execute", "result": result}}


def _read(value: dict[str, Any]) -> Any:
    match value["type"]:
        case "integer":
            return int(value["value"])
        case "blob":
            return base64.b64decode(value["base64"])
        case _:
            return value.get("value")


def _written(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {"type": "null"}
        case int():
            return {"type": "integer", "value": str(value)}
        case float():
            return {"type": "float", "value": value}
        case bytes():
            return {"type": "blob", "base64": base64.b64encode(value).decode().rstrip("=")}
        case _:
            return {"type": "text", "value": value}


class _Handler(StreamRequestHandler):
    """Answers the posts of one connection, and reads of their heads only what counts here."""

    disable_nagle_algorithm = True
    server: HranaServer

    def handle(self) -> None:
        while head := self._head():
            body = orjson.loads(self.rfile.read(int(head[b"content-length"])))
            if self.server.token and head.get(b"authorization") != b"Bearer " + self.server.token.encode():
                self._send("401 Unauthorized", {"error": "Unauthorized"})
                continue
            answer = self.server.answer(body)
            self._send("400 Bad Request" if "error" in answer else "200 OK", answer)

    def _head(self) -> dict[bytes, bytes]:
        """The fields of the next post, with their names in lower case; none at the end of the connection."""
        self.rfile.readline()
        fields = (line.partition(b":") for line in iter(lambda: self.rfile.readline().strip(), b""))
        return {name.lower(): value.strip() for name, _, value in fields}

    def _send(self, status: str, answer: dict[str, Any]) -> None:
        data = orjson.dumps(answer)
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        self.wfile.write(head.encode() + data)


@contextmanager
def hrana_server(path: Path, token: str = "") -> Iterator[HranaServer]:
    with HranaServer(path, token) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="hrana-server")
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.forget_streams()
