"""Which branch of an anyOf or oneOf was meant, judging by how the value failed each of them."""

from collections.abc import Sequence

from jsonschema_rs import ValidationError, ValidationErrorKind

Branches = Sequence[Sequence[ValidationError]]


def types_here(branches: Branches, path: list[str | int]) -> list[str]:
    """All types that the branches want at this place, if the value has the wrong type for every one of them."""
    wanted: list[str] = []
    for branch in branches:
        types = _types_at(branch, path)
        if not types:
            return []
        wanted += [each for each in types if each not in wanted]
    return wanted


def closest(branches: Branches, path: list[str | int]) -> Sequence[ValidationError]:
    """The errors of the branch that the value comes nearest to: right type, right tag, fewest faults."""
    return min(branches, key=lambda branch: (bool(_types_at(branch, path)), _wrong_tags(branch, path), len(branch)))


def tags(branches: Branches, path: list[str | int]) -> tuple[list[str | int], list[object]] | None:
    """The place and the allowed values of the tag that tells branches apart, if the value has none of them."""
    places: list[list[str | int]] = []
    values: list[object] = []
    for branch in branches:
        if _types_at(branch, path):
            continue
        wrong = [error for error in branch if _is_tag(error, path)]
        if not wrong:
            return None
        places.append(wrong[0].instance_path)
        values += _allowed(wrong[0])
    if not places or any(place != places[0] for place in places):
        return None
    return places[0], values


def _types_at(branch: Sequence[ValidationError], path: list[str | int]) -> list[str]:
    for error in branch:
        match error.kind:
            case ValidationErrorKind.Type(types) if error.instance_path == path:
                return types
            case ValidationErrorKind.AnyOf(context) | ValidationErrorKind.OneOfNotValid(context):
                if error.instance_path == path and (inner := types_here(context, path)):
                    return inner
    return []


def _is_tag(error: ValidationError, path: list[str | int]) -> bool:
    constant = isinstance(error.kind, (ValidationErrorKind.Constant, ValidationErrorKind.Enum))
    return constant and len(error.instance_path) == len(path) + 1


def _wrong_tags(branch: Sequence[ValidationError], path: list[str | int]) -> int:
    return sum(_is_tag(error, path) for error in branch)


def _allowed(error: ValidationError) -> list[object]:
    match error.kind:
        case ValidationErrorKind.Constant(value):
            return [value]
        case ValidationErrorKind.Enum(options):
            return list(options)
    return []
