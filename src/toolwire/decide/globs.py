"""Patterns of rules, in which only `*` means something. Pure."""


def fits(text: str, pattern: str) -> bool:
    """Whether a whole text fits a pattern, in time that grows with the text alone."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    if not text.startswith(first):
        return False
    *middle, last = rest
    at = len(first)
    for piece in middle:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(text) - len(last) >= at and text.endswith(last)


STAR, ONE, ANY = "\1", "\2", "\0"
"""In a pattern of the shell: anything but a slash, one letter but a slash, and what is not known at all."""

_MOST_STEPS = 200_000


def overlap(glob: str, pattern: str) -> bool:
    """Whether some path fits both a pattern of the shell, with these marks, and one of a rule. A dot is not hidden."""
    if len(glob) * len(pattern) > _MOST_STEPS:
        return True
    waiting, seen = [(0, 0)], set()
    while waiting:
        at, place = waiting.pop()
        if (at, place) in seen:
            continue
        seen.add((at, place))
        if at == len(glob) and place == len(pattern):
            return True
        waiting += _steps(glob, at, pattern, place)
    return False


def _steps(glob: str, at: int, pattern: str, place: int) -> list[tuple[int, int]]:
    """The places from which the rest has to fit the rest."""
    mark, sign = glob[at : at + 1], pattern[place : place + 1]
    steps = []
    if mark in (STAR, ANY):
        steps.append((at + 1, place))
    if sign == "*":
        steps.append((at, place + 1))
    if not mark or not sign:
        return steps
    if sign == "*":
        return [*steps, (at + 1, place)]  # whatever the mark stands for
    hides = sign == "." and (at == 0 or glob[at - 1] == "/")  # the shell leaves names with a dot out
    if mark == ANY:
        steps.append((at, place + 1))
    elif mark in (STAR, ONE):
        if sign != "/" and not hides:
            steps.append((at if mark == STAR else at + 1, place + 1))
    elif mark == sign:
        steps.append((at + 1, place + 1))
    return steps
