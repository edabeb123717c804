"""The help of every command as data, so that showing it loads none of them.

`help_pages.json` holds, for each command, the steps with which its help is written by a formatter of any width. It is
generated from the commands by `make docs`.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

PAGES = Path(__file__).with_name("help_pages.json")
ASKS_FOR_HELP = frozenset({"-h", "--help"})


@cache
def _pages() -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = json.loads(PAGES.read_text(encoding="utf-8"))
    return found


def page_for(name: str, args: list[str]) -> str:
    """The command whose help is wanted, and nothing else; empty where these arguments say anything more."""
    path = " ".join(["toolwire", name, *args[:-1]])
    return path if len(args) in (1, 2) and args[-1] in ASKS_FOR_HELP and path in _pages() else ""


def write_page(path: str, formatter: Any) -> str:
    """The help of one command, as wide as the formatter makes it."""
    for step, *values in _pages()[path]:
        if step == "write_dl":  # a row that JSON kept is a list, and the formatter adds tuples to it
            values[0] = [tuple(row) for row in values[0]]
        getattr(formatter, step)(*values)
    return str(formatter.getvalue()).rstrip("\n")
