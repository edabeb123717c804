"""Whether a path is one that a rule means, however either of them is spelled. Pure; links are followed elsewhere."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from posixpath import normpath
from unicodedata import normalize

from toolwire.decide.globs import fits

BOX_ROOT = "/workspace"
"""Where a command in a box finds the first of the granted folders."""


def fold(text: str) -> str:
    """A text in which letters that only differ in case or in their Unicode form are the same."""
    return text.casefold() if text.isascii() else normalize("NFKC", normalize("NFKC", text).casefold())


def plain(text: str) -> str:
    """A path without detours."""
    found = normpath(text)
    return f"/{found.lstrip('/')}" if found.startswith("//") else found


def path_fits(path: str, pattern: str, roots: Sequence[str] = ()) -> bool:
    """Whether a pattern means this path, or a folder that it lies in."""
    forms = rule_forms(pattern, tuple(roots))
    return any(fits(fold(one), form) for one in spellings(path, pattern, roots) for form in forms)


def may_hold(folder: str, pattern: str, roots: Sequence[str] = ()) -> bool:
    """Whether something in this folder, or deeper, could be what a pattern means."""
    if path_fits(folder, pattern, roots):
        return True
    tops = (*roots, BOX_ROOT) if folder.startswith("/") else ()
    if any(f"{plain(top)}/".startswith(_inside(plain(folder))) for top in tops):
        return True
    starts = [form.partition("*")[0] for form in rule_forms(pattern, tuple(roots))]
    inside = [_inside(fold(one)) for one in whole_spellings(folder, pattern, roots)]
    return any(start.startswith(one) or one.startswith(start) for start in starts for one in inside)


def spellings(path: str, pattern: str, roots: Sequence[str]) -> Iterator[str]:
    """Every way to write a path, from the workspace and from the root of the disk, and the folders that it lies in."""
    for whole in whole_spellings(path, pattern, roots):
        yield whole
        yield from _above(whole)


def whole_spellings(path: str, pattern: str, roots: Sequence[str]) -> Iterator[str]:
    """Every way to write a path, from the workspace and from the root of the disk."""
    found = plain(path)
    yield path
    yield found
    if path.startswith("/"):
        tops = (_inside(plain(root)) for root in (*roots, BOX_ROOT))
        yield from (found[len(top) :] for top in tops if f"{found}/".startswith(top))
    elif pattern.startswith("/"):  # without a folder no file is reached, whatever it is called
        yield from (plain(f"{root}/{path}") for root in roots) if roots else (pattern,)


@lru_cache(maxsize=1024)
def rule_forms(pattern: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """The ways to understand a pattern: from the workspace or the root of the disk, `**/` and `*/` also for nothing."""
    first = pattern if pattern == "/" else pattern.rstrip("/")
    forms = [pattern, first]
    if "*" not in first:
        forms.append(plain(first))
    while first.startswith("./"):
        first = first[2:].lstrip("/")
    forms += [first, first.replace("//", "/"), first.replace("**/", "")]
    if first.startswith("*/"):
        forms.append(first[2:])
    for root in (*roots, BOX_ROOT):
        forms += [one[len(root) :].lstrip("/") for one in (first,) if one.startswith(_inside(root))]
    return tuple(dict.fromkeys(fold(form) for form in forms if form))


def _inside(folder: str) -> str:
    """What the paths in a folder begin with."""
    return "" if folder in ("", ".") else f"{folder.rstrip('/')}/"


def _above(path: str) -> Iterator[str]:
    while "/" in path.strip("/"):
        path = path.rstrip("/").rpartition("/")[0]
        yield path
