"""Reads, without running them, which tests carry which feature or requirement id."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent


def carriers(mark: str) -> dict[str, list[str]]:
    """For every id under `pytest.mark.<mark>`, the ids of the tests that carry it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        shared = [given for node in tree.body for given in _module_marks(node, mark)]
        for name, node in _tests(tree):
            given = [one for decorator in node.decorator_list for one in _ids(decorator, mark)]
            for one in dict.fromkeys([*given, *shared]):
                found[one].append(f"{path.relative_to(TESTS.parent).as_posix()}::{name}")
    return dict(found)


def every_test() -> list[str]:
    """The ids of all tests."""
    return [
        f"{path.relative_to(TESTS.parent).as_posix()}::{name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for name, _ in _tests(ast.parse(path.read_text(encoding="utf-8")))
    ]


def _tests(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            yield node.name, node
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) and inner.name.startswith("test_"):
                    yield f"{node.name}::{inner.name}", inner


def _module_marks(node: ast.stmt, mark: str) -> Iterator[str]:
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
        yield from _ids(node.value, mark)


def _ids(node: ast.expr, mark: str) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == mark:
            yield from (arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))
