"""Which results come first: definitions, then uses, then tests, and last what was not written by hand. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum

from toolwire.lazy import lazy_pattern

FEWEST_FOR_A_ZONE = 5
ASIDE = frozenset(
    ".git .hg .svn .jj node_modules __pycache__ .venv venv .tox .nox .mypy_cache .ruff_cache .pytest_cache "
    "site-packages .hypothesis".split()
)
_WORD = lazy_pattern(r"\w{1,200}", re.ASCII)
_DEFINES = lazy_pattern(
    r"[ \t]{0,200}"
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([a-z]{1,20}\))?|"
    r"unsafe|inline|extern|override|open|data|sealed)[ \t]{1,20}){0,6}"
    r"(?:def|class|func|fun|fn|function|struct|enum|union|trait|interface|type|typedef|impl|module|mod|namespace|"
    r"package|const|let|var|val|macro_rules|#define|object|protocol|record)\b[*!]?[ \t]{1,20}"
    r"(?:\([^()]{0,200}\)[ \t]?)?"
    r"(?P<name>[\w$]{1,200})"
)
_ASSIGNS = lazy_pattern(r"(?P<name>[A-Za-z_]\w{0,200})[ \t]{0,20}(?::[^=\n]{0,200})?=(?!=)")
_TEST = lazy_pattern(
    r"(?:^|[/_.-])(?:tests?|specs?|conftest|testdata|fixtures|__tests__|__mocks__)(?=$|[/_.-])", re.IGNORECASE
)
_TEST_NAME = lazy_pattern(r"(?:^|/)Tests?[A-Z]|[a-z0-9]Tests?\.\w{1,10}$")


class MatchKind(IntEnum):
    """What a result is, the best first."""

    DEFINITION = 0
    USE = 1
    TEST_DEFINITION = 2
    TEST = 3
    ASIDE = 4


def kind_of(path: str, line: str = "", wanted: str = "") -> MatchKind:
    """What a line of a file is to a reader who looks for `wanted`; without it, every definition counts as one."""
    if any(part in ASIDE for part in path.split("/")):
        return MatchKind.ASIDE
    defines = is_definition(line, wanted)
    if is_test(path):
        return MatchKind.TEST_DEFINITION if defines else MatchKind.TEST
    return MatchKind.DEFINITION if defines else MatchKind.USE


def is_definition(line: str, wanted: str = "") -> bool:
    """Whether a line defines something, and if a word is wanted, something of that name."""
    found = _DEFINES.match(line)
    if not wanted:
        return found is not None
    found = found or _ASSIGNS.match(line)
    return found is not None and wanted.lower() in found["name"].lower()


def is_test(path: str) -> bool:
    """Whether a file is a test, or lies among tests."""
    return _TEST.search(path) is not None or _TEST_NAME.search(path) is not None


def plain_word(pattern: str) -> str:
    """The pattern, if it is a single word and so perhaps a name; otherwise nothing."""
    bare = pattern.removeprefix("\\b").removesuffix("\\b").removeprefix("\\<").removesuffix("\\>")
    return bare if _WORD.fullmatch(bare) else ""


def hot_zone(paths: Sequence[str]) -> str:
    """The folder, at most two levels deep, that holds at least half of the results; nothing if there is none."""
    if len(paths) < FEWEST_FOR_A_ZONE:
        return ""
    (folder, count), *_ = Counter(map(_two_levels, paths)).most_common(1)
    return f"{folder} ({count} of {len(paths)})" if folder and 2 * count >= len(paths) else ""


def files_among(paths: Iterable[str]) -> int:
    return len(set(paths))


def _two_levels(path: str) -> str:
    parts = path.removeprefix("./").split("/")[:-1]
    return "/".join(parts[:2])
