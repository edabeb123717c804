"""A skill as it travels to a device: packed, signed and cut into pieces; and put together, checked and unpacked there.

A bundle is a compressed tar of the folder, the same for the same folder. Its digest is signed together with the skill's
name and version, so a piece needs no signature of its own: the whole is believed or it is not.
"""

import base64
import binascii
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from toolwire.define.skill_pages import skill_from_page
from toolwire.define.skills import skill_from_toml
from toolwire.define.versions import is_version
from toolwire.errors import DefinitionError
from toolwire.execute.skill_folders import MOST_BYTES, MOST_FILES
from toolwire.toolbox.skills.catalog import TOML, FoundSkill, read_skill
from toolwire.wire.mqtt.reading import FieldReader
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage

LARGEST_BUNDLE = 16 * 1024 * 1024
_SIGNED = b"toolwire skill 1\n"

Sign = Callable[[bytes], bytes]


class BundleHead(Struct, frozen=True):
    """Which skill it is, and the SHA-256 and size of its bundle. One that is `older` may replace a newer one."""

    skill: str
    version: str
    digest: str
    size: int
    older: bool = False

    @property
    def signed_bytes(self) -> bytes:
        """What a signature is about."""
        words = (self.skill, self.version, self.digest, str(self.size), "older" if self.older else "newer")
        return _SIGNED + "\0".join(words).encode()


class BundlePiece(Struct, frozen=True):
    """One of `count` pieces of a bundle."""

    head: BundleHead
    index: int
    count: int
    data: bytes
    key_id: str
    signature: bytes


def pack_skill(folder: Path, *, older: bool = False) -> tuple[BundleHead, bytes]:
    """The bundle of a skill's folder. Raises DefinitionError for what is no skill, or too large."""
    found = read_skill(folder, lambda _file, _digest: True)
    if not _has_own_name(found):
        raise DefinitionError(f'{found.file} must say the name of the skill: name = "{found.skill.name}"')
    packed = zlib.compress(_tar(found), 9)
    if len(packed) > LARGEST_BUNDLE:
        raise DefinitionError(f"{folder} is too large to be pushed: {len(packed)} bytes, at most {LARGEST_BUNDLE}")
    digest = hashlib.sha256(packed).hexdigest()
    return BundleHead(found.skill.name, found.skill.version, digest, len(packed), older), packed


def _has_own_name(found: FoundSkill) -> bool:
    """Whether the skill is called the same wherever its folder lies."""
    read = skill_from_toml if found.file.name == TOML else skill_from_page
    return read(found.folder.definitions[found.file.name], str(found.file), "elsewhere").name == found.skill.name


def _tar(found: FoundSkill) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(found.folder.files):
            data = (found.folder.path / name).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if name in found.folder.programs else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return body.getvalue()


def piece_payloads(head: BundleHead, packed: bytes, key_id: str, sign: Sign, most: int) -> Iterator[dict[str, Any]]:
    """The payloads of the commands that carry a bundle, each with at most `most` bytes of it."""
    signature = base64.b64encode(sign(head.signed_bytes)).decode()
    pieces = [packed[start : start + most] for start in range(0, len(packed), most)]
    for index, piece in enumerate(pieces):
        yield {
            "skill": head.skill, "version": head.version, "digest": head.digest, "size": head.size,
            "older": head.older, "index": index, "count": len(pieces), "key_id": key_id, "signature": signature,
            "data": base64.b64encode(piece).decode(),
        }  # fmt: skip


def read_piece(payload: Mapping[str, Any]) -> BundlePiece | RefusedMessage:
    """A piece as a command carries it."""
    reader = FieldReader(payload)
    head = BundleHead(
        reader.text("skill", 64, required=True), reader.text("version", 80, required=True),
        reader.text("digest", 64, required=True), reader.count("size", required=True), reader.flag("older"),
    )  # fmt: skip
    index, count = reader.count("index", required=True), reader.count("count", required=True)
    key_id, signature = reader.text("key_id", 64), _decoded(payload.get("signature"))
    data = _decoded(payload.get("data"))
    if reader.fault is not None:
        return reader.fault
    if not is_version(head.version):
        return RefusedMessage(RefusalCode.INVALID_FIELD, f"{head.version!r} is not a version", "version")
    if PurePosixPath(head.skill).name != head.skill or head.skill.startswith("."):
        return RefusedMessage(RefusalCode.INVALID_FIELD, f"{head.skill!r} cannot be the name of a skill", "skill")
    if len(head.digest) != 64 or not set(head.digest) <= set("0123456789abcdef"):
        return RefusedMessage(RefusalCode.INVALID_FIELD, "digest must be a SHA-256 in hexadecimal digits", "digest")
    if not data or not signature or not index < count <= head.size <= LARGEST_BUNDLE:
        return RefusedMessage(
            RefusalCode.INVALID_FIELD, "index, count, size, data and signature contradict each other", "data"
        )
    return BundlePiece(head, index, count, data, key_id, signature)


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return b""


def unpack_bundle(packed: bytes, folder: Path) -> None:
    """Write the files of a bundle into a new folder. Raises DefinitionError for what no skill may hold."""
    try:
        unpacker = zlib.decompressobj()
        body = unpacker.decompress(packed, MOST_BYTES)
        if unpacker.unconsumed_tail:
            raise DefinitionError(f"the skill holds more than {MOST_BYTES} bytes")
        with tarfile.open(fileobj=io.BytesIO(body), mode="r:") as tar:
            for number, entry in enumerate(tar):
                if number >= MOST_FILES:
                    raise DefinitionError(f"the skill holds more than {MOST_FILES} files")
                _unpack_file(tar, entry, folder)
    except (zlib.error, tarfile.TarError, EOFError) as wrong:
        raise DefinitionError(f"the bundle cannot be read: {wrong}") from None


def _unpack_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    path = PurePosixPath(entry.name)
    if not entry.isreg() or path.is_absolute() or ".." in path.parts or not path.parts or "\0" in entry.name:
        raise DefinitionError(f"the skill holds {entry.name[:80]!r}, which is not a file inside of it")
    target = folder / path
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    mode = 0o755 if entry.mode & 0o100 else 0o644
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as opened:
        source = tar.extractfile(entry)
        opened.write(source.read() if source else b"")
        opened.flush()
        os.fsync(descriptor)
    target.chmod(mode)  # whatever the umask
