"""What a bus carries, and what happens after a tool has run."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field


class AfterExecution(StrEnum):
    """What a turn does about a call: wait for its result and go on, end with its result, or not wait for it."""

    SUSPEND = "suspend"
    TERMINATE = "terminate"
    DETACH = "detach"


CONTROL = "__cg_control"
"""Where a result may say what its turn does next; heeded only for tools that declare it."""


def control_of(result: Any) -> AfterExecution | None:
    """What a result itself says should happen next, where that is one of the known values."""
    control = result.get(CONTROL) if isinstance(result, Mapping) else None
    value = control.get("after_execution") if isinstance(control, Mapping) else None
    return AfterExecution(value) if isinstance(value, str) and value in list(AfterExecution) else None


def effective_action(
    override: AfterExecution | None, reported: AfterExecution | None, registered: AfterExecution
) -> AfterExecution:
    """What a turn does about a call: as its result says, else as was reported with it, else as was agreed before."""
    return override or reported or registered


class BusMessage(Struct, frozen=True):
    """One message. It is a doorbell: what it is about is in the store, and losing it only delays."""

    subject: str
    data: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
