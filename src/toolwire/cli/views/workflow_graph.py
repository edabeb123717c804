"""A workflow as a picture: text for a terminal, SVG for a page."""

from collections.abc import Iterator, Mapping
from html import escape

from toolwire.cli.terminal.text import one_line
from toolwire.plan.workflows import Workflow, WorkflowStep

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 180, 48, 40, 70, 20
_LONGEST = 24


def draw_text(workflow: Workflow) -> str:
    """One block a level; each step with its tool and what it comes after."""
    steps = {step.id: step for step in workflow.steps}
    lines: list[str] = []
    for number, level in enumerate(workflow.levels(), 1):
        lines.append(f"level {number}")
        for place, one in enumerate(level, 1):
            branch = "└─" if place == len(level) else "├─"
            lines.append(f"  {branch} {_words(steps[one])}")
    return "\n".join(lines)


def _words(step: WorkflowStep) -> str:
    said = [f"{step.id}: {one_line(step.tool, 60)}"]
    if step.after:
        said.append(f"after {', '.join(sorted(step.after))}")
    if step.when is not None:
        said.append(f"when {one_line(step.when.text, 60)}")
    if step.for_each is not None:
        said.append("for each item")
    if step.attempts > 1:
        said.append(f"up to {step.attempts} attempts")
    return " · ".join(said)


def draw_svg(workflow: Workflow) -> str:
    """Boxes level by level, with a line from each step to those that come after it."""
    levels = workflow.levels()
    widest = max(map(len, levels))
    width = widest * (_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN
    height = len(levels) * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN
    places = {
        one: (
            _MARGIN + (widest - len(level)) * (_WIDTH + _GAP_X) / 2 + column * (_WIDTH + _GAP_X),
            _MARGIN + row * (_HEIGHT + _GAP_Y),
        )
        for row, level in enumerate(levels)
        for column, one in enumerate(level)
    }
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif" font-size="13">',
            *_lines(workflow, places),
            *_boxes(workflow, places),
            "</svg>",
        ]
    )


def _lines(workflow: Workflow, places: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    for step in workflow.steps:
        x, y = places[step.id]
        for one in sorted(step.after):
            from_x, from_y = places[one][0] + _WIDTH / 2, places[one][1] + _HEIGHT
            to_x, half = x + _WIDTH / 2, (from_y + y) / 2
            yield (
                f'<path d="M{from_x:g} {from_y:g} C{from_x:g} {half:g} {to_x:g} {half:g} {to_x:g} {y:g}" '
                'fill="none" stroke="#888"/>'
            )


def _boxes(workflow: Workflow, places: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    for step in workflow.steps:
        x, y = places[step.id]
        middle = x + _WIDTH / 2
        yield f"<g><title>{escape(_words(step))}</title>"
        yield f'<rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#f4f6fa" stroke="#556"/>'
        yield f'<text x="{middle:g}" y="{y + 20:g}" text-anchor="middle" font-weight="bold">{_short(step.id)}</text>'
        yield f'<text x="{middle:g}" y="{y + 37:g}" text-anchor="middle" fill="#555">{_short(step.tool)}</text></g>'


def _short(text: str) -> str:
    return escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
