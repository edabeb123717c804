"""Files as the rules of a grant leave them: what is really opened is compared, whatever name led there."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from toolwire.decide.families import RuleReach
from toolwire.decide.path_rules import KEYS, PathRules
from toolwire.protocol.context import Context
from toolwire.protocol.files import Change, FileEntry, FileOps, RuledOut
from toolwire.protocol.policy import Rule, Verdict
from toolwire.toolbox.files.hard_links import HardLinkedNames

LOOKS = RuleReach.CONTENT | RuleReach.NAMES
CHANGES = RuleReach.CONTENT | RuleReach.CHANGES


def files_within_rules(files: FileOps, context: Context, about: RuleReach, *named: str) -> FileOps:
    """The files that a call may use, whose arguments name these paths. Where no rule speaks, they are as they are."""
    rules = PathRules.of(context.grant, about, named)
    return RuledFiles(files, rules) if rules else files


def left_out(files: FileOps) -> list[str]:
    """What was kept back so far, in a sentence."""
    return files.notes if isinstance(files, RuledFiles) else []


class RuledFiles:
    """FileOps in which a rule keeps some files from being opened, listed or changed."""

    def __init__(self, files: FileOps, rules: PathRules) -> None:
        self._files = files
        self._rules = rules
        self._twins = HardLinkedNames(rules)
        self._kept_back: set[str] = set()
        self._with_keys: set[str] = set()
        self._tops: dict[str, str] = {}

    @property
    def notes(self) -> list[str]:
        count, keys = len(self._kept_back), len(self._with_keys)
        by_rule = [f"Left out by rule: {count} {'entry' if count == 1 else 'entries'}."] if count else []
        found = f"Left out since they usually hold keys: {keys} {'file' if keys == 1 else 'files'}."
        return [*by_rule, f"{found} Name one as the path to ask for it."] if keys else by_rule

    def open(self, root: str, path: str) -> BinaryIO:
        self._refuse(self._rules.against(path), path, path)
        file = self._files.open(root, path)
        try:
            where = self._opened(root, path, file)
            self._refuse(self._rules.against(where) or self._rule_of_twin(root, file), where, path)
        except OSError:
            file.close()
            raise
        return file

    def entries(self, root: str, path: str, most: int) -> list[FileEntry]:
        folder = self.real(root, path)
        self._refuse(self._rules.denial(folder), folder, path)
        inner = "" if folder in ("", ".") else f"{folder}/"
        found = self._files.entries(root, path, most)
        kept = [entry for entry in found if self._rules.denial(inner + entry.name) is None]
        if len(kept) < len(found):
            shown = {entry.name for entry in kept}
            self._kept_back.update(inner + entry.name for entry in found if entry.name not in shown)
        return kept

    def stat(self, root: str, path: str) -> FileEntry:
        above, slash, name = path.rstrip("/").rpartition("/")
        folder = self.real(root, above) if slash else ""
        where = f"{folder}/{name}" if folder not in ("", ".") else name or "."
        self._refuse(self._rules.denial(path) or self._rules.denial(where), where, path)
        return self._files.stat(root, path)

    def change(self, root: str, changes: Sequence[Change], *, key: str = "", note: str = "") -> None:
        """No link is followed where something is written, so a path is where it leads."""
        for change in changes:
            self._refuse(self._rules.against(change.path), change.path, change.path)
        self._files.change(root, changes, key=key, note=note)

    def note(self, root: str, key: str) -> str | None:
        return self._files.note(root, key)

    def real(self, root: str, path: str) -> str:
        return self._files.real(root, path)

    def _opened(self, root: str, path: str, file: BinaryIO) -> str:
        """Where the open file lies: asked of its descriptor where there is one, so that no swap comes between."""
        try:
            where = str(Path(f"/proc/self/fd/{file.fileno()}").readlink())
        except (OSError, ValueError):
            return self._files.real(root, path)
        top = self._tops.get(root) or self._tops.setdefault(root, str(Path(root).resolve()))
        return where[len(top) :].lstrip("/") if f"{where}/".startswith(f"{top.rstrip('/')}/") else where

    def _rule_of_twin(self, root: str, file: BinaryIO) -> Rule | None:
        try:
            return self._twins.rule_about(root, os.fstat(file.fileno()))
        except (OSError, ValueError):  # a file of another machine has no descriptor here
            return None

    def _refuse(self, rule: Rule | None, path: str, shown: str) -> None:
        if rule is not None:
            (self._with_keys if rule is KEYS else self._kept_back).add(path)
            raise RuledOut(errno.EPERM, reason(rule, path, shown))


def reason(rule: Rule, path: str, shown: str) -> str:
    """Why a file is not used; for one that people may be asked about, the path by which to ask."""
    if rule.verdict is Verdict.DENY:
        return f"a rule denies it ({rule}). Tell the user that it is not allowed"
    again = f"; it is {path!r}, so call the tool with that path" if path != shown else ""
    if rule is KEYS:
        return f"it usually holds keys or passwords{again}"
    return f"a rule asks about it ({rule}){again}"
