"""What is wrong with arguments, in sentences that a model can act on."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jsonschema_rs import ValidationError, ValidationErrorKind

from toolwire.define.branches import closest, tags, types_here
from toolwire.define.nearest import nearest
from toolwire.define.quoting import described, listed, quoted, spelled

MAX_FAULTS = 20
_MAX_NAMES = 40

Ranked = tuple[int, str]
# The order in which faults are told: what is missing first, what needs the most reading last.
_MISSING, _TYPE, _UNKNOWN, _VALUE, _RANGE, _LENGTH, _PATTERN, _OTHER = range(8)

_ARTICLES = {"null": "null", "integer": "an integer", "array": "an array", "object": "an object"}


def sentences(errors: Iterable[ValidationError], schema: Mapping[str, Any]) -> tuple[str, ...]:
    """All faults, in a stable order, at most twenty of them, and a last word on what the tool takes."""
    ranked = [fault for error in errors for fault in _faults(error, schema)]
    ranked.sort(key=lambda fault: fault[0])
    told = bounded([sentence for _, sentence in dict.fromkeys(ranked)])
    if any(rank in (_MISSING, _UNKNOWN) for rank, _ in ranked):
        told = (*told, signature_line(schema))
    return told


def bounded(told: list[str]) -> tuple[str, ...]:
    """The first twenty, and how many more there are."""
    if len(told) <= MAX_FAULTS:
        return tuple(told)
    return (*told[:MAX_FAULTS], f"… and {len(told) - MAX_FAULTS} more")


def signature_line(schema: Mapping[str, Any]) -> str:
    """`Required: [path]. Optional: [offset, limit].`"""
    required = [name for name in schema.get("required", ()) if isinstance(name, str)]
    optional = [name for name in schema.get("properties", ()) if name not in set(required)]
    return f"Required: [{_names(required)}]. Optional: [{_names(optional)}]."


def _names(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (f", … {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")


def _faults(error: ValidationError, schema: Mapping[str, Any]) -> Iterator[Ranked]:
    path = error.instance_path
    match error.kind:
        case ValidationErrorKind.Required(name):
            yield _MISSING, f"missing {quoted(name)}{_inside(path)}"
        case ValidationErrorKind.AdditionalProperties(names) | ValidationErrorKind.UnevaluatedProperties(names):
            known = list(_owner(schema, error.schema_path).get("properties", ()))
            yield from ((_UNKNOWN, _unknown(name, path, known)) for name in names)
        case ValidationErrorKind.AnyOf(context) | ValidationErrorKind.OneOfNotValid(context):
            yield from _branch_faults(context, error, schema)
        case ValidationErrorKind.PropertyNames(inner):
            yield _OTHER, f"{spelled(path)}: a name in it is not allowed ({inner.message[:120]})"
        case kind:
            rank, complaint = _complaint(kind, error)
            yield rank, f"{spelled(path)}: {complaint}"


def _branch_faults(context: Any, error: ValidationError, schema: Mapping[str, Any]) -> Iterator[Ranked]:
    path = error.instance_path
    if types := types_here(context, path):
        yield _TYPE, f"{spelled(path)}: {_expected(types)}, got {described(error.instance)}"
    elif found := tags(context, path):
        place, allowed = found
        yield _VALUE, f"{spelled(place)}: expected one of {listed(allowed)}"
    else:
        for inner in closest(context, path):
            yield from _faults(inner, schema)


def _complaint(kind: ValidationErrorKind, error: ValidationError) -> Ranked:
    """The rank of a fault and the words after its place."""
    match kind:
        case ValidationErrorKind.Type(types):
            return _TYPE, f"{_expected(types)}, got {described(error.instance)}"
        case ValidationErrorKind.Enum(options):
            return _VALUE, f"expected one of {listed(options)}, got {quoted(error.instance)}{_meant(error, options)}"
        case ValidationErrorKind.Constant(value):
            return _VALUE, f"must be {quoted(value)}, got {quoted(error.instance)}"
        case ValidationErrorKind.Minimum(limit):
            return _RANGE, f"must be at least {quoted(limit)}, got {quoted(error.instance)}"
        case ValidationErrorKind.Maximum(limit):
            return _RANGE, f"must be at most {quoted(limit)}, got {quoted(error.instance)}"
        case ValidationErrorKind.ExclusiveMinimum(limit):
            return _RANGE, f"must be greater than {quoted(limit)}, got {quoted(error.instance)}"
        case ValidationErrorKind.ExclusiveMaximum(limit):
            return _RANGE, f"must be less than {quoted(limit)}, got {quoted(error.instance)}"
        case ValidationErrorKind.MultipleOf(step):
            return _RANGE, f"must be a multiple of {quoted(step)}, got {quoted(error.instance)}"
    return _complaint_about_size(kind, error)


def _complaint_about_size(kind: ValidationErrorKind, error: ValidationError) -> Ranked:
    match kind:
        case ValidationErrorKind.MinLength(limit):
            return _LENGTH, f"must have at least {limit} characters, has {_size(error)}"
        case ValidationErrorKind.MaxLength(limit):
            return _LENGTH, f"must have at most {limit} characters, has {_size(error)}"
        case ValidationErrorKind.MinItems(limit) | ValidationErrorKind.MinProperties(limit):
            return _LENGTH, f"must have at least {limit} items, has {_size(error)}"
        case ValidationErrorKind.MaxItems(limit) | ValidationErrorKind.MaxProperties(limit):
            return _LENGTH, f"must have at most {limit} items, has {_size(error)}"
        case ValidationErrorKind.AdditionalItems(limit):
            return _LENGTH, f"must have at most {limit} items, has {_size(error)}"
        case ValidationErrorKind.UniqueItems():
            return _OTHER, "items must all be different"
        case ValidationErrorKind.Pattern(pattern):
            return _PATTERN, f"must match the pattern {quoted(pattern)}, got {quoted(error.instance)}"
        case ValidationErrorKind.Format(name):
            return _PATTERN, f"must be a valid {name}, got {quoted(error.instance)}"
        case ValidationErrorKind.OneOfMultipleValid():
            return _OTHER, "fits more than one of the allowed forms; make it fit exactly one"
        case ValidationErrorKind.FalseSchema():
            return _OTHER, "is not allowed here"
    return _OTHER, f"is not allowed ({kind.name}), got {quoted(error.instance)}"


def _expected(types: list[str]) -> str:
    words = [_ARTICLES.get(each, f"a {each}") for each in types]
    return "expected " + (" or ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} or {words[-1]}")


def _inside(path: list[str | int]) -> str:
    return f" in {spelled(path)}" if path else ""


def _unknown(name: str, path: list[str | int], known: list[str]) -> str:
    meant = nearest(name, known, 1)
    if meant:
        return f"unknown {quoted(name)}{_inside(path)}; did you mean {quoted(meant[0])}?"
    names = f"; it takes {_names(known) or 'nothing'}" if path else ""
    return f"unknown {quoted(name)}{_inside(path)}{names}"


def _meant(error: ValidationError, options: list[Any]) -> str:
    if not isinstance(error.instance, str):
        return ""
    meant = nearest(error.instance, [option for option in options if isinstance(option, str)], 1)
    return f"; did you mean {quoted(meant[0])}?" if meant else ""


def _size(error: ValidationError) -> int:
    return len(error.instance) if isinstance(error.instance, (str, list, dict)) else 0


def _owner(schema: Mapping[str, Any], path: list[str | int]) -> Mapping[str, Any]:
    """The schema object that holds the keyword at this path of the document."""
    here: Any = schema
    for step in path[:-1]:
        if step == "$ref":
            here = _referred(schema, here.get("$ref", "#"))
        elif isinstance(here, Mapping) and step in here:
            here = here[str(step)]
        elif isinstance(here, list) and isinstance(step, int) and step < len(here):
            here = here[step]
        else:
            return {}
    return here if isinstance(here, Mapping) else {}


def _referred(schema: Mapping[str, Any], pointer: str) -> Any:
    here: Any = schema
    for step in pointer.removeprefix("#").split("/")[1:]:
        here = here.get(step.replace("~1", "/").replace("~0", "~"), {}) if isinstance(here, Mapping) else {}
    return here
