"""`toolwire nats`: write the configuration of NATS servers, and check the one that the settings name."""

import ipaddress
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire.agent import run_sync
from toolwire.assemble.buses import check_nats
from toolwire.assemble.project import ProjectFolder
from toolwire.bus.nats_permissions import ALL_PROJECTS
from toolwire.cli.entry.command import LOOK, CliCommand, Group
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import MOST_STREAM_MB, AsJson, NoColor
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.screen import Screen
from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.protocol.subjects import BadSubject

if TYPE_CHECKING:
    from toolwire.assemble import nats_files
else:
    # Loaded where files are written: a library for cryptography comes with it.
    nats_files = lazy_module("toolwire.assemble.nats_files")

DEFAULT_PORT = 4222
_HIGHEST_PORT = 65_535 - 4_000  # the health port lies above
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
nats = typer.Typer(**LOOK, cls=Group, help="Set up NATS servers for workers and runners, and check them.")


@nats.command("config", cls=CliCommand)
def config(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files go; keys there are kept.")],
    project: Annotated[
        list[str] | None,
        typer.Option("--project", metavar="NAME", help="A project with an account of its own; may be given again."),
    ] = None,
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="An account for processes that serve all projects of a store.")
    ] = False,
    service: Annotated[
        list[str] | None,
        typer.Option("--service", metavar="TARGET", help="A tool service that gets the calls of this target only."),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="HOST:PORT", help="Where a server listens; three of them are a cluster."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="Where servers keep messages; else beside the files."),
    ] = None,
    stream_mb: Annotated[
        int,
        typer.Option(
            "--stream-mb", metavar="MB", help="Room for each of a project's two streams.", min=1, max=MOST_STREAM_MB
        ),
    ] = 256,
    no_tls: Annotated[bool, typer.Option("--no-tls", help="Without TLS; only for servers on this machine.")] = False,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Write files for one NATS server or a cluster: configuration, certificates, and a key for each user.

    Each project gets an account, so no user of it can send to or hear from another project. Its users are an
    orchestrator (toolwire run), a worker (toolwire worker) and a tool service for each --service. With --all-projects
    there is one more account, in which all projects are reached: for toolwire run and worker --all-projects, and for
    no process that belongs to a project. Run it again with more projects to add them: keys and certificates that are
    there stay as they are.
    """
    place = current_project()
    projects = [*(project or ([] if all_projects else ["default"])), *([ALL_PROJECTS] if all_projects else [])]
    plan = _plan(place, projects, service or [], node or [f"127.0.0.1:{DEFAULT_PORT}"], stream_mb, no_tls)
    try:
        written = nats_files.write_nats_files(place.cwd / folder, plan, place.cwd / data if data else None)
    except ImportError as missing:
        raise SettingsError(f"NATS needs an extra: pip install 'toolwire[nats]' ({missing})") from None
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    if as_json:
        screen.json(_described(written))
    else:
        _tell(screen, written)
    return Exit.DONE


@nats.command("check", cls=CliCommand)
def check(as_json: AsJson = False, no_color: NoColor = False) -> Exit:
    """Log in to the servers that the settings name under [bus], and say what is there. Ends with 1 if it cannot."""
    place = current_project()
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    found = run_sync(check_nats(place))
    shown = {"server": found.server, "version": found.version, "tls": found.tls, **found.streams}
    if as_json:
        screen.json(shown)
    else:
        screen.pairs({name: str(value) for name, value in shown.items()})
    return Exit.DONE


def _plan(
    place: ProjectFolder, projects: list[str], services: list[str], nodes: list[str], stream_mb: int, no_tls: bool
) -> "nats_files.NatsPlan":
    addresses = tuple(_address(node) for node in nodes)
    if len(set(addresses)) < len(addresses):
        raise SettingsError("two servers cannot listen at the same address; give each --node another port or host")
    if len(addresses) == 2:
        raise SettingsError("two servers are no cluster: without one of them the other stops; give one --node or three")
    if no_tls and not all(_is_local(host) for host, _ in addresses):
        raise SettingsError("--no-tls is only for servers on this machine; leave it out, or listen at 127.0.0.1")
    try:
        users = nats_files.users_of(projects, services)
    except BadSubject as wrong:
        raise SettingsError(str(wrong)) from None
    chosen = place.settings.bus
    return nats_files.NatsPlan(
        addresses, users, chosen.command_stream, chosen.event_stream, stream_mb, tls=not no_tls
    )  # fmt: skip


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 1 <= int(port) <= _HIGHEST_PORT or not _HOST.fullmatch(host):
        raise SettingsError(f"--node {text[:80]!r} must be HOST:PORT, with a port of at most {_HIGHEST_PORT}")
    return host, int(port)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _tell(screen: Screen, written: "nats_files.NatsFiles") -> None:
    """How to start the servers, and what each user puts into its settings."""
    for file in written.configs:
        screen.say(f"nats-server -c {shlex.quote(str(file))}")
    screen.tell("Start each server by its command above (version 2.14.3 or newer). They write every message to disk")
    screen.tell("before they confirm it (sync_interval: always); the files say why.")
    for user, file in written.keys.items():
        screen.say("")
        screen.say(f"# {user.name}")
        screen.say(_section(written, file))
        if user.target:
            inbox = f"_INBOX.{written.public_keys[user]}"
            screen.say(f"# durable name {user.durable}, inbox prefix {inbox}")


def _section(written: "nats_files.NatsFiles", key: Path) -> str:
    urls = [node.url for node in written.cluster.nodes]
    lines = ["[bus]", 'kind = "nats"', f"url = {json.dumps(urls)}", f"credentials = {json.dumps(str(key))}"]
    lines += [f"ca = {json.dumps(str(written.ca))}"] if written.ca else []
    lines += [f"replicas = {written.cluster.replicas}"] if written.cluster.replicas > 1 else []
    return "\n".join([*lines, f"stream_mb = {written.cluster.stream_mb}"])


def _described(written: "nats_files.NatsFiles") -> dict[str, Any]:
    """The same for programs."""
    return {
        "configs": [str(file) for file in written.configs],
        "urls": [node.url for node in written.cluster.nodes],
        "ca": str(written.ca) if written.ca else None,
        "users": [
            {
                "name": user.name,
                "project": user.project,
                "role": user.role.value,
                "credentials": str(file),
                "public_key": written.public_keys[user],
                "settings": _section(written, file),
            }
            for user, file in written.keys.items()
        ],
    }
