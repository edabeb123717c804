"""The skills of a folder: read, and compared with what was trusted."""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.define.skill_pages import skill_from_page
from toolwire.define.skills import skill_from_toml
from toolwire.errors import DefinitionError
from toolwire.execute.skill_folders import Folder, look_into
from toolwire.protocol.skills import Skill

MOST_SKILLS = 500
TOML, PAGE = "skill.toml", "SKILL.md"

Trusted = Callable[[Path, str], bool]
"""Whether the operator has trusted the skill that this file defines, with this digest of its folder."""


class FoundSkill(Struct, frozen=True):
    """A skill and the folder it was found in. `file` is the one by which it is trusted."""

    skill: Skill
    folder: Folder
    trusted: bool

    @property
    def file(self) -> Path:
        return self.folder.path / (TOML if TOML in self.folder.definitions else PAGE)


class Skills(Struct, frozen=True):
    """Everything found in a skills folder. `broken` has a sentence for each skill that cannot be read."""

    found: tuple[FoundSkill, ...] = ()
    broken: Mapping[Path, str] = field(default_factory=dict)

    @property
    def pages(self) -> tuple[FoundSkill, ...]:
        """The trusted skills that have instructions, each name once."""
        named = {each.skill.name: each for each in reversed(self.found) if each.trusted and each.skill.instructions}
        return tuple(sorted(named.values(), key=lambda each: each.skill.name))


def scan(folder: Path, trusted: Trusted) -> Skills:
    """Look at every skill in a folder. One that cannot be read does not keep others from being found."""
    found: list[FoundSkill] = []
    broken: dict[Path, str] = {}
    for path in skill_folders(folder):
        try:
            found.append(read_skill(path, trusted))
        except DefinitionError as wrong:
            broken[path] = str(wrong)
    return Skills(tuple(found), broken)


def skill_folders(folder: Path) -> list[Path]:
    """The folders that hold a skill, by name; none where there is no such folder."""
    try:
        inside = sorted(path for path in folder.iterdir() if is_skill(path))
    except OSError:
        return []
    return inside[:MOST_SKILLS]


def is_skill(folder: Path) -> bool:
    """Whether a folder looks as if it held a skill."""
    return any((folder / name).is_file() for name in (TOML, PAGE))


def read_skill(path: Path, trusted: Trusted) -> FoundSkill:
    """One skill, with all that its folder holds looked at. Raises `DefinitionError`."""
    folder = look_into(path)
    skill = _defined(folder)
    _require_programs(skill, folder)
    found = FoundSkill(skill, folder, trusted=False)
    return replace(found, trusted=trusted(found.file, folder.digest))


def _defined(folder: Folder) -> Skill:
    toml, page = folder.definitions.get(TOML), folder.definitions.get(PAGE)
    name = folder.path.name
    if page is None and toml is None:
        raise DefinitionError(f"{folder.path} holds neither {TOML} nor {PAGE}")
    instructions = skill_from_page(page, str(folder.path / PAGE), name) if page is not None else None
    if toml is None:
        assert instructions is not None
        return instructions
    skill = skill_from_toml(toml, str(folder.path / TOML), name)
    if instructions is None:
        return skill
    return replace(
        skill, description=skill.description or instructions.description, instructions=instructions.instructions
    )


def _require_programs(skill: Skill, folder: Folder) -> None:
    """Every program that is named must be a file of the folder that can be run."""
    for entry in skill.tools:
        for binary in entry.program.binaries.values():
            kind = "module" if entry.program.module else "binary"
            where = f"{folder.path / TOML}: {kind} of {entry.tool.name!r}"
            if binary not in folder.files:
                raise DefinitionError(f"{where}: there is no file {binary} in the skill's folder")
            if not entry.program.module and binary not in folder.programs:
                raise DefinitionError(f"{where}: {binary} may not be run; run: chmod u+x {folder.path / binary}")
