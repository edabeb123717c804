"""Signed checkpoints of the audit log: how far it went and what its chain said then, for keeping elsewhere.

A checkpoint that lies in a second place shows a log that was cut, edited or made anew afterwards, even by someone who
holds the store and the key: what was signed earlier does not fit any more.
"""

import importlib
import json
import os
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from toolwire.errors import SettingsError
from toolwire.record.chain import AuditChain
from toolwire.record.ownership import (
    FOLDER_FLAGS,
    is_signed,
    read_file,
    real_path,
    replace_file,
    signature,
    write_once,
)

_ED25519 = "cryptography.hazmat.primitives.asymmetric.ed25519"
_NEEDS_EXTRA = 'signed checkpoints need an extra: pip install "toolwire[audit]"'
MOST_LINES = 1_000_000
_KEY_FILE = "audit.key"
_KIND = "audit key"
_KEY_BYTES = 32
_LONGEST_KEY = 128


class Checkpoint(Struct, frozen=True):
    """The number and digest of the newest row at a time, signed. `key` is the public key, in hexadecimal.

    It is about the rows of one project; one without a `project`, about the whole log.
    """

    seq: int
    head: str
    at: float
    key: str
    signature: str
    project: str = ""

    def line(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if name != "project" or value})


def sign(home: Path, chain: AuditChain, at: float) -> Checkpoint:
    """A checkpoint of the chain under the store's own key, which is made when there is none. Raises SettingsError."""
    key = _key(home)
    public = key.public_key().public_bytes_raw().hex()
    content = _signed(chain.last, chain.head, at, chain.project)
    return Checkpoint(chain.last, chain.head, at, public, key.sign(content).hex(), chain.project)


def append_whole(path: Path, data: bytes) -> None:
    """Append all of it to a file, or nothing: half a line would make those before it unreadable. Raises OSError."""
    with path.open("ab", buffering=0) as file:
        before, left = file.tell() if file.seekable() else None, memoryview(data)
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            if before is not None:
                with suppress(OSError):  # a device cannot be cut, and what was wrong is to be told
                    file.truncate(before)
            raise


def read(path: Path) -> list[Checkpoint]:
    """The checkpoints in a file, one JSON object a line. Raises SettingsError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()[:MOST_LINES]
        return [_checkpoint(json.loads(line)) for line in lines if line.strip()]
    except OSError as wrong:
        raise SettingsError(f"the checkpoints {path} cannot be read: {wrong.strerror}") from None
    except (ValueError, TypeError, LookupError, RecursionError):
        raise SettingsError(f"{path} holds something that is no checkpoint") from None


def faults(checkpoints: Sequence[Checkpoint], chain: AuditChain, key: str = "") -> list[str]:
    """What the checkpoints say against the log, in sentences; nothing when all of them fit.

    Only checkpoints under `key` count when it is given, else those under the key of the first one.
    """
    trusted = key or (checkpoints[0].key if checkpoints else "")
    cut = f"the first {chain.dropped} rows are gone, and that they were pruned by you is not signed"
    return [
        *([] if chain.cut_is_signed else [cut]),
        *(sentence for one in checkpoints if is_about(one, chain) for sentence in _faults(one, chain, trusted)),
    ]


def is_about(one: Checkpoint, chain: AuditChain) -> bool:
    """Whether a checkpoint is about this part of the log: one of another project is not, by whatever key it is signed.

    Those of before projects had chains of their own are about rows that all of them share.
    """
    return one.project in ("", chain.project)


def _faults(one: Checkpoint, chain: AuditChain, trusted: str) -> Iterable[str]:
    if one.key != trusted:
        yield f"the checkpoint at row {one.seq} is signed with another key ({one.key[:16]}…)"
    elif not _is_signed(one):
        yield f"the signature of the checkpoint at row {one.seq} is wrong"
    elif one.seq > chain.last:
        yield f"the log ends at row {chain.last}, but a checkpoint saw row {one.seq}: its tail was cut"
    elif one.seq >= max(chain.dropped, 1) and chain.heads.get(one.seq) != one.head:
        yield f"row {one.seq} is not the one that a checkpoint saw: the log was changed"


def _signed(seq: int, head: str, at: float, project: str) -> bytes:
    return json.dumps(["toolwire audit", seq, head, at, *([project] if project else [])]).encode()


def _is_signed(one: Checkpoint) -> bool:
    try:
        public = _ed25519().Ed25519PublicKey.from_public_bytes(bytes.fromhex(one.key))
        public.verify(bytes.fromhex(one.signature), _signed(one.seq, one.head, one.at, one.project))
    except SettingsError:
        raise
    except Exception:  # whatever is wrong with a key or a signature, it is not signed
        return False
    return True


def _key(home: Path) -> Any:
    """The key of a folder, made when there is none. One without proof that it was made here signs nothing."""
    kind = _ed25519().Ed25519PrivateKey
    where = f"{real_path(home)}/{_KEY_FILE}"
    try:
        folder = os.open(home, FOLDER_FLAGS)
        try:
            if not _is_there(folder):
                write_once(_KEY_FILE, folder, _signed_key(kind.generate().private_bytes_raw(), where))
            content = read_file(_KEY_FILE, folder, _LONGEST_KEY)
        finally:
            os.close(folder)
        secret, proof = content[:_KEY_BYTES], content[_KEY_BYTES:]
        if is_signed(proof.decode("ascii", "replace"), _KIND, where, secret):
            return kind.from_private_bytes(secret)
    except (OSError, ValueError) as wrong:
        raise SettingsError(f"the key {where} cannot be used: {wrong}") from None
    raise SettingsError(
        f"the key {where} was not made here by your toolwire, so it signs nothing. Remove it to begin with a new one, "
        f"or if it is yours, run: toolwire trust {shlex.quote(real_path(home))}"
    )


def adopt_key(home: Path) -> None:
    """Take the key in this folder, if there is one, for the user's own from now on. Raises OSError, also for a link."""
    folder = os.open(home, FOLDER_FLAGS)
    try:
        if _is_there(folder):
            secret = read_file(_KEY_FILE, folder, _LONGEST_KEY)[:_KEY_BYTES]
            replace_file(_KEY_FILE, folder, _signed_key(secret, f"{real_path(home)}/{_KEY_FILE}"))
    finally:
        os.close(folder)


def _is_there(folder: int) -> bool:
    return _KEY_FILE in os.listdir(folder)


def _signed_key(secret: bytes, where: str) -> bytes:
    return secret + signature(_KIND, where, secret).encode()


def _ed25519() -> Any:
    try:
        return importlib.import_module(_ED25519)
    except ImportError:
        raise SettingsError(_NEEDS_EXTRA) from None


def _checkpoint(data: Any) -> Checkpoint:
    return Checkpoint(
        int(data["seq"]), str(data["head"]), float(data["at"]), str(data["key"]), str(data["signature"]),
        str(data.get("project", "")),
    )  # fmt: skip
