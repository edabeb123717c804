"""`toolwire edge init|sign|accept`: set up a device, its broker and its orchestrator."""

import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import AsJson, NoColor
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.input import read_bytes
from toolwire.cli.terminal.screen import Screen
from toolwire.define.nearest import nearest
from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.toolbox.registry import PERMISSIONS, tool_names

if TYPE_CHECKING:
    from toolwire.edge.setup import files as setup_files
    from toolwire.edge.setup import plan as setup_plan
    from toolwire.edge.setup import requests as setup_requests
else:
    # Loaded where files are written: a library for cryptography comes with it.
    setup_files = lazy_module("toolwire.edge.setup.files")
    setup_plan = lazy_module("toolwire.edge.setup.plan")
    setup_requests = lazy_module("toolwire.edge.setup.requests")

_DEFAULT_ALLOWED = ("file_read",)
_NO_EXTRA = "toolwire edge needs an extra: pip install 'toolwire[edge]'"

Folder = Annotated[Path, typer.Option("--folder", metavar="FOLDER", help="Where the files go.")]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker", metavar="URL", help="Where devices find the broker; else mqtts://127.0.0.1:8883, or as before."
    ),
]
Nats = Annotated[
    bool | None, typer.Option("--nats", help="The broker is nats-server; orchestrators speak NATS with it.")
]
Prefix = Annotated[
    str | None, typer.Option("--prefix", metavar="WORDS", help="How topics begin; else evoclaw, or as before.")
]

AsRequest = Annotated[
    bool, typer.Option("--request", help="On the device itself: make its keys there, and ask for a certificate.")
]
AcceptedSkills = Annotated[
    list[str] | None,
    typer.Option("--accept-skill", metavar="NAME", help='A skill that may be pushed to it; "*" is any.'),
]


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The device: its name at the broker and in topics.")],
    folder: Folder = Path("edge"),
    broker: Broker = None,
    nats: Nats = None,
    prefix: Prefix = None,
    request: AsRequest = False,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="PERMISSION", help="What its tools may do; may be given again."),
    ] = None,
    tools: Annotated[str, typer.Option("--tools", metavar="GROUPS", help="Groups of its tools.")] = "device",
    gpio_in: Annotated[
        list[str] | None, typer.Option("--gpio-in", metavar="PIN", help='A pin that is read: 17, "22 up".')
    ] = None,
    gpio_out: Annotated[list[str] | None, typer.Option("--gpio-out", metavar="PIN", help="A pin that is set.")] = None,
    accept_skill: AcceptedSkills = None,
    program: Annotated[
        str | None, typer.Option("--program", metavar="PATH", help="Where the device has toolwire, for its service.")
    ] = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Write what a device, its broker and its orchestrator need to know each other, and say what to do next.

    Each device gets a key, a certificate and topics of its own. Run it again with another name for a further device:
    keys and certificates that are there stay as they are, and no device is overwritten.

    With --request it runs on the device, whose private keys then never leave it: toolwire edge sign answers the request
    where the orchestrator is, and toolwire edge accept takes in the answer.
    """
    place = current_project()
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    if request and (broker or prefix or nats):
        raise SettingsError("--broker, --prefix and --nats are for toolwire edge sign; the answer brings them")
    groups = tuple(word.strip() for word in tools.split(",") if word.strip())
    tool_names(groups)  # raises for a group that does not exist
    _check_permissions(allow or ())
    try:
        common = setup_files.choose_setup(place.cwd / folder, broker, prefix, nats)
        plan = setup_plan.EdgePlan(
            setup_plan.check_name(name), setup_plan.read_broker(common.url, is_nats=common.nats), _program(program),
            setup_plan.check_prefix(common.prefix), tuple(allow or _DEFAULT_ALLOWED), groups,
            setup_plan.check_pins("--gpio-in", gpio_in or ()), setup_plan.check_pins("--gpio-out", gpio_out or ()),
            tuple(accept_skill or ()),
        )  # fmt: skip
        if request:
            return _request(screen, place.cwd / folder, plan, as_json=as_json)
        written = setup_files.write_edge_files(place.cwd / folder, plan)
    except ImportError as missing:
        raise SettingsError(f"{_NO_EXTRA} ({missing})") from None
    if as_json:
        screen.json(_written_object(written))
    else:
        _tell(screen, written, name, nats=common.nats)
    return Exit.DONE


def _check_permissions(allowed: Iterable[str]) -> None:
    """Raises SettingsError for one that is probably misspelled; a skill may have permissions of its own."""
    for name in allowed:
        if name not in PERMISSIONS and (near := nearest(name, sorted(PERMISSIONS))):
            raise SettingsError(f"--allow {name[:80]}: did you mean {' or '.join(near)}?")


def _request(screen: Screen, root: Path, plan: "setup_plan.EdgePlan", *, as_json: bool) -> Exit:
    """Ask for a certificate, and say how it is signed."""
    written = setup_requests.write_request(root, plan)
    if as_json:
        screen.json({"device": str(written.device), "request": str(written.file), "key_id": written.key_id})
        return Exit.DONE
    name, file = plan.name, shlex.quote(str(written.file))
    screen.say("# 1. Where the orchestrator is, in the folder of its project, fetch the request and sign it:")
    screen.say(f"scp {name}:{file} {name}.request.json")
    screen.say(f"toolwire edge sign {name}.request.json")
    screen.say(f"#    It must show the key {written.key_id}, and says how to bring the answer here.")
    screen.say("# 2. On this device, take in the answer:")
    screen.say(f"toolwire edge accept ~/{name}.answer.json --folder {shlex.quote(str(root))}")
    return Exit.DONE


def sign(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The request of a device; - reads it from the input.")],
    folder: Folder = Path("edge"),
    broker: Broker = None,
    nats: Nats = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Sign the request of a device that made its own keys (edge init --request), and say what to do next.

    Compare the id of the key with the one that the device shows. Of the request only its keys and its name count.
    """
    place = current_project()
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    try:
        request = setup_requests.read_request(read_bytes(file, setup_requests.MOST_BYTES), file)
        common = setup_files.choose_setup(place.cwd / folder, broker, prefix, nats)
        written = setup_requests.sign_device(place.cwd / folder, common, request)
    except ImportError as missing:
        raise SettingsError(f"{_NO_EXTRA} ({missing})") from None
    answer = written.device / setup_requests.ANSWER
    if as_json:
        screen.json({"answer": str(answer), "key_id": request.key.key_id, **_common_object(written)})
        return Exit.DONE
    screen.say(f"# Signed for {request.name}, whose key is {request.key.key_id}.")
    _tell_broker(screen, written, nats=common.nats)
    screen.say("# 2. Bring the answer to the device, where toolwire edge accept takes it in:")
    screen.say(f"scp {shlex.quote(str(answer))} {request.name}:{request.name}.answer.json")
    _tell_orchestrator(screen, written)
    return Exit.DONE


def accept(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The answer; - reads it from the input.")],
    folder: Folder = Path("edge"),
    no_color: NoColor = False,
) -> Exit:
    """Take in the answer to a device's request, on the device: its certificate, its broker, and whom it obeys."""
    place = current_project()
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    try:
        data = read_bytes(file, setup_requests.MOST_BYTES)
        config, obeyed = setup_requests.accept_answer(place.cwd / folder, data, file)
    except ImportError as missing:
        raise SettingsError(f"{_NO_EXTRA} ({missing})") from None
    screen.say(f"# It obeys commands of the key {obeyed}. Start the agent, to try it:")
    screen.say(f"toolwire edge run --config {shlex.quote(str(config))}")
    screen.say("# or install it as a service:")
    screen.say(f"sudo sh {shlex.quote(str(config.parent / 'install.sh'))}")
    return Exit.DONE


def _written_object(written: "setup_files.WrittenDevice") -> dict[str, str]:
    return {"device": str(written.device), "config": str(written.device / "edge.toml"), **_common_object(written)}


def _common_object(written: "setup_files.WrittenDevice") -> dict[str, str]:
    return {"broker": str(written.folder.broker), "key": written.key, "settings": written.settings}


def _program(given: str | None) -> str:
    """Where the service finds toolwire. Raises SettingsError for what systemd cannot start."""
    found = given or shutil.which("toolwire") or str(Path(sys.argv[0]).resolve())
    if not found.startswith("/") or any(char.isspace() for char in found):
        raise SettingsError(f"--program {found[:80]!r} must be a full path without blanks")
    return found


def _tell(screen: Screen, written: "setup_files.WrittenDevice", name: str, *, nats: bool) -> None:
    """What to do next, as commands that can be pasted."""
    device = shlex.quote(str(written.device))
    _tell_broker(screen, written, nats=nats)
    screen.say("# 2. Start the agent here, to try it:")
    screen.say(f"toolwire edge run --config {device}/edge.toml")
    screen.say("#    or copy the folder to the device and install it there as a service:")
    screen.say(f"scp -r {device} {name}:toolwire-edge && ssh -t {name} sudo sh toolwire-edge/install.sh")
    _tell_orchestrator(screen, written)


def _tell_broker(screen: Screen, written: "setup_files.WrittenDevice", *, nats: bool) -> None:
    if written.is_first:
        program, config = ("nats-server", "nats.conf") if nats else ("mosquitto", "mosquitto.conf")
        screen.say("# 1. Start the broker:")
        screen.say(f"{program} -c {shlex.quote(str(written.folder.broker / config))}")
    elif nats:
        screen.say("# 1. Have the broker read its users again:")
        screen.say("nats-server --signal reload")
    else:
        screen.say("# 1. The broker knows the new device by its certificate.")


def _tell_orchestrator(screen: Screen, written: "setup_files.WrittenDevice") -> None:
    screen.say("# 3. Tell the orchestrator, in the folder of its project:")
    screen.say(f"cat >> toolwire.toml <<'END'\n{written.settings}END")
    screen.say("toolwire trust")
    screen.say("# 4. See whether it answers:")
    screen.say("toolwire edge list")
