"""Reads, without running them, which tests carry which feature or requirement id."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent

Mark = tuple[str, str]


def carriers(mark: str) -> dict[str, list[str]]:
    """For every id under `pytest.mark.<mark>`, the ids of the tests that carry it."""
    found: dict[str, list[str]] = defaultdict(list)
    for test, given in _marked():
        for one in dict.fromkeys(id_ for name, id_ in given if name == mark):
            found[one].append(test)
    return dict(found)


def every_test() -> list[str]:
    """The ids of all tests."""
    return [test for test, _ in _marked()]


def silent_returns(text: str) -> list[str]:
    """Tests that return before their end: where something is missing, they would pass without having shown anything.

    An example that Hypothesis made up may be given up so; others come.
    """
    return [
        name
        for name, node in _tests(ast.parse(text))
        if not any(
            isinstance(call, ast.Name) and call.id == "given" for one in node.decorator_list for call in ast.walk(one)
        )
        if any(isinstance(inner, ast.Return) for inner in _own_nodes(node))
    ]


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What belongs to a function, without the functions in it."""
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield inner
            yield from _own_nodes(inner)


@cache
def _marked() -> tuple[tuple[str, tuple[Mark, ...]], ...]:
    """Every test with its own marks and those of its module. The files are read once."""
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        shared = [given for node in tree.body for given in _module_marks(node)]
        for name, node in _tests(tree):
            own = [given for decorator in node.decorator_list for given in _marks(decorator)]
            found.append((f"{path.relative_to(TESTS.parent).as_posix()}::{name}", (*own, *shared)))
    return tuple(found)


def _tests(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            yield node.name, node
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) and inner.name.startswith("test_"):
                    yield f"{node.name}::{inner.name}", inner


def _module_marks(node: ast.stmt) -> Iterator[Mark]:
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
        yield from _marks(node.value)


def _marks(node: ast.expr) -> Iterator[Mark]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            for arg in call.args:
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
                    yield call.func.attr, arg.value
