"""The mutants of a module: each is its source with one small change inside a function."""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: line and function, the code as it was and as it is, and how to make it in the node of that number."""

    line: int
    function: str
    before: str
    after: str
    original: ast.Module
    number: int
    change: Callable[[Any], None]

    def tree(self) -> ast.Module:
        """The whole changed tree. Made when it is wanted: most of a mutant's cost is its copy of everything else."""
        changed = copy.deepcopy(self.original)
        self.change(_nth(changed, self.number))
        return ast.fix_missing_locations(changed)


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    tree = ast.parse(source)
    inside = _functions(tree)
    for number, node in enumerate(ast.walk(tree)):
        for change in _changes(node):
            changed: Any = copy.deepcopy(node)
            change(changed)
            line = changed.target.lineno if isinstance(changed, ast.comprehension) else changed.lineno
            before, after = ast.unparse(node), ast.unparse(changed)
            yield Mutant(line, inside.get(node, ""), before, after, tree, number, change)


def _functions(tree: ast.Module) -> dict[ast.AST, str]:
    """The name of the function, with its class, in which a node stands."""
    found: dict[ast.AST, str] = {}

    def look(node: ast.AST, names: tuple[str, ...]) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names = (*names, node.name)
        found[node] = ".".join(names)
        for inner in ast.iter_child_nodes(node):
            look(inner, names)

    look(tree, ())
    return found


def _nth(tree: ast.AST, number: int) -> Any:
    return next(node for at, node in enumerate(ast.walk(tree)) if at == number)


def _changes(node: ast.AST) -> Iterator[Callable[[Any], None]]:
    """What can be changed in place at one node."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            yield _setter("ops", [_COMPARED[type(op)]()])
        case ast.BoolOp(op=op):
            yield _setter("op", ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _COMPUTED:
            yield _setter("op", _COMPUTED[type(op)]())
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare):
            yield _setter("test", ast.UnaryOp(ast.Not(), test))
        case ast.Return(value=ast.expr() as value) if not _is_empty(value):
            yield _setter("value", ast.Constant(None))
        case ast.Assign(value=value) if not _is_empty(value):
            yield _setter("value", ast.Constant(None))
        case ast.Constant(value=bool(value)):
            yield _setter("value", not value)
        case ast.Constant(value=int(value)):
            yield _setter("value", value + 1)
        case ast.comprehension(ifs=[test, *rest]):
            yield _setter("ifs", [ast.UnaryOp(ast.Not(), test), *rest])


def _setter(name: str, value: Any) -> Callable[[Any], None]:
    return lambda node: setattr(node, name, value)


def _is_empty(value: ast.expr) -> bool:
    """Whether None in its place would mean the same to nearly everyone who asks."""
    return isinstance(value, ast.Constant) and not value.value


def codes(tree: ast.Module, filename: str) -> dict[str, CodeType]:
    """The code of every function of a module by its qualified name; functions inside functions are in theirs."""
    found: dict[str, CodeType] = {}

    def look(code: CodeType) -> None:
        for inner in code.co_consts:
            if isinstance(inner, CodeType) and not inner.co_name.startswith("<"):
                if "<locals>" not in inner.co_qualname:
                    found[inner.co_qualname] = inner
                look(inner)

    look(compile(tree, filename, "exec"))
    return found


def functions(module: ModuleType) -> dict[str, FunctionType]:
    """The functions that a module defines, at its top and in its classes, by qualified name."""
    found: dict[str, FunctionType] = {}

    def look(names: dict[str, Any], inside: str) -> None:
        for value in list(names.values()):
            bare = _bare(value)
            if isinstance(bare, FunctionType) and bare.__module__ == module.__name__:
                found.setdefault(bare.__qualname__, bare)
            elif isinstance(bare, type) and bare.__module__ == module.__name__ and bare.__qualname__.startswith(inside):
                look(dict(vars(bare)), f"{bare.__qualname__}.")

    look(vars(module), "")
    return found


def _bare(value: Any) -> Any:
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__wrapped__", getattr(value, "func", value))


def apply(mutant: Mutant, module: ModuleType) -> bool:
    """Put a mutant's code into the functions of a loaded module; whether that changed anything.

    What refers to a function keeps doing so, since it stays the same object. A change outside of functions takes no
    effect, and one that removes the only `super()` of a method does not fit into it, so such mutants are not counted.
    """
    filename, changed = str(module.__file__), False
    known, before = functions(module), codes(mutant.original, filename)
    for name, code in codes(mutant.tree(), filename).items():
        if name in known and code != before[name] and code.co_freevars == known[name].__code__.co_freevars:
            known[name].__code__ = code
            changed = True
    return changed
