"""Outputs that were too long to be shown at once, kept so that the rest can be read later, from any process."""

import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolwire.errors import NotFound
from toolwire.protocol.obeyed import OWN_STATE
from toolwire.record.artifacts import Artifacts
from toolwire.record.ownership import is_own, open_home, state_folder

KEPT_DAYS = 7
_HANDLE = re.compile(r"res_([0-9a-f]{16})", re.ASCII)
_WHOLE = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)


class NoHandle(Exception):
    """Nothing is kept under this handle; the text says what to do."""


class PagedOutput(Struct, frozen=True):
    """An output in the pieces in which it is shown."""

    cmd: str
    counted: str
    total: int
    pieces: tuple[tuple[str, ...], ...]


def keep(kept: PagedOutput, environ: Mapping[str, str]) -> str:
    """Keep an output and give back its handle; nothing if there is no place for it."""
    body = {"v": 1, "cmd": kept.cmd, "counted": kept.counted, "total": kept.total, "pieces": kept.pieces}
    data = json.dumps(body).encode()
    for home in _homes(environ):
        try:
            os.close(open_home(home))
            if not _is_ours(home):
                continue
            artifacts = Artifacts(home / "artifacts")
            digest = artifacts.keep(data).removeprefix("sha256:")
            _sweep(artifacts.folder)
        except OSError:
            continue
        return f"res_{digest[:16]}"
    return ""


def fetch(handle: str, environ: Mapping[str, str]) -> PagedOutput:
    """What was kept under a handle. Raises NoHandle."""
    digits = _HANDLE.fullmatch(handle) or _WHOLE.fullmatch(handle)
    if digits is None:
        raise NoHandle(f"{handle[:80]!r} is no handle; one looks like res_0123456789abcdef")
    for home in _homes(environ):
        try:
            found = [digits[1][:2] + path.name for path in (home / "artifacts" / digits[1][:2]).iterdir()]
            found = [digest for digest in found if digest.startswith(digits[1])]
            if len(found) == 1 and _is_ours(home):
                return _read(Artifacts(home / "artifacts").fetch(f"sha256:{found[0]}", 0, None), handle)
        except (OSError, NotFound):
            continue
    raise NoHandle(f"nothing is kept under {handle}; outputs are kept for {KEPT_DAYS} days, so run the command again")


def _read(data: bytes, handle: str) -> PagedOutput:
    try:
        body: Any = json.loads(data)
        match body:
            case {"v": 1, "cmd": str(cmd), "counted": str(counted), "total": int(total), "pieces": list(pieces)}:
                return PagedOutput(cmd, counted, total, tuple(tuple(map(str, piece)) for piece in pieces))
    except (ValueError, TypeError, RecursionError):
        pass
    raise NoHandle(f"what is kept under {handle} was not kept by te; read it with the tool `more`")


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    """Where outputs may lie: the home that was chosen, or the user's own folder, or at worst a temporary one."""
    if chosen := environ.get("TOOLWIRE_STORE__HOME"):
        yield Path(chosen).expanduser()
    yield state_folder() / "te"
    yield Path(tempfile.gettempdir()) / f"toolwire-te-{os.getuid()}"


def _is_ours(home: Path) -> bool:
    """Whether only this user could have put something there."""
    about = home.lstat()
    if home.name == OWN_STATE and not is_own(home):
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022


def _sweep(folder: Path) -> None:
    """Forget what is too old. Bodies that the store keeps in the same home are not ours to forget."""
    if folder.parent.joinpath("store.db").exists():
        return
    oldest = time.time() - KEPT_DAYS * 86_400
    for path in folder.glob("??/*"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
