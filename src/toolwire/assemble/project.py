"""The project that a process works in: its folder, its settings, its environment, and where its state lies."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolwire.assemble.state_ownership import STORE_FILE
from toolwire.define.nearest import nearest
from toolwire.define.toolbox import Toolbox
from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.protocol.obeyed import OWN_STATE
from toolwire.protocol.tools import Tool
from toolwire.record.projects import DEFAULT
from toolwire.settings import Layer, Settings, Untrusted, load, state_folder, trust, user_folder
from toolwire.settings.schema import TelemetrySettings
from toolwire.toolbox.registry import reads_skills

if TYPE_CHECKING:
    from toolwire.assemble import skills as project_skills
    from toolwire.edge.orchestrator.presence import Device
    from toolwire.telemetry.metrics import Metrics
else:
    project_skills = lazy_module("toolwire.assemble.skills")

process_metrics: "list[Metrics]" = []
"""The one that counts what happens in this process, once there is one; see `assemble.telemetry`."""


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """Where a process works: its folder, its environment, the settings in force there, and its skills.

    Of the store only what belongs to the project of this `name` is seen.
    """

    cwd: Path
    environ: Mapping[str, str]
    settings: Settings
    name: str = DEFAULT
    registered: list[tuple[Tool, ...]] = field(default_factory=list, init=False, repr=False, compare=False)
    """Its registered tools, once they were read: see `assemble.registry`."""
    known_devices: "list[tuple[Device, ...]]" = field(default_factory=list, init=False, repr=False, compare=False)
    """Its devices, once they were asked for: see `assemble.devices`."""
    _skills: "list[project_skills.ProjectSkills]" = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def skills(self) -> "project_skills.ProjectSkills":
        """Its skills. What reads and runs them is loaded now: most projects have none."""
        if not self._skills:
            self._skills.append(project_skills.ProjectSkills(self.settings, self.cwd, self.environ))
        return self._skills[0]

    @property
    def uses_devices(self) -> bool:
        return self.settings.edge.url is not None

    @property
    def has_bus(self) -> bool:
        """Whether the settings name a broker, so that calls may be sent over a bus."""
        return self.settings.bus.kind != "in-process"

    @property
    def missing_bus(self) -> str:
        """What to do where calls must be sent over a bus and there is none; else empty."""
        over_bus = [name for name, one in self.settings.services.items() if one.via == "bus"]
        if self.has_bus or not over_bus:
            return ""
        return (
            f"services.{over_bus[0]}.via = bus needs a broker that other processes reach: "
            "set bus.kind = nats and bus.url, or use the variables that toolwire up prints"
        )

    def uses_bus(self) -> bool:
        """Whether its calls may be sent over a bus. Raises SettingsError where they must, and there is none."""
        if missing := self.missing_bus:
            raise SettingsError(missing)
        return self.has_bus

    @property
    def has_telemetry(self) -> bool:
        """Whether this process counts, or settings or OpenTelemetry's own variables say anything of traces."""
        says = any(name.startswith("OTEL_") for name in self.environ)
        return says or bool(process_metrics) or self.settings.telemetry != TelemetrySettings()

    @property
    def has_skills(self) -> bool:
        """Whether any skill could be there, or the settings speak of them."""
        chosen = self.settings.tools
        folder = self.cwd / chosen.skills_path if chosen.skills_path else user_folder() / "skills"
        return bool(os.path.lexists(folder) or chosen.versions or chosen.skills_path or reads_skills(chosen.groups))

    def skill_news(self, toolbox: Toolbox) -> Toolbox | None:
        """A toolbox with its skills as they are now; None when nothing has changed since this was last asked."""
        return self.skills.news(toolbox) if self._skills or self.has_skills else None

    @property
    def home(self) -> Path:
        found = self.settings.home(self.cwd)
        return found.resolve() if self.names_home and Path(self.settings.store.home).is_absolute() else found

    @property
    def has_home(self) -> bool:
        """Whether anything lies where state is kept, be it a link that leads nowhere."""
        return os.path.lexists(self.home)

    @property
    def names_home(self) -> bool:
        """Whether the user has just said which folder keeps the record, under a name of its own.

        A relative path in the environment says nothing about this project: the same name may lie in any clone.
        """
        layer, chosen = self.settings.origin("store.home").layer, Path(self.settings.store.home)
        given = layer is Layer.FLAGS or (layer is Layer.ENVIRONMENT and chosen.is_absolute())
        return given and chosen.name != OWN_STATE

    @property
    def store_exists(self) -> bool:
        """Whether there is a store to read."""
        return self.settings.store.in_server or (
            self.settings.store.kind == "sqlite" and (self.home / STORE_FILE).is_file()
        )


def secret_in(environ: Mapping[str, str], variable: str, setting: str) -> str:
    """The secret in a variable that a setting names. Raises SettingsError where it is missing, and does not show it."""
    secret = environ.get(variable, "").strip()
    if not secret:
        raise SettingsError(f"{setting}: the variable {variable} is not set, or empty")
    return secret


def open_project(
    flags: Mapping[str, Any] | None = None,
    *,
    name: str = DEFAULT,
    trusts: Callable[[Untrusted], bool] | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> ProjectFolder:
    """The project of this process's folder, or of another one, its settings with these flags on top, by dotted key.

    Raises SettingsError. Where a settings file needs trust, `trusts` decides; without it Untrusted is raised.
    """
    cwd = cwd or Path.cwd()
    environ = os.environ if environ is None else environ
    settings = None
    while settings is None:  # each file that needs trust asks for itself
        try:
            settings = load(cwd, environ, flags, user_folder(), state_folder())
        except Untrusted as asking:
            if trusts is None or not trusts(asking):
                raise
            trust(asking.file, asking.digest, state_folder(), asking.sources)
    if settings.origin("grant.roots").layer is Layer.FLAGS:
        for root in settings.grant(cwd).roots:
            _require_folder(Path(root))
    return ProjectFolder(cwd, environ, settings, name)


def _require_folder(root: Path) -> None:
    if root.is_dir():
        return
    if root.exists():
        raise SettingsError(f"--root {root}: this is not a folder; file tools reach what is beneath a folder")
    beside = root.parent.iterdir() if root.parent.is_dir() else ()
    near = nearest(root.name, (each.name for each in beside if each.is_dir()))
    advice = f"; did you mean {' or '.join(near)}?" if near else ""
    raise SettingsError(f"--root {root}: there is no such folder{advice}")
