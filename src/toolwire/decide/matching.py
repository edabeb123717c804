"""Whether an operator's rule means a call. Pure.

What denies or asks matches generously: where it cannot be told, the rule may be meant, and people are asked. What
allows matches exactly.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from posixpath import join, normpath
from typing import Any

from toolwire.decide.addresses import address_fits
from toolwire.decide.families import (
    CHANGING,
    FOLDER_ARGUMENT,
    PATH_ARGUMENTS,
    SHELL_ARGUMENT,
    SHOWING_FOLDERS,
    URL_ARGUMENT,
    every_name,
    reach,
    tools_like_it,
)
from toolwire.decide.fit import RuleMatch
from toolwire.decide.globs import fits
from toolwire.decide.paths import fold, path_fits
from toolwire.decide.reading import only_reads, runs_nothing_else
from toolwire.decide.shell import UNKNOWN, Reading, base_name
from toolwire.decide.shell_reach import reaches
from toolwire.protocol.policy import Rule, Verdict
from toolwire.protocol.tools import Grant, Tool


def concerns(rule: Rule, tool: Tool) -> bool:
    """Whether a rule is about a tool at all, by its name or by a permission that it needs."""
    return tool.name in rule.tools or (bool(rule.permission) and rule.permission in tool.needs)


def match_rule(
    rule: Rule, tool: Tool, arguments: Mapping[str, Any], reading: Reading | None, grant: Grant
) -> RuleMatch:
    """Whether a rule that denies or asks means this call, whose paths may begin at a folder of the grant."""
    named = concerns(rule, tool) or tool.name in every_name(rule.tools)
    if named and not rule.argument:
        return RuleMatch.YES
    if reading is not None and reach(rule):
        return reaches(rule, reading, grant, str(arguments.get(FOLDER_ARGUMENT) or "."))
    if not named and tool.name not in tools_like_it(rule):
        return RuleMatch.NO
    if rule.argument == SHELL_ARGUMENT and reading is not None:
        return _means_commands(rule, reading)
    if tool.name in SHOWING_FOLDERS and reach(rule):
        return _means_folders(rule, arguments, grant.roots)
    values = _values(rule, arguments)
    if not values and rule.argument not in tool.input_schema.get("properties", ()):
        # A patch names its files in another way: the tool holds what is denied, and cannot ask.
        asks = rule.verdict is Verdict.ASK and tool.name in CHANGING
        return RuleMatch.MAYBE if named or asks else RuleMatch.NO
    return RuleMatch.YES if any(_value_fits(value, rule, grant.roots) for value in values) else RuleMatch.NO


def _means_folders(rule: Rule, arguments: Mapping[str, Any], roots: Sequence[str]) -> RuleMatch:
    """Whether a tool that shows whole folders is asked for what a rule is about; what lies deeper it leaves out."""
    top = str(arguments.get("repository") or ".")
    inside = [normpath(join(top, str(path))) for path in _values(rule, arguments)] or [top]
    return RuleMatch.YES if any(path_fits(one, rule.pattern, roots) for one in inside) else RuleMatch.NO


def _values(rule: Rule, arguments: Mapping[str, Any]) -> list[Any]:
    """What a call gives for the argument of a rule, each of several by itself."""
    names = PATH_ARGUMENTS if rule.argument in PATH_ARGUMENTS else (rule.argument,)
    given = [arguments[name] for name in names if arguments.get(name) is not None]
    return [item for value in given for item in (value if isinstance(value, list) else [value])]


def _value_fits(value: Any, rule: Rule, roots: Sequence[str]) -> bool:
    text = value if isinstance(value, str) else str(value)
    if len(text) <= _LONGEST_NAME:
        if rule.argument == URL_ARGUMENT or "://" in text:
            return address_fits(text, rule.pattern)
        if rule.argument in PATH_ARGUMENTS or "/" in text:
            return path_fits(text, rule.pattern, roots)
    return fits(fold(text), fold(rule.pattern))


_LONGEST_NAME = 8192
"""No path and no address that a tool takes is longer."""


def _means_commands(rule: Rule, reading: Reading) -> RuleMatch:
    if any(begins(words, rule.pattern) for command in reading.commands for words in _by_name(command)):
        return RuleMatch.YES
    if reading.doubt and (rule.verdict is Verdict.ASK or not only_reads(reading)):
        return RuleMatch.MAYBE
    wanted = rule.pattern.split()
    return RuleMatch.MAYBE if any(_might_begin(words, wanted) for words in reading.commands) else RuleMatch.NO


def _by_name(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """A command without the folder of its program; `git-push`, which lies among git's own programs, is `git push`."""
    name, rest = base_name(words[0]), words[1:]
    yield (name, *rest)
    if name.startswith(_PART_OF_GIT):
        yield ("git", name.removeprefix(_PART_OF_GIT), *rest)


_PART_OF_GIT = "git-"


def _might_begin(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a command may do what a pattern says: behind a wrapper, among options, or in words made at run time."""
    if runs_nothing_else(words) and not fits(base_name(words[0]), wanted[0]):
        return False
    left = list(wanted)
    for token in _tokens(words):
        made = UNKNOWN in token and len(left) < len(wanted)
        if left and (made or fits(base_name(token), left[0]) or fits(token, f"-*{left[0]}")):  # as in -Otouch
            left.pop(0)
    return not left


def _tokens(words: Iterable[str]) -> Iterator[str]:
    for token in (token for word in words for token in _BETWEEN_WORDS.split(word) if token):
        if base_name(token).startswith(_PART_OF_GIT):
            yield from ("git", base_name(token).removeprefix(_PART_OF_GIT))
        yield token


_BETWEEN_WORDS = re.compile(r"[\s;|&!=()'\"`]")


def begins(words: Iterable[str], pattern: str) -> bool:
    """Whether a command begins with the words of a pattern; `*` in a word stands for anything that is known."""
    known = list(words)
    wanted = pattern.split()
    return len(known) >= len(wanted) and all(
        UNKNOWN not in word and fits(word, want) for word, want in zip(known, wanted, strict=False)
    )


def exactly(value: str, pattern: str) -> bool:
    """Whether a value fits a pattern that allows: in an address, `*` does not reach beyond the host it stands in."""
    scheme, is_address, rest = pattern.partition("://")
    if not is_address:
        return fits(normal(value), pattern)
    host, slash, path = rest.partition("/")
    theirs, _, target = value.partition("://")
    their_host, their_slash, their_path = target.partition("/")
    whole = fits(their_path, path) if slash else not their_slash or host.endswith("*")
    return fits(theirs, scheme) and fits(their_host, host) and whole and not _has_detours(their_host, their_path)


def _has_detours(host: str, path: str) -> bool:
    """Whether an address leads elsewhere than it seems to, for some server or browser."""
    parts = path.partition("?")[0].partition("#")[0].casefold().split("/")
    detour = "" in parts[:-1] or not {".", ".."}.isdisjoint(parts)
    coded = any(code in part for part in parts for code in ("%2e", "%2f", "%5c", "%25"))
    return detour or coded or "@" in host or "\\" in host + path


def normal(text: str) -> str:
    """A value as rules see it: a path without detours, anything else as it is."""
    return normpath(text) if "/" in text and "://" not in text else text
