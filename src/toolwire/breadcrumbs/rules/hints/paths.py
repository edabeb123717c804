"""Paths into a context, as include and exclude lists write them: `tools[*].examples`, `a.b`, `rows[0]`, `a["b.c"]`.

`*` is every key of an object, `[*]` every item of an array; each of them also means the other, since who writes a hint
does not always know which it is.
"""

from toolwire.errors import InvalidRecord
from toolwire.lazy import lazy_pattern

LONGEST_PATH = 400
MOST_STEPS = 32
ANY = None
"""The step that stands for every key and every item."""

Step = str | int | None
Path = tuple[Step, ...]

_STEP = lazy_pattern(
    r"""\[ (?: (?P<any>\*) | (?P<index>\d{1,9}) | "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)' ) \]
    | (?P<dot>\.)? (?: (?P<star>\*) | (?P<key>[^.\[\]*"'\s][^.\[\]*"']*) )""",
    0x40,  # re.VERBOSE
)
_ESCAPED = lazy_pattern(r"\\(.)")


def read_path(text: object) -> Path:
    """The steps of a path. `$` and `$.` at the beginning may be left out. Raises `InvalidRecord`."""
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST_PATH:
        raise InvalidRecord(f"a path in llm_hints is text of 1 to {LONGEST_PATH} characters, such as tools[*].examples")
    rest = text.strip().removeprefix("$").removeprefix(".")
    steps: list[Step] = []
    place = 0
    while place < len(rest):
        found = _STEP.match(rest, place)
        if found is None or (found["dot"] is None and not rest.startswith("[", place) and steps):
            raise InvalidRecord(f"the path {text[:80]!r} in llm_hints cannot be read at {rest[place : place + 20]!r}")
        steps.append(_step(found.groupdict()))
        place = found.end()
    if not steps or len(steps) > MOST_STEPS:
        raise InvalidRecord(f"the path {text[:80]!r} in llm_hints needs 1 to {MOST_STEPS} steps")
    return tuple(steps)


def _step(found: dict[str, str | None]) -> Step:
    if found["any"] or found["star"]:
        return ANY
    if found["index"] is not None:
        return int(found["index"])
    quoted = found["double"] if found["double"] is not None else found["single"]
    if quoted is not None:
        return str(_ESCAPED.sub(r"\1", quoted))
    return found["key"]
