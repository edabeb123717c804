"""Conditions of workflow steps: `${check.count} > 3 and not ${check.failed}`. Pure, bounded, no code is run.

A condition compares references and literals (numbers, texts in quotes, true, false, null, lists) with
`== != < <= > >= in`, joined by `and`, `or`, `not` and parentheses. A lone value counts by its truth.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from msgspec import Struct

from toolwire.plan.references import BadReference, Reference, lookup, read_reference

LONGEST = 2_000
_TOKEN = re.compile(r"""(["']?)\$\{([^{}]*)\}\1""")
"""A reference; one in quotes means the same."""

_REFERENCE = "_reference_"
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, among: item in among,
    ast.NotIn: lambda item, among: item not in among,
}


class BadCondition(ValueError):
    """A condition that cannot be read or decided. The text says why."""


class Condition(Struct, frozen=True):
    """A condition that was read: its references in order, and the tree that compares them."""

    text: str
    references: tuple[Reference, ...]
    tree: ast.expr


def read_condition(text: str) -> Condition:
    """Raises BadCondition."""
    if len(text) > LONGEST:
        raise BadCondition(f"a condition has at most {LONGEST} characters")
    references: list[Reference] = []

    def name_of(token: re.Match[str]) -> str:
        references.append(read_reference(token[2]))
        return f" {_REFERENCE}{len(references) - 1} "

    try:
        if _REFERENCE in text:
            raise ValueError("a name of ours")
        tree = ast.parse(_TOKEN.sub(name_of, text).strip(), mode="eval").body
        _check(tree)
    except BadReference as wrong:
        raise BadCondition(str(wrong)) from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadCondition(f"{text!r} is not a condition such as ${{step.count}} > 3 and ${{step.ok}}") from None
    return Condition(text, tuple(references), tree)


def holds(condition: Condition, known: Mapping[str, Any]) -> bool:
    """Whether the condition is true of what is known. Raises BadCondition."""
    try:
        return bool(_value(condition.tree, condition, known))
    except BadReference as wrong:
        raise BadCondition(str(wrong)) from None
    except TypeError:
        raise BadCondition(f"{condition.text!r} compares values that cannot be compared") from None


def _check(node: ast.expr) -> None:
    match node:
        case ast.BoolOp(values=values):
            parts = values
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            parts = [operand]
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(one) in _COMPARE for one in ops):
            parts = [left, *others]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            pass
        case ast.Constant(value=str() | int() | float()):
            parts = []
        case ast.Name(id=name) if name.lower() in _WORDS or name.startswith(_REFERENCE):
            parts = []
        case _:
            raise ValueError("not allowed in a condition")
    for part in parts:
        _check(part)


def _value(node: ast.expr, condition: Condition, known: Mapping[str, Any]) -> Any:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(part, condition, known) for part in values)
        case ast.BoolOp(values=values):
            return any(_value(part, condition, known) for part in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, condition, known)
        case ast.UnaryOp(operand=operand):
            return -_value(operand, condition, known)
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_value(part, condition, known) for part in (left, *others)]
            pairs = pairwise(values)
            return all(_COMPARE[type(op)](*pair) for op, pair in zip(ops, pairs, strict=True))
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, condition, known) for part in parts]
        case ast.Name(id=name) if name.startswith(_REFERENCE):
            return lookup(condition.references[int(name.removeprefix(_REFERENCE))], known)
        case ast.Name(id=name):
            return _WORDS[name.lower()]
        case ast.Constant(value=value):
            return value
        case _:  # what `_check` lets through is all of it
            raise BadCondition(f"{condition.text!r} is not a condition")
