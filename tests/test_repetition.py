"""No lines stand twice, and a class name means one class."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src" / "toolwire"
LINES = 6

# Pairs of files, or one file, in which the same lines stand twice for a reason.
ALLOWED = {
    ("cli/commands/ask.py", "cli/commands/chat.py"): "options of commands: a function's parameters are its flags",
    ("cli/commands/call.py", "cli/commands/explain.py"): "options of commands",
    ("cli/commands/metrics.py", "cli/commands/status.py"): "options of commands",
    ("record/schema.py",): "migrations: what an earlier version made stays as it was made",
}


def code_lines(text: str) -> list[tuple[int, str]]:
    """The lines that say something: no blank ones, comments, imports or lone punctuation; white space is folded."""
    kept, imports = [], _syntax(text).import_lines
    for number, line in enumerate(text.splitlines(), start=1):
        folded = " ".join(line.split())
        if number not in imports and not folded.startswith("#") and any(char.isalnum() for char in folded):
            kept.append((number, folded))
    return kept


class Syntax(NamedTuple):
    """What is asked of a text's syntax, for which all of the source is parsed once."""

    import_lines: frozenset[int]
    classes: tuple[str, ...]


@cache
def _syntax(text: str) -> Syntax:
    lines, classes = set[int](), list[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.ClassDef):
            classes.append(node.name)
    return Syntax(frozenset(lines), tuple(classes))


def repeated(files: Iterable[tuple[str, str]]) -> Iterator[str]:
    """`a.py:10 b.py:40` for each pair of places from which on at least six lines are the same; the longest run once."""
    places: dict[tuple[str, ...], list[tuple[str, int, int]]] = defaultdict(list)
    for name, text in files:
        lines = code_lines(text)
        for at in range(len(lines) - LINES + 1):
            places[tuple(line for _, line in lines[at : at + LINES])].append((name, at, lines[at][0]))
    pairs = {
        (a[0], a[1], b[0], b[1]): f"{a[0]}:{a[2]} {b[0]}:{b[2]}"
        for found in places.values()
        for number, a in enumerate(found)
        for b in found[number + 1 :]
        if a[0] != b[0] or b[1] - a[1] >= LINES
    }
    for (one, at, other, there), shown in pairs.items():
        if (one, at - 1, other, there - 1) not in pairs:
            yield shown


def files_of(run: str) -> tuple[str, ...]:
    """The files of a run, each once."""
    return tuple(dict.fromkeys(place.partition(":")[0] for place in run.split()))


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")


def classes(files: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Where each class name is defined."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, text in files:
        for defined in _syntax(text).classes:
            found[defined].append(name)
    return found


def test_no_six_lines_stand_twice() -> None:
    found = {run: files_of(run) for run in repeated(sources())}
    assert [run for run, files in found.items() if files not in ALLOWED] == []
    assert ALLOWED.keys() <= set(found.values()), "what is allowed and no longer there is taken out of the table"


def test_no_class_name_is_defined_twice() -> None:
    found = {name: places for name, places in classes(sources()).items() if len(places) > 1}
    assert found == {}


def test_a_repetition_is_noticed_whatever_stands_between_its_lines() -> None:
    lines = [f"value_{number} = {number}" for number in range(LINES)]
    first, second = "\n".join(lines), "\n\n# why\n".join(lines)
    others = "\n".join(f"other_{number} = 1" for number in range(LINES))

    assert list(repeated([("a.py", first), ("b.py", f"import os\n{second}")])) == ["a.py:1 b.py:2"]
    assert list(repeated([("a.py", f"{first}\n{others}\n{first}")])) == ["a.py:1 a.py:13"]
    assert list(repeated([("a.py", first), ("b.py", others), ("c.py", "\n".join(lines[1:]))])) == []


def test_a_class_that_is_defined_twice_is_noticed_in_functions_too() -> None:
    found = classes([("a.py", "class Place: ..."), ("b.py", "def f():\n    class Place: ...")])
    assert found == {"Place": ["a.py", "b.py"]}
