"""The arguments of a call as the person who is asked about it sees them: what runs, and nothing that hides."""

import json
import re
from collections.abc import Mapping
from difflib import unified_diff
from typing import Any

from toolwire.cli.terminal.json_output import encode_json, plain
from toolwire.cli.terminal.text import distinct
from toolwire.decide.patterns import offered_pattern
from toolwire.deliver.lookalikes import escape, mark_lookalikes

LONGEST = 4_000
_LONGEST_DIFF = 20_000  # comparing takes longer than linear time
_DIFF = "changes"
_ADDED, _PLAIN = "+", "| "
_WRITTEN = frozenset({"content"})
_SHORTEST_SHARE = 200
_BLANKS = re.compile(" {40,}")
_LETTERS_WITHOUT_INK = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5")


def arguments_json(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON in which every character can be seen. Of long values both ends are shown, and every name is."""
    whole = _seen(encode_json(arguments, indent=True).decode())
    if len(whole) <= LONGEST:
        return whole
    share = max(LONGEST // len(arguments), _SHORTEST_SHARE)
    lines = [
        f"  {_both_ends(_json(name), share)}: {_both_ends(_json(value), share)}" for name, value in arguments.items()
    ]
    told = f"{len(whole):,} characters in all; `toolwire approvals --json` has every one of them."
    return "\n".join(["{", ",\n".join(lines), "}", told])


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """The same with texts of several lines laid out line by line, and an edit as a diff.

    Every such line begins with a mark of ours, so that none can pass for a line of the question itself.
    """
    blocks = _edit(arguments) or {
        name: (_ADDED if name in _WRITTEN else _PLAIN, value.split("\n"))
        for name, value in arguments.items()
        if isinstance(value, str) and "\n" in value.rstrip("\n")
    }
    if not blocks:
        return arguments_json(arguments)
    hidden = {"old_text", "new_text"} if _DIFF in blocks else blocks.keys()
    rest = {name: value for name, value in arguments.items() if name not in hidden}
    share = max(LONGEST // len(blocks), _SHORTEST_SHARE)
    shown = [arguments_json(rest)] if rest else []
    for name, (mark, lines) in blocks.items():
        whole = "\n".join(f"  {mark}{_seen(line)}" for line in lines)
        shown += [f"{name if name == _DIFF else _json(name)}:", _both_ends(whole, share)]
        if len(whole) > share:
            shown.append("`toolwire approvals --json` has every character.")
    return "\n".join(shown)


def _edit(arguments: Mapping[str, Any]) -> dict[str, tuple[str, list[str]]]:
    """What an edit takes away and puts in its place; nothing where this is not an edit, or its lines do not differ."""
    old, new = arguments.get("old_text"), arguments.get("new_text")
    if not isinstance(old, str) or not isinstance(new, str):
        return {}
    before, after = old.split("\n"), new.split("\n")
    if len(old) + len(new) > _LONGEST_DIFF:
        return {_DIFF: ("", [*(f"-{line}" for line in before), *(f"+{line}" for line in after)])}
    lines = list(unified_diff(before, after, lineterm=""))[2:]
    return {_DIFF: ("", lines)} if lines else {}


def pattern_to_offer(tool: str, arguments: Mapping[str, Any]) -> str:
    """The pattern to offer for calls like this one; none where it would hold letters that pass for others."""
    pattern = offered_pattern(tool, arguments)
    return pattern if distinct(pattern) == pattern else ""


def _json(value: Any) -> str:
    return _seen(json.dumps(plain(value), ensure_ascii=False))


def _both_ends(text: str, most: int) -> str:
    left_out = len(text) - most
    if left_out <= 0:
        return text
    head = most * 2 // 3
    return f"{text[:head]}\n  … {left_out:,} characters are not shown …\n  {text[head - most :]}"


def _seen(text: str) -> str:
    shown = "".join(
        char if (char.isprintable() or char == "\n") and char not in _LETTERS_WITHOUT_INK else escape(char)
        for char in mark_lookalikes(text)
    )
    return _BLANKS.sub(lambda found: f" … {len(found[0]):,} blanks … ", shown)
