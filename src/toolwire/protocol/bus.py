"""What a bus carries, and what happens after a tool has run."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from toolwire.protocol.values import dataclass, quick


class AfterExecution(StrEnum):
    """What a turn does about a call: wait for its result and go on, end with its result, or not wait for it."""

    SUSPEND = "suspend"
    TERMINATE = "terminate"
    DETACH = "detach"


@quick
@dataclass(frozen=True, slots=True)
class BusMessage:
    """One message. It is a doorbell: what it is about is in the store, and losing it only delays."""

    subject: str
    data: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
