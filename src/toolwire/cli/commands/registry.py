"""`toolwire registry`: tools of services that get their calls over a bus, in several versions."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.registry import find_row, newest_first, remove_rows, row_object, rows_of_files
from toolwire.assemble.stores import store_of
from toolwire.cli.entry.command import LOOK, CliCommand, Group
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import AsJson, Home, NoColor, Project, complete_registered
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.identity import system_user
from toolwire.cli.terminal.input import read_bytes
from toolwire.cli.terminal.json_output import encode_json
from toolwire.cli.terminal.screen import Screen
from toolwire.define.service_files import LARGEST_FILE
from toolwire.define.service_rows import ToolRegistry, registry_from_file, written_row
from toolwire.errors import SettingsError
from toolwire.protocol.registrations import ToolRegistration
from toolwire.record.registry_rules import not_registered

registry = typer.Typer(**LOOK, cls=Group, help="Register tools of services that get their calls over a bus.")

Which = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@VERSION]", help="The tool, and perhaps its version.", autocompletion=complete_registered
    ),
]


@registry.command("add", cls=CliCommand)
def add(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="YAML, TOML or JSON with rows of tools.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Let a row replace another one of the same version.")
    ] = False,
    home: Home = None,
    project: Project = "default",
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Register the tools of files, all of them or none. A version that is there with the same content stays."""
    place, screen = _opened(home, project, no_color=no_color)
    rows = _rows_in(files, place.name)
    kept, new = run_sync(_register(place, rows, replace=replace))
    if as_json:
        screen.json([row_object(row) for row in kept])
        return Exit.DONE
    for row in kept:
        was = "registered" if (row.name, row.version) in new else "unchanged"
        screen.tell(f"{row.name}@{row.version}: {was}.", "green")
    return Exit.DONE


@registry.command("list", cls=CliCommand)
def list_rows(
    project: Project = "default", home: Home = None, as_json: AsJson = False, no_color: NoColor = False
) -> Exit:
    """List the registered tools, those of registry.files included, newest versions first."""
    place, screen = _opened(home, project, no_color=no_color)
    found = _found(place)
    if as_json:
        screen.json([{**row_object(row), "source": source} for row, source in found])
        return Exit.DONE
    if not found:
        screen.tell(f"No tools are registered for project {place.name}. Add some with: toolwire registry add FILE")
        return Exit.DONE
    shown = [(row.name, row.version, source, row.target_subject, row.description) for row, source in found]
    screen.table(("tool", "version", "from", "subject", "description"), shown)
    return Exit.DONE


@registry.command("show", cls=CliCommand)
def show(
    which: Which,
    home: Home = None,
    project: Project = "default",
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Show a row in full, with the arguments that models do not see: the newest version, or the one named."""
    place, screen = _opened(home, project, no_color=no_color)
    found = _found(place)
    row = find_row([each for each, _ in found], which, place.name)
    source = next(source for each, source in found if each is row)
    if as_json:
        screen.json({**row_object(row), "source": source})
        return Exit.DONE
    said: dict[str, Any] = {**written_row(row), "digest": row.digest, "from": source}
    for key in ("parameters", "options"):
        said[key] = encode_json(said[key], indent=True).decode().rstrip()
    if row.created_at:
        said["updated"] = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.updated_at))
    screen.pairs(said)
    return Exit.DONE


@registry.command("remove", cls=CliCommand)
def remove(
    which: Which,
    every: Annotated[bool, typer.Option("--all", help="All versions of the tool.")] = False,
    home: Home = None,
    project: Project = "default",
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Remove one version of a tool; without a version, the only one there is, or all of them with --all."""
    place, screen = _opened(home, project, no_color=no_color)
    gone = run_sync(_unregister(place, which, every=every))
    if as_json:
        screen.json([row_object(row) for row in gone])
        return Exit.DONE
    for row in gone:
        screen.tell(f"{row.name}@{row.version}: removed.", "green")
    return Exit.DONE


def _opened(home: str | None, project: str, *, no_color: bool) -> tuple[ProjectFolder, Screen]:
    place = current_project({"store.home": home}, project=project)
    return place, Screen.of(place.settings.output.color, no_color=no_color)


def _rows_in(files: Sequence[str], project: str) -> list[ToolRegistration]:
    found = ToolRegistry()
    for file in files:
        found = found.plus(registry_from_file(read_bytes(file, LARGEST_FILE + 1), file, project=project).rows)
    return [one.row for one in found.rows]


async def _register(
    place: ProjectFolder, rows: Sequence[ToolRegistration], *, replace: bool
) -> tuple[list[ToolRegistration], set[tuple[str, str]]]:
    """What is kept of the rows, and which of them are new or replaced."""
    _require_lasting(place)
    async with store_of(place) as store:
        before = {(row.name, row.version): row.digest for row in await store.registered_tools()}
        kept = await store.register_tools(rows, by=system_user(), replace=replace)
    return kept, {key for row in kept if before.get(key := (row.name, row.version)) != row.digest}


async def _unregister(place: ProjectFolder, which: str, *, every: bool) -> list[ToolRegistration]:
    _require_lasting(place)
    if not place.store_exists:
        raise not_registered(place.name, which)
    async with store_of(place) as store:
        return await remove_rows(store, which, place.name, by=system_user(), every=every)


def _found(place: ProjectFolder) -> list[tuple[ToolRegistration, str]]:
    """All rows, each with where it comes from, newest versions first."""
    kept = run_sync(_kept(place)) if place.store_exists else []
    found = {id(row): (row, "store") for row in kept}
    found |= {id(one.row): (one.row, file) for file, rows in rows_of_files(place).items() for one in rows}
    return [found[id(row)] for row in newest_first(row for row, _ in found.values())]


async def _kept(place: ProjectFolder) -> list[ToolRegistration]:
    async with store_of(place, only_reads=True) as store:
        return await store.registered_tools()


def _require_lasting(place: ProjectFolder) -> None:
    if not place.settings.store.lasts:
        raise SettingsError(
            "a registry in memory ends with its process; set store.kind, or name files in registry.files"
        )
