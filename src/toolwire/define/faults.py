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

_Kind = ValidationErrorKind
# For each limit that a schema can set: the rank of its fault, the words, and where the error keeps the limit.
_LIMITS: dict[type[ValidationErrorKind], tuple[int, str, str]] = {
    _Kind.Constant: (_VALUE, "must be {limit}, got {got}", "expected_value"),
    _Kind.Minimum: (_RANGE, "must be at least {limit}, got {got}", "limit"),
    _Kind.Maximum: (_RANGE, "must be at most {limit}, got {got}", "limit"),
    _Kind.ExclusiveMinimum: (_RANGE, "must be greater than {limit}, got {got}", "limit"),
    _Kind.ExclusiveMaximum: (_RANGE, "must be less than {limit}, got {got}", "limit"),
    _Kind.MultipleOf: (_RANGE, "must be a multiple of {limit}, got {got}", "multiple_of"),
    _Kind.MinLength: (_LENGTH, "must have at least {limit} characters, has {size}", "limit"),
    _Kind.MaxLength: (_LENGTH, "must have at most {limit} characters, has {size}", "limit"),
    _Kind.MinItems: (_LENGTH, "must have at least {limit} items, has {size}", "limit"),
    _Kind.MaxItems: (_LENGTH, "must have at most {limit} items, has {size}", "limit"),
    _Kind.AdditionalItems: (_LENGTH, "must have at most {limit} items, has {size}", "limit"),
    _Kind.MinProperties: (_LENGTH, "must have at least {limit} entries, has {size}", "limit"),
    _Kind.MaxProperties: (_LENGTH, "must have at most {limit} entries, has {size}", "limit"),
    _Kind.Pattern: (_PATTERN, "must match the pattern {limit}, got {got}", "pattern"),
    _Kind.Format: (_PATTERN, "must be written as a {limit}, got {got}", "format"),
    _Kind.UniqueItems: (_OTHER, "items must all be different", ""),
    _Kind.OneOfMultipleValid: (_OTHER, "fits more than one of the allowed forms; make it fit exactly one", ""),
    _Kind.FalseSchema: (_OTHER, "is not allowed here", ""),
}

_ARTICLES = {"null": "null", "integer": "an integer", "array": "an array", "object": "an object"}


def sentences(errors: Iterable[ValidationError], schema: Mapping[str, Any]) -> tuple[str, ...]:
    """All faults, in a stable order, at most twenty of them, and a last word on what the tool takes."""
    outermost_first = sorted(errors, key=lambda error: len(error.instance_path))
    ranked = [fault for error in outermost_first for fault in _faults(error, schema)]
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
    if isinstance(kind, ValidationErrorKind.Type):
        return _TYPE, f"{_expected(kind.types)}, got {described(error.instance)}"
    if isinstance(kind, ValidationErrorKind.Enum):
        meant = _meant(error.instance, kind.options)
        return _VALUE, f"expected one of {listed(kind.options)}, got {quoted(error.instance)}{meant}"
    if type(kind) not in _LIMITS:
        return _OTHER, f"is not allowed ({kind.name}), got {quoted(error.instance)}"
    rank, template, limit = _LIMITS[type(kind)]
    told = quoted(getattr(kind, limit)) if limit else ""
    return rank, template.format(limit=told, got=quoted(error.instance), size=_size(error.instance))


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


def _meant(value: Any, options: list[Any]) -> str:
    if not isinstance(value, str):
        return ""
    meant = nearest(value, [option for option in options if isinstance(option, str)], 1)
    return f"; did you mean {quoted(meant[0])}?" if meant else ""


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, list, dict)) else 0


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
