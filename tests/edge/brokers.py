"""Real MQTT brokers on loopback: Mosquitto, and the MQTT listener of nats-server."""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bus.servers import START_S, NatsServer, free_port

KINDS = ("mosquitto", "nats")


class Mosquitto:
    """A Mosquitto that keeps its sessions in a folder of its own, and always listens on the same port."""

    def __init__(self, folder: Path, more: str = "allow_anonymous true\n") -> None:
        self.folder = folder
        self.mqtt_port = free_port()
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
        assert program is not None, "mosquitto is not installed; `make programs` installs it"
        config = self.folder / "mosquitto.conf"
        config.write_text(
            f"listener {self.mqtt_port} 127.0.0.1\npersistence true\npersistence_location {self.folder}/\n"
            f"autosave_interval 1\nautosave_on_changes true\nset_tcp_nodelay true\nuser root\n{self._more}"
        )
        with (self.folder / "mosquitto.log").open("ab") as log:
            self._process = subprocess.Popen([program, "-c", str(config)], stdout=log, stderr=log)
        await_listener(self._process, self.mqtt_port, self.folder / "mosquitto.log")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class NatsMqtt(NatsServer):
    """A nats-server with an MQTT listener, for which it needs JetStream and a name; or as `edge init` configures it."""

    def __init__(self, folder: Path, more: str = "", *, config: Path | None = None, mqtt_port: int = 0) -> None:
        self.mqtt_port = mqtt_port or free_port()
        # After 30 s by default it sends again what a client did not acknowledge, whether it has connected anew or not.
        options = f'host: 127.0.0.1, port: {self.mqtt_port}, ack_wait: "500ms"'
        listener = f'server_name: "edge"\nmqtt {{ {options} }}\n'
        super().__init__(folder, listener + more, config=config, port=mqtt_port + 1 if mqtt_port else 0)

    def start(self, more: str = "", *, answers: bool = True) -> None:
        super().start(more, answers=answers)
        assert self._process is not None
        await_listener(self._process, self.mqtt_port, self.folder / "log")


AnyBroker = Mosquitto | NatsMqtt


def await_listener(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(log.read_text())


@contextlib.contextmanager
def running(kind: str, folder: Path, **more: Any) -> Iterator[AnyBroker]:
    broker: AnyBroker = Mosquitto(folder, **more) if kind == "mosquitto" else NatsMqtt(folder, **more)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
