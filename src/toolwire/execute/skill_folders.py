"""Folders of skills on disk: what is in one, its digest, and the copy that is run.

A digest covers the names, the contents and the executable bits of everything in a folder. What a person has trusted is
a digest, and what runs is a copy that has it: nothing that happens to the folder afterwards matters to a running tool.
"""

import hashlib
import os
import shlex
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import BinaryIO, NoReturn

from toolwire.errors import DefinitionError, ToolFailure

MOST_FILES = 2_000
MOST_BYTES = 64 * 1024 * 1024
DEEPEST = 16
READ = ("skill.toml", "SKILL.md")
"""The files in which a skill is defined."""

LARGEST_READ = 256 * 1024 + 1
NOT_PART = frozenset((".git", "__pycache__"))
"""Folders that are neither counted nor copied."""

UNUSED_S = 86_400.0
"""How long an unused copy is kept after it was last used; a call takes at most an hour."""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 20
_WRITABLE_BY_ANYONE = stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder as it was when it was looked at. `programs` are the files that may be run."""

    path: Path
    digest: str
    definitions: dict[str, bytes] = field(repr=False)
    files: frozenset[str] = field(repr=False)
    programs: frozenset[str] = field(repr=False)


def look_into(path: Path, copy_to: Path | None = None) -> Folder:
    """Read a whole folder once, and copy it on the way if asked. Raises `DefinitionError` for what no skill may hold.

    No link is followed, and nothing but regular files that not everybody can change is taken.
    """
    try:
        return _Look(path, copy_to).all()
    except OSError as error:
        raise DefinitionError(f"{path} cannot be read: {error.strerror}") from None


class _Look:
    def __init__(self, path: Path, copy_to: Path | None) -> None:
        self._path = path
        self._copy_to = copy_to
        self._left = MOST_BYTES
        self._digests: dict[str, str] = {}
        self._programs: set[str] = set()
        self._definitions: dict[str, bytes] = {}

    def all(self) -> Folder:
        for below, names, folder in self._folders():
            for name in names:
                self._take(below / name, name, folder)
        lines = (f"{name}\0{digest}\0{name in self._programs:d}\n" for name, digest in sorted(self._digests.items()))
        digest = hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
        files = frozenset(self._digests)
        return Folder(self._path, digest, self._definitions, files, frozenset(self._programs))

    def _folders(self) -> Iterator[tuple[Path, list[str], int]]:
        if not self._path.is_dir():
            raise DefinitionError(f"{self._path} is no folder")
        for place, folders, files, descriptor in os.fwalk(self._path, onerror=_refuse):
            below = Path(place).relative_to(self._path)
            if len(below.parts) > DEEPEST:
                raise DefinitionError(f"{self._path} has folders more than {DEEPEST} deep")
            self._check(self._path / below, os.fstat(descriptor))
            for name in folders:
                if stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    raise DefinitionError(f"{self._path / below / name} is a link; a skill holds files of its own")
            folders[:] = sorted(name for name in folders if name not in NOT_PART)
            if self._copy_to is not None:
                (self._copy_to / below).mkdir(mode=0o755, exist_ok=True)
            yield below, files, descriptor

    def _take(self, below: Path, name: str, folder: int) -> None:
        whole = self._path / below
        _require_file(whole, os.stat(name, dir_fd=folder, follow_symlinks=False))  # opening a device may do something
        descriptor = os.open(name, _OPEN, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            _require_file(whole, facts)
            self._check(whole, facts)
            if len(self._digests) >= MOST_FILES:
                raise DefinitionError(f"{self._path} has more than {MOST_FILES} files")
            is_program = bool(facts.st_mode & stat.S_IXUSR)
            target = None if self._copy_to is None else self._copy_to / below
            key = below.as_posix()
            self._digests[key] = self._read(file, target, key)
            if is_program:
                self._programs.add(key)
            if target is not None:
                target.chmod(0o755 if is_program else 0o644)

    def _read(self, file: BinaryIO, target: Path | None, key: str) -> str:
        digest = hashlib.sha256()
        head = b""
        copy = target.open("xb") if target is not None else None
        try:
            while piece := file.read(_PIECE):
                self._left -= len(piece)
                if self._left < 0:
                    raise DefinitionError(f"{self._path} has more than {MOST_BYTES // 2**20} MiB")
                digest.update(piece)
                if key in READ and len(head) < LARGEST_READ:
                    head += piece[:LARGEST_READ]
                if copy is not None:
                    copy.write(piece)
        finally:
            if copy is not None:
                copy.close()
        if key in READ:
            self._definitions[key] = head
        return digest.hexdigest()

    def _check(self, path: Path, facts: os.stat_result) -> None:
        if facts.st_mode & _WRITABLE_BY_ANYONE:
            raise DefinitionError(f"{path} can be changed by anyone; run: chmod o-w {path}")


def _require_file(path: Path, facts: os.stat_result) -> None:
    if stat.S_ISLNK(facts.st_mode):
        raise DefinitionError(f"{path} is a link; a skill holds files of its own")
    if not stat.S_ISREG(facts.st_mode):
        raise DefinitionError(f"{path} is no regular file; a skill holds nothing else")


class SkillCopies:
    """Copies of trusted skills, each under its digest, where boxes can read them and tools cannot change them."""

    def __init__(self, base: Path | None = None, held: Iterable[str] = ()) -> None:
        self._base = base or usual_place()
        self._held = frozenset(held)

    def holding(self, digests: Iterable[str]) -> "SkillCopies":
        """The same shelf for users of the copies with these digests: they stay when others are swept."""
        return SkillCopies(self._base, digests)

    def place(self, folder: Path, digest: str) -> Path:
        """The copy of a folder that has this digest, looked at anew. Raises `ToolFailure` when there is none to be had.

        Copying and comparing takes time; call it in a thread.
        """
        kept = self._base / digest
        if _digest(kept) == digest:
            _mark_as_used(kept)
            return kept
        try:
            self._base.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._copy(folder, digest, kept)
            self._sweep(digest)
        except DefinitionError as wrong:
            raise ToolFailure(str(wrong)) from None
        except OSError as error:
            raise ToolFailure(f"the skill cannot be copied to {self._base}: {error.strerror}") from None
        return kept

    def _copy(self, folder: Path, digest: str, kept: Path) -> None:
        draft = Path(tempfile.mkdtemp(dir=self._base))
        try:
            draft.chmod(0o755)
            if look_into(folder, draft).digest != digest:
                raise DefinitionError(
                    f"{folder} has changed since it was trusted; look at it, then: "
                    f"toolwire trust {shlex.quote(str(folder))}"
                )
            self._put(draft, kept, digest)
        finally:
            rmtree(draft, ignore_errors=True)

    def _sweep(self, newest: str) -> None:
        """Remove copies that are not needed here and were not used for a day. One that is missed is made again."""
        oldest = time.time() - UNUSED_S
        for path in self._base.iterdir():
            if path.name == newest or path.name in self._held:
                continue
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    rmtree(path)

    def _put(self, draft: Path, kept: Path, digest: str) -> None:
        try:
            draft.rename(kept)
        except OSError:  # something is there: another process was faster, or what was there is spoiled
            if _digest(kept) != digest:
                rmtree(kept)
                draft.rename(kept)


def _mark_as_used(kept: Path) -> None:
    with suppress(OSError):  # a copy of another user is used as well
        os.utime(kept)


def _refuse(error: OSError) -> NoReturn:
    raise error


def _digest(folder: Path) -> str:
    try:
        return look_into(folder).digest if folder.is_dir() else ""
    except DefinitionError:
        return ""


def usual_place() -> Path:
    """Where copies lie: a folder that the user of a box can reach, and from which programs may be run."""
    if os.geteuid() == 0:
        return Path("/opt/toolwire/skills")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share", "toolwire", "skills")
