"""What docs/deployment.md says to write and to run is accepted: commands, settings, and the servers' files."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.bus.servers import SERVER
from tests.cli.stage import Stage
from toolwire.settings import load

PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


CONFIGS = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("toolwire nats config")]


@pytest.mark.parametrize("text", blocks("toml"), ids=lambda text: text.split("\n", 1)[0])
def test_the_settings_of_the_page_are_accepted(tmp_path: Path, text: str) -> None:
    (tmp_path / "toolwire.toml").write_text(text)
    load(tmp_path, {"TOOLWIRE_TRUST": str(tmp_path)})


@pytest.mark.parametrize("line", CONFIGS, ids=lambda line: line.removeprefix("toolwire nats config "))
def test_the_servers_of_the_page_accept_their_files(tmp_path: Path, line: str) -> None:
    words = shlex.split(line.replace("/var/lib/toolwire-nats", str(tmp_path / "data")))
    written = Stage(tmp_path).run(*words[1:], "--json").json
    for config in written["configs"]:
        checked = subprocess.run([SERVER, "-t", "-c", config], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
    for name in re.findall(r"`(ca\.pem|ca\.key)`", PAGE):
        assert (tmp_path / "nats" / name).exists()


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`toolwire ((?:nats|store) [a-z]+|[a-z]+)", PAGE))))
def test_the_commands_of_the_page_exist(tmp_path: Path, command: str) -> None:
    assert Stage(tmp_path).run(*command.split(), "--help").code == 0
