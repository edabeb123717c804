"""Whether an operator's rule means a call. Pure.

What denies or asks matches generously: where it cannot be told, the rule may be meant, and people are asked. What
allows matches exactly.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from posixpath import normpath
from typing import Any

from toolwire.decide.reading import only_reads, runs_nothing_else
from toolwire.decide.shell import UNKNOWN, Reading, base_name
from toolwire.protocol.policy import Rule, Verdict
from toolwire.protocol.tools import Tool

SHELL_ARGUMENT = "command"
LONGEST_VALUE = 10_000


class Fit(IntEnum):
    """Whether a rule means a call."""

    NO = 0
    MAYBE = 1
    YES = 2


def concerns(rule: Rule, tool: Tool) -> bool:
    """Whether a rule is about a tool at all, by its name or by a permission that it needs."""
    return tool.name in rule.tools or (bool(rule.permission) and rule.permission in tool.needs)


def meant(
    rule: Rule, tool: Tool, arguments: Mapping[str, Any], reading: Reading | None, roots: Sequence[str] = ()
) -> Fit:
    """Whether a rule that denies or asks means this call, whose paths may begin at one of these folders."""
    if not concerns(rule, tool):
        return Fit.NO
    if not rule.argument:
        return Fit.YES
    if rule.argument == SHELL_ARGUMENT and reading is not None:
        return _means_commands(rule, reading)
    value = arguments.get(rule.argument)
    if value is None and rule.argument not in tool.input_schema.get("properties", ()):
        return Fit.MAYBE  # a patch names its files in another way
    pattern = rule.pattern.casefold()
    texts = () if value is None else _spellings(value, pattern, roots)
    return Fit.YES if any(fits(text.casefold(), pattern) for text in texts) else Fit.NO


def _means_commands(rule: Rule, reading: Reading) -> Fit:
    if any(begins((base_name(name), *rest), rule.pattern) for name, *rest in reading.commands):
        return Fit.YES
    if reading.doubt and (rule.verdict is Verdict.ASK or not only_reads(reading)):
        return Fit.MAYBE
    wanted = rule.pattern.split()
    return Fit.MAYBE if any(_might_begin(words, wanted) for words in reading.commands) else Fit.NO


def _might_begin(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a command may do what a pattern says: behind a wrapper, among options, or in words made at run time."""
    if runs_nothing_else(words) and not fits(base_name(words[0]), wanted[0]):
        return False
    left = list(wanted)
    for token in _tokens(words):
        made = UNKNOWN in token and len(left) < len(wanted)
        if left and (made or fits(base_name(token), left[0])):
            left.pop(0)
    return not left


def _tokens(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        yield from filter(None, _BETWEEN_WORDS.split(word))


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
    return fits(theirs, scheme) and fits(their_host, host) and whole


def normal(text: str) -> str:
    """A value as rules see it: a path without detours, anything else as it is."""
    return normpath(text) if "/" in text and "://" not in text else text


def _spellings(value: Any, pattern: str, roots: Sequence[str]) -> Iterator[str]:
    """Every way to write a value: a path from the workspace, and one from the root of the disk."""
    for item in value if isinstance(value, list) else [value]:
        text = item if isinstance(item, str) else str(item)
        plain = normal(text)
        yield text
        yield plain
        if "://" in text:
            continue
        if text.startswith("/"):
            yield from (plain[len(root) :].lstrip("/") for root in map(_slashed, roots) if plain.startswith(root))
        elif pattern.startswith("/"):  # without a folder no file is reached, whatever it is called
            yield from (normpath(f"{root}/{text}") for root in roots) if roots else (pattern,)


def _slashed(root: str) -> str:
    return f"{normpath(root).rstrip('/')}/"


def fits(text: str, pattern: str) -> bool:
    """A glob in which only `*` means something, in time that grows with the text alone."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    if len(text) > LONGEST_VALUE or not text.startswith(first):
        return False
    *middle, last = rest
    at = len(first)
    for piece in middle:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(text) - len(last) >= at and text.endswith(last)
