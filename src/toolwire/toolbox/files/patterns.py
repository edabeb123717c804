"""Patterns that a model wrote, matched in linear time: no pattern and no text can make them slow."""

from typing import Any

import jsonschema_rs

from toolwire.errors import ToolFailure
from toolwire.toolbox.files.granted_paths import wrong

LONGEST_PATTERN = 1000
_LONGEST_EXPRESSION = 10 * LONGEST_PATTERN  # a file pattern becomes a longer expression
_SPECIAL = frozenset(".^$*+?()[]{}|\\")
_SIZE = 1 << 20
_ADVICE = (
    "Close every bracket, and put a backslash before . * + ? ( ) [ ] { } | that are meant as they are; look-around, "
    "back references and huge repetitions are not supported."
)


class Pattern:
    """A regular expression in the syntax that providers and editors share, without look-around or back references.

    The engine is the one behind ripgrep; it comes with the schema checker, which asks it about `pattern`.
    """

    def __init__(self, expression: str, *, ignore_case: bool = False, literal: bool = False) -> None:
        """Raises ToolFailure for what is not an expression."""
        written = escaped(expression) if literal else expression
        flags = "(?i)" if ignore_case else ""
        self.matches = _compiled(flags + written, expression)
        # `\A` and `\z` mean something else in a whole text than in one of its lines, and inline flags may.
        whole = not any(mark in written for mark in (r"\A", r"\z", "(?"))
        self._anywhere = _compiled(f"(?m){flags}{written}", expression) if whole else None

    def may_match_a_line_of(self, text: str) -> bool:
        """False only if no line of the text matches."""
        return self._anywhere is None or bool(self._anywhere(text))


def glob(pattern: str, *, ignore_case: bool = False) -> Pattern:
    """A file pattern: `*` and `?` stay in one folder, `**` crosses folders, `[ab]` and `{one,other}` choose.

    A pattern without a slash is about the name alone, in whatever folder. Raises ToolFailure.
    """
    anywhere = "" if "/" in pattern else "(?:.*/)?"
    try:
        return Pattern(f"^{anywhere}(?:{_translated(pattern.removeprefix('./'))})$", ignore_case=ignore_case)
    except ToolFailure:
        raise wrong(f"{pattern!r} is not a file pattern; write one such as src/**/*.py") from None


def escaped(text: str) -> str:
    """The expression that matches exactly this text."""
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in text)


def _compiled(expression: str, shown: str) -> Any:
    if len(shown) > _LONGEST_EXPRESSION:
        raise wrong(f"the pattern has {len(shown)} characters; {LONGEST_PATTERN} are the most")
    try:
        options = jsonschema_rs.RegexOptions(size_limit=_SIZE, dfa_size_limit=_SIZE)
        return jsonschema_rs.Draft202012Validator({"pattern": expression}, pattern_options=options).is_valid
    except (ValueError, jsonschema_rs.ValidationError):
        raise wrong(f"{shown!r} is not a pattern that can be searched for. {_ADVICE}") from None


def _translated(pattern: str) -> str:
    out: list[str] = []
    at, open_braces = 0, 0
    balanced = _balanced(pattern)
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at):
            out.append("(?:.*/)?")
            at += 3
        elif pattern.startswith("**", at):
            out.append(".*")
            at += 2
        elif char == "[" and (end := pattern.find("]", at + 2)) > 0:
            out.append(_choice(pattern[at + 1 : end]))
            at = end + 1
        else:
            open_braces += balanced and (char == "{") - (char == "}" and open_braces > 0)
            out.append(_one(char, in_braces=balanced and (open_braces > 0 or char == "}")))
            at += 1
    return "".join(out)


def _balanced(pattern: str) -> bool:
    depth = 0
    for char in pattern:
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return False
    return depth == 0


def _one(char: str, *, in_braces: bool) -> str:
    if in_braces and char in "{,}":
        return {"{": "(?:", ",": "|", "}": ")"}[char]
    return {"*": "[^/]*", "?": "[^/]"}.get(char) or escaped(char)


def _choice(inner: str) -> str:
    negated = inner[0] in "!^"
    body = "".join(f"\\{char}" if char in "[]\\^&~" else char for char in inner[negated:])
    return f"[{'^' if negated else ''}{body}]"
