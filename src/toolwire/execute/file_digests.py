"""The digests of some files beneath a folder, within bounds."""

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field

MOST_PATHS = 1_000
MOST_FILES = 32
LARGEST_FILE = 4 * 1024 * 1024
MOST_BYTES = 16 * 1024 * 1024
_READ = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class FileDigests(Struct):
    """The SHA-256 of each file by its path, and why others have none."""

    digests: dict[str, str] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)


def file_digests(root: str, paths: Iterable[str]) -> FileDigests:
    """The digests of those of these paths that are files. What is missing is left out; a link is followed inside."""
    found, top, left = FileDigests(), Path(root).resolve(), MOST_BYTES
    for count, path in enumerate(paths):
        if count >= MOST_PATHS or len(found.digests) >= MOST_FILES:
            found.without["more files"] = f"only {MOST_FILES} are compared"
            break
        try:
            where = (top / path.removeprefix(f"{root.rstrip('/')}/")).resolve()
            shown = str(where.relative_to(top))
            if shown in found.digests or shown in found.without or not where.exists():
                continue
            body = _content(where, min(left, LARGEST_FILE))
        except (OSError, RuntimeError):
            found.without[path] = "cannot be read"
            continue
        except ValueError:  # outside, or no path at all
            continue
        if isinstance(body, str):
            found.without[shown] = body
        else:
            found.digests[shown], left = hashlib.sha256(body).hexdigest(), left - len(body)
    return found


def _content(where: Path, most: int) -> bytes | str:
    """What a file holds, or why that is not looked at."""
    if where.is_dir():
        return "a folder"
    descriptor = os.open(where, _READ)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "not a file"
        body = file.read(most + 1)
    return body if len(body) <= most else "too large"
