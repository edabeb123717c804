"""Where a text may stop being plain: the patterns that find it, made once for each list of tools."""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from toolwire.wire.replies.offered import Offered, fold_name
from toolwire.wire.text.marks import END_OF_TURN, any_of
from toolwire.wire.text.openers import HANDLERS, MARKERS
from toolwire.wire.text.scan import Scan

_LINE_STARTS = "*_{["
_LABEL_STARTS = ("Tho", "Act", "Fin", "Obs", "Cal")
_START = 3
_LABELS = r"[*_]{0,4}(?:Thought|Action|Final Answer|Observation|Call)(?:[ \t]?\d{1,3})?\s?[*_]{0,4}:"
_ANNOUNCES = (
    r"\b(?:I will|I'll|I am going to|I'm going to|I need to|Let me|Let us|Let's)\b[^.\n]{0,60}?"
    r"\b(?:use|call|invoke|run)\s(?:the\s)?"
)
_QUOTES = "`'\"“"
_QUOTED = 24
_LONGEST_CODE = 2_000
_QUOTATION = re.compile(r"(?:\A|\n)[ \t]{0,3}(?:(?:[-*+]|\d{1,3}[.)])[ \t]{1,4})*(?:>[ \t]{0,4})+\Z")
_TOKENS_AT_END = 8
_KEPT_LISTS = 64


class Triggers:
    """Where a text may stop being plain: patterns made once for each list of tools."""

    __slots__ = ("announced", "here", "line", "name_beginnings", "quiet", "strong", "tag_beginnings")

    def __init__(self, names: Collection[str]) -> None:
        folded = dict.fromkeys(map(fold_name, names))
        self.name_beginnings = frozenset(name[:size] for name in folded for size in range(1, len(name) + 1))
        self.tag_beginnings = frozenset(f"<{name}/"[:size] for name in folded for size in range(1, len(name) + 3))
        tags = [f"<{name}{end}" for name in names for end in (">", "/>") if f"<{name}>" not in HANDLERS]
        loosely = _any_spelling(folded) if names else ""
        self.strong = re.compile(any_of([*MARKERS, *tags]) + (f"|<{loosely}/?>" if names else ""))
        named = rf"|(?P<name>{loosely}(?=[ \t\r]*+[\n(]|<\|content))" if names else ""
        body = rf"(?:(?P<bracket>[{{\[])|(?P<label>{_LABELS}){named})"
        self.here = re.compile(rf"\s*+{body}")
        self.line = re.compile(rf"\n[ \t]*+{body}")
        starts = "".join(f"{name[0]}{name[0].upper()}{'-' * (name[0] == '_')}" for name in folded)
        self.quiet = _quiet([*MARKERS, *END_OF_TURN, *(f"<{start}" for start in starts)], folded)
        self.announced = re.compile(rf"{_ANNOUNCES}[`\"']?(?P<name>{any_of(names)})\b") if names else None


def _any_spelling(folded: Iterable[str]) -> str:
    """A pattern for names in any case, and with dashes for underscores."""
    return f"(?i:{any_of(folded).replace('_', '[_-]')})"


def _quiet(markers: Iterable[str], names: Iterable[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Pieces of text in which nothing can begin: by two characters inside a line, by three at its beginning."""
    following: dict[str, set[str]] = {}
    for marker in markers:
        following.setdefault(marker[0], set()).add(marker[1])
    passing = "|".join(f"{re.escape(char)}(?=[^{_set(after)}])" for char, after in following.items())
    words = rf"[^{_set(following)}\n]*+"
    line = rf"{words}(?>(?:{passing}){words})*+"
    named = _any_beginning(name[:_START] for name in names)
    begin = rf"\s*+(?![{_set(_LINE_STARTS)}]|{_any_beginning(_LABEL_STARTS)}{f'|(?i:{named})' if named else ''}){line}"
    return re.compile(rf"{line}(?>\n{begin})*+\Z"), re.compile(rf"{begin}(?>\n{begin})*+\Z")


def _any_beginning(starts: Iterable[str]) -> str:
    """A pattern for a line that begins in one of these ways, or that may still do so when more of it comes."""
    by_first: dict[str, list[str]] = {}
    for start in starts:
        by_first.setdefault(start[0], []).append(start[1:])
    return "|".join(_spelled(first) + _goes_on(rests) for first, rests in by_first.items())


def _goes_on(rests: list[str]) -> str:
    return "" if "" in rests else rf"(?:\Z|{_any_beginning(rests)})"


def _spelled(char: str) -> str:
    return "[_-]" if char == "_" else re.escape(char)


def _set(characters: Iterable[str]) -> str:
    return "".join(map(re.escape, sorted(set(characters))))


_triggers: dict[int, tuple[Offered, Triggers]] = {}


def triggers(offered: Offered) -> Triggers:
    """The patterns for a list of tools, kept as long as the list is."""
    known = _triggers.get(id(offered))
    if known is None or known[0] is not offered:
        if len(_triggers) >= _KEPT_LISTS:
            _triggers.pop(next(iter(_triggers)), None)
        known = _triggers[id(offered)] = (offered, _for_names(tuple(offered.by_name)))
    return known[1]


@lru_cache(_KEPT_LISTS)
def _for_names(names: tuple[str, ...]) -> Triggers:
    """They take milliseconds to make, and each request brings a new list that mostly names the same tools."""
    return Triggers(names)


def end_of_turn(text: str) -> tuple[int, bool]:
    """Where the text ends once end-of-turn tokens are left out, and whether there was one."""
    end = len(text)
    if not text.endswith((">", "]", "[", "\n", " ")):
        return end, False
    finished = False
    for _ in range(_TOKENS_AT_END):
        stripped = text[max(0, end - 40) : end].rstrip()
        if not stripped.endswith(END_OF_TURN):
            break
        token = next(token for token in END_OF_TURN if stripped.endswith(token))
        gap = end - max(0, end - 40) - len(stripped)
        end -= gap + len(token)
        finished = True
    return end, finished


def in_inline_code(scan: Scan, at: int, after: int) -> bool:
    """Whether a marker stands behind the beginning of inline code whose end may still come."""
    before = (scan.before[-3:] + scan.text[max(0, at - 3) : at])[-3:]
    open_line = scan.end - after < _LONGEST_CODE and "\n" not in scan.text[after : scan.end]
    return before.endswith("`") and before != "```" and scan.text[at : at + 1] != "`" and open_line


def mention_end(scan: Scan, at: int, after: int) -> int:
    """Where the mention of a marker ends: in quotes, inline code or a quotation it is spoken of, not used. Else -1."""
    before = scan.text[at - 1] if at > 0 else scan.before[-1:]
    if before and before in " \t>" and _QUOTATION.search(scan.text, max(0, at - _QUOTED), at):
        end = scan.find("\n", after)
        return end if end >= 0 else scan.end
    if not before or before not in _QUOTES or scan.text[at : at + 1] == "`":
        return -1
    if before == "`":
        if (scan.before[-3:] + scan.text[max(0, at - 3) : at])[-3:] == "```":
            return -1
        line_end = scan.find("\n", after)
        return scan.text.find("`", after, line_end if line_end >= 0 else scan.end)
    return after if scan.text[after : after + 1] in ("'", '"', "”") else -1
