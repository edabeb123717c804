"""The compact catalogue: one line for each tool, with what it needs and gives, within a budget of tokens. Pure.

Where all lines together are over the budget, the longest of them say less (see `LineDetail`); in the end only names are
left, in their groups. What a line leaves out, the tool `tool-show` tells.
"""

from collections.abc import Iterable, Sequence

from toolwire.protocol.line_budget import fit_lines, lines_of
from toolwire.protocol.token_estimate import estimate_tokens
from toolwire.protocol.tool_lines import LINE_CHARS, NAME_CHARS, cut, tool_line
from toolwire.protocol.tools import Tool

__all__ = ["LINE_CHARS", "compact_catalogue", "compact_line"]

OTHERS = "other"
"""The group of tools without a category."""
_ROOM_FOR_REST = 24


def compact_line(tool: Tool, *, line_chars: int = LINE_CHARS) -> str:
    """`name(inputs with types) -> outputs — purpose`; an input that may be left out has a question mark."""
    return tool_line(tool, line_chars=line_chars)


def compact_catalogue(
    tools: Iterable[Tool], *, line_chars: int = LINE_CHARS, budget: int | None = None, grouped: bool = False
) -> str:
    """One line for each tool, in the given order; `grouped`, below the names of their categories.

    With a `budget` in tokens, lines say as much as fits into it, by an estimate that is rather too high. The names of
    the tools are the least that is said; where not even they fit, the last ones are counted.
    """
    groups = _groups(tools) if grouped else {"": list(tools)}
    listed = [tool for members in groups.values() for tool in members]
    if budget is None:
        lines: list[str] | None = [compact_line(tool, line_chars=line_chars) for tool in listed]
    else:
        headings = sum(estimate_tokens(f"[{group}]") + 1 for group in groups) if grouped else 0
        lines = fit_lines([lines_of(tool, line_chars=line_chars) for tool in listed], budget - headings)
    if lines is None:
        return _names(listed, budget or 0)
    rest = iter(lines)
    parts = [[f"[{group}]", *(next(rest) for _ in members)] for group, members in groups.items()]
    return "\n".join(line for part in parts for line in (part if grouped else part[1:]))


def _groups(tools: Iterable[Tool]) -> dict[str, list[Tool]]:
    """The tools by their category, in the order in which each first occurs."""
    groups: dict[str, list[Tool]] = {}
    for tool in tools:
        groups.setdefault(cut(tool.category, NAME_CHARS) or OTHERS, []).append(tool)
    return groups


def _names(tools: Sequence[Tool], budget: int) -> str:
    """A line of names for each group, as far as the budget goes, and how many are left."""
    lines: list[str] = []
    spent = told = 0
    for group, members in _groups(tools).items():
        names: list[str] = []
        spent += estimate_tokens(f"[{group}] \n")
        for tool in members:
            name = cut(tool.name, NAME_CHARS)
            spent += estimate_tokens(f"{name}, ")
            if spent > budget - _ROOM_FOR_REST:
                break
            names.append(name)
        if names:
            lines.append(f"[{group}] {', '.join(names)}")
            told += len(names)
    if told < len(tools):
        lines.append(f"… and {len(tools) - told} more; tool-show without a name lists them")
    return "\n".join(lines)
