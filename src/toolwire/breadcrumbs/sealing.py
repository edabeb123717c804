"""Secrets at rest: the context of a secret record, encrypted with a key that lies apart from the store.

The key is a file of the user (`records.key` in the user's state folder, or where `records.key_file` says), readable by
no one else. It has one key a line, the newest first: that one seals, and all of them open. To rotate, put a new line on
top; what is written from then on is sealed with it.

AES-SIV is deterministic: the same context of the same record is sealed the same way, so that a repeated request is
known as one. What is sealed is bound to project and record, and opens in no other place.
"""

import base64
import binascii
import errno
import hashlib
import hmac
import importlib
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from toolwire.errors import InvalidRecord, SettingsError
from toolwire.record.ownership import FOLDER_FLAGS, read_file, state_folder, write_once

KEY_FILE = "records.key"
LONGEST_SECRET = 64 * 1024
MOST_SIGNING = 4
_FORMAT = "aes-siv-1"
_KEY_BYTES = 64
_LONGEST_FILE = 16 * 1024
_AEAD = "cryptography.hazmat.primitives.ciphers.aead"
_NEEDS_EXTRA = "secret records need an extra: pip install 'toolwire[records]'"


class KeyFile:
    """The keys in a file. It is read each time: a key that was added counts at once."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_folder() / KEY_FILE

    def newest(self) -> bytes:
        """The key that seals, made where the file is missing. Raises `SettingsError`."""
        try:
            return self.all()[0]
        except FileNotFoundError:
            return self._make()

    def all(self) -> Sequence[bytes]:
        """All keys, the newest first. Raises FileNotFoundError without a file, and `SettingsError`."""
        try:
            content = read_file(self.path, None, _LONGEST_FILE, of_user=True)
        except FileNotFoundError:
            raise
        except OSError as wrong:
            raise SettingsError(f"the key of secret records {self.path} cannot be read: {wrong.strerror}") from None
        keys = [_key(line) for line in content.splitlines() if line.strip()]
        if not keys or any(key is None for key in keys):
            raise SettingsError(f"{self.path} does not hold keys of secret records, one a line; restore it from a copy")
        return [key for key in keys if key is not None]

    def _make(self) -> bytes:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self.path.parent, FOLDER_FLAGS)
            try:
                write_once(self.path.name, folder, base64.b64encode(secrets.token_bytes(_KEY_BYTES)) + b"\n")
            finally:
                os.close(folder)
            return self.all()[0]
        except OSError as wrong:
            why = wrong.strerror or errno.errorcode.get(wrong.errno or 0, "it cannot be written")
            raise SettingsError(
                f"no key for secret records can be kept in {self.path}: {why}; set records.key_file"
            ) from None


TOO_LARGE = f"the context of a secret has at most {LONGEST_SECRET} bytes as JSON, nested as records are; shorten it"


class Sealer:
    """Seals the contexts of one project's secrets, and opens them."""

    def __init__(self, keys: KeyFile, project: str) -> None:
        self._keys = keys
        self._project = project

    def seal(self, context: Mapping[str, Any], record_id: str) -> dict[str, Any]:
        """The context as it is kept. Raises `InvalidRecord` and `SettingsError`."""
        data = orjson.dumps(context)
        if len(data) > LONGEST_SECRET:
            # Not how many it has: who patches a secret would learn how long the rest of it is.
            raise InvalidRecord(TOO_LARGE)
        key = self._keys.newest()
        box = _aead().AESSIV(key).encrypt(data, self._bound_to(record_id))
        return {"sealed": _FORMAT, "key": _key_id(key), "box": base64.b64encode(box).decode()}

    def unseal(self, sealed: Mapping[str, Any], record_id: str) -> dict[str, Any]:
        """The context in the clear. Raises `SettingsError` where its key is missing, or it was changed."""
        key = self._key_of(sealed, record_id)
        aead = _aead()
        try:
            box = base64.b64decode(str(sealed["box"]), validate=True)
            opened: dict[str, Any] = orjson.loads(aead.AESSIV(key).decrypt(box, self._bound_to(record_id)))
        except Exception:  # whatever is wrong with a box, it is not the one that was sealed
            raise SettingsError(
                f"the secret of record {record_id} was changed in the store or belongs to another record; write it anew"
            ) from None
        return opened

    def signing_keys(self, record_id: str) -> list[str]:
        """What messages about a record are signed with, one for each key in the file, the newest first.

        They follow from the keys and are kept nowhere; from one of them neither those nor another one can be found.
        """
        self._keys.newest()
        bound = b"\0".join((b"toolwire webhook", self._project.encode(), record_id.encode()))
        return [f"whsec_{hmac.new(key, bound, hashlib.sha256).hexdigest()}" for key in self._keys.all()[:MOST_SIGNING]]

    def _key_of(self, sealed: Mapping[str, Any], record_id: str) -> bytes:
        wanted = sealed.get("key")
        if sealed.get("sealed") != _FORMAT or not isinstance(wanted, str):
            raise SettingsError(f"the secret of record {record_id} is sealed in a way that this version does not know")
        try:
            keys = self._keys.all()
        except FileNotFoundError:
            keys = ()
        for key in keys:
            if _key_id(key) == wanted:
                return key
        raise SettingsError(
            f"the secret of record {record_id} is sealed with key {wanted[:16]}, which is not in {self._keys.path}; "
            "restore that file, or write the secret anew"
        )

    def _bound_to(self, record_id: str) -> list[bytes]:
        return [b"toolwire secret record", self._project.encode(), record_id.encode()]


def _key(line: bytes) -> bytes | None:
    try:
        key = base64.b64decode(line.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == _KEY_BYTES else None


def _key_id(key: bytes) -> str:
    return hashlib.sha256(b"toolwire records key" + key).hexdigest()[:16]


def _aead() -> Any:
    try:
        return importlib.import_module(_AEAD)
    except ImportError:
        raise SettingsError(_NEEDS_EXTRA) from None
