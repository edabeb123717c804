"""Other names of one file: a file with several hard links may be one that a rule keeps back under another name."""

import os
import stat
from pathlib import Path

from toolwire.decide.path_rules import PathRules
from toolwire.protocol.policy import Rule

MOST_ENTRIES = 50_000


class HardLinkedNames:
    """The files that rules keep back, by what they are and not by name. They are looked for when that matters."""

    def __init__(self, rules: PathRules) -> None:
        self._rules = rules
        self._found: dict[str, dict[tuple[int, int], Rule]] = {}

    def rule_about(self, root: str, facts: os.stat_result) -> Rule | None:
        """The rule that keeps back this file under another of its names beneath the root, if it has several."""
        if facts.st_nlink < 2 or not stat.S_ISREG(facts.st_mode) or not self._rules.rules:
            return None
        if root not in self._found:
            self._found[root] = self._search(Path(root))
        return self._found[root].get((facts.st_dev, facts.st_ino))

    def _search(self, root: Path) -> dict[tuple[int, int], Rule]:
        """What is kept back in the folders that may hold such files."""
        found: dict[tuple[int, int], Rule] = {}
        waiting, left = [""], MOST_ENTRIES
        while waiting and left > 0:
            place = waiting.pop()
            try:
                with os.scandir(root / place) as entries:
                    for entry in entries:
                        left -= 1
                        path = f"{place}/{entry.name}" if place else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            waiting += [path] if self._rules.against_folder(path) is not None else []
                        elif (rule := self._rules.against(path)) is not None:
                            facts = entry.stat(follow_symlinks=False)
                            found[facts.st_dev, facts.st_ino] = rule
            except OSError:  # gone, or not ours to read
                continue
        return found
