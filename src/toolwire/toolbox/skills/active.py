"""Skills in use: the tools that come of a folder, and what changes about them while an agent lives."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from toolwire.define.toolbox import Toolbox
from toolwire.execute.skill_folders import SkillCopies
from toolwire.lazy import lazy_module
from toolwire.protocol.operations import ExecOps
from toolwire.protocol.tools import Tool
from toolwire.toolbox.skills.catalog import Skills
from toolwire.toolbox.skills.choice import SkillChoice, choose
from toolwire.toolbox.skills.pages import skill_tool
from toolwire.toolbox.skills.watch import SkillsFolder

if TYPE_CHECKING:
    from toolwire.toolbox.skills import running
else:
    # What runs commands takes longer to load than most commands take, and most users have no skills.
    running = lazy_module("toolwire.toolbox.skills.running")

READER = "skill"


def _anything(name: str) -> bool:  # noqa: ARG001 (whatever it is called)
    return True


class ActiveSkills:
    """The tools of the trusted skills of a folder. Give `news` to an agent, and it has them as they are at each turn.

    `sandbox` makes what runs their programs, `pins` choose versions, `wanted` says which tools are offered, and with
    `reads` the tool that reads instructions is there even where no skill has any. `shelf` keeps the copies that run.
    """

    def __init__(
        self,
        folder: SkillsFolder,
        sandbox: Callable[[], ExecOps],
        *,
        pins: Iterable[str] = (),
        wanted: Callable[[str], bool] = _anything,
        reads: bool = False,
        shelf: SkillCopies | None = None,
    ) -> None:
        self.folder = folder
        self._sandbox = sandbox
        self._pins = tuple(pins)
        self._wanted = wanted
        self._reads = reads
        self._shelf = shelf or SkillCopies()
        self._told = Skills()

    def now(self) -> Skills:
        return self.folder.now()

    def chosen(self, taken: Iterable[str]) -> SkillChoice:
        """Which tools are offered beside the ones whose names are taken. Raises DefinitionError for a pin in vain."""
        return choose(self.now(), taken, self._pins)

    def tools(self, taken: Iterable[str] = ()) -> tuple[Tool, ...]:
        """The tools of trusted skills, and the tool that reads their instructions."""
        names = frozenset(taken)
        chosen, skills = self.chosen(names), self.now()
        shelf = self._shelf.holding(each.folder.digest for each in skills.found if each.trusted)
        reading = (skill_tool(skills.pages, shelf),) if (skills.pages or self._reads) and READER not in names else ()
        if not chosen.entries:
            return reading
        return (*running.runnable_tools(chosen, self._sandbox(), shelf), *reading)

    def news(self, toolbox: Toolbox) -> Toolbox | None:
        """A toolbox with its skills as they are now; None when nothing has changed since this was last asked.

        All other tools stay the same ones, with whatever they hold. It reads files: call it in a thread.
        """
        now, before = self.now(), self._told
        self._told = now
        if now == before:
            return None
        others = [tool for tool in toolbox if not tool.skill and tool.name != READER]
        fresh = [tool for tool in self.tools(tool.name for tool in others) if self._wanted(tool.name)]
        return Toolbox(*others, *fresh)
