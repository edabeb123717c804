"""Reads the `llm_hints` of a record or schema. What cannot be meant is refused, with what would be right."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

from msgspec import Struct

from toolwire.breadcrumbs.rules.hints.paths import Path, read_path
from toolwire.errors import InvalidRecord

MOST_PATHS = 100
MOST_TRANSFORMS = 50
LONGEST_NAME = 128
LONGEST_RULE = 16_384

_KEYS = {"include", "exclude", "transform", "mode"}


class HintMode(StrEnum):
    """Whether the fields that transforms make stand alone, or are laid over the context."""

    REPLACE = "replace"
    MERGE = "merge"


class TransformKind(StrEnum):
    """What makes a field: a Handlebars template, a JSONPath, a constant, `{a.b}` placeholders, or a jq program."""

    TEMPLATE = "template"
    EXTRACT = "extract"
    LITERAL = "literal"
    FORMAT = "format"
    JQ = "jq"


RULE_KEYS = {
    TransformKind.TEMPLATE: "template",
    TransformKind.EXTRACT: "value",
    TransformKind.LITERAL: "literal",
    TransformKind.FORMAT: "format",
    TransformKind.JQ: "query",
}
ENGINES = frozenset([TransformKind.TEMPLATE, TransformKind.EXTRACT, TransformKind.JQ])
"""The kinds that a foreign engine evaluates, for which nothing here can say how long they take."""


class Transform(Struct, frozen=True):
    """One field of the view: its name, what makes it, and the text or constant that says how."""

    name: str
    kind: TransformKind
    rule: Any


class Hints(Struct, frozen=True):
    """How a context is shown: first include, then exclude, then the transforms. None includes everything."""

    include: tuple[Path, ...] | None = None
    exclude: tuple[Path, ...] = ()
    transforms: tuple[Transform, ...] = ()
    mode: HintMode = HintMode.REPLACE

    @property
    def needs_engine(self) -> bool:
        return any(transform.kind in ENGINES for transform in self.transforms)


def read_hints(given: object) -> Hints:
    """The hints that an object says. Raises `InvalidRecord`."""
    if given is None:
        return Hints()
    if not isinstance(given, Mapping):
        raise InvalidRecord("llm_hints is an object with include, exclude, transform and mode")
    unknown = sorted(str(key) for key in given if key not in _KEYS)
    if unknown:
        raise InvalidRecord(f"llm_hints has no {unknown[0][:60]!r}; it has include, exclude, transform and mode")
    include = _paths(given, "include")
    mode = given.get("mode", HintMode.REPLACE)
    if mode not in tuple(HintMode):
        raise InvalidRecord("mode of llm_hints is replace or merge")
    return Hints(include, _paths(given, "exclude") or (), _transforms(given.get("transform")), HintMode(mode))


def _paths(given: Mapping[str, Any], key: str) -> tuple[Path, ...] | None:
    listed = given.get(key)
    if listed is None:
        return None
    if not isinstance(listed, (list, tuple)) or len(listed) > MOST_PATHS:
        raise InvalidRecord(f"{key} of llm_hints is a list of at most {MOST_PATHS} paths")
    return tuple(dict.fromkeys(map(read_path, listed)))


def _transforms(given: object) -> tuple[Transform, ...]:
    if given is None:
        return ()
    if not isinstance(given, Mapping) or len(given) > MOST_TRANSFORMS:
        raise InvalidRecord(f"transform of llm_hints is an object of at most {MOST_TRANSFORMS} named rules")
    return tuple(_transform(name, rule) for name, rule in given.items())


def _transform(name: str, rule: object) -> Transform:
    if not name or len(name) > LONGEST_NAME:
        raise InvalidRecord(f"the name of a transform has 1 to {LONGEST_NAME} characters")
    kind = rule.get("type") if isinstance(rule, Mapping) else None
    if kind not in tuple(TransformKind):
        kinds = ", ".join(TransformKind)
        raise InvalidRecord(f"the transform {name!r} of llm_hints needs a type: one of {kinds}")
    rule, kind = cast("Mapping[str, Any]", rule), TransformKind(kind)
    key = RULE_KEYS[kind]
    if rule.keys() != {"type", key}:
        raise InvalidRecord(f"the {kind} transform {name!r} of llm_hints has the keys type and {key}, and no others")
    text = rule[key]
    if kind is not TransformKind.LITERAL and not (isinstance(text, str) and len(text) <= LONGEST_RULE):
        raise InvalidRecord(f"{key} of the transform {name!r} is text of at most {LONGEST_RULE} characters")
    return Transform(name, kind, text)
