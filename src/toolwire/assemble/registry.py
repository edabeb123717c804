"""The registered tools of a project: those that its store keeps, and those of the files that its settings name."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.stores import store_of
from toolwire.define.service_files import LARGEST_FILE
from toolwire.define.service_rows import (
    RegisteredTool,
    ToolRegistry,
    read_registration,
    registry_from_file,
    written_row,
)
from toolwire.define.versions import pinned_version, version_key
from toolwire.errors import Conflict, DefinitionError, NotFound, SettingsError
from toolwire.protocol.registrations import ToolRegistration
from toolwire.protocol.tools import Tool
from toolwire.record.contract import RegistryStore


def rows_of_files(project: ProjectFolder) -> dict[str, tuple[RegisteredTool, ...]]:
    """What the files of `registry.files` register for this project, by file. Raises SettingsError."""
    origin = f"registry.files ({project.settings.origin('registry.files')})"
    found = {}
    for file in project.settings.registry.files:
        try:
            content = _content(project.cwd / file)
            found[file] = registry_from_file(content, file, project=project.name).rows
        except DefinitionError as wrong:
            raise SettingsError(f"{origin}: {wrong}") from None
    return found


async def registry_of(project: ProjectFolder, store: RegistryStore | None) -> ToolRegistry:
    """All registered tools of a project. A row that files and store say alike counts once.

    Raises SettingsError where they say the same version differently, and for a row that cannot be read.
    """
    kept = () if store is None else await store.registered_tools(project=project.name)
    rows: dict[tuple[str, str], RegisteredTool] = {}
    for source, found in (("the store", tuple(map(_read, kept))), *rows_of_files(project).items()):
        for one in found:
            before = rows.setdefault((one.row.name, one.row.version), one)
            if before.row.digest != one.row.digest:
                raise SettingsError(
                    f"{source} registers {one.row.name}@{one.row.version} with other content than another place does; "
                    "give one of them another version"
                )
    return ToolRegistry(tuple(rows.values()))


def offered_tools(project: ProjectFolder) -> tuple[Tool, ...]:
    """The registered tools that agents of a project are offered, each in one version; none where no bus reaches them.

    They are read once, unless `load_offered_tools` has read them. Raises SettingsError.
    """
    if not project.has_bus:
        return ()
    if not project.registered:
        run_sync(_load_from_store(project))
    return project.registered[0]


def tools_without_cards(project: ProjectFolder) -> tuple[str, ...]:
    """Registered tools of which the settings name no service that may read the cards of their calls.

    None where the settings name no services at all: those may be in the settings of another process.
    """
    named = [one.tools for one in project.settings.bus_services.values() if one.project in ("", project.name)]
    known = {tool for tools in named for tool in tools}
    return tuple(tool.name for tool in offered_tools(project) if tool.name not in known) if named else ()


async def load_offered_tools(project: ProjectFolder, store: RegistryStore | None) -> None:
    """Read the registered tools as they are now. Raises SettingsError."""
    if project.has_bus:
        found = await registry_of(project, store)
        try:
            project.registered[:] = [found.tools(project.name, project.settings.registry.versions)]
        except DefinitionError as wrong:
            origin = project.settings.origin("registry.versions")
            raise SettingsError(f"{wrong} (registry.versions, {origin})") from None


async def _load_from_store(project: ProjectFolder) -> None:
    if not project.store_exists:
        await load_offered_tools(project, None)
        return
    async with store_of(project, only_reads=True) as store:
        await load_offered_tools(project, store)


def newest_first(rows: Iterable[ToolRegistration]) -> list[ToolRegistration]:
    """By name, and of each tool the newest version first."""
    by_version = sorted(rows, key=lambda row: version_key(row.version), reverse=True)
    return sorted(by_version, key=lambda row: row.name)


def find_row(rows: Sequence[ToolRegistration], wanted: str, project: str) -> ToolRegistration:
    """The row that `name` or `name@version` means: the newest version, drafts last, or the pinned one.

    Raises `NotFound`, with the versions that there are.
    """
    name, _, pin = wanted.partition("@")
    own = {row.version: row for row in newest_first(rows) if row.name == name}
    if not own:
        raise NotFound(f"{name[:128]!r} is not registered for project {project!r}; `toolwire registry list` shows all")
    if not pin:
        return next((row for version, row in own.items() if "-" not in version), next(iter(own.values())))
    version = pinned_version(pin, own)
    if version is None:
        raise NotFound(f"{wanted[:200]} is not registered for project {project!r}; there are {', '.join(own)}")
    return own[version]


async def remove_rows(
    store: RegistryStore, wanted: str, project: str, *, by: str, every: bool
) -> list[ToolRegistration]:
    """Remove the very version that was named: a pin such as 1 could mean another one tomorrow.

    Without a version it is the only one that there is, or all of them. Raises `NotFound`, and `Conflict` where there
    are several.
    """
    name, pinned, version = wanted.partition("@")
    if pinned and not version:
        raise Conflict(f"{wanted[:200]} names no version; write {name[:128]}@1.2, or leave the @ out")
    there = [row.version for row in newest_first(await store.registered_tools(project=project)) if row.name == name]
    if not version and len(there) > 1 and not every:
        raise Conflict(f"{name} has versions {', '.join(there)}; name one ({name}@{there[0]}), or remove all of them")
    return await store.unregister_tool(name, version or None, by=by, project=project)


def row_object(row: ToolRegistration) -> dict[str, Any]:
    """A row as commands and the gateway show it."""
    dates = {"created_at": row.created_at, "updated_at": row.updated_at}
    return {"project_id": row.project, **written_row(row), "digest": row.digest, **dates}


def _read(row: ToolRegistration) -> RegisteredTool:
    try:
        return read_registration(row)
    except DefinitionError as wrong:
        advice = f"remove it with: toolwire registry remove {row.name}@{row.version}"
        raise SettingsError(f"a registered tool cannot be read: {wrong}; {advice}") from None


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(LARGEST_FILE + 1)
    except OSError as wrong:
        raise DefinitionError(f"{file} cannot be read: {wrong.strerror}") from None
