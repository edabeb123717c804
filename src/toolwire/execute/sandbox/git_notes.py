"""Notes about open boxes, by which the next start finds what a killed toolwire could not look at any more.

A note says what was there for git when a box was opened; it is removed when the box has closed and all is tidy. It has
digests and no content: whatever is not as it was is moved aside, and nothing is ever written back from a note.
"""

import json
import os
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from msgspec import Struct

from toolwire.execute.sandbox.beneath import lstat_beneath, read_beneath
from toolwire.execute.sandbox.cgroups import own_name, owner_lives
from toolwire.execute.sandbox.git_guard import Baseline, GitGuard
from toolwire.execute.sandbox.git_links import target_of
from toolwire.execute.sandbox.git_settings import Repository, parse_settings
from toolwire.lazy import lazy_module

if TYPE_CHECKING:
    import platformdirs
else:
    platformdirs = lazy_module("platformdirs")  # few processes need it

_LONGEST = 4 * 1024 * 1024
_SUFFIX = ".json"


class Leftover(Struct, frozen=True):
    """What became of a box that was not closed: what was moved aside, and what could not be."""

    workspace: str
    held: tuple[str, ...]
    failed: tuple[str, ...]


def notes_folder() -> Path:
    return _notes_folder(os.environ.get("XDG_STATE_HOME"), os.environ.get("HOME"))


@lru_cache(maxsize=8)
def _notes_folder(_state: str | None, _home: str | None) -> Path:
    """Kept for each environment, since every box asks for it several times."""
    return Path(platformdirs.user_state_dir("toolwire", appauthor=False)) / "open-boxes"


def write_note(guard: GitGuard, *, sealed: bool) -> Path | None:
    """Keep what is there for git; None where no note can be kept, and a killed box is then not found."""
    own = guard.baseline
    folder = notes_folder()
    note = {
        "workspace": own.workspace,
        "repositories": [[each.top, each.git, each.common] for each in own.repositories],
        "folders": own.folders,
        "trusted": sorted(own.trusted),
        "is_bare": own.is_bare,
        "unsafe": own.unsafe,
        "pointers": {path: content.decode("latin-1") for path, content in own.pointers.items()},
        "legacy": sorted(own.legacy),
        "worktree_links": sorted(own.worktree_links),
        "links": own.links,
        "missing": own.missing,
        "trees": own.trees,
        "files": {path: _digest(saved.content) for path, saved in own.files.items()},
        "known": sorted(own.known),
        "settings": {} if sealed else {path: _settings(saved.content) for path, saved in own.configs.items()},
    }
    path = folder / f"{own_name()}-{_key(own.workspace)}{_SUFFIX}"
    try:
        try:
            _write(path, note)
        except FileNotFoundError:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(path, note)
    except OSError:
        return None
    return path


def remove_note(path: Path | None) -> None:
    if path is not None:
        with suppress(OSError):
            path.unlink()


def recover(workspace: str = "") -> list[Leftover]:
    """Hold back what killed boxes have left for git, in one workspace or in all; what was found is told."""
    try:
        names = os.listdir(notes_folder())  # noqa: PTH208 - done for every box
    except OSError:
        return []
    ending = f"-{_key(workspace)}{_SUFFIX}" if workspace else _SUFFIX
    dead = [name for name in names if name.endswith(ending) and not owner_lives(name)]
    found = [_recover_one(notes_folder() / name) for name in dead]
    return [one for one in found if one is not None]


def _recover_one(path: Path) -> Leftover | None:
    try:
        with path.open("rb") as file:
            note = json.loads(file.read(_LONGEST))
        baseline = _baseline(note)
        root = os.open(baseline.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError, KeyError, TypeError):
        remove_note(path)
        return None
    try:
        guard = GitGuard(root, baseline)
        guard.check(_differing(root, note))
    finally:
        os.close(root)
    if not guard.failed:
        remove_note(path)
    if not guard.held and not guard.failed:
        return None
    return Leftover(baseline.workspace, tuple(guard.held), tuple(guard.failed.values()))


def _differing(root: int, note: dict[str, Any]) -> list[tuple[str, str]]:
    """Files, settings and links that are not as they were."""
    reason = "was changed by a command that was killed, and git obeys it"
    found = []
    for path, digest in note["files"].items():
        if lstat_beneath(root, path) is not None and _digest(read_beneath(root, path, _LONGEST)) != digest:
            found.append((path, reason))
    for path, digest in note["settings"].items():
        if lstat_beneath(root, path) is not None and _settings(read_beneath(root, path, _LONGEST)) != digest:
            found.append((path, reason))
    for path, target in note["links"].items():
        if lstat_beneath(root, path) is not None and target_of(root, path) != target:
            found.append((path, reason))
    return found


def _baseline(note: dict[str, Any]) -> Baseline:
    """A note as a baseline that puts nothing back. Raises ValueError, KeyError or TypeError for what is none."""
    return Baseline(
        str(note["workspace"]),
        tuple(Repository(*map(str, each)) for each in note["repositories"]),
        tuple(map(str, note["folders"])),
        frozenset(map(str, note["trusted"])),
        bool(note["is_bare"]),
        {str(path): tuple(map(str, lines)) for path, lines in note["unsafe"].items()},
        {str(path): str(text).encode("latin-1") for path, text in note["pointers"].items()},
        frozenset(map(str, note["legacy"])),
        frozenset(map(str, note.get("worktree_links", ()))),
        missing=tuple(map(str, note["missing"])),
        trees=tuple(map(str, note["trees"])),
        known=frozenset(map(str, (*note["files"], *note["settings"], *note.get("known", ())))),
    )


def _write(path: Path, note: dict[str, Any]) -> None:
    opened = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(opened, "wb", buffering=0) as file:
        file.write(json.dumps(note, ensure_ascii=False).encode("utf-8", "surrogateescape"))


def _digest(content: bytes | None) -> str:
    return "" if content is None else sha256(content).hexdigest()


def _settings(content: bytes | None) -> str:
    """A digest of the settings by which programs are started; others may change."""
    listed = None if content is None else parse_settings(content)
    if listed is None:
        return _digest(content)
    return sha256(repr([(one.key, one.value) for one in listed if not one.is_harmless("/", ())]).encode()).hexdigest()


def _key(workspace: str) -> str:
    return f"{crc32(os.fsencode(workspace)):08x}"
