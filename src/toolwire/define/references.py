"""The schemas inside a schema, and its references: what they stand for, whether one leads back into itself."""

from collections.abc import Iterator, Mapping
from typing import Any

# Keywords that hold one schema, a list of schemas, or schemas by name (JSON Schema 2020-12, core and applicator).
_ONE = frozenset(
    "items additionalItems unevaluatedItems contains additionalProperties unevaluatedProperties propertyNames "
    "contentSchema not if then else".split()
)
_MANY = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_REFERENCES = ("$ref", "$dynamicRef")


def subschemas(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside a schema with its JSON pointer, the outermost first."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for keyword, held in schema.items():
        if keyword in _ONE:
            yield from subschemas(held, f"{path}/{keyword}")
        elif keyword in _MANY and isinstance(held, list):
            for index, inner in enumerate(held):
                yield from subschemas(inner, f"{path}/{keyword}/{index}")
        elif keyword in _NAMED and isinstance(held, dict):
            for name, inner in held.items():
                yield from subschemas(inner, f"{path}/{keyword}/{name}")


def resolve_pointer(document: Mapping[str, Any], target: str) -> Any:
    """What `#`, `#/$defs/point` or `#point` stands for; True, which allows anything, if it leads nowhere."""
    if target[1:2] not in ("", "/"):
        anchors = (inner for _, inner in subschemas(document) if target[1:] in _anchors(inner))
        return next(anchors, True)
    here: Any = document
    for step in target.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        here = here.get(name, True) if isinstance(here, Mapping) else _item(here, name)
    return here


def targets(schema: Mapping[str, Any]) -> Iterator[str]:
    """The references that a schema itself makes."""
    for keyword in _REFERENCES:
        if isinstance(target := schema.get(keyword), str):
            yield target


def is_recursive(document: Mapping[str, Any]) -> bool:
    """Whether following references from anywhere in the document comes back to where it began."""
    leads = {"": set[str]()}
    for _, inner in subschemas(document):
        leads[""].update(targets(inner))
    for target in leads[""]:
        leads[target] = {each for _, inner in subschemas(resolve_pointer(document, target)) for each in targets(inner)}
    done: set[str] = set()
    while ready := {target for target, after in leads.items() if target not in done and after <= done}:
        done |= ready
    return len(done) < len(leads)


def _anchors(schema: Mapping[str, Any]) -> tuple[Any, Any]:
    return schema.get("$anchor"), schema.get("$dynamicAnchor")


def _item(here: Any, name: str) -> Any:
    if isinstance(here, list) and name.isdecimal() and int(name[:9]) < len(here):
        return here[int(name[:9])]
    return True
