"""`toolwire edge init`: set up a device, its broker and its orchestrator."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import AsJson, NoColor
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.screen import Screen
from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module

if TYPE_CHECKING:
    from toolwire.edge.setup import files as setup_files
    from toolwire.edge.setup import plan as setup_plan
else:
    # Loaded where files are written: a library for cryptography comes with it.
    setup_files = lazy_module("toolwire.edge.setup.files")
    setup_plan = lazy_module("toolwire.edge.setup.plan")

PERMISSIONS = ("file_read",)


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The device: its name at the broker and in topics.")],
    folder: Annotated[Path, typer.Option("--folder", metavar="FOLDER", help="Where the files go.")] = Path("edge"),
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", metavar="URL", help="Where devices find the broker; else mqtts://127.0.0.1:8883, or as before."
        ),
    ] = None,
    nats: Annotated[
        bool | None, typer.Option("--nats", help="The broker is nats-server; orchestrators speak NATS with it.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="WORDS", help="How topics begin; else evoclaw, or as before.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="PERMISSION", help="What its tools may do; may be given again."),
    ] = None,
    tools: Annotated[str, typer.Option("--tools", metavar="GROUPS", help="Groups of its tools.")] = "device",
    gpio_in: Annotated[
        list[str] | None, typer.Option("--gpio-in", metavar="PIN", help='A pin that is read: 17, "22 up".')
    ] = None,
    gpio_out: Annotated[list[str] | None, typer.Option("--gpio-out", metavar="PIN", help="A pin that is set.")] = None,
    accept_skill: Annotated[
        list[str] | None,
        typer.Option("--accept-skill", metavar="NAME", help='A skill that may be pushed to it; "*" is any.'),
    ] = None,
    program: Annotated[
        str | None, typer.Option("--program", metavar="PATH", help="Where the device has toolwire, for its service.")
    ] = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Write what a device, its broker and its orchestrator need to know each other, and say what to do next.

    Each device gets a key, a certificate and topics of its own. Run it again with another name for a further device:
    keys and certificates that are there stay as they are, and no device is overwritten.
    """
    place = current_project()
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    try:
        common = setup_files.choose_setup(place.cwd / folder, broker, prefix, nats)
        plan = setup_plan.EdgePlan(
            setup_plan.check_name(name), setup_plan.read_broker(common.url, is_nats=common.nats), _program(program),
            setup_plan.check_prefix(common.prefix), tuple(allow or PERMISSIONS),
            tuple(word.strip() for word in tools.split(",") if word.strip()),
            setup_plan.check_pins("--gpio-in", gpio_in or ()), setup_plan.check_pins("--gpio-out", gpio_out or ()),
            tuple(accept_skill or ()),
        )  # fmt: skip
        written = setup_files.write_edge_files(place.cwd / folder, plan)
    except ImportError as missing:
        raise SettingsError(f"toolwire edge needs an extra: pip install 'toolwire[edge]' ({missing})") from None
    if as_json:
        screen.json(_written_object(written))
    else:
        _tell(screen, written, name, nats=common.nats)
    return Exit.DONE


def _written_object(written: "setup_files.WrittenDevice") -> dict[str, str]:
    return {
        "device": str(written.device),
        "config": str(written.device / "edge.toml"),
        "broker": str(written.folder.broker),
        "key": written.key,
        "settings": written.settings,
    }


def _program(given: str | None) -> str:
    """Where the service finds toolwire. Raises SettingsError for what systemd cannot start."""
    found = given or shutil.which("toolwire") or str(Path(sys.argv[0]).resolve())
    if not found.startswith("/") or any(char.isspace() for char in found):
        raise SettingsError(f"--program {found[:80]!r} must be a full path without blanks")
    return found


def _tell(screen: Screen, written: "setup_files.WrittenDevice", name: str, *, nats: bool) -> None:
    """What to do next, as commands that can be pasted."""
    broker, device = written.folder.broker, shlex.quote(str(written.device))
    if written.is_first:
        program, config = ("nats-server", "nats.conf") if nats else ("mosquitto", "mosquitto.conf")
        screen.say("# 1. Start the broker:")
        screen.say(f"{program} -c {shlex.quote(str(broker / config))}")
    elif nats:
        screen.say("# 1. Have the broker read its users again:")
        screen.say("nats-server --signal reload")
    else:
        screen.say("# 1. The broker knows the new device by its certificate.")
    screen.say("# 2. Start the agent here, to try it:")
    screen.say(f"toolwire edge run --config {device}/edge.toml")
    screen.say("#    or copy the folder to the device and install it there as a service:")
    screen.say(f"scp -r {device} {name}:toolwire-edge && ssh -t {name} sudo sh toolwire-edge/install.sh")
    screen.say("# 3. Tell the orchestrator, in the folder of its project:")
    screen.say(f"cat >> toolwire.toml <<'END'\n{written.settings}END")
    screen.say("toolwire trust")
    screen.say("# 4. See whether it answers:")
    screen.say("toolwire edge list")
