"""A message that is too large for a broker, in chunks; and chunks together again.

The whole message is signed before it is split, so a chunk needs no signature: the whole is believed or it is not. What
a foreign chunk can do is fill memory, so only so many messages of so many bytes are held. Where they are too many, the
topic that has the most loses its oldest: a device that floods costs itself, and no other one.
"""

import base64
import binascii
import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from toolwire.wire.mqtt.reading import FieldReader, parse_message
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage
from toolwire.wire.mqtt.reports import MAX_REPORT_BYTES
from toolwire.wire.utp.writing import json_bytes

CHUNK = "chunk"
_AROUND = 600
"""Bytes of a chunk's object besides its data, at most."""

_LEAST = 1_024
"""A chunk counts for at least so many bytes: what holds a small one takes memory, too."""

_MARK = b'{"chunk":'


class Chunk(Struct, frozen=True):
    """One of `count` pieces of a message whose SHA-256 is `digest`."""

    digest: str
    index: int
    count: int
    size: int
    data: bytes


def split_message(data: bytes, most: int) -> list[bytes]:
    """The message itself if it has at most `most` bytes, else chunks of it, none larger."""
    if len(data) <= most:
        return [data]
    step = max((most - _AROUND) // 4 * 3, 1)
    digest = hashlib.sha256(data).hexdigest()
    pieces = [data[start : start + step] for start in range(0, len(data), step)]
    about = {"digest": digest, "count": len(pieces), "size": len(data)}
    return [
        json_bytes({CHUNK: {**about, "index": index}, "data": base64.b64encode(piece).decode()})
        for index, piece in enumerate(pieces)
    ]


def is_chunk(data: bytes) -> bool:
    """Whether a payload says that it is a chunk. No other message begins like this."""
    return data.startswith(_MARK)


def read_chunk(data: bytes, most: int = MAX_REPORT_BYTES) -> Chunk | RefusedMessage:
    message = parse_message(data, most)
    if isinstance(message, RefusedMessage):
        return message
    outer = FieldReader(message)
    about = FieldReader(outer.object(CHUNK, required=True))
    chunk = Chunk(
        about.identifier("digest", required=True), about.count("index", required=True),
        about.count("count", required=True), about.count("size", required=True), _decoded(message, outer),
    )  # fmt: skip
    fault = outer.fault or about.fault
    if fault is None and (chunk.index >= chunk.count or not chunk.data or chunk.count > chunk.size):
        fault = RefusedMessage(
            RefusalCode.INVALID_FIELD, "index, count and size of the chunk contradict each other", CHUNK
        )
    if fault is None and chunk.size > most:
        fault = RefusedMessage(
            RefusalCode.TOO_LARGE, f"the message has {chunk.size} bytes; at most {most} are allowed", CHUNK
        )
    return fault or chunk


def _decoded(message: Mapping[str, Any], reader: FieldReader) -> bytes:
    value = message.get("data")
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    reader.refuse(RefusedMessage(RefusalCode.INVALID_FIELD, "data must be base64 text", "data"))
    return b""


class ChunkJoiner:
    """Puts chunks together, for each topic on its own. Chunks may come in any order and any number of times."""

    def __init__(self, *, most_bytes: int = MAX_REPORT_BYTES, most_messages: int = 64) -> None:
        self._most_bytes = most_bytes
        self._most_messages = most_messages
        self._open: dict[tuple[str, str], dict[int, Chunk]] = {}
        self._held: dict[str, int] = {}

    @property
    def held_bytes(self) -> int:
        return sum(self._held.values())

    def add(self, topic: str, chunk: Chunk) -> bytes | RefusedMessage | None:
        """The whole message when this was its last missing chunk; None while others are missing."""
        key = (topic, chunk.digest)
        pieces = self._open.setdefault(key, {})
        if chunk.index not in pieces:
            pieces[chunk.index] = chunk
            self._held[topic] = self._held.get(topic, 0) + _cost(chunk)
        first = next(iter(pieces.values()))
        if (first.count, first.size) != (chunk.count, chunk.size):
            self._drop(key)
            return RefusedMessage(RefusalCode.INVALID_FIELD, "chunks of one message contradict each other", CHUNK)
        if len(pieces) < chunk.count:
            return self._bounded(key)
        data = b"".join(pieces[index].data for index in range(chunk.count))
        self._drop(key)
        if len(data) != chunk.size or hashlib.sha256(data).hexdigest() != chunk.digest:
            return RefusedMessage(
                RefusalCode.DIGEST_MISMATCH, "the chunks do not make the message that they belong to", CHUNK
            )
        return data

    def _bounded(self, newest: tuple[str, str]) -> RefusedMessage | None:
        while len(self._open) > self._most_messages or self.held_bytes > self._most_bytes:
            many = len(self._open) > self._most_messages
            sizes = Counter(topic for topic, _ in self._open) if many else self._held
            fullest = max(sizes, key=sizes.__getitem__)
            oldest = next(key for key in self._open if key[0] == fullest)
            self._drop(oldest)
            if oldest == newest:
                return RefusedMessage(RefusalCode.TOO_LARGE, "too many bytes wait for their missing chunks", CHUNK)
        return None

    def _drop(self, key: tuple[str, str]) -> None:
        topic = key[0]
        left = self._held[topic] - sum(map(_cost, self._open.pop(key).values()))
        if left > 0:
            self._held[topic] = left
        else:
            del self._held[topic]


def _cost(chunk: Chunk) -> int:
    return max(len(chunk.data), _LEAST)
