"""Skills that orchestrators push to a device: taken only where the device's own file accepts them.

Pieces are kept in a folder beside the skills until all are there. Then the bundle is checked, unpacked next to the
skills and renamed into its place: another process sees the whole skill or none of it. A newer version wins over an
older one that is still there, so the old folder goes last.
"""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from toolwire.define.versions import version_key
from toolwire.edge.skill_bundles import BundleHead, BundlePiece, read_piece, unpack_bundle
from toolwire.errors import DefinitionError
from toolwire.toolbox.skills.catalog import FoundSkill, read_skill, scan
from toolwire.wire.mqtt.refusals import RefusedMessage
from toolwire.wire.mqtt.signing import Verifier

_STAGED = ".staged"
_MOST_STAGED = 4
_MARK = "@"

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Wrong(Exception):
    """Why a skill is not taken, in one of the words for errors in reports."""

    message: str
    kind: str = "permission_denied"


class SkillInstaller:
    """Takes pieces of skills: `await installer(payload)` gives the body of a report.

    `accepts` are names of skills, with `*` for any; `keys` know who may sign them; `installed` is called after one has
    come into its place.
    """

    def __init__(
        self, skills: Path, keys: Verifier, accepts: Iterable[str], installed: Callable[[], None] = lambda: None
    ) -> None:
        self._skills = skills
        self._keys = keys
        self._accepts = tuple(accepts)
        self._installed = installed
        self._lock = asyncio.Lock()

    async def __call__(self, payload: Mapping[str, Any]) -> Body:
        """Take a piece. A piece that comes again changes nothing."""
        piece = read_piece(payload)
        if isinstance(piece, RefusedMessage):
            return _error(piece.message, "invalid_params")
        async with self._lock:
            try:
                return await asyncio.to_thread(self._take, piece)
            except _Wrong as wrong:
                return _error(wrong.message, wrong.kind)
            except DefinitionError as wrong:
                return _error(f"the skill {piece.head.skill} cannot be used: {wrong}", "invalid_params")
            except OSError as wrong:
                return _error(f"the skill could not be written: {wrong.strerror or wrong}", "execution_failed")

    def _take(self, piece: BundlePiece) -> Body:
        head = piece.head
        self._require_acceptable(piece)
        if (there := self._newest(head.skill)) is not None and self._is_same(there, head):
            return {"status": "success", "result": "installed", "skill": head.skill, "version": head.version}
        self._require_newer(head, there)
        staged = self._stage(piece)
        if len(staged) < piece.count:
            return {"status": "success", "result": "received", "pieces": len(staged), "count": piece.count}
        packed = b"".join(staged[index].read_bytes() for index in range(piece.count))
        shutil.rmtree(self._staging(head))
        if len(packed) != head.size or hashlib.sha256(packed).hexdigest() != head.digest:
            raise _Wrong("the pieces do not make the bundle that was signed; push it again", "invalid_params")
        return self._install(head, packed)

    def _require_acceptable(self, piece: BundlePiece) -> None:
        head = piece.head
        if not any(fnmatchcase(head.skill, pattern) for pattern in self._accepts):
            raise _Wrong(
                f"this device does not accept the skill {head.skill!r}; its operator can list it in skills.accept"
            )
        if not self._keys.verify(piece.key_id, head.signed_bytes, piece.signature):
            raise _Wrong(f"the skill {head.skill!r} is not signed by an orchestrator that this device knows")

    def _require_newer(self, head: BundleHead, there: FoundSkill | None) -> None:
        if there is None or version_key(head.version) > version_key(there.skill.version):
            return
        if head.version == there.skill.version and not head.older:
            raise _Wrong(
                f"version {head.version} of {head.skill} is there with other content; raise the version",
                "invalid_params",
            )
        if not head.older:
            raise _Wrong(
                f"version {there.skill.version} of {head.skill} is there, which is newer than {head.version}; "
                "push with --allow-older to go back",
                "invalid_params",
            )
        if _MARK not in there.folder.path.name:
            raise _Wrong(
                f"version {there.skill.version} of {head.skill} was put there by the operator, who alone can remove it"
            )

    def _newest(self, name: str) -> FoundSkill | None:
        found = [each for each in scan(self._skills, _any).found if each.skill.name == name]
        return max(found, key=lambda each: version_key(each.skill.version), default=None)

    def _is_same(self, there: FoundSkill, head: BundleHead) -> bool:
        """Whether the newest version there came of this very bundle."""
        return there.folder.path.name == _folder_name(head)

    def _staging(self, head: BundleHead) -> Path:
        return self._skills / _STAGED / head.digest

    def _stage(self, piece: BundlePiece) -> dict[int, Path]:
        """Keep a piece; all that are there of its bundle, by number."""
        folder = self._staging(piece.head)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        waiting = sorted((self._skills / _STAGED).iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
        for oldest in [each for each in waiting if each != folder][_MOST_STAGED - 1 :]:
            shutil.rmtree(oldest, ignore_errors=True)
        draft = folder / f".{piece.index}"
        draft.write_bytes(piece.data)
        draft.replace(folder / str(piece.index))
        return {int(each.name): each for each in folder.iterdir() if each.name.isdecimal()}

    def _install(self, head: BundleHead, packed: bytes) -> Body:
        place = self._skills / _folder_name(head)
        draft = self._skills / _STAGED / f"{head.digest}.new" / place.name
        shutil.rmtree(draft.parent, ignore_errors=True)
        draft.mkdir(mode=0o755, parents=True)
        try:
            unpack_bundle(packed, draft)
            found = read_skill(draft, _any)
            if (found.skill.name, found.skill.version) != (head.skill, head.version):
                raise _Wrong("the bundle holds another skill than the one that was signed", "invalid_params")
            draft.rename(place)
            _sync(self._skills)
        finally:
            shutil.rmtree(draft.parent, ignore_errors=True)
        self._remove_others(head)
        self._installed()
        tools = [entry.tool.name for entry in found.skill.tools]
        return {
            "status": "success", "result": "installed", "skill": head.skill, "version": head.version, "tools": tools,
        }  # fmt: skip

    def _remove_others(self, head: BundleHead) -> None:
        """Remove other versions that were pushed; what the operator put there stays."""
        for each in self._skills.glob(f"{head.skill}{_MARK}*"):
            if each.name != _folder_name(head):
                shutil.rmtree(each, ignore_errors=True)


def _folder_name(head: BundleHead) -> str:
    return f"{head.skill}{_MARK}{head.version}-{head.digest[:12]}"


def _any(_file: Path, _digest: str) -> bool:
    return True


def _error(message: str, kind: str) -> Body:
    return {"status": "error", "error": message, "error_type": kind}


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
