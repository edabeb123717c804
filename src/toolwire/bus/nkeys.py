"""Keys with which a process logs in to a NATS server (nkeys): the server knows only the public half.

A seed and a public key are texts: a prefix for their kind, 32 bytes of Ed25519 and a checksum, in base 32. Only keys of
users are read and made here.
"""

import base64
import binascii
import re

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from toolwire.errors import SettingsError

_SEED, _USER = 18 << 3, 20 << 3
_SEED_PREFIX = bytes([_SEED | _USER >> 5, (_USER & 31) << 3])
_SEED_TEXT = re.compile(r"\bSU[A-Z2-7]{56}\b")
_JWT_TEXT = re.compile(r"BEGIN NATS USER JWT-+\s+(ey[\w.=-]+)\s")
_PADDING = "======"


class UserKey(Struct, frozen=True):
    """The key of a user. `jwt` is what an operator signed about the user, where servers read users from such texts."""

    private: Ed25519PrivateKey
    jwt: str = ""

    @classmethod
    def new(cls) -> "UserKey":
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def parse(cls, text: str) -> "UserKey":
        """Read a seed, or the seed and the JWT of a credentials file. Raises SettingsError, without the text."""
        found = _SEED_TEXT.search(text)
        raw = base64.b32decode(found[0] + _PADDING) if found else b""
        if not found or raw[:2] != _SEED_PREFIX or _checksum(raw[:-2]) != raw[-2:]:
            raise SettingsError("holds no key of a NATS user; such a key begins with SU and has 58 characters")
        jwt = _JWT_TEXT.search(text)
        return cls(Ed25519PrivateKey.from_private_bytes(raw[2:-2]), jwt[1] if jwt else "")

    @property
    def seed(self) -> str:
        """The secret half as text."""
        return _encoded(_SEED_PREFIX + self.private.private_bytes_raw())

    @property
    def public(self) -> str:
        return _encoded(bytes([_USER]) + self.private.public_key().public_bytes_raw())

    def sign(self, nonce: str) -> bytes:
        """What a server wants to see for the text that it sent, in base 64."""
        return base64.b64encode(self.private.sign(nonce.encode()))


def _encoded(raw: bytes) -> str:
    return base64.b32encode(raw + _checksum(raw)).decode().rstrip("=")


def _checksum(raw: bytes) -> bytes:
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")
