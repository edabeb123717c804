"""How much work a check may become, counted before it is done.

A schema that branches and refers back to itself can double the work, and the errors, with every level of the
arguments. The validator cannot be stopped midway, so the steps are counted here first, up to a limit.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from toolwire.define.references import resolve_pointer, subschemas, targets

_BRANCHES = ("anyOf", "oneOf", "allOf")
_DEFINITIONS = ("$defs", "definitions")
_SIDES = ("not", "if", "then", "else")

Visit = tuple[Any, Any]


def effort(document: Mapping[str, Any], value: Any, limit: int) -> int:
    """The steps that checking a value takes at most, counted no further than `limit`."""
    waiting: list[Visit] = [(document, value)]
    steps = 0
    while waiting and steps < limit:
        schema, part = waiting.pop()
        steps += 1
        if isinstance(schema, Mapping):
            waiting.extend((resolve_pointer(document, target), part) for target in targets(schema))
            waiting.extend(_in_place(schema, part))
            waiting.extend(islice(_inside(schema, part), limit))
    return steps


def expansion(document: Mapping[str, Any], limit: int) -> int:
    """The number of schemas in a document once its references are unfolded, counted no further than `limit`."""
    waiting: list[Any] = [{key: held for key, held in document.items() if key not in _DEFINITIONS}]
    count = 0
    while waiting and count < limit:
        for _, inner in subschemas(waiting.pop()):
            count += 1
            waiting.extend(resolve_pointer(document, target) for target in targets(inner))
    return count


def _in_place(schema: Mapping[str, Any], value: Any) -> Iterator[Visit]:
    for keyword in _BRANCHES:
        for branch in schema.get(keyword, ()):
            yield branch, value
    for keyword in _SIDES:
        if keyword in schema:
            yield schema[keyword], value
    for branch in schema.get("dependentSchemas", {}).values():
        yield branch, value


def _inside(schema: Mapping[str, Any], value: Any) -> Iterator[Visit]:
    if type(value) is dict:
        properties = schema.get("properties", {})
        others = [*schema.get("patternProperties", {}).values()]
        others += [schema[each] for each in ("additionalProperties", "unevaluatedProperties") if each in schema]
        for name, inner in value.items():
            for applied in (properties[name],) if name in properties else others:
                yield applied, inner
    elif type(value) is list:
        applied_to_all = [schema[each] for each in ("items", "contains", "unevaluatedItems") if each in schema]
        yield from zip(schema.get("prefixItems", ()), value, strict=False)
        for inner in value if applied_to_all else ():
            for applied in applied_to_all:
                yield applied, inner
