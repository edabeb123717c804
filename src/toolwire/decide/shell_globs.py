"""Patterns in a shell text that the shell replaces by the names of files, and whether they find denied ones. Pure.

`echo secrets/*` opens no file and yet tells what lies there. A pattern is kept as a text in which a mark stands for
each thing that the shell expands; what was quoted stands for itself.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from toolwire.decide.globs import ANY, ONE, STAR, overlap
from toolwire.decide.paths import BOX_ROOT, fold, plain, rule_forms
from toolwire.lazy import lazy_pattern

_OPEN, _COMMA, _CLOSE, _BRACKET = "\3", "\4", "\5", "\6"
_MARKS = {"*": STAR, "?": ONE, "{": _OPEN, ",": _COMMA, "}": _CLOSE, "[": _BRACKET}
_BARE = frozenset((*STAR, *ONE, *ANY, "."))
_MOST_ALTERNATIVES = 256
_SET = lazy_pattern(rf"{_BRACKET}[^/]*?\]")
_INNER = lazy_pattern(r"/\*+$")
_DEEP = lazy_pattern(rf"{STAR}{STAR}+")
_WILD = lazy_pattern(f"[{STAR}{ONE}]")
_HOLDERS = frozenset(
    "command command_name for_statement array variable_assignment herestring_redirect expansion".split()
)
_IN_A_WORD = frozenset("concatenation expansion".split())
# Through these a process reaches its own folder by other names.
_OTHER_NAMES = ("/proc/*/cwd/*", "/proc/*/root/*", "/proc/*/fd/*", "/dev/fd/*")
_WORDS = frozenset("word concatenation extglob_pattern".split())
_QUOTED = frozenset("raw_string string ansi_c_string".split())
_MADE = frozenset("simple_expansion expansion command_substitution".split())
# How a star, a question mark or a bracket is written where it is made when the text runs.
_ESCAPED = lazy_pattern(r"\\(?:0?52|0?77|0?133|x(?:2a|3f|5b)|u(?:002a|003f|005b))", re.IGNORECASE)


class GlobReader:
    """Collects the patterns of a text, node by node."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._globs: dict[str, None] = {}
        self._quoted: dict[str, None] = {}
        self._makes_words = False

    def look(self, node: Any) -> None:
        if node.type in _MADE:
            self._makes_words = self._makes_words or node.parent.type not in {"string", "variable_assignment"}
        elif node.type in _QUOTED:
            self._quoted[self._text[node.start_byte : node.end_byte].strip("$'\"")] = None
        elif node.type in _WORDS and node.parent.type in _HOLDERS:
            inner = node.parent.type == "expansion" and node.parent.parent.type in _IN_A_WORD
            self._add(f"{ANY}{encode(node, self._text)}{ANY}" if inner else encode(node, self._text))

    def found(self) -> tuple[str, ...]:
        """All patterns. What is quoted becomes one where it may come out of an expansion that is not."""
        for text in self._quoted if self._makes_words else ():
            self._add(ANY + STAR if _ESCAPED.search(text) else "".join(_MARKS.get(char, char) for char in text))
        return tuple(self._globs)

    def _add(self, encoded: str) -> None:
        for one in _without_braces(_DEEP.sub(ANY + STAR, _SET.sub(ONE, encoded))):
            if _WILD.search(one):
                self._globs[_literal(one)] = None


def encode(node: Any, text: str) -> str:
    """A word with marks for what the shell expands; what is made when it runs may be anything."""
    written = text[node.start_byte : node.end_byte]
    match node.type:
        case "word" | "number" | "special_character" | "extglob_pattern":
            return "".join(_bare(written, first=node.parent.type != "concatenation"))
        case "raw_string":
            return written[1:-1]
        case "string" if all(child.type in ('"', "string_content") for child in node.children):
            return written.strip('$"')
        case "command_name" | "concatenation":
            return "".join(encode(child, text) for child in node.children)
        case "brace_expression":
            return STAR
    return ANY


def may_list(globs: Sequence[str], pattern: str, places: Sequence[str], roots: Sequence[str]) -> bool:
    """Whether the shell may put names that a rule denies in place of one of these patterns, in one of these folders."""
    forms = rule_forms(pattern, tuple(roots))
    folders = [one for form in forms for one in (form, _INNER.sub("", form), form.partition("*")[0].rpartition("/")[0])]
    listed = [one for form in dict.fromkeys(folders) if form for one in (form, f"{form}/*")]
    whole = [one for form in forms for one in (form, f"{form}/*")]
    for glob in globs:
        for one in {seen for place in places for seen in _seen_from(place, glob, roots)}:
            if any(overlap(one, name) for name in _OTHER_NAMES):
                return True
            folder, _, last = one.rpartition("/")
            is_listing = _BARE.issuperset(last)
            sought = (folder + ANY if ANY in last else folder) if is_listing else one
            if any(overlap(sought, form) for form in (listed if is_listing else whole)):
                return True
    return False


def listed_folders(globs: Sequence[str]) -> list[str]:
    """The folders in which the shell looks for names, at every depth of these patterns."""
    parts = [glob.replace(ANY, STAR).replace(ONE, STAR).split("/") for glob in globs]
    return list(dict.fromkeys("/".join(each[:count]) for each in parts for count in range(1, len(each))))


def _seen_from(place: str, glob: str, roots: Sequence[str]) -> Iterator[str]:
    """A pattern as the paths of a workspace, where it is meant from this folder."""
    path = fold(plain(glob if glob.startswith("/") or not place else f"{place}/{glob}"))
    if path.startswith("../"):  # above the workspace there is the box
        path = plain(f"{BOX_ROOT}/{path}")
    if ".." in glob.split("/") and ANY in glob:
        path = fold(f"{ANY}/{glob.rpartition('..')[2].lstrip('/')}")
    yield path.removeprefix("./")
    parts = path.split("/")
    for top in (fold(plain(root)).split("/") for root in (*roots, BOX_ROOT)) if path.startswith("/") else ():
        if len(parts) > len(top) and overlap("/".join(parts[: len(top)]), "/".join(top)):
            yield "/".join(parts[len(top) :])


def _bare(written: str, *, first: bool) -> Iterator[str]:
    letters = iter(written)
    if first and written[:1] == "~":
        yield ANY
        next(letters)
    for letter in letters:
        yield next(letters, "") if letter == "\\" else _MARKS.get(letter, letter)


def _literal(text: str) -> str:
    """A pattern in which what expands nothing after all is text again."""
    return text.translate({ord(mark): char for char, mark in _MARKS.items() if mark not in (STAR, ONE)})


def _without_braces(text: str) -> list[str]:
    """What the shell makes of a word with braces; anything, where that is too much."""
    begin = text.find(_OPEN)
    if begin < 0:
        return [text]
    pieces, depth, at = [], 0, begin + 1
    for end in range(begin, len(text)):
        depth += {_OPEN: 1, _CLOSE: -1}.get(text[end], 0)
        if (text[end] == _COMMA and depth == 1) or depth == 0:
            pieces.append(text[at:end])
            at = end + 1
        if depth == 0:
            break
    else:  # a brace that is never closed is a letter
        return [f"{text[:begin]}{{{one}" for one in _without_braces(text[begin + 1 :])]
    if len(pieces) == 1:
        middle = [STAR] if ".." in pieces[0] else [f"{{{one}}}" for one in _without_braces(pieces[0])]
    else:
        middle = [one for piece in pieces for one in _without_braces(piece)]
    rests = _without_braces(text[at:])
    if len(middle) * len(rests) > _MOST_ALTERNATIVES:
        return [ANY + STAR]
    return [text[:begin] + one + rest for one, rest in product(middle, rests)]
