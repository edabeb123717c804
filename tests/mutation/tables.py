"""What is kept about mutants: the survivors that are explained, and what the last runs measured."""

import csv
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
SURVIVORS = FOLDER / "survivors.tsv"
FIGURES = FOLDER / "figures.tsv"

SOURCE = FOLDER.parents[1] / "src" / "toolwire"
PAGE = FOLDER.parents[1] / "CONTRIBUTING.md"
MARK = "<!-- written by `make docs` from tests/mutation/figures.tsv -->\n"

LIMIT = 90.0
"""Of the mutants of a module that change what it does, so many per cent are killed."""


@dataclass(frozen=True, order=True)
class Survivor:
    """A mutant that no test can or need notice, and why. Lines move, so that it is found by its code."""

    module: str
    function: str
    before: str
    after: str
    reason: str

    @property
    def key(self) -> tuple[str, ...]:
        return self.module, self.function, self.before, self.after


@dataclass(frozen=True, order=True)
class Figure:
    """What the last whole run over a module measured, and the digest of the text that it was measured on."""

    module: str
    mutants: int
    killed: int
    explained: int
    source: str = ""

    @property
    def percent(self) -> float:
        """How many of the mutants that are not explained were killed. A module without functions has none."""
        counted = self.mutants - self.explained
        return 100 * self.killed / counted if counted else 100.0

    @property
    def is_stale(self) -> bool:
        """Whether the module has another text by now than the one that this is about."""
        return self.source != source_digest(self.module)


def source_digest(module: str) -> str:
    """The digest of a module's text as it is now; empty for one that is gone."""
    path = SOURCE.joinpath(*module.split(".")).with_suffix(".py")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


def stale_modules() -> list[str]:
    """The modules that have changed since they were measured."""
    return [one.module for one in figures() if one.is_stale and source_digest(one.module)]


def survivors(path: Path = SURVIVORS) -> list[Survivor]:
    return [Survivor(*row) for row in _rows(path)]


def figures(path: Path = FIGURES) -> list[Figure]:
    return [
        Figure(module, int(mutants), int(killed), int(explained), source)
        for module, mutants, killed, explained, source in _rows(path)
    ]


def keep(measured: Iterable[Figure], path: Path = FIGURES) -> None:
    """Put what was measured in the place of what an earlier run measured."""
    known = {figure.module: figure for figure in [*figures(path), *measured]}
    rows = [("module", "mutants", "killed", "explained", "source")]
    rows += [
        (one.module, str(one.mutants), str(one.killed), str(one.explained), one.source)
        for one in sorted(known.values())
    ]
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def _rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as table:
        return list(csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]


def page() -> str:
    """CONTRIBUTING.md with the figures below their mark."""
    head, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    return head + mark + _markdown()


def without_age(text: str) -> str:
    """The page without what it says of changed code: that grows old with each change, which is no mistake."""
    return re.sub(r" (changed|same) \|$", " |", text, flags=re.MULTILINE)


def _markdown() -> str:
    rows = (
        f"| `{one.module}` | {one.mutants} | {one.explained} | {one.percent:.1f} % | {LIMIT:.0f} % "
        f"| {'changed' if one.is_stale else 'same'} |\n"
        for one in figures()
    )
    head = "| module | mutants | explained | killed of the rest | limit | code since |\n|---|---:|---:|---:|---:|---|\n"
    return head + "".join(rows)
