"""The skills of a project: where they lie, which are trusted, and the tools that come of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from toolwire.define.toolbox import Toolbox
from toolwire.errors import DefinitionError, SettingsError
from toolwire.protocol.operations import ExecOps
from toolwire.protocol.tools import Tool
from toolwire.settings import Settings, is_trusted, state_folder, user_folder
from toolwire.toolbox.registry import reads_skills, sandbox_of
from toolwire.toolbox.skills.active import ActiveSkills
from toolwire.toolbox.skills.catalog import Skills
from toolwire.toolbox.skills.choice import SkillChoice
from toolwire.toolbox.skills.watch import SkillsFolder

FOLDER = "skills"


class ProjectSkills:
    """The skills that settings and environment lead to."""

    def __init__(self, settings: Settings, cwd: Path, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        chosen = settings.tools
        folder = cwd / chosen.skills_path if chosen.skills_path else user_folder() / FOLDER
        self._living = ActiveSkills(
            SkillsFolder(folder, self.trusted), self.sandbox, pins=chosen.versions, wanted=self._wanted,
            reads=reads_skills(chosen.groups),
        )  # fmt: skip

    @property
    def network(self) -> tuple[str, ...]:
        """The hosts that skills may talk to, if they ask for the network."""
        return self._settings.grants.network

    def trusted(self, file: Path, digest: str) -> bool:
        return is_trusted(file, digest, self._environ, state_folder())

    def now(self) -> Skills:
        return self._living.now()

    def chosen(self, taken: Iterable[str]) -> SkillChoice:
        """Which tools are offered beside the ones whose names are taken. Raises SettingsError for a pin in vain."""
        try:
            return self._living.chosen(taken)
        except DefinitionError as wrong:
            raise SettingsError(f"{wrong} ({self._settings.origin('tools.versions')})") from None

    def tools(self, taken: Iterable[str]) -> tuple[Tool, ...]:
        """The tools of trusted skills, and the tool that reads their instructions. Raises SettingsError."""
        names = frozenset(taken)
        self.chosen(names)
        return self._living.tools(names)

    def news(self, toolbox: Toolbox) -> Toolbox | None:
        """A toolbox with its skills as they are now; None when nothing has changed since this was last asked."""
        return self._living.news(toolbox)

    def sandbox(self) -> ExecOps:
        """What runs the programs of skills."""
        chosen = self._settings.tools
        return sandbox_of(chosen.engine, chosen.workspace_bytes, chosen.disk_share)

    def _wanted(self, name: str) -> bool:
        chosen = self._settings.tools
        return name not in chosen.exclude and (not chosen.include or name in chosen.include)
