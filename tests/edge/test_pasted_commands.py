"""What `toolwire edge init` prints works when it is pasted, in one folder and without anything trusted before."""

import os
import re
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

    def __init__(self, folder: Path, *programs: Path) -> None:
        self._folder = folder
        own = [*map(str, programs), str(Path(sys.executable).parent)]
        path = os.pathsep.join([*own, "/usr/local/sbin", "/usr/sbin", os.environ["PATH"]])
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


COPY = """#!/bin/sh
# As scp between the machines of this test, whose homes are folders side by side.
named() { case "$1" in pi:/*) echo "${1#pi:}";; pi:*) echo "$HOMES/pi/${1#pi:}";; *) echo "$1";; esac; }
exec cp "$(named "$1")" "$(named "$2")"
"""


def commands_of(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line and not line.startswith("#")]


def test_all_that_is_printed_works_for_a_device_whose_private_keys_never_leave_it(tmp_path: Path) -> None:
    for name in ("pi", "desk", "programs"):
        (tmp_path / name).mkdir()
    scp = tmp_path / "programs" / "scp"
    scp.write_text(COPY.replace("$HOMES", str(tmp_path)))
    scp.chmod(0o755)
    pi, desk = (Terminal(tmp_path / name, tmp_path / "programs") for name in ("pi", "desk"))
    port = two_ports()
    asked = pi.paste("toolwire edge init pi --request --gpio-in 17")
    fetch, sign, accept = commands_of(asked)
    desk.paste(fetch)
    signed = desk.paste(f"{sign} --broker mqtts://127.0.0.1:{port} --nats")
    broker, bring, *_ = commands_of(signed)
    desk.paste(bring)
    run, _ = commands_of(pi.paste(accept))
    with ExitStack() as running:
        process = running.enter_context(desk.pasted_and_left_running(broker))
        await_listener(process, port, tmp_path / "desk" / "log")
        running.enter_context(pi.pasted_and_left_running(run))
        pi.await_words("pi is online")
        listed = desk.paste(signed[signed.index("cat >> toolwire.toml") :])
        called = desk.paste("toolwire call gpio_read pin=17 --allow device --json || toolwire edge logs pi")

    assert re.search(r"whose key is (\w+)", signed)[1] in asked  # type: ignore[index]
    assert "online" in listed
    assert '"pin"' in called
    secret = [(tmp_path / "pi/edge/devices/pi" / name).read_text() for name in ("client.key", "device.pem")]
    others = [one.read_text() for one in (tmp_path / "desk").rglob("*") if one.is_file() and one.suffix in TEXTS]
    assert len(others) > 10
    assert not [one for one in others for key in secret if key.splitlines()[1] in one]


TEXTS = {".pem", ".key", ".json", ".toml", ".conf", ".acl"}
