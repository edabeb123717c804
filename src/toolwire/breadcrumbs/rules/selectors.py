"""Which records someone wants to hear of: by schema, tags, and conditions on values inside the context.

    {"schema_name": "tool.response.v1"}                        or with a star at its end: "tool.*"
    {"any_tags": ["urgent", "error"], "all_tags": ["team:ops"]}
    {"context_match": [{"path": "order.lines[0].price", "op": "gte", "value": 100}]}
    {"all": true}                                              every record, which has to be said in these words

Everything that a selector says must hold. A path leads through objects by name and through lists by number; a name with
other characters than letters, digits, `_`, `-` and `:` is quoted, as in `headers["x.id"]`. Where a path leads nowhere,
no condition holds but `ne`, `not_in` and `exists` with false, which are the opposites of `eq`, `in` and `exists`.

Values are compared as JSON: true is not 1, and text is never compared with numbers. A regular expression is one that
runs in linear time (no look-around, no back-references), so no pattern can stall the process. It is searched for in
the first 4,096 characters, and what a text or list is to contain among the first 65,536 characters or elements.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

import jsonschema_rs
import orjson

from toolwire.breadcrumbs.rules.schemas import check_schema_name
from toolwire.errors import InvalidRecord
from toolwire.lazy import lazy_pattern
from toolwire.protocol.breadcrumbs import Record

MOST_TAGS = 64
MOST_CONDITIONS = 16
MOST_EXPRESSIONS = 4
MOST_VALUES = 256
LONGEST_NAME = 256
LONGEST_PATH = 512
LONGEST_EXPRESSION = 256
LONGEST_SEARCHED = 4_096
"""`matches` looks at so many characters of a text: the time grows with their number and the size of the expression."""
LONGEST_CONTAINED = 65_536
"""`contains` looks at so many characters of a text, once for each part that it asks for, or elements of a list."""
MOST_BYTES = 16 * 1024
_EXPRESSION_BYTES, _AUTOMATON_BYTES = 16 * 1024, 64 * 1024
_DEEPEST = 16

_STEP = lazy_pattern(
    r"""(?:(?:^|\.)(?P<name>[\w:-]+)|\[(?P<index>-?\d{1,6})\]|\["(?P<quoted>[^"\\]+)"\])""", re.UNICODE
)
_FIELDS = ("schema_name", "any_tags", "all_tags", "context_match", "all")
_EXAMPLE = '{"path": "status", "op": "eq", "value": "failed"}'

Step = str | int
Path = tuple[Step, ...]
MISSING: Any = object()
"""What stands where a path leads nowhere."""


class Operator(StrEnum):
    """What a condition asks of the value at its path."""

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    NOT_IN = "not_in"
    CONTAINS = "contains"
    CONTAINS_ANY = "contains_any"
    CONTAINS_ALL = "contains_all"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    MATCHES = "matches"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class ContextMatch:
    """One condition on the value at a path. `test` says whether a value (or MISSING) fulfils it."""

    path: Path
    op: Operator
    value: Any
    test: Callable[[Any], bool] = field(compare=False, repr=False)
    shown_path: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector that was read and checked. `schema_prefix` is a schema name that ended with a star."""

    schema_name: str = ""
    schema_prefix: str = ""
    any_tags: frozenset[str] = frozenset()
    all_tags: frozenset[str] = frozenset()
    conditions: tuple[ContextMatch, ...] = ()
    key: bytes = field(default=b"", compare=False, repr=False)
    """The same for selectors that say the same, in whatever order."""

    @property
    def searches(self) -> bool:
        """Whether it has regular expressions, which take thousands of times as long as other conditions."""
        return any(one.op is Operator.MATCHES for one in self.conditions)

    @property
    def parts(self) -> int:
        """How many parts of texts it asks for: each of them is looked for from the beginning of a text to its end."""
        asked = [one for condition in self.conditions for one in contained_values(condition)]
        return sum(isinstance(one, str) for one in asked)

    @property
    def is_all(self) -> bool:
        return not (
            self.schema_name or self.schema_prefix or self.any_tags or self.all_tags or self.conditions
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """The selector in its one spelling."""
        found: dict[str, Any] = orjson.loads(self.key)
        return found


def read_selector(asked: Any) -> Selector:
    """A selector as it was asked for. Raises InvalidRecord that names what is wrong and what may have been meant."""
    if not isinstance(asked, Mapping):
        raise InvalidRecord(f'a selector is an object such as {{"any_tags": ["urgent"]}}, not {_kind(asked)}')
    _refuse_unknown(asked, _FIELDS, "a selector")
    given = {name: value for name, value in asked.items() if value is not None}
    if not given:
        raise InvalidRecord('an empty selector is refused; write {"all": true} for one that matches every record')
    if "all" in given:
        if given["all"] is not True or len(given) > 1:
            raise InvalidRecord('{"all": true} matches every record and stands alone; leave out all, or the rest')
        return _complete(Selector())
    name, prefix = _schema(given)
    selector = Selector(
        name, prefix, _tags(given, "any_tags"), _tags(given, "all_tags"), _conditions(given.get("context_match", ()))
    )
    if selector.is_all:
        raise InvalidRecord('this selector names nothing; write {"all": true} for one that matches every record')
    return _complete(selector)


def fits(selector: Selector, record: Record) -> bool:
    """Whether a record is one of those that a selector means."""
    schema = record.schema_name
    return (
        (not selector.schema_name or schema == selector.schema_name)
        and schema.startswith(selector.schema_prefix)
        and selector.all_tags.issubset(record.tags)
        and (not selector.any_tags or not selector.any_tags.isdisjoint(record.tags))
        and all(condition.test(value_at(record.context, condition.path)) for condition in selector.conditions)
    )


def contained_values(condition: ContextMatch) -> Sequence[Any]:
    """What a list or a text is to contain by a condition; nothing for a condition of another kind."""
    match condition.op:
        case Operator.CONTAINS:
            return (condition.value,)
        case Operator.CONTAINS_ANY | Operator.CONTAINS_ALL:
            return tuple(condition.value)
    return ()


def value_at(value: Any, path: Path) -> Any:
    """The value to which a path leads, or MISSING."""
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step, MISSING)
        elif isinstance(value, (list, tuple)):
            value = _element(value, step)
        else:
            return MISSING
    return value


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)):
        return isinstance(other, (int, float)) and one == other
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and one.keys() == other.keys()
            and all(is_same(inner, other[name]) for name, inner in one.items())
        )
    if isinstance(one, (list, tuple)):
        return (
            isinstance(other, (list, tuple))
            and len(one) == len(other)
            and all(is_same(a, b) for a, b in zip(one, other, strict=True))
        )
    return type(one) is type(other) and bool(one == other)


def _element(items: Sequence[Any], step: Step) -> Any:
    """An element by its number, which is also read from a name: `lines.0.price`."""
    if isinstance(step, str):
        if not (step.isascii() and step.isdecimal() and len(step) < 7 and (step == "0" or step[0] != "0")):
            return MISSING
        step = int(step)
    return items[step] if -len(items) <= step < len(items) else MISSING


def _complete(selector: Selector) -> Selector:
    """The same selector with its key. Raises InvalidRecord where it is too large."""
    said: dict[str, Any] = {}
    if selector.schema_name or selector.schema_prefix:
        said["schema_name"] = selector.schema_name or f"{selector.schema_prefix}*"
    for name in ("any_tags", "all_tags"):
        if tags := getattr(selector, name):
            said[name] = sorted(tags)
    if selector.conditions:
        said["context_match"] = [
            {"path": one.shown_path, "op": one.op.value, "value": one.value} for one in selector.conditions
        ]
    try:
        key = orjson.dumps(said or {"all": True}, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        raise InvalidRecord("a selector must be plain JSON") from None
    if len(key) > MOST_BYTES:
        raise InvalidRecord(f"a selector has at most {MOST_BYTES} bytes; this one has {len(key)}")
    return Selector(
        selector.schema_name, selector.schema_prefix, selector.any_tags, selector.all_tags, selector.conditions, key
    )


def _schema(given: Mapping[str, Any]) -> tuple[str, str]:
    """The schema's name, or the beginning of it where it ends with a star."""
    name = given.get("schema_name", "")
    if "schema_name" not in given:
        return "", ""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise InvalidRecord('schema_name must be text such as "tool.response.v1" or "tool.*"')
    if "*" not in name:
        return check_schema_name(name), ""
    if name.index("*") != len(name) - 1:
        raise InvalidRecord('a star stands only at the end of schema_name, as in "tool.*"')
    if name == "*":
        raise InvalidRecord('schema_name "*" is any schema; leave it out, or write {"all": true} for every record')
    check_schema_name(name[:-1].rstrip("._-"))
    return "", name[:-1]


def _tags(given: Mapping[str, Any], name: str) -> frozenset[str]:
    if name not in given:
        return frozenset()
    tags = given[name]
    if not isinstance(tags, (list, tuple)) or not 0 < len(tags) <= MOST_TAGS:
        raise InvalidRecord(f"{name} must be a list of 1 to {MOST_TAGS} tags; leave it out for any tags")
    if not all(isinstance(tag, str) and 0 < len(tag) <= LONGEST_NAME for tag in tags):
        raise InvalidRecord(f"each tag in {name} must be text of 1 to {LONGEST_NAME} characters")
    return frozenset(tags)


def _conditions(asked: Any) -> tuple[ContextMatch, ...]:
    if asked == ():
        return ()
    if not isinstance(asked, (list, tuple)) or not 0 < len(asked) <= MOST_CONDITIONS:
        raise InvalidRecord(f"context_match must be a list of 1 to {MOST_CONDITIONS} conditions such as {_EXAMPLE}")
    found = tuple(_condition(one) for one in asked)
    if sum(one.op is Operator.MATCHES for one in found) > MOST_EXPRESSIONS:
        raise InvalidRecord(f"a selector has at most {MOST_EXPRESSIONS} conditions with matches")
    return found


def _condition(asked: Any) -> ContextMatch:
    if not isinstance(asked, Mapping):
        raise InvalidRecord(f"a condition of context_match is an object such as {_EXAMPLE}, not {_kind(asked)}")
    _refuse_unknown(asked, ("path", "op", "value"), "a condition of context_match")
    path, shown = _path(asked.get("path"))
    name = asked.get("op", Operator.EQ.value)
    known = [one.value for one in Operator]
    if not isinstance(name, str) or name not in known:
        shown_name = repr(name[:40]) if isinstance(name, str) else _kind(name)
        raise InvalidRecord(f"there is no operator {shown_name}; {_advice(name, known)}")
    op = Operator(name)
    if "value" not in asked and op is not Operator.EXISTS:
        raise InvalidRecord(f"the condition on {shown} has no value; {op} compares with one")
    value = asked.get("value", True)
    _check_plain(value, shown)
    return ContextMatch(path, op, value, _test(op, value, shown), shown)


def _path(text: Any) -> tuple[Path, str]:
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_PATH:
        raise InvalidRecord('the path of a condition must be text such as "order.lines[0].price"')
    rest = text.removeprefix("$.") if text.startswith("$.") else text.removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(rest):
        found = _STEP.match(rest, at) if at else _STEP.match(rest)
        if found is None:
            raise InvalidRecord(
                f'the path {text[:80]!r} cannot be read at character {len(text) - len(rest) + at + 1}; write '
                'one such as order.lines[0].price or headers["x.id"]'
            )  # fmt: skip
        steps.append(int(found["index"]) if found["index"] else found["name"] or found["quoted"])
        at = found.end()
    if not 0 < len(steps) <= 2 * _DEEPEST:
        raise InvalidRecord(f"the path of a condition has 1 to {2 * _DEEPEST} steps")
    return tuple(steps), rest


def _test(op: Operator, value: Any, shown: str) -> Callable[[Any], bool]:
    """What says whether a value fulfils a condition. Raises InvalidRecord where the operator has no use for `value`."""
    match op:
        case Operator.EQ:
            return _equal_to(value)
        case Operator.NE:
            return _opposite(_equal_to(value))
        case Operator.GT | Operator.GTE | Operator.LT | Operator.LTE:
            return _ordered(op, value, shown)
        case Operator.IN:
            return _one_of(_list(op, value, shown))
        case Operator.NOT_IN:
            return _opposite(_one_of(_list(op, value, shown)))
        case Operator.CONTAINS:
            return _containing([value], any)
        case Operator.CONTAINS_ANY:
            return _containing(_list(op, value, shown), any)
        case Operator.CONTAINS_ALL:
            return _containing(_list(op, value, shown), all)
        case Operator.STARTS_WITH | Operator.ENDS_WITH:
            return _edged(op, value, shown)
        case Operator.MATCHES:
            return _matching(value, shown)
        case Operator.EXISTS:
            if not isinstance(value, bool):
                raise InvalidRecord(f"exists on {shown} takes true or false")
            return (lambda found: found is not MISSING) if value else (lambda found: found is MISSING)


def _opposite(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda found: not test(found)


def _equal_to(value: Any) -> Callable[[Any], bool]:
    if isinstance(value, str):
        return lambda found: isinstance(found, str) and found == value
    return lambda found: found is not MISSING and is_same(value, found)


def _one_of(values: Sequence[Any]) -> Callable[[Any], bool]:
    return lambda found: found is not MISSING and any(is_same(value, found) for value in values)


def _ordered(op: Operator, value: Any, shown: str) -> Callable[[Any], bool]:
    if isinstance(value, str):
        kind: Any = str
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        kind = (int, float)
    else:
        raise InvalidRecord(f"{op} on {shown} compares with a number or a text, not {_kind(value)}")
    compare = _ORDERS[op]
    return lambda found: isinstance(found, kind) and not isinstance(found, bool) and compare(found, value)


_ORDERS: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.GT: lambda found, value: bool(found > value),
    Operator.GTE: lambda found, value: bool(found >= value),
    Operator.LT: lambda found, value: bool(found < value),
    Operator.LTE: lambda found, value: bool(found <= value),
}


def _containing(values: Sequence[Any], how: Callable[[Iterable[bool]], bool]) -> Callable[[Any], bool]:
    """Whether a list has any (or all) of these elements, or a text these parts. A list is gone through once."""
    keys = [_comparable(value) for value in values]
    texts = [value if isinstance(value, str) else None for value in values]
    all_plain = all(map(_is_scalar, values))

    def test(found: Any) -> bool:
        if isinstance(found, str):
            beginning = found[:LONGEST_CONTAINED]
            return how(text is not None and text in beginning for text in texts)
        if isinstance(found, (list, tuple)):
            first = found[:LONGEST_CONTAINED]
            held = {_comparable(inner) for inner in first if not all_plain or _is_scalar(inner)}
            return how(key in held for key in keys)
        return False

    return test


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool, int, float))


def _comparable(value: Any) -> Any:
    """What is equal, and has the same hash, for values that are the same JSON and for no others."""
    if isinstance(value, Mapping):
        return "object", frozenset((name, _comparable(inner)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return "list", tuple(map(_comparable, value))
    return ("flag", value) if isinstance(value, bool) else value


def _edged(op: Operator, value: Any, shown: str) -> Callable[[Any], bool]:
    if not isinstance(value, str) or len(value) > LONGEST_NAME:
        raise InvalidRecord(f"{op} on {shown} takes a text of at most {LONGEST_NAME} characters")
    if op is Operator.STARTS_WITH:
        return lambda found: isinstance(found, str) and found.startswith(value)
    return lambda found: isinstance(found, str) and found.endswith(value)


def _matching(value: Any, shown: str) -> Callable[[Any], bool]:
    if not isinstance(value, str) or len(value) > LONGEST_EXPRESSION:
        raise InvalidRecord(f"matches on {shown} takes a regular expression of at most {LONGEST_EXPRESSION} characters")
    limits = jsonschema_rs.RegexOptions(size_limit=_EXPRESSION_BYTES, dfa_size_limit=_AUTOMATON_BYTES)
    try:
        search = jsonschema_rs.Draft202012Validator({"pattern": value}, pattern_options=limits).is_valid
    except (ValueError, jsonschema_rs.ValidationError):
        raise InvalidRecord(
            f"the regular expression of matches on {shown} cannot be used: it is not well-formed, too large, or has "
            "look-around or back-references"
        ) from None
    return lambda found: isinstance(found, str) and bool(search(found[:LONGEST_SEARCHED]))


def _list(op: Operator, value: Any, shown: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= MOST_VALUES:
        raise InvalidRecord(f"{op} on {shown} takes a list of 1 to {MOST_VALUES} values")
    return value


def _check_plain(value: Any, shown: str, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise InvalidRecord(f"the value for {shown} is nested more than {_DEEPEST} levels deep")
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise InvalidRecord(f"the value for {shown} must be plain JSON")
        for inner in value.values():
            _check_plain(inner, shown, depth + 1)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_plain(inner, shown, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidRecord(f"the value for {shown} is not a finite number")
    elif isinstance(value, int) and abs(value) >= 1 << 63:
        raise InvalidRecord(f"the number for {shown} is too large")


def _refuse_unknown(asked: Mapping[Any, Any], known: Sequence[str], owner: str) -> None:
    for name in asked:
        if name not in known:
            raise InvalidRecord(f"{owner} has no field {str(name)[:40]!r}; {_advice(name, known)}")


def _advice(name: Any, known: Sequence[str]) -> str:
    near = get_close_matches(name[:40].casefold(), known, 1) if isinstance(name, str) else []
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def _kind(value: Any) -> str:
    names = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "nothing" if value is None else "something else")
