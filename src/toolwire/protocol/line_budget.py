"""Which line of each tool is told where all lines together have a budget of tokens."""

from collections.abc import Sequence
from heapq import heapify, heapreplace

from toolwire.protocol.token_estimate import estimate_tokens
from toolwire.protocol.tool_lines import LINE_CHARS, LineDetail, tool_line
from toolwire.protocol.tools import Tool

CostedLine = tuple[str, int]
"""A line and about how many tokens it takes, with the end of the line. Every command that names formats loads this
module, and a tuple costs nothing to define."""


def lines_of(tool: Tool, *, line_chars: int = LINE_CHARS) -> tuple[CostedLine, ...]:
    """The lines of a tool, from the one that says most to the one that says least."""
    texts = (tool_line(tool, detail, line_chars=line_chars) for detail in LineDetail)
    return tuple((text, estimate_tokens(text) + 1) for text in texts)


def fit_lines(
    lines: Sequence[Sequence[CostedLine]], budget: int, *, begin: LineDetail = LineDetail.FULL
) -> list[str] | None:
    """One line for each tool, which together stay within the budget; None where not even the shortest do.

    The longest line is always the next that has to say less, so that a tool with twenty inputs does not cost a
    neighbour with one of them its purpose. No line loses its outputs while another still shows optional inputs.
    """
    levels = [begin] * len(lines)
    costs = [[tokens for _, tokens in each] for each in lines]
    spent = sum(each[begin] for each in costs)
    queue = [(_stage(begin), -each[begin], place) for place, each in enumerate(costs)]
    heapify(queue)
    while spent > budget:
        if not queue or queue[0][0] == _stage(LineDetail.CALL):
            return None
        place = queue[0][2]
        before = levels[place]
        levels[place] = level = LineDetail(before + 1)
        spent += costs[place][level] - costs[place][before]
        heapreplace(queue, (_stage(level), -costs[place][level], place))
    return [each[level][0] for each, level in zip(lines, levels, strict=True)]


def _stage(level: LineDetail) -> int:
    """Which lines have to say less first; the last stage cannot."""
    return 0 if level < LineDetail.REQUIRED else 1 if level < LineDetail.CALL else 2
