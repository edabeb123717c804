"""The projects that one process serves: its own, several by name, or all that are in the store.

Each project has a folder of its own beneath `fleet.folder`, in which its tools work, with a settings file if it needs
other settings than this process. Store and broker are those of this process. What is secret is a project's own: a
variable that a settings file above its folder names is not its secret.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolwire.assemble.project import ProjectFolder, open_project
from toolwire.assemble.services import require_name_for_bus
from toolwire.errors import SettingsError
from toolwire.protocol.subjects import BadSubject, check_token
from toolwire.settings.schema import SecretLine

ALL = "*"
PROJECT_MARK = "{project}"
"""In `bus.credentials`: each project has a key, and so a connection, of its own."""


class ServedProjects:
    """Which projects a process serves, and how each of them is opened."""

    def __init__(self, own: ProjectFolder, flags: Mapping[str, Any] | None = None) -> None:
        """Raises SettingsError for names that no subject can hold, and for keys of projects that are not named."""
        self.own = own
        self._flags = dict(flags or {})
        self._folders: dict[str, ProjectFolder] = {own.name: own}
        chosen = own.settings.fleet.projects
        self.serves_all = ALL in chosen
        self.names = tuple(dict.fromkeys(chosen)) or (own.name,)
        self.is_shared = self.serves_all or len(self.names) > 1 or self.names != (own.name,)
        if self.serves_all and len(self.names) > 1:
            raise SettingsError(f"fleet.projects: {ALL!r} stands for all projects; leave out the others")
        for name in () if self.serves_all else self.names:
            require_name_for_bus(replace(own, name=name))
        if self.serves_all and self.has_keys:
            raise SettingsError(
                f"bus.credentials has a key for each project ({PROJECT_MARK}), so all projects cannot be served by one "
                "connection; name them with --projects, or use the key of all projects: toolwire nats config "
                "--all-projects"
            )

    @property
    def has_keys(self) -> bool:
        """Whether each project logs in to the broker with a key of its own."""
        return PROJECT_MARK in (self.own.settings.bus.credentials or "")

    @property
    def shown(self) -> str:
        return "all projects" if self.serves_all else f"projects {', '.join(self.names)}"

    def links(self) -> Iterator[ProjectFolder]:
        """What the process connects to the broker as, one after the other; the name `*` stands for all projects."""
        for name in self.names:
            yield replace(self.own, name=name)

    def known(self) -> list[str]:
        """The projects by name; of all projects, those that have a folder, and that of this process."""
        if not self.serves_all:
            return list(self.names)
        folder = self._folder
        beneath = sorted(one.name for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []
        return list(dict.fromkeys((self.own.name, *beneath)))

    @property
    def _folder(self) -> Path:
        return (self.own.settings.folder or self.own.cwd) / self.own.settings.fleet.folder

    def open(self, name: str) -> ProjectFolder:
        """A project with its own folder and settings; the folder is made where it is missing. Raises SettingsError."""
        known = self._folders.get(name)
        if known is None:
            known = self._folders[name] = self._open(name)
        return known

    def _open(self, name: str) -> ProjectFolder:
        try:
            check_token(name, "the name of a project")
        except BadSubject as wrong:  # a store may hold turns of such a project, which no fleet can serve
            raise SettingsError(f"project {name[:80]!r} cannot be served by a fleet: {wrong}") from None
        if not (self.serves_all or name in self.names):
            raise SettingsError(f"project {name} is not served here; add it to fleet.projects")
        folder = self._folder / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as wrong:
            raise SettingsError(f"the folder of project {name}, {folder}, cannot be made: {wrong.strerror}") from None
        try:
            found = open_project(self._flags, name=name, cwd=folder, environ=self.own.environ)
        except SettingsError as wrong:
            raise SettingsError(f"the settings of project {name} cannot be used: {wrong}") from None
        return _without_foreign_secrets(found, folder)


def _without_foreign_secrets(found: ProjectFolder, folder: Path) -> ProjectFolder:
    """The project without the variables that settings above its folder name as secrets."""
    if is_own_setting(found, folder, "tools.secrets"):
        return found
    foreign = {line.variable for line in map(SecretLine.parse, found.settings.tools.secrets)}
    return replace(found, environ={name: text for name, text in found.environ.items() if name not in foreign})


def is_own_setting(found: ProjectFolder, folder: Path, key: str) -> bool:
    """Whether the settings file in this very folder says it."""
    file = found.settings.origin(key).file
    return file is not None and file.parent == folder


class OpenOnce:
    """What is made for each project at its first call, by one task, and closed at the end."""

    def __init__(self, make: Callable[[str, AsyncExitStack], Awaitable[Any]], closing: AsyncExitStack) -> None:
        self._make = make
        self._closing = closing
        self._made: dict[str, Any] = {}
        self._lock = asyncio.Lock()

    async def get(self, project: str) -> Any:
        if project not in self._made:
            async with self._lock:
                if project not in self._made:
                    self._made[project] = await self._make(project, self._closing)
        return self._made[project]
