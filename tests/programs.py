"""Which programs the tests start, read without running them, and where each of them comes from on a new machine."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
MAKEFILE = TESTS.parent / "Makefile"

ESSENTIAL = frozenset({"bash", "chown", "diff", "rm", "setpriv", "sh", "unshare"})
"""Programs that every Debian has."""

_STARTS = frozenset({"run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec", "which"})
_OF = frozenset({"subprocess", "asyncio", "shutil"})


def started(text: str) -> Iterator[str]:
    """The programs that a test module starts by name, or looks for."""
    tree = ast.parse(text)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name), args=[first, *_]):
                if module in _OF and name in _STARTS and (program := _program(first, constants)):
                    yield program


def _program(word: ast.expr, constants: dict[str, ast.expr]) -> str:
    """The program that the first word of a command names; nothing for what is made at run time."""
    match word:
        case ast.Constant(value=str(text)):
            return Path(text.split()[0]).name if text.split() else ""
        case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]) | ast.Starred(value=first):
            return _program(first, constants)
        case ast.Name(id=name) if name in constants:
            return _program(constants[name], {})
        case _:
            return ""


def all_started() -> dict[str, str]:
    """Every program that a test starts by name, with one module that does."""
    return {
        program: path.relative_to(TESTS).as_posix()
        for path in sorted(TESTS.rglob("*.py"))
        for program in started(path.read_text(encoding="utf-8"))
    }


def installed_by_make() -> frozenset[str]:
    """The programs in the Makefile's lists of `program:package`."""
    lists = re.findall(r"^[A-Z]+ = (\S+:\S+.*)$", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(pair.partition(":")[0] for line in lists for pair in line.split())
