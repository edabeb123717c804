"""Colour for our own help pages, where a terminal wants it."""

import os
import re
import sys
from typing import Any

from typer.core import TyperGroup

_HEADINGS = re.compile(r"(?m)^(Usage|Arguments|Options|Commands):")
_NAMES = re.compile(r"(?m)^  (-[-\w]+(?:, --[-\w]+)?|[a-z]+(?=  ))")


class Group(TyperGroup):
    """A command with commands of its own."""

    def get_help(self, ctx: Any) -> str:
        return coloured(super().get_help(ctx))


def coloured(page: str) -> str:
    """A help page with bold headings and coloured names, unless nobody would see them."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    if plain:
        return page
    return _NAMES.sub("  \x1b[36m\\1\x1b[0m", _HEADINGS.sub("\x1b[1m\\1:\x1b[0m", page))
