"""Which tools of skills are offered: beside built-in ones, and of several versions the right one."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.define.versions import pinned_version, read_pin, version_key
from toolwire.errors import DefinitionError
from toolwire.protocol.skills import SkillTool
from toolwire.protocol.tools import Tool
from toolwire.toolbox.registry import BUILT_IN
from toolwire.toolbox.skills.catalog import FoundSkill, Skills


class Withheld(Struct, frozen=True):
    """A tool that is there and not offered, and why."""

    tool: Tool
    reason: str


class SkillChoice(Struct, frozen=True):
    """The tools to offer, and those to tell about."""

    entries: tuple[tuple[FoundSkill, SkillTool], ...] = ()
    withheld: tuple[Withheld, ...] = ()


def choose(skills: Skills, taken: Iterable[str] = (), pins: Iterable[str] = ()) -> SkillChoice:
    """The tools to offer beside those whose names are `taken`, and why the others are not offered.

    Raises `DefinitionError` for a pin that means no version there is.
    """
    return _SkillChoice(skills, frozenset(taken), tuple(map(read_pin, pins))).made()


class _SkillChoice:
    """Which of the tools with one name is offered under it."""

    def __init__(self, skills: Skills, taken: frozenset[str], pins: tuple[tuple[str, str], ...]) -> None:
        self._skills = skills
        self._taken = BUILT_IN | {name.casefold() for name in taken}
        self._pins = pins
        self._entries: list[tuple[FoundSkill, SkillTool]] = []
        self._withheld: list[Withheld] = []

    def made(self) -> SkillChoice:
        by_name: dict[str, list[tuple[FoundSkill, SkillTool]]] = {}
        for found in self._skills.found:
            for entry in found.skill.tools:
                by_name.setdefault(entry.tool.name, []).append((found, entry))
        for name, pin in self._pins:
            if name not in by_name:
                raise DefinitionError(f"tools.versions pins {name}@{pin}, and no skill has a tool {name!r}")
        for name in sorted(by_name):
            self._settle(name, by_name[name])
        return SkillChoice(tuple(self._entries), tuple(self._withheld))

    def _settle(self, name: str, candidates: list[tuple[FoundSkill, SkillTool]]) -> None:
        usable = []
        owner = min((found.skill.name for found, _ in candidates if found.trusted), default="")
        for found, entry in candidates:
            if name.casefold() in self._taken:
                self._withhold(entry, "a built-in tool has this name")
            elif not found.trusted:
                self._withhold(
                    entry, f"not trusted; look at it, then: toolwire trust {shlex.quote(str(found.folder.path))}"
                )
            elif found.skill.name != owner:
                self._withhold(entry, f"the skill {owner} has a tool of this name")
            else:
                usable.append((found, entry))
        if usable:
            self._pick(name, usable)

    def _pick(self, name: str, usable: list[tuple[FoundSkill, SkillTool]]) -> None:
        """The first pinned version has the plain name, further pinned ones are `name@version`; or else the newest."""
        by_version = {entry.tool.version: (found, entry) for found, entry in usable}
        wanted = [self._version(name, pin, by_version) for pinned, pin in self._pins if pinned == name]
        newest = max(by_version, key=version_key)
        for place, version in enumerate(dict.fromkeys(wanted or [newest])):
            found, entry = by_version.pop(version)
            shown = entry.tool if not place else replace(entry.tool, name=f"{name}@{version}")
            self._entries.append((found, replace(entry, tool=shown)))
        used = (wanted or [newest])[0]
        for _, entry in by_version.values():
            self._withhold(entry, f"version {used} is used; tools.versions can pin {name}@{entry.tool.version}")

    def _version(self, name: str, pin: str, known: Mapping[str, Any]) -> str:
        version = pinned_version(pin, known)
        if version is None:
            there = ", ".join(sorted(known, key=version_key))
            raise DefinitionError(f"tools.versions pins {name}@{pin}; the versions there are: {there}")
        return version

    def _withhold(self, entry: SkillTool, reason: str) -> None:
        self._withheld.append(Withheld(entry.tool, reason))
