"""The requests of the evaluation, and the tools that each is put with."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from toolwire.protocol.tools import Tool

HERE = Path(__file__).parent
CHOOSING = HERE / "choosing"
SEED_TOOLS = HERE.parent.parent / "training" / "seed_tools.json"
GROUPS = ("phrasings", "tools", "talk", "cannot", "chains", "errors", "injection")
SAMPLE = {"phrasings": 24, "tools": 16, "talk": 8, "cannot": 3, "chains": 4, "errors": 3, "injection": 2}
ROWS_TOGETHER = 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that is right, and the result it gets; a calculator without one computes."""

    tool: str
    arguments: Mapping[str, Any]
    result: Any = None


@dataclass(frozen=True, slots=True)
class Row:
    """One request: what is said, which calls are right in which order, and what the answer must tell."""

    id: str
    group: str
    say: str
    steps: tuple[tuple[Wanted, ...], ...] = ()
    answer: tuple[tuple[str, ...], ...] = ()
    offered: tuple[str, ...] = ()
    avoid: frozenset[str] = frozenset()
    before: tuple[Sequence[Any], ...] = ()
    never: tuple[str, ...] = ()
    admit: bool = False

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        return tuple(wanted for step in self.steps for wanted in step)

    @property
    def needed(self) -> frozenset[str]:
        """The tools that must be offered."""
        earlier = {said[1] for said in self.before if said[0] == "call"}
        return frozenset(wanted.tool for wanted in self.wanted) | frozenset(self.offered) | earlier

    @property
    def unfit(self) -> frozenset[str]:
        """Tools that could serve the request as well as the wanted ones, and would make it ambiguous."""
        alike = {name for wanted in self.wanted for name in _alike().get(wanted.tool, ())}
        return (self.avoid | alike | _never_with(self.group)) - self.needed


@dataclass(slots=True)
class Session:
    """Rows that are put with the same tools, as requests are that follow one another."""

    known: Mapping[str, Tool]
    rows: list[Row] = field(default_factory=list)
    tools: set[str] = field(default_factory=set)
    unfit: set[str] = field(default_factory=set)

    def admits(self, row: Row, size: int) -> bool:
        if row.unfit & self.tools or row.needed & self.unfit or len(self.rows) == ROWS_TOGETHER:
            return False
        return len(self.tools | row.needed) <= size <= len(self.known) - len(self.unfit | row.unfit)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.tools |= row.needed
        self.unfit |= row.unfit

    def offered(self, size: int) -> tuple[Tool, ...]:
        """The tools that the rows need, among others that cannot serve them, in no order."""
        draw = random.Random(f"{self.rows[0].id} {size}")
        others = sorted(self.known.keys() - self.tools - self.unfit)
        names = sorted(self.tools) + draw.sample(others, min(len(others), max(0, size - len(self.tools))))
        draw.shuffle(names)
        return tuple(self.known[name] for name in names)


def sessions(asked: Iterable[Row], size: int, folder: Path = HERE) -> list[Session]:
    """The rows, put together where no row's tools could serve another's request; always the same."""
    order = list(asked)
    random.Random(size).shuffle(order)
    found: list[Session] = []
    for row in order:
        session = next((one for one in found if one.admits(row, size)), None)
        if session is None:
            found.append(session := Session(tools(folder)))
        session.add(row)
    return found


@cache
def tools(folder: Path = HERE) -> dict[str, Tool]:
    """Every tool of an evaluation by name: those of the seed systems and those invented for it."""
    defined = [*_json(SEED_TOOLS), *_json(folder / "tools.json")]
    return {one["name"]: Tool(one["name"], one["description"], one["input_schema"]) for one in defined}


@cache
def rows(folder: Path = HERE) -> tuple[Row, ...]:
    """Every request, group by group."""
    return tuple(_row(group, json.loads(line)) for group in GROUPS for line in _lines(folder, group))


def sample() -> tuple[Row, ...]:
    """The same sixty requests each time, of every group."""
    draw = random.Random(60)
    return tuple(row for group, count in SAMPLE.items() for row in draw.sample(of_group(group), count))


def of_group(group: str) -> list[Row]:
    return [row for row in rows() if row.group == group]


def _row(group: str, line: Mapping[str, Any]) -> Row:
    steps = [tuple(Wanted(*call) for call in line[key]) for key in ("calls", "then") if line.get(key)]
    return Row(
        line["id"],
        group,
        line["say"],
        tuple(steps),
        tuple((piece,) if isinstance(piece, str) else tuple(piece) for piece in line.get("answer", ())),
        tuple(line.get("with", ())),
        frozenset(line.get("avoid", ())),
        tuple(line.get("before", ())),
        tuple(line.get("never", ())),
        line.get("admit", False),
    )


def _lines(folder: Path, group: str) -> list[str]:
    path = folder / f"{group}.jsonl"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def _alike() -> dict[str, frozenset[str]]:
    """For each tool, those that could do the same. A shell does what `read` does, but `read` not what a shell does."""
    overlaps = _json(HERE / "overlaps.json")
    found: dict[str, set[str]] = {}
    for names in overlaps["alike"]:
        for name in names:
            found.setdefault(name, set()).update(names)
    found |= {name: set(overlaps["general"]) for name in overlaps["general"]}
    return {name: frozenset(others - {name}) for name, others in found.items()}


@cache
def _never_with(group: str) -> frozenset[str]:
    return frozenset(_json(HERE / "overlaps.json")["never_with"].get(group, ()))
