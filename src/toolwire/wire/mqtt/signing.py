"""What is signed in a message, and how the signature travels: as one more field of the object.

Signed are the topic and the canonical JSON (RFC 8785) of the message without its field `signature`. With the topic, a
message is good for one agent under one prefix only.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from toolwire.wire.mqtt.reading import parse_message, readable_id
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage
from toolwire.wire.utp.writing import json_bytes

SIGNATURE = "signature"
Canonical = Callable[[Any], bytes]
_PURPOSE = b"toolwire mqtt 1\n"


class Signer(Protocol):
    """A private key, known to the other side by its id."""

    @property
    def key_id(self) -> str: ...

    def sign(self, data: bytes) -> bytes: ...


class Verifier(Protocol):
    """The public keys whose messages are accepted."""

    def verify(self, key_id: str, data: bytes, signature: bytes) -> bool | None:
        """Whether the key signed it; None for a key that is not known. Never raises."""
        ...


class Opened(Struct, frozen=True):
    """The object of a message. `key_id` names the key that signed it; empty where none did."""

    topic: str
    data: Mapping[str, Any]
    key_id: str


def signing_input(topic: str, message: Mapping[str, Any], canonical: Canonical) -> bytes:
    return b"%b%b\n%b" % (_PURPOSE, topic.encode(), canonical(message))


def seal(topic: str, message: dict[str, Any], signer: Signer | None, canonical: Canonical) -> bytes:
    """The bytes of a message, signed where there is a key. Raises TypeError for what is not JSON."""
    if signer is None:
        return json_bytes(message)
    value = base64.b64encode(signer.sign(signing_input(topic, message, canonical))).decode()
    return json_bytes({**message, SIGNATURE: {"key": signer.key_id, "value": value}})


def open_message(
    topic: str, data: bytes, verifier: Verifier | None, canonical: Canonical, *, most: int, unsigned: bool = False
) -> Opened | RefusedMessage:
    """The object that a payload is, if a known key has signed it. `unsigned` accepts one without a signature, too.

    Without a verifier nothing is checked. A signature that is there must be right in any case.
    """
    message = parse_message(data, most)
    if isinstance(message, RefusedMessage):
        return message
    signature = message.pop(SIGNATURE, None)
    if verifier is None:
        return Opened(topic, message, "")
    if signature is None and unsigned:
        return Opened(topic, message, "")
    refusal = _signature_fault(topic, message, signature, verifier, canonical)
    if refusal is None:
        return Opened(topic, message, signature["key"])
    code, why = refusal
    known = readable_id(message, "request_id"), readable_id(message, "agent_id")
    return RefusedMessage(code, why, SIGNATURE, *known)


def _signature_fault(
    topic: str, message: Mapping[str, Any], signature: Any, verifier: Verifier, canonical: Canonical
) -> tuple[RefusalCode, str] | None:
    match signature:
        case None:
            return RefusalCode.UNSIGNED, "the message is not signed; sign it with a key that is accepted here"
        case {"key": str(key_id), "value": str(value)}:
            try:
                raw = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                return RefusalCode.BAD_SIGNATURE, "the signature is not base64"
        case _:
            return RefusalCode.BAD_SIGNATURE, "the signature must be an object with the texts key and value"
    verdict = verifier.verify(key_id, signing_input(topic, message, canonical), raw)
    if verdict is None:
        return RefusalCode.UNKNOWN_KEY, f"the key {key_id[:80]!r} is not accepted here"
    return None if verdict else (RefusalCode.BAD_SIGNATURE, "the signature does not fit the message and its topic")
