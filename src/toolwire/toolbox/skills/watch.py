"""A skills folder that is looked at again whenever it is asked about and something in it has changed."""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from toolwire.execute.skill_folders import NOT_PART
from toolwire.toolbox.skills.catalog import Skills, Trusted, scan

Marks = tuple[tuple[str, int, int, int, int], ...]


class SkillsFolder:
    """Knows the skills of a folder as they are now, and reads them anew only after a change.

    Nothing runs in between: what begins a turn asks. So no change is missed, and none takes effect within a turn.
    """

    def __init__(self, path: Path, trusted: Trusted) -> None:
        self.path = path
        self._trusted = trusted
        self._marks: Marks | None = None
        self._skills = Skills()

    def now(self) -> Skills:
        """The skills as they are. A word of trust that was given or taken back meanwhile counts."""
        marks = tuple(_marks(self.path))
        if marks != self._marks:
            self._skills = scan(self.path, self._trusted)
            self._marks = marks
        found = (replace(each, trusted=self._trusted(each.file, each.folder.digest)) for each in self._skills.found)
        self._skills = replace(self._skills, found=tuple(found))
        return self._skills


def _marks(folder: Path) -> Iterator[tuple[str, int, int, int, int]]:
    """What changes when anything in a folder does; programs cannot set the time of the last change of an entry."""
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in inside:
            try:
                facts = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            yield entry.path, facts.st_ino, facts.st_ctime_ns, facts.st_size, facts.st_mode
            if entry.is_dir(follow_symlinks=False) and entry.name not in NOT_PART:
                waiting.append(entry.path)
