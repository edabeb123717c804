"""The findings as one table: for the terminal, and as a page."""

from collections.abc import Sequence

from benchmarks.machine import Machine
from benchmarks.measures import Row, Spread

HEADS = ("measure", "ours", "floor", "ratio", "target", "met")
CAVEATS = """
- One run on one machine: compare ratios, not absolute numbers. CPU time is that of the whole process, all threads.
- Each repetition is a process of its own, and repetitions go in rounds over all subjects. Garbage collection is on.
- The model answers at once in every row, and makes its reply when it is asked. Ours, `bare_safe` and smolagents write
  each request as an HTTP client must; `bare` and the other peers do not, which favours them.
- A model call is one step of the loop with its tool calls; a run of n turns makes n + 1 of them. Our runs keep their
  turns in a memory store, with audit rows; the peers keep nothing.
- smolagents has a synchronous loop and synchronous tools; all others await theirs.
- Durable rows are wall time on the disk of this folder; read them beside the disk probe. The floor keeps one small row
  for each call; ours keeps a card, its result, the audit log and metrics.
- `import toolwire` resolves names when they are first used; the row with `Agent` shows what a program pays.
"""


def text(rows: Sequence[Row], absent: str) -> str:
    """Aligned columns, with the peers of a measure on the line below it; `absent` stands for those not measured."""
    cells = [HEADS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADS))]
    lines = []
    for line, row in zip(cells, (None, *rows), strict=True):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        if row is not None and row.peers:
            lines.append(f"    peers: {_peers(row, absent)}")
    return "\n".join(lines)


def page(rows: Sequence[Row], machine: Machine, failures: dict[str, str], absent: str) -> str:
    """The whole of docs/benchmarks.md."""
    heads = (*HEADS, "peers")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join((*_cells(row), _peers(row, absent)))} |" for row in rows]
    failed = "".join(f"\n{name} could not be measured: {why}\n" for name, why in failures.items())
    return (
        "# Benchmarks\n\nWhat toolwire costs beside hand-written floors and other frameworks. `make bench` prints this"
        " table; `python -m benchmarks --write` writes this page.\nEvery number is the median [least..most]"
        f" of {machine.repetitions} repetitions.\n\n" + "\n".join(lines) + f"\n{failed}\n## How\n\n{machine.words()}\n"
        f"{CAVEATS}"
    )


def _cells(row: Row) -> tuple[str, ...]:
    floor = f"{row.floor_name} {_spread(row.floor, row.unit)}" if row.floor else "not measured"
    ratio = f"{row.ratio:.2g}×" if row.ratio is not None and row.ratio < 10 else f"{row.ratio or 0:,.0f}×"
    met = {True: "yes", False: "NO", None: ""}[row.met]
    return row.measure, _spread(row.ours, row.unit), floor, ratio if row.ratio is not None else "", row.target, met


def _spread(spread: Spread, unit: str) -> str:
    numbers = f"{_number(spread.median)} [{_number(spread.least)}..{_number(spread.most)}]"
    return f"{numbers} {unit}".rstrip()


def _peers(row: Row, absent: str) -> str:
    """Best first, each with how often it is ours."""
    known = sorted((spread.median, name) for name, spread in row.peers.items() if spread)
    told = [f"{name} {_number(value)}{_times(value, row)}" for value, name in known]
    return ", ".join(told) or (absent if row.peers else "")


def _times(value: float, row: Row) -> str:
    if row.unit in ("", "×") or row.ours.median <= 0 or value <= 0:
        return ""
    times = value / row.ours.median
    return f" ({times:,.0f}×)" if times >= 10 else f" ({times:.2g}×)"


def _number(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"
