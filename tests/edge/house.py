"""A project with one device, as a user has it from `toolwire edge init` on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.stage import Ran, Stage, scripted
from tests.edge.test_setup import broker_of, two_ports
from tests.toolbox.git_places import git
from toolwire.cli.entry.exits import Exit
from toolwire.edge.setup.plan import EdgeFolder

TUNING = '''
import json
from pathlib import Path
from typing import Any

from toolwire import Effect, tool

@tool(effect=Effect.IDEMPOTENT)
def tune(metrics: dict[str, Any]) -> str:
    """Take the metrics of the tools, and choose better settings."""
    Path(__file__).with_name("seen.json").write_text(json.dumps(metrics))
    return f"tuned by {len(metrics['device']['tools'])} tools"
'''
INIT = (
    *("edge", "init", "pi", "--gpio-in", "17 up", "--gpio-out", "27", "--tools", "device,git", "--json"),
    *("--allow", "file_read", "--allow", "git", "--allow", "device", "--accept-skill", "lamp"),
)


class House:
    """A project with one device."""

    def __init__(self, folder: Path, port: int) -> None:
        self.stage = Stage(folder)
        self.folder = EdgeFolder(folder / "edge")
        self.device = self.folder.device("pi")
        written = self.run(*INIT, "--broker", f"mqtts://127.0.0.1:{port}")
        assert written.code == Exit.DONE, written.err
        self.stage.settings(f'{written.json["settings"]}\n[grant]\npermissions = ["file_read", "git", "device"]\n')
        self._prepare_device()

    def run(self, *words: str) -> Ran:
        return self.stage.run(*words)

    def ask(self, question: str, *lines: Any) -> tuple[str, list[str]]:
        """The answer, and what the model read of the device on the way."""
        with scripted(*lines) as model:
            ran = self.run("ask", question, *model.flags)
        assert ran.code == Exit.DONE, ran.err
        return ran.out.strip(), [one["content"] for one in model.requests[-1]["messages"] if one["role"] == "tool"]

    def _prepare_device(self) -> None:
        zone = self.device / "machine" / "sys" / "class" / "thermal" / "thermal_zone0"
        zone.mkdir(parents=True)
        (zone / "type").write_text("cpu-thermal\n")
        (zone / "temp").write_text("45600\n")
        (self.device / "tuning.py").write_text(TUNING)
        config = self.device / "edge.toml"
        text = config.read_text().replace("[device]", '[device]\nroot = "machine"').replace(
            'roots = ["workspace"]', 'roots = ["workspace", "/etc"]'
        )  # fmt: skip
        text = text.replace("[tools]", '[tools]\nmodules = ["tuning:tune"]')
        config.write_text(f'{text}\n[hooks]\nevolution = "tune"\n')
        work = self.device / "workspace"
        git(work, "init", "-q", "-b", "main")
        for number, subject in enumerate(["Initial commit", "Add feature", "Fix bug"]):
            (work / "main.go").write_text("package main\n" + "func fix() {}\n" * number)
            git(work, "add", "-A")
            git(work, "commit", "-q", "-m", subject)


@contextmanager
def furnished(folder: Path) -> Iterator[House]:
    """A house whose broker and device run."""
    port = two_ports()
    house = House(folder, port)
    words = ("edge", "run", "--config", str(house.device / "edge.toml"))
    with broker_of(house.folder, "mosquitto", port):
        # The project around the device's folder is none of its business, so it need not be trusted here.
        process = house.stage.start(*words, anew=True, GPIOZERO_PIN_FACTORY="mock", TOOLWIRE_TRUST="")
        assert process.stderr is not None
        said = [process.stderr.readline().decode() for _ in range(2)]
        assert said[1].startswith("pi is online"), said
        yield house
        house.stage.close()
