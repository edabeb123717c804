"""Walking through folders within bounds: so many entries, so deep, so long, and through no link."""

import time
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.files import FileEntry, FileOps
from toolwire.protocol.outcomes import Code
from toolwire.toolbox.files.granted_paths import GrantedPath, not_found, places, refusal
from toolwire.toolbox.files.ruled_files import left_out

MOST_ENTRIES = 200_000
MOST_IN_A_FOLDER = 20_000
DEEPEST = 64
_SHARE_OF_TIME = 0.8
_LEFT_OUT = frozenset(
    ".git .hg .svn .jj node_modules __pycache__ .venv .tox .nox .mypy_cache .ruff_cache .pytest_cache".split()
)


class TreeEntry(NamedTuple):
    """Something in the tree: where it lies beneath its root, and what it is."""

    root: str
    path: str
    entry: FileEntry


class Walk:
    """Everything beneath some folders, in order of names. After the walk, `notes` say what it did not see."""

    def __init__(self, files: FileOps, starts: list[GrantedPath], context: Context) -> None:
        self._files = files
        self._starts = starts
        self._until = time.monotonic() + context.timeout_s * _SHARE_OF_TIME
        self._canceled = context.canceled
        self._left = MOST_ENTRIES
        self._notes: dict[str, None] = {}
        self._skipped: set[str] = set()

    @property
    def notes(self) -> list[str]:
        skipped = [f"Left out: {', '.join(sorted(self._skipped))}."] if self._skipped else []
        return [*self._notes, *skipped, *left_out(self._files)]

    @property
    def cut_short(self) -> bool:
        return bool(self._notes)

    def note(self, sentence: str) -> None:
        self._notes[sentence] = None

    def is_out_of_time(self) -> bool:
        """Whether to stop. Says so in the notes."""
        if time.monotonic() < self._until and not self._canceled():
            return False
        self.note("Time ran out before everything was seen; name a folder to see less.")
        return True

    def __iter__(self) -> Iterator[TreeEntry]:
        for start in self._starts:
            yield from self._beneath(start)

    def _beneath(self, start: GrantedPath) -> Iterator[TreeEntry]:
        entry = _named(self._files, start)
        if entry.kind != "folder":
            yield TreeEntry(start.root, start.inner, entry)
            return
        waiting = [("" if start.inner == "." else f"{start.inner}/", 0)]
        while waiting and not self.is_out_of_time():
            folder, depth = waiting.pop()
            deeper = []
            for each in self._entries(start.root, folder):
                if self._left <= 0:
                    self.note(f"Only {MOST_ENTRIES:,} files and folders were looked at; name a folder to see less.")
                    return
                self._left -= 1
                yield TreeEntry(start.root, folder + each.name, each)
                if each.kind == "folder" and self._enters(each.name, depth):
                    deeper.append((f"{folder}{each.name}/", depth + 1))
            waiting += reversed(deeper)

    def _entries(self, root: str, folder: str) -> list[FileEntry]:
        try:
            entries = self._files.entries(root, folder.rstrip("/"), MOST_IN_A_FOLDER + 1)
        except OSError:  # gone, swapped for a link or not ours to read: a walk tells what it can see
            return []
        if len(entries) > MOST_IN_A_FOLDER:
            self.note(f"{folder or '.'} holds more than {MOST_IN_A_FOLDER:,} entries; some were not looked at.")
        return entries[:MOST_IN_A_FOLDER]

    def _enters(self, name: str, depth: int) -> bool:
        if name in _LEFT_OUT:
            self._skipped.add(name)
            return False
        if depth + 1 >= DEEPEST:
            self.note(f"Folders more than {DEEPEST} deep were not looked at.")
            return False
        return True


def starts(files: FileOps, path: str, context: Context) -> list[GrantedPath]:
    """Where a walk begins: the path in every granted folder that has it. Raises ToolFailure."""
    tried = places(path, context)
    there = []
    for place in tried:
        try:
            _named(files, place)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise refusal(path, error) from None
        there.append(place)
    if not there:
        raise ToolFailure(not_found(files, tried, path), code=Code.NOT_FOUND)
    return there


def _named(files: FileOps, place: GrantedPath) -> FileEntry:
    """What lies at a path that a call names: there a link that stays inside is followed, though never on the way."""
    entry = files.stat(place.root, place.inner)
    if entry.kind != "link":
        return entry
    try:
        files.entries(place.root, place.inner, 1)
    except NotADirectoryError:
        files.open(place.root, place.inner).close()
        return replace(entry, kind="file")
    return replace(entry, kind="folder")
