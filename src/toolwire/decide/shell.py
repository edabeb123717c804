"""What a shell text would run, read from its syntax tree. Pure.

This explains a command to people and rules; it does not confine it. Whatever cannot be told for sure (a command made at
run time, a wrapper that is not known, a text that does not parse) is not understood, and that is the stricter answer.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from toolwire.protocol.values import quick

LONGEST = 10_000
MOST_NODES = 20_000
UNKNOWN = "\0"

# Wrappers that run the words after them as they stand, and those of their own options that take a value.
_WRAPPERS = {
    "command": "", "nohup": "", "time": "", "builtin": "", "exec": "", "setsid": "", "stdbuf": "ioe",
    "nice": "n", "ionice": "cn", "timeout": "ks", "env": "uC",
}  # fmt: skip
_TAKES_AN_AMOUNT = {"timeout"}
# Commands that run text or other commands in ways that are not looked into.
_OPAQUE = frozenset(
    "eval source . sh bash dash zsh ksh fish python python3 perl ruby node php lua awk gawk sed xargs parallel sudo "
    "doas su ssh watch script expect trap alias busybox chroot unshare nsenter systemd-run at batch crontab make "
    "find".split()
)

_SYSTEM_FOLDERS = {"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"}


@quick
@dataclass(frozen=True, slots=True)
class Reading:
    """The commands of a text, each as its words; a word that is made at run time is `UNKNOWN`.

    `written` are the files that redirections write. `doubt` says why the text is not fully understood, if so.
    """

    commands: tuple[tuple[str, ...], ...] = ()
    written: tuple[str, ...] = ()
    doubt: str = ""


@lru_cache(maxsize=256)
def read_shell(text: str) -> Reading:
    """Read a shell text without running any of it."""
    parser = _parser()
    if parser is None:
        return Reading(doubt='reading shell commands needs an extra: pip install "toolwire[shell]"')
    if len(text) > LONGEST:
        return Reading(doubt=f"the text is longer than {LONGEST} characters")
    tree = parser.parse(text.encode("utf-8", "replace"))
    if tree.root_node.has_error:
        return Reading(doubt="the text is not valid shell")
    return _Reader().read(tree.root_node)


@lru_cache(maxsize=1)
def _parser() -> Any:
    """The parser, or None without its extra. Loaded when the first command comes: few turns run any."""
    try:
        tree_sitter, bash = map(importlib.import_module, ("tree_sitter", "tree_sitter_bash"))
    except ImportError:
        return None
    return tree_sitter.Parser(tree_sitter.Language(bash.language()))


def base_name(word: str) -> str:
    """The name of a command without its folder."""
    return word.rpartition("/")[2]


class _Reader:
    """Collects what a syntax tree says."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.written: list[str] = []
        self.doubts: list[str] = []

    def read(self, root: Any) -> Reading:
        for count, node in enumerate(_all_nodes(root)):
            if count > MOST_NODES:
                self.doubts.append("the text has too many parts")
                break
            self._look(node)
        return Reading(tuple(self.commands), tuple(self.written), self.doubts[0] if self.doubts else "")

    def _look(self, node: Any) -> None:
        match node.type:
            case "command":
                self._command(node)
            case "function_definition":
                self.doubts.append("it defines a function")
            case "file_redirect" if any(child.type in _WRITES for child in node.children):
                self.written.append(_word(node.children[-1]))
            case "variable_assignment" if node.parent.type != "command":
                self.doubts.append("it sets variables")

    def _command(self, node: Any) -> None:
        words = [_word(child) for child in node.children if child.type not in _NOT_WORDS]
        if any(child.type == "variable_assignment" for child in node.children):
            self.doubts.append("a command gets variables of its own")
        self._unwrapped(words)

    def _unwrapped(self, words: list[str]) -> None:
        while words and base_name(words[0]) in _WRAPPERS:
            rest = _after_wrapper(words)
            if rest is None:
                self.doubts.append(f"{words[0]!r} runs something that cannot be told")
                break
            words = rest
        if not words:
            return
        name = base_name(words[0])
        if UNKNOWN in words[0]:
            self.doubts.append("a command's name is made when it runs")
        elif name in _OPAQUE:
            self.doubts.append(f"{name!r} runs other commands")
        known = words[0].rpartition("/")[0] in _SYSTEM_FOLDERS
        self.commands.append((name if known else words[0], *words[1:]))


_WRITES = {">", ">>", "&>", "&>>", ">|", "<>"}
_NOT_WORDS = {"variable_assignment", "file_redirect", "heredoc_redirect", "herestring_redirect", "<", ">"}


def _all_nodes(root: Any) -> Iterator[Any]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def _after_wrapper(words: list[str]) -> list[str] | None:
    """The words that a wrapper runs; None where its own options are not understood."""
    name = base_name(words[0])
    rest, amounts = words[1:], int(name in _TAKES_AN_AMOUNT)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option = rest.pop(0)
        if option[1:2] == "-" or UNKNOWN in option or (name == "env" and "S" in option):
            return None
        if option[1:] and option[-1] in _WRAPPERS[name]:
            rest = rest[1:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if name == "env" and rest and "=" in rest[0]:
        return None
    return rest[amounts:]


def _word(node: Any) -> str:
    """A word as the shell would hand it over, or with UNKNOWN in it where only running it would tell."""
    match node.type:
        case "word" | "number" | "string_content" | "special_character":
            return _unescaped(node.text.decode("utf-8", "replace"), inside=node.type == "string_content")
        case "raw_string":
            return str(node.text.decode("utf-8", "replace")[1:-1])
        case "command_name":
            return _word(node.children[0]) if node.child_count == 1 else UNKNOWN
        case "string":
            return "".join(_word(child) for child in node.children if child.type != '"')
        case "concatenation":
            return "".join(map(_word, node.children))
    return UNKNOWN


def _unescaped(text: str, *, inside: bool) -> str:
    if not inside and any(mark in text for mark in "*?[{~"):
        return UNKNOWN if text[0] in "~*?[{" else text.translate({ord(mark): UNKNOWN for mark in "*?[{~"})
    if "\\" not in text:
        return text
    letters = iter(text)
    return "".join(next(letters, "") if letter == "\\" else letter for letter in letters)
