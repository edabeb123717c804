"""Real NATS servers on loopback, which tests may kill and start again."""

import contextlib
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from toolwire.bus.nats_config import HEALTH_PORT_OFFSET, ROUTE_PORT_OFFSET

SERVER = Path(sys.executable).parent / "nats-server"
START_S = 20.0
_LOWEST, _HIGHEST = 12_000, 28_000


class NatsServer:
    """One server with JetStream, which keeps its streams in a folder of its own and always listens on the same port.

    It has a configuration of its own, with `more` added, or the one that is given.
    """

    def __init__(
        self, folder: Path, more: str = "", *, jetstream: bool = True, config: Path | None = None, port: int = 0
    ) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._more = more
        self._jetstream = jetstream
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self, more: str = "", *, answers: bool = True) -> None:
        """Start it, with this added to its configuration for once, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([SERVER, "-c", self._config or self._own(more)], stdout=log, stderr=log)
        if answers:
            self.await_answer()

    def _own(self, more: str = "") -> Path:
        config = self.folder / "nats.conf"
        store = self.folder / "jetstream"
        streams = f'jetstream {{ store_dir: "{store}", sync_interval: always }}\n' if self._jetstream else ""
        config.write_text(f"host: 127.0.0.1\nport: {self.port}\n{streams}{self._more}{more}")
        return config

    def reload(self, more: str) -> None:
        """Have it read its configuration again, with something else added."""
        self._more = more
        self._own()
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def await_answer(self) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "log").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as client:
                if client.recv(4) == b"INFO":
                    return
            time.sleep(0.02)
        raise AssertionError((self.folder / "log").read_text())


@contextlib.contextmanager
def running(folder: Path, more: str = "", *, jetstream: bool = True) -> Iterator[NatsServer]:
    """A server that runs; `more` is added to its configuration."""
    server = NatsServer(folder, more, jetstream=jetstream)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def free_port() -> int:
    """A port that is free, as are those beside it that a server may take, too.

    Of those that no outgoing connection is given, so that none takes it before the server does.
    """
    while True:
        port = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
        if all(map(_is_free, (port, port + HEALTH_PORT_OFFSET, port + ROUTE_PORT_OFFSET))):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
