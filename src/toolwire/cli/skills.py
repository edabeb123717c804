"""Skills of a place: where they lie, which are trusted, and the tools that come of them."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from toolwire.define.toolbox import Toolbox
from toolwire.errors import DefinitionError, SettingsError
from toolwire.execute.skill_folders import Shelf
from toolwire.protocol.operations import ExecOps
from toolwire.protocol.tools import Tool
from toolwire.settings import Settings, is_trusted, state_folder, user_folder
from toolwire.toolbox.outfits import reads_skills, sandbox_of
from toolwire.toolbox.skill_choice import Chosen, choose
from toolwire.toolbox.skill_pages import skill_tool
from toolwire.toolbox.skill_watch import SkillsFolder
from toolwire.toolbox.skills import Skills

FOLDER, READER = "skills", "skill"


class PlacedSkills:
    """The skills that settings and environment lead to."""

    def __init__(self, settings: Settings, cwd: Path, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._told: Skills | None = None
        path = settings.tools.skills_path
        self.folder = SkillsFolder(cwd / path if path else user_folder() / FOLDER, self.trusted)

    @property
    def network(self) -> tuple[str, ...]:
        """The hosts that skills may talk to, if they ask for the network."""
        return self._settings.grants.network

    def trusted(self, file: Path, digest: str) -> bool:
        return is_trusted(file, digest, self._environ, state_folder())

    def now(self) -> Skills:
        return self.folder.now()

    def chosen(self, taken: Iterable[str]) -> Chosen:
        """Which tools are offered beside the ones whose names are taken. Raises SettingsError for a pin in vain."""
        try:
            return choose(self.now(), taken, self._settings.tools.versions)
        except DefinitionError as wrong:
            raise SettingsError(f"{wrong} ({self._settings.origin('tools.versions')})") from None

    def tools(self, taken: Iterable[str]) -> tuple[Tool, ...]:
        """The tools of trusted skills, and the tool that reads their instructions."""
        names = frozenset(taken)
        chosen, pages = self.chosen(names), self.now().pages
        shelf = Shelf()
        wanted = bool(pages) or reads_skills(self._settings.tools.groups)
        reading = (skill_tool(pages, shelf),) if wanted and READER not in names else ()
        if not chosen.entries:
            return reading
        # What runs commands takes longer to load than most commands take, and most people have no skills.
        running: Any = import_module("toolwire.toolbox.skill_running")
        return (*running.runnable_tools(chosen, self.sandbox(), shelf), *reading)

    def news(self, toolbox: Toolbox) -> Toolbox | None:
        """A toolbox with its skills as they are now; None when nothing has changed since this was last asked.

        All other tools stay the same ones, with whatever they hold.
        """
        now, before = self.now(), self._told
        self._told = now
        if before is None or now == before:
            return None
        others = [tool for tool in toolbox if not tool.skill and tool.name != READER]
        chosen = self._settings.tools
        fresh = [
            tool
            for tool in self.tools(tool.name for tool in others)
            if tool.name not in chosen.exclude and (not chosen.include or tool.name in chosen.include)
        ]
        return Toolbox(*others, *fresh)

    def sandbox(self) -> ExecOps:
        """What runs the programs of skills."""
        ops: ExecOps = sandbox_of(self._settings.tools.engine, self._settings.tools.workspace_bytes)
        return ops
