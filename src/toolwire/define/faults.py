"""What is wrong with arguments, in sentences that a model can act on."""

from collections.abc import Iterable, Mapping
from typing import Any

from jsonschema_rs import ValidationError, ValidationErrorKind

from toolwire.define.branches import closest, tags, types_here
from toolwire.define.nearest import nearest
from toolwire.define.quoting import describe_json, list_values, path_text, quote_value
from toolwire.define.wording import (
    LIMITS,
    MISSING,
    OTHER,
    TYPE,
    UNKNOWN,
    VALUE,
    Choices,
    Ranked,
    did_you_mean,
    names,
    ranked_sentences,
)

_PLAIN_WORDS: dict[type[ValidationErrorKind], str] = {
    ValidationErrorKind.UniqueItems: "items must all be different",
    ValidationErrorKind.OneOfMultipleValid: "fits more than one of the allowed forms; make it fit exactly one",
    ValidationErrorKind.FalseSchema: "is not allowed here",
}
# The pattern could not be tried to its end, so nothing is known of the value.
_UNDECIDED = (ValidationErrorKind.BacktrackLimitExceeded, ValidationErrorKind.RegexEngineFailure)
_ARTICLES = {"null": "null", "integer": "an integer", "array": "an array", "object": "an object"}


def sentences(errors: Iterable[ValidationError], schema: Mapping[str, Any]) -> tuple[str, ...]:
    """All faults, in a stable order, at most twenty of them, and a last word on what the tool takes."""
    outermost_first = sorted(errors, key=_depth)
    return ranked_sentences([fault for error in outermost_first for fault in _faults(error, schema)], schema)


def _faults(error: ValidationError, schema: Mapping[str, Any]) -> Iterable[Ranked]:
    path = error.instance_path
    match error.kind:
        case ValidationErrorKind.Required(name):
            return [(MISSING, f"missing {quote_value(name)}{_inside(path)}")]
        case ValidationErrorKind.AdditionalProperties(unknown) | ValidationErrorKind.UnevaluatedProperties(unknown):
            known = list(_owner(schema, error.schema_path).get("properties", ()))
            return [(UNKNOWN, _unknown(name, path, known)) for name in unknown]
        case ValidationErrorKind.AnyOf(context) | ValidationErrorKind.OneOfNotValid(context):
            return _branch_faults(context, error, schema)
        case kind:
            rank, complaint = _complaint(kind, error)
            return [(rank, f"{path_text(path)}: {complaint}")]


def _branch_faults(context: Any, error: ValidationError, schema: Mapping[str, Any]) -> Iterable[Ranked]:
    path = error.instance_path
    if types := types_here(context, path):
        return [(TYPE, f"{path_text(path)}: {_expected(types)}, got {describe_json(error.instance)}")]
    if found := tags(context, path):
        place, allowed = found
        return [(VALUE, f"{path_text(place)}: expected one of {list_values(allowed)}")]
    return [fault for inner in closest(context, path) for fault in _faults(inner, schema)]


def _complaint(kind: ValidationErrorKind, error: ValidationError) -> Ranked:
    """The rank of a fault and the words after its place."""
    if (limit := LIMITS.get(kind.name)) and type(kind) not in _UNDECIDED:
        rank, before, after, tell = limit
        return rank, f"{before}{quote_value(kind.value)}{after}{tell(error.instance)}"
    match kind:
        case ValidationErrorKind.Type(types):
            return TYPE, f"{_expected(types)}, got {describe_json(error.instance)}"
        case ValidationErrorKind.Enum(options):
            return VALUE, Choices(options).told(error.instance)
        case ValidationErrorKind.PropertyNames(inner):
            return OTHER, f"a name in it is not allowed ({inner.message[:120]})"
    return OTHER, _PLAIN_WORDS.get(type(kind)) or f"is not allowed ({kind.name}), got {quote_value(error.instance)}"


def _expected(types: list[str]) -> str:
    words = [_ARTICLES.get(each, f"a {each}") for each in types]
    return "expected " + (" or ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} or {words[-1]}")


def _depth(error: ValidationError) -> int:
    return len(error.instance_path)


def _inside(path: list[str | int]) -> str:
    return f" in {path_text(path)}" if path else ""


def _unknown(name: str, path: list[str | int], known: list[str]) -> str:
    if meant := nearest(name, known, 1):
        return f"unknown {quote_value(name)}{_inside(path)}{did_you_mean(meant)}"
    taken = f"; it takes {names(known) or 'nothing'}" if path else ""
    return f"unknown {quote_value(name)}{_inside(path)}{taken}"


def _owner(schema: Mapping[str, Any], path: list[str | int]) -> Mapping[str, Any]:
    """The schema object that holds the keyword at this path of the document."""
    here: Any = schema
    for step in path[:-1]:
        if isinstance(here, Mapping) and step in here:
            here = here[str(step)]
        elif isinstance(here, list) and isinstance(step, int) and step < len(here):
            here = here[step]
        else:
            return {}
    return here if isinstance(here, Mapping) else {}
