"""What `toolwire edge init` prints works when it is pasted, in one folder and without anything trusted before."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.edge.brokers import await_listener
from tests.edge.test_setup import two_ports

WAIT_S = 20.0


class Terminal:
    """A shell of a user who has nothing but the programs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/sbin", "/usr/sbin", os.environ["PATH"]])
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
        self._environ = {**kept, "PATH": path, "HOME": str(folder), "GPIOZERO_PIN_FACTORY": "mock"}

    def paste(self, text: str) -> str:
        ran = subprocess.run(
            ["/bin/sh", "-c", text], cwd=self._folder, env=self._environ, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    @contextmanager
    def pasted_and_left_running(self, text: str) -> "Iterator[subprocess.Popen[bytes]]":
        log = (self._folder / "log").open("wb")
        process = subprocess.Popen(["/bin/sh", "-c", f"exec {text}"], cwd=self._folder, env=self._environ, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()
            log.close()

    def await_words(self, words: str) -> None:
        end = time.monotonic() + WAIT_S
        while words not in (said := (self._folder / "log").read_text()):
            assert time.monotonic() < end, said
            time.sleep(0.05)


def test_all_that_init_prints_works_when_it_is_pasted_for_two_devices(tmp_path: Path) -> None:
    terminal, port = Terminal(tmp_path), two_ports()
    with ExitStack() as running:
        for name, more in (("pi", f"--broker mqtts://127.0.0.1:{port}"), ("hall", "")):
            printed = terminal.paste(f"toolwire edge init {name} {more}")
            commands = [line for line in printed.splitlines() if line and not line.startswith("#")]
            if broker := next((line for line in commands if line.startswith("mosquitto")), ""):
                process = running.enter_context(terminal.pasted_and_left_running(broker))
                await_listener(process, port, tmp_path / "log")
            [agent] = [line for line in commands if line.startswith("toolwire edge run")]
            running.enter_context(terminal.pasted_and_left_running(agent))
            terminal.await_words(f"{name} is online")
            told = printed[printed.index("cat >> toolwire.toml") :]
            listed = terminal.paste(told)
            assert f"{name} " in listed
            assert "online" in listed
    assert '[devices.hall]\nkey = "ed25519 ' in (tmp_path / "toolwire.toml").read_text()
