"""What git has begun and will go on with: steps of a rebase, a cherry-pick, a bisection; which of them start programs.

A rebase that stops for a conflict in one box goes on in the next, so its state cannot be sealed. Steps that start a
program of their own are told apart instead.
"""

import re
import stat
from collections.abc import Callable, Collection

from toolwire.execute.sandbox.beneath import lstat_beneath, read_beneath
from toolwire.lazy import lazy_pattern

_LONGEST = 1024 * 1024
_STEPS = frozenset(
    "pick p revert reword r edit e squash s fixup f drop d noop label l reset t merge m break b update-ref u".split()
)
_STRATEGIES = frozenset("ort recursive resolve octopus ours subtree".split())
_STRATEGY = lazy_pattern(r"strategy\s*=\s*([^\n]*)", re.IGNORECASE)
_OPTIONS = lazy_pattern(
    r"(\s|'(-[Cp]\d+|--(whitespace|exclude|include)=[^']*|--(ignore-(space-change|whitespace)|reject|3way))')*"
)
_QUOTED = lazy_pattern(r"(\s|'[^']*'|\\'|\\!)*")
_TERMS = lazy_pattern(r"[\w/.-]*\s+[\w/.-]*\s*")


def unsafe_steps(root: int, git: str, names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """For each operation in a git folder that has been begun: what in it starts a program. Empty ones are left out.

    `names` are those in the folder.
    """
    found: dict[str, list[str]] = {}
    for operation, file, check in _LOOKED_AT:
        if operation not in names:
            continue
        path = f"{git}/{operation}" if git else operation
        unsafe = _unsafe(root, path, file, check)
        if unsafe:
            found.setdefault(path, []).extend(unsafe)
    return {path: tuple(lines) for path, lines in found.items()}


def _unsafe(root: int, path: str, file: str, check: Callable[[str], list[str]]) -> list[str]:
    above = lstat_beneath(root, path)
    if above is None:
        return []
    if stat.S_ISLNK(above.st_mode):
        return ["a link"]
    facts = lstat_beneath(root, f"{path}/{file}") if file else above
    if facts is None:
        return []
    content = read_beneath(root, f"{path}/{file}" if file else path, _LONGEST + 1)
    if content is None or len(content) > _LONGEST:
        return [f"{file or 'content'} that cannot be read"]
    return check(content.decode("utf-8", "surrogateescape"))


def _steps(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line[:1].isalpha() and line.split()[0] not in _STEPS]


def _strategy(text: str) -> list[str]:
    return [] if text.strip() in _STRATEGIES or not text.strip() else [f"the strategy {text.strip()!r}"]


def _settings(text: str) -> list[str]:
    values = (value.strip().strip('"') for value in _STRATEGY.findall(text))
    return [f"the strategy {value!r}" for value in values if value not in _STRATEGIES]


def _options(text: str) -> list[str]:
    return [] if _OPTIONS.fullmatch(text) else [f"the options {text.strip()!r}"]


def _names(text: str) -> list[str]:
    return [] if _QUOTED.fullmatch(text) else ["paths that are not quoted"]


def _terms(text: str) -> list[str]:
    return [] if _TERMS.fullmatch(text) else ["terms that are not words"]


_LOOKED_AT = (
    ("rebase-merge", "git-rebase-todo", _steps),
    ("rebase-merge", "strategy", _strategy),
    ("rebase-apply", "strategy", _strategy),
    ("rebase-apply", "apply-opt", _options),
    ("sequencer", "todo", _steps),
    ("sequencer", "opts", _settings),
    ("BISECT_NAMES", "", _names),
    ("BISECT_TERMS", "", _terms),
)
