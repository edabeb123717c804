"""`toolwire store`: prune what is too old, give space back to the disk, copy the record."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.state_ownership import adopt_state
from toolwire.assemble.stores import retention_of, store_of
from toolwire.cli.entry.command import LOOK, CliCommand, Group
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import AsJson, Home, NoColor
from toolwire.cli.resolve.project import current_project
from toolwire.cli.resolve.resuming import project_words
from toolwire.cli.terminal.screen import Screen
from toolwire.errors import NotFound, SettingsError
from toolwire.record.projects import DEFAULT, ProjectStore
from toolwire.record.retention import Pruned, Retention
from toolwire.record.sqlite import SqliteStore

_MB = 1_000_000
store = typer.Typer(**LOOK, cls=Group, help="Prune, shrink or copy the record.")


@store.command("prune", cls=CliCommand)
def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; nothing goes.")] = False,
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Remove what the settings under [retention] no longer keep. Nothing goes that is still open or pending."""
    place = _place(home)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    retention = retention_of(place.settings.retention)
    pruned = run_sync(_prune(place, screen, retention, dry_run=dry_run))
    if as_json:
        screen.json({"dry_run": dry_run, **pruned.counts()})
        return Exit.DONE
    gone = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in pruned.counts().items() if count)
    verb = "Would remove" if dry_run else "Removed"
    screen.tell(f"{verb}: {gone}." if gone else "Nothing to remove.", "green")
    if retention == Retention(logs=retention.logs):
        screen.tell("No limits are set: see retention.turns_days, audit_days, bodies_days and the sizes.", "yellow")
    return Exit.DONE


@store.command("vacuum", cls=CliCommand)
def vacuum(home: Home = None, no_color: NoColor = False) -> Exit:
    """Give the space of what was pruned back to the disk. Other processes wait while it is done."""
    place = _place(home)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    file = place.home / "store.db"
    before = file.stat().st_size if file.exists() else 0
    run_sync(_vacuum(place))
    after = file.stat().st_size if file.exists() else 0
    freed = f"The record takes {after / _MB:,.1f} MB, {max(before - after, 0) / _MB:,.1f} MB less."
    screen.tell(freed if after else "The server has given back what it could.", "green")
    return Exit.DONE


@store.command("backup", cls=CliCommand)
def backup(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that does not exist yet.")],
    home: Home = None,
    no_color: NoColor = False,
) -> Exit:
    """Copy the record as it is now into a folder, while other processes go on. Open it with --home FOLDER."""
    place = _place(home)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    run_sync(_backup(place, screen, folder))
    adopt_state(folder)
    screen.tell(f"Copied. Look into it with: toolwire logs --home {shlex.quote(str(folder))}", "green")
    return Exit.DONE


@store.command("restored", cls=CliCommand)
def restored(home: Home = None, no_color: NoColor = False) -> Exit:
    """Make a record safe to use that was restored from a backup, before any other process opens it.

    Processes that ran after the backup may still be at work, and their messages with a broker: from now on all of them
    are too late. Turns that had not ended go on from where the backup knows them.
    """
    place = _place(home)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    turns = run_sync(_restored(place))
    run = f"`toolwire run{project_words(DEFAULT, home)}` goes on with those that wait"
    screen.tell(f"Turns that have not ended: {turns:,}" + (f"; {run}." if turns else "."), "green")
    return Exit.DONE


async def _restored(place: ProjectFolder) -> int:
    async with store_of(place, prunes=False) as opened:
        return await _whole(opened).fence_restored()


async def _prune(place: ProjectFolder, screen: Screen, retention: Retention, *, dry_run: bool) -> Pruned:
    async with store_of(place, prunes=False) as opened:
        return await _whole(opened).prune(retention, dry_run=dry_run, tell=_progress(screen))


async def _vacuum(place: ProjectFolder) -> None:
    async with store_of(place, prunes=False) as opened:
        await _whole(opened).vacuum()


async def _backup(place: ProjectFolder, screen: Screen, folder: Path) -> None:
    async with store_of(place, only_reads=True) as opened:
        await _whole(opened).backup(folder, _progress(screen))


def _whole(opened: ProjectStore) -> SqliteStore:
    if isinstance(opened.whole, SqliteStore):
        return opened.whole
    raise SettingsError("a record in memory ends with its process; there is nothing to prune or copy")


def _progress(screen: Screen) -> Callable[[str], None]:
    """Says how far a long work has come, where a person watches."""
    shown = sys.stderr.isatty()
    return lambda sentence: screen.tell(sentence, "dim") if shown else None


def _place(home: str | None) -> ProjectFolder:
    place = current_project({"store.home": home})
    if not place.store_exists:
        raise NotFound(f"there is no store in {place.home}")
    return place
