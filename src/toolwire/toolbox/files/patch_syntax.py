"""Reading patches: the unified diff, and the envelope that begins with `*** Begin Patch`. Pure; nothing is opened."""

import re
from collections.abc import Iterator

from msgspec import Struct, field

LONGEST_PATCH = 4_000_000
MOST_FILES = 200
MOST_HUNKS = 500
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ACTIONS = {"*** Add File: ": "add", "*** Update File: ": "update", "*** Delete File: ": "delete"}


class BadPatch(ValueError):
    """The patch cannot be read; the text says where and why."""


class Hunk(Struct):
    """Lines to find and lines to put there. `line` is where they are said to be, 0 if that is not said.

    `anchor` is a line that comes before them; `at_end` says that they are the last ones of the file. `blanks` counts
    the lines at its end without even a space, which are more likely an accident than a part of it.
    """

    line: int = 0
    anchor: str = ""
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    at_end: bool = False
    old_ends_bare: bool = False
    new_ends_bare: bool = False
    blanks: int = 0
    added: int = 0
    removed: int = 0


class FilePatch(Struct):
    """What a patch does to one file: add, update or delete it, or give it another path."""

    action: str
    path: str
    target: str = ""
    hunks: list[Hunk] = field(default_factory=list)


def read_patch(text: str) -> list[FilePatch]:
    """Everything that a patch does, file by file. Raises BadPatch."""
    lines = text.replace("\r\n", "\n").split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    found = list(_envelope(lines, first + 1) if lines[first].strip() == _BEGIN else _unified(lines))
    if not found:
        raise BadPatch(f"no file is named in it; write a unified diff, or an envelope that begins with {_BEGIN!r}")
    if len(found) > MOST_FILES:
        raise BadPatch(f"it changes more than {MOST_FILES} files; split it")
    return found


def _envelope(lines: list[str], at: int) -> Iterator[FilePatch]:
    patch: FilePatch | None = None
    for number in range(at, len(lines)):
        line = lines[number]
        if line.strip() == _END:
            if patch is not None:
                yield _checked(_without_blanks(patch))
            return
        action = next((head for head in _ACTIONS if line.startswith(head)), None)
        if action is not None:
            if patch is not None:
                yield _checked(_without_blanks(patch))
            patch = FilePatch(_ACTIONS[action], line.removeprefix(action).strip())
        elif patch is not None:
            _envelope_line(patch, line, number + 1)
        elif line.strip():
            raise BadPatch(f"line {number + 1}: expected one of {', '.join(head.strip() for head in _ACTIONS)}")
    raise BadPatch(f"it does not end with {_END!r}; it may have been cut off")


def _envelope_line(patch: FilePatch, line: str, number: int) -> None:
    match line[:1]:
        case "*" if line.startswith("*** Move to: ") and patch.action == "update" and not patch.hunks:
            patch.target = line.removeprefix("*** Move to: ").strip()
        case "*" if line.strip() == "*** End of File" and patch.hunks:
            patch.hunks[-1].at_end = True
        case "@" if line.startswith("@@") and patch.action == "update":
            numbers = _HUNK.match(line)
            if numbers is not None:  # the head of a unified diff in an envelope is meant as one
                patch.hunks.append(Hunk(line=int(numbers[1])))
            else:
                patch.hunks.append(Hunk(anchor=line.removeprefix("@@").strip()))
        case "+" if patch.action == "add":
            _hunk_line(_hunk(patch), line)
        case "+" | "-" | " " | "" if patch.action == "update":
            _hunk_line(_hunk(patch), line)
        case _ if not line.strip():
            return
        case _:
            expected = "'+'" if patch.action == "add" else "' ', '+', '-' or '@@'"
            raise BadPatch(
                f"line {number}: expected a line that begins with {expected} in the part about {patch.path!r}"
            )


def _without_blanks(patch: FilePatch) -> FilePatch:
    for hunk in patch.hunks:
        for lines in (hunk.old, hunk.new):
            del lines[len(lines) - hunk.blanks :]
    return patch


def _hunk(patch: FilePatch) -> Hunk:
    if not patch.hunks:
        patch.hunks.append(Hunk())
    return patch.hunks[-1]


def _hunk_line(hunk: Hunk, line: str) -> None:
    mark, body = line[:1], line[1:]
    hunk.blanks = 0 if mark else hunk.blanks + 1
    hunk.added += mark == "+"
    hunk.removed += mark == "-"
    if mark in {" ", "", "-"}:
        hunk.old.append(body)
    if mark in {" ", "", "+"}:
        hunk.new.append(body)


def _unified(lines: list[str]) -> Iterator[FilePatch]:
    at, renamed_from = 0, ""
    while at < len(lines):
        line = lines[at]
        if line.startswith(("new file mode 12", "new mode 12", "old mode 12", "new file mode 16")):
            raise BadPatch(f"line {at + 1}: links and submodules are not made by patches")
        if line.startswith(("GIT binary patch", "Binary files ")):
            raise BadPatch(f"line {at + 1}: binary patches are not read")
        if line.startswith("rename from "):
            renamed_from = line.removeprefix("rename from ").strip()
        elif line.startswith("rename to ") and renamed_from and not _has_hunks(lines, at):
            yield _checked(FilePatch("update", renamed_from, line.removeprefix("rename to ").strip()))
            renamed_from = ""
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            patch = _named(_path(line[4:], at), _path(lines[at + 1][4:], at + 1))
            at = _hunks(patch, lines, at + 2)
            renamed_from = ""
            yield _checked(patch)
        elif line.startswith("@@ -"):
            raise BadPatch(f"line {at + 1}: a hunk before any '--- ' and '+++ ' lines")
        else:
            at += 1


def _has_hunks(lines: list[str], at: int) -> bool:
    """Whether a renamed file is changed too: then its '---' line follows within the few lines of its head."""
    for line in lines[at + 1 : at + 4]:
        if line.startswith("diff "):
            return False
        if line.startswith("--- "):
            return True
    return False


def _path(text: str, at: int) -> str:
    name = text.partition("\t")[0].rstrip()
    if name.startswith('"'):
        raise BadPatch(f"line {at + 1}: quoted file names are not read; write the name as it is")
    return name


def _named(before: str, after: str) -> FilePatch:
    """Which file is meant. The `a/` and `b/` that git puts before names are left out when both are there."""
    none = "/dev/null"
    prefixed = (before == none or before.startswith("a/")) and (after == none or after.startswith("b/"))
    old, new = (name[2:] if prefixed and name != none else name for name in (before, after))
    if before == none:
        return FilePatch("add", new)
    if after == none:
        return FilePatch("delete", old)
    return FilePatch("update", old, new if new != old else "")


def _hunks(patch: FilePatch, lines: list[str], at: int) -> int:
    """Read the hunks of one file; where reading goes on."""
    while at < len(lines) and (head := _HUNK.match(lines[at])):
        old_left, new_left = int(head[2] or 1), int(head[4] or 1)
        hunk = Hunk(line=int(head[1]) + (old_left == 0))
        at += 1
        while old_left > 0 or new_left > 0:
            ends = at >= len(lines) or (at == len(lines) - 1 and not lines[at])
            if ends or lines[at][:1] not in {" ", "+", "-", "", "\\"}:
                raise BadPatch(f"line {at + 1}: the hunk is shorter than its head {head[0]!r} says")
            line = lines[at]
            if line[:1] != "\\":
                _hunk_line(hunk, line)
                old_left -= line[:1] != "+"
                new_left -= line[:1] != "-"
            else:
                _bare_end(hunk, lines[at - 1])
            at += 1
        if at < len(lines) and lines[at].startswith("\\"):
            _bare_end(hunk, lines[at - 1])
            at += 1
        if old_left or new_left:
            raise BadPatch(f"line {at}: the hunk does not have the lines that its head {head[0]!r} says")
        patch.hunks.append(hunk)
    return at


def _bare_end(hunk: Hunk, line: str) -> None:
    hunk.old_ends_bare |= line[:1] != "+"
    hunk.new_ends_bare |= line[:1] != "-"


def _checked(patch: FilePatch) -> FilePatch:
    if not patch.path or patch.path == "/dev/null":
        raise BadPatch("a part of it names no file")
    if sum(len(hunk.old) + len(hunk.new) == 0 for hunk in patch.hunks) or len(patch.hunks) > MOST_HUNKS:
        raise BadPatch(f"{patch.path!r} has a hunk without lines, or more than {MOST_HUNKS} hunks")
    if patch.action == "update" and not patch.hunks and not patch.target:
        raise BadPatch(f"it does not say what to change in {patch.path!r}")
    return patch
