"""The arguments of a call as the person who is asked about it sees them: what runs, and nothing that hides."""

import json
import re
from collections.abc import Mapping
from typing import Any

from toolwire.cli.plain import encoded, plain
from toolwire.cli.text import distinct
from toolwire.decide.patterns import offered_pattern
from toolwire.deliver.lookalikes import escape, mark_lookalikes

LONGEST = 4_000
_SHORTEST_SHARE = 200
_BLANKS = re.compile(" {40,}")
_LETTERS_WITHOUT_INK = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5")


def spelled_out(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON in which every character can be seen. Of long values both ends are shown, and every name is."""
    whole = _seen(encoded(arguments, indent=True).decode())
    if len(whole) <= LONGEST:
        return whole
    share = max(LONGEST // len(arguments), _SHORTEST_SHARE)
    lines = [
        f"  {_both_ends(_json(name), share)}: {_both_ends(_json(value), share)}" for name, value in arguments.items()
    ]
    told = f"{len(whole):,} characters in all; `toolwire approvals --json` has every one of them."
    return "\n".join(["{", ",\n".join(lines), "}", told])


def shown_pattern(tool: str, arguments: Mapping[str, Any]) -> str:
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
