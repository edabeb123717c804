"""Bytes of an answer as JSON and as the payloads of a stream, without waiting. Memory is bounded, time is linear."""

import json
from typing import Any

import orjson

DONE = b"[DONE]"


def read_json(data: bytes) -> Any:
    """The JSON value in these bytes. Raises ValueError when there is none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _patiently_read(data)


def _patiently_read(data: bytes) -> Any:
    """Servers cut streams inside a character written as two escapes; half of one is valid JSON, but not to orjson."""
    if b"\\u" not in data:
        raise ValueError("no JSON")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


_EVENT = (b"data:", b"event:", b"error:", b"id:", b"retry:", b":")


def is_event_stream(start: bytes) -> bool:
    """Whether an answer that begins like this is a stream of events, whatever its content type says."""
    return start.lstrip(b"\xef\xbb\xbf \r\n").startswith(_EVENT)


def is_json_lines(start: bytes) -> bool:
    """Whether an answer that begins like this has one JSON object on each line."""
    first, end, _ = start.lstrip().partition(b"\n")
    try:
        return bool(end) and isinstance(read_json(first), dict)
    except ValueError:
        return False


class LineTooLong(Exception):
    """A line went on for longer than we are willing to hold."""


class _Lines:
    """Cuts bytes into lines, whatever the pieces they come in."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes. Raises LineTooLong."""
        self._size += len(piece)
        self._held.append(piece)
        if b"\n" in piece:
            *lines, rest = b"".join(self._held).split(b"\n")
            self._held, self._size = [rest], len(rest)
            return [line.rstrip(b"\r") for line in lines]
        if self._size > self._longest:
            raise LineTooLong
        return []


class JsonLines:
    """The payloads of a stream with one JSON value on each line."""

    begins = staticmethod(is_json_lines)

    def __init__(self, longest: int) -> None:
        self._lines = _Lines(longest)

    def feed(self, piece: bytes) -> list[bytes]:
        """The payloads that this piece completes. Raises LineTooLong."""
        return [line for line in self._lines.feed(piece) if line.strip()]

    def finish(self) -> list[bytes]:
        """The payload that nothing ended."""
        return self.feed(b"\n")


class EventData:
    """The payloads of a stream of server-sent events; names, ids, comments and empty ones are left out.

    A field called `error` counts as data: llama.cpp reports failures in the middle of a stream that way.
    """

    begins = staticmethod(is_event_stream)

    def __init__(self, longest: int) -> None:
        self._lines = _Lines(longest)
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The payloads that this piece completes. Raises LineTooLong."""
        found: list[bytes] = []
        for line in self._lines.feed(piece):
            name, _, value = line.partition(b":")
            if name in (b"data", b"error"):
                self._data.append(value.removeprefix(b" "))
            elif not line and self._data:
                payload, self._data = b"\n".join(self._data), []
                found += [payload] if payload.strip() else []
        return found

    def finish(self) -> list[bytes]:
        """The payload that nothing ended."""
        return self.feed(b"\n\n")
