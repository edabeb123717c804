"""The W3C trace context: to which trace a turn or a call belongs, and which span is above it.

It travels as text (`traceparent`, `tracestate`) through requests, records and messages, whether or not a process along
the way makes spans itself: one that does not passes on what it got.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_VERSION_00 = 55  # characters; only a later version may have more fields
_STATE = re.compile(r"[ -~]{1,512}")


class TraceContext(Struct, frozen=True):
    """A span of any process, as the one above those that are made next. Without a `traceparent` there is none."""

    traceparent: str = ""
    tracestate: str = ""

    def __bool__(self) -> bool:
        return bool(self.traceparent)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request or message that say it."""
        said = {"traceparent": self.traceparent, "tracestate": self.tracestate if self.traceparent else ""}
        return {name: value for name, value in said.items() if value}


NO_TRACE = TraceContext()


def read_trace(headers: Mapping[str, Any]) -> TraceContext:
    """What headers (names in lower case) say; nothing where they are malformed, as the standard has it."""
    parent, state = headers.get("traceparent"), headers.get("tracestate")
    if not isinstance(parent, str) or not _PARENT.match(parent):
        return NO_TRACE
    is_longer = len(parent) > _VERSION_00
    if is_longer and (parent.startswith("00") or parent[_VERSION_00] != "-"):
        return NO_TRACE
    kept = state if isinstance(state, str) and _STATE.fullmatch(state) else ""
    return TraceContext(f"00{parent[2:_VERSION_00]}", kept)
