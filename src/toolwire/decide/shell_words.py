"""The words of a shell command: what the shell would hand over, and what a wrapper in front of them runs. Pure."""

import re
from collections.abc import Sequence
from typing import Any

UNKNOWN = "\0"

# Wrappers that run the words after them as they stand: their options without a value, and those with one.
_WRAPPERS = {
    "command": ("p", ""), "nohup": ("", ""), "time": ("p", ""), "builtin": ("", ""), "exec": ("cl", "a"),
    "setsid": ("cfw", ""), "stdbuf": ("", "ioe"), "nice": ("0123456789", "n"), "ionice": ("t", "cn"),
    "timeout": ("v", "ks"), "env": ("i0v", "u"),
}  # fmt: skip
_TAKES_AN_AMOUNT = {"timeout"}


def base_name(word: str) -> str:
    """The name of a command without its folder."""
    return word.rpartition("/")[2]


def is_wrapper(words: Sequence[str]) -> bool:
    """Whether these words run others of them. `command -v` only tells what would be run."""
    name = base_name(words[0])
    return name in _WRAPPERS and not (name == "command" and words[1:2] in (["-v"], ["-V"]))


def after_wrapper(words: Sequence[str]) -> list[str] | None:
    """The words that a wrapper runs; None where its own options are not understood."""
    name = base_name(words[0])
    rest = after_options(words[1:], *_WRAPPERS[name])
    if rest is None or (name == "env" and rest and "=" in rest[0]):
        return None
    if name in _TAKES_AN_AMOUNT:
        return None if rest and UNKNOWN in rest[0] else rest[1:]
    return rest


def names_variables(name: str, words: Sequence[str]) -> bool:
    """Whether a command is given a variable's name that may have a subscript, in which the shell runs commands."""
    if name in _SETS:
        return any("[" in each or UNKNOWN in each for each in words)
    if name in {"test", "["}:
        return any(each in {"-v", "-R"} or UNKNOWN in each[:1] for each in words)
    return name == "printf" and any(each.startswith("-v") or UNKNOWN in each[:1] for each in words[:1])


_SETS = frozenset("read mapfile readarray getopts unset let declare typeset local export readonly wait".split())


def after_options(words: Sequence[str], flags: str, valued: str) -> list[str] | None:
    """What follows the options of a command, which stand before everything else; None where one is not known."""
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option = rest.pop(0)
        letters = option[1:].lstrip(flags)
        if option == "-" or UNKNOWN in option or (letters and letters[0] not in valued):
            return None
        if len(letters) == 1 and (not rest or UNKNOWN in rest.pop(0)):
            return None
    return rest[1:] if rest[:1] == ["--"] else rest


def word(node: Any, text: str) -> str:
    """A word as the shell would hand it over, or with UNKNOWN in it where only running it would tell.

    `text` is the whole text, of which each character has one byte in the tree.
    """
    written = text[node.start_byte : node.end_byte]
    match node.type:
        case "word" | "number" | "special_character":
            return _bare(written)
        case "string_content":
            return _IN_QUOTES.sub(r"\1", written)
        case "raw_string":
            return written[1:-1]
        case "command_name":
            return word(node.children[0], text) if node.child_count == 1 else UNKNOWN
        case "string" if all(child.type in _LITERAL for child in node.children):
            return _IN_QUOTES.sub(r"\1", written[1:-1])
        case "string":
            return "".join(word(child, text) for child in node.children if child.type != '"')
        case "concatenation":
            return "".join(word(child, text) for child in node.children)
    return UNKNOWN


_LITERAL = {'"', "string_content"}
_IN_QUOTES = re.compile(r'\\([$`"\\])')
_GLOBS = {ord(mark): UNKNOWN for mark in "*?[{"}


def _bare(text: str) -> str:
    """A word without quotes. A pattern begins like its text, since no file that it finds begins otherwise."""
    if text[0] in "~*?[{":
        return UNKNOWN
    if any(mark in text for mark in "*?[{") or "=~" in text or ":~" in text:
        return text.translate({**_GLOBS, ord("~"): UNKNOWN})
    if "\\" not in text:
        return text
    letters = iter(text)
    return "".join(next(letters, "") if letter == "\\" else letter for letter in letters)
