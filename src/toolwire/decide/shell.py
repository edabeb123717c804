"""What a shell text would run, read from its syntax tree. Pure.

This explains a command to people and rules; it does not confine it. Whatever cannot be told for sure (a command made at
run time, a wrapper that is not known, a text that does not parse) is not understood, and that is the stricter answer.
"""

import importlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from msgspec import Struct

from toolwire.decide.shell_globs import GlobReader
from toolwire.decide.shell_syntax import hidden_effect, holds_more, is_plain, is_sure_heredoc, left_unread
from toolwire.decide.shell_words import UNKNOWN, after_wrapper, base_name, is_wrapper, names_variables, word
from toolwire.lazy import lazy_pattern

__all__ = ["LONGEST", "UNKNOWN", "Reading", "base_name", "read_shell", "runs_others"]

LONGEST = 10_000
MOST_NODES = 20_000
NOWHERE = "/dev/null"

# Commands that run text or other commands in ways that are not looked into.
_OPAQUE = frozenset(
    "eval source . sh bash dash zsh ksh fish python python3 perl ruby node php lua awk gawk sed xargs parallel sudo "
    "doas su ssh watch script expect trap alias busybox chroot unshare nsenter systemd-run at batch crontab make "
    "find coproc".split()
)
_SYSTEM_FOLDERS = {"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"}


def runs_others(name: str) -> bool:
    """Whether a command is known to run text or other commands."""
    return base_name(name) in _OPAQUE


class Reading(Struct, frozen=True):
    """The commands of a text, each as its words; a word that is made at run time is `UNKNOWN`.

    `written` are the files that redirections write, `opened` those that they read, `globs` the patterns for which the
    shell puts names of files. `doubt` says why the text is not
    fully understood, if so.
    A `plain` text does nothing but run these commands: no other syntax in it has an effect. A `sure` one runs these
    commands and no others, though some of them may run more.
    """

    commands: tuple[tuple[str, ...], ...] = ()
    written: tuple[str, ...] = ()
    doubt: str = ""
    plain: bool = False
    opened: tuple[str, ...] = ()
    sure: bool = False
    globs: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def read_shell(text: str) -> Reading:
    """Read a shell text without running any of it."""
    parser = _parser()
    if parser is None:
        return Reading(doubt='reading shell commands needs an extra: pip install "toolwire[shell]"')
    if len(text) > LONGEST:
        return Reading(doubt=f"the text is longer than {LONGEST} characters")
    joined = _CONTINUED.sub(r"\1", text)
    tree = parser.parse(_NOT_ASCII.sub(".", joined).encode())
    if tree.root_node.has_error:
        return Reading(doubt="the text is not valid shell")
    reader = _Reader(joined)
    if any(not (char.isprintable() or char in "\t\n") for char in text):
        reader.doubts.append("it has characters that are not seen")
    if joined != text and any(mark in text for mark in ("'", "<<", "#")):
        reader.doubts.append("a line goes on in the next one, among quotes or remarks")
    if _BLANK_WORD.search(joined):
        reader.doubts.append("a word begins with an escaped blank")
    return reader.read(tree.root_node)


# What the shell takes out before it reads on: a backslash at the end of a line, unless it is itself escaped.
_CONTINUED = lazy_pattern(r"(?<!\\)((?:\\\\)*)\\\n")
# The parser reads past its tables, and may take the process with it, where a letter is none of these. To the shell
# all others are letters of a word; a full stop stands for each, and what it stands for is read from the text.
_NOT_ASCII = lazy_pattern(r"[^\x00-\x7f]")
_BLANK_WORD = lazy_pattern(r"(?:^|\s)\\\s")  # the tree leaves out a word that begins with an escaped blank


@lru_cache(maxsize=1)
def _parser() -> Any:
    """The parser, or None without its extra. Loaded when the first command comes: few turns run any."""
    try:
        tree_sitter, bash = map(importlib.import_module, ("tree_sitter", "tree_sitter_bash"))
    except ImportError:
        return None
    return tree_sitter.Parser(tree_sitter.Language(bash.language()))


_REDIRECTS = frozenset(["file_redirect", "herestring_redirect", "heredoc_redirect"])


class _Reader:
    """Collects what a syntax tree says."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.commands: list[tuple[str, ...]] = []
        self.written: list[str] = []
        self.opened: list[str] = []
        self.doubts: list[str] = []
        self.opaque = ""
        self.plain = True
        self.globs = GlobReader(text)

    def read(self, root: Any) -> Reading:
        for count, node in enumerate(_all_nodes(root)):
            if count > MOST_NODES:
                self.doubts.append("the text has too many parts")
                break
            self._look(node)
        plain = self.plain and not self.doubts and not self.written
        doubt = next(iter(self.doubts), self.opaque)
        sure, globs = not self.doubts, self.globs.found()
        return Reading(tuple(self.commands), tuple(self.written), doubt, plain, tuple(self.opened), sure, globs)

    def _look(self, node: Any) -> None:
        self.globs.look(node)
        match node.type:
            case "command":
                self._command(node)
            case "file_redirect":
                self._redirect(node)
            case "heredoc_redirect" if not is_sure_heredoc(node, self.text):
                self.doubts.append("where its here-document ends can be read in two ways")
            case "test_command" | "arithmetic_expansion" | "expansion" | "for_statement" if why := hidden_effect(node):
                self.doubts.append(why)
            case "function_definition":
                self.doubts.append("it defines a function")
            case "variable_assignment" if node.parent.type != "command":
                self.doubts.append("it sets variables")
            case "unset_command" | "declaration_command" | "((":
                self.doubts.append("it sets variables")
        if node.is_named and not is_plain(node):
            self.plain = False
        if holds_more(node):
            self.doubts.append("a part of it can be read in two ways")
        if left_unread(node):
            self.doubts.append("a part of it is made when it runs, in a way that is not looked into")

    def _command(self, node: Any) -> None:
        parts = [child for child in node.children if child.type not in _NOT_WORDS]
        if any(child.type == "variable_assignment" for child in node.children):
            self.doubts.append("a command gets variables of its own")
        if node.parent.type == "redirected_statement":  # what follows a redirection belongs to the command again
            parts += [one for redirect in node.parent.children for one in _destinations(redirect)[1:]]
        if self._are_joined(parts) or self._are_joined([child for child in node.children if child.is_named]):
            self.doubts.append("a part of it can be read in two ways")
        self._unwrapped([word(part, self.text) for part in parts])

    def _are_joined(self, parts: Sequence[Any]) -> bool:
        """Whether to the shell two parts are one word, or a number belongs to the redirection behind it."""
        return any(
            one.end_byte == other.start_byte and other.type not in _REDIRECTS for one, other in pairwise(parts)
        ) or any(part.text.isdigit() and self.text.startswith(("<", ">"), part.end_byte) for part in parts)

    def _redirect(self, node: Any) -> None:
        marks = {child.type for child in node.children}
        first, *others = _destinations(node) or [None]
        if self._are_joined([one for one in (first, *others) if one is not None]):
            self.doubts.append("a part of it can be read in two ways")
        if others and node.parent.children[0].type != "command":
            self.doubts.append("words behind a redirection belong to a command before it")
        places = [] if first is None else [word(first, self.text)]
        copies = all(place.isdecimal() or place == "-" for place in places)
        if (marks & _WRITES and places != [NOWHERE]) or (">&" in marks and not copies):
            self.written += places
        elif not copies:
            self.opened += places

    def _unwrapped(self, words: list[str]) -> None:
        while words and is_wrapper(words):
            rest = after_wrapper(words)
            if rest is None:
                self.doubts.append(f"{words[0]!r} runs something that cannot be told")
            if not rest:
                break
            words = rest
        if not words:
            return
        name = base_name(words[0])
        if UNKNOWN in words[0]:
            self.doubts.append("a command's name is made when it runs")
        elif _ASSIGNS.match(words[0]) or words[0] in _RESERVED:  # behind `time` it is no name
            self.doubts.append("what it runs stands behind something that is no command")
        elif name in _OPAQUE:
            self.opaque = self.opaque or f"{name!r} runs other commands"
        if names_variables(name, words[1:]):
            self.doubts.append(f"{name!r} can run what the name of a variable holds")
        known = words[0].rpartition("/")[0] in _SYSTEM_FOLDERS
        self.commands.append((name if known else words[0], *words[1:]))


_ASSIGNS = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*(?:\[.*\])?\+?=", re.DOTALL)
_RESERVED = frozenset("! { } [[ if then else elif fi for while until do done case esac in select function".split())
_WRITES = {">", ">>", "&>", "&>>", ">|", "<>"}
_NOT_WORDS = {"variable_assignment", "file_redirect", "heredoc_redirect", "herestring_redirect", "<", ">"}


def _destinations(redirect: Any) -> list[Any]:
    """Where a redirection leads, and the words that the tree hangs behind that."""
    named = [child for child in redirect.children if child.is_named and child.type != "file_descriptor"]
    return named if redirect.type == "file_redirect" else []


def _all_nodes(root: Any) -> Iterator[Any]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))
