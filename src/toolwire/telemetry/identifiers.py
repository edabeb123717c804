"""Trace and span ids, computed from the ids of turns and calls.

A turn may begin in one process, wait, and end in another. All of them must name the same span as the one above their
own, and the process that began the turn may be dead by the time its span is made. So ids are not drawn by chance and
passed on: they follow from what the record has anyway.
"""

from contextlib import suppress
from hashlib import sha256
from uuid import UUID


def trace_id(turn_id: str) -> int:
    """The trace of a turn that nothing asked for: the turn's id itself, where it is a UUID."""
    with suppress(ValueError):
        if number := UUID(turn_id).int:
            return number
    return _digest(16, "trace", turn_id)


def turn_span_id(turn_id: str) -> int:
    return _digest(8, "turn", turn_id)


def chat_span_id(turn_id: str, epoch: int, iteration: int) -> int:
    return _digest(8, "chat", turn_id, str(epoch), str(iteration))


def call_span_id(turn_id: str, epoch: int, call_id: str) -> int:
    """A call that a process left is run again under a later epoch of its turn, which is another span."""
    return _digest(8, "call", turn_id, str(epoch), call_id)


def _digest(size: int, *parts: str) -> int:
    whole = sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(whole[:size], "big") or 1
