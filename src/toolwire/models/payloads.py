"""Streamed bytes as the payloads of an answer, without waiting or reading. Memory is bounded, time is linear."""

DONE = b"[DONE]"


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

    def __init__(self, longest: int) -> None:
        self._lines = _Lines(longest)

    def feed(self, piece: bytes) -> list[bytes]:
        """The payloads that this piece completes. Raises LineTooLong."""
        return [line for line in self._lines.feed(piece) if line.strip()]

    def finish(self) -> list[bytes]:
        """The payload that nothing ended."""
        return self.feed(b"\n")


class EventData:
    """The payloads of a stream of server-sent events; names, ids and comments are left out.

    A field called `error` counts as data: llama.cpp reports failures in the middle of a stream that way.
    """

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
                found.append(b"\n".join(self._data))
                self._data = []
        return found

    def finish(self) -> list[bytes]:
        """The payload that nothing ended."""
        return self.feed(b"\n\n")
