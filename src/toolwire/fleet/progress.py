"""How far calls in workers have come, for those who watch their turns. It is streamed, not kept, and may get lost."""

import math
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from toolwire.bus.contract import Bus
from toolwire.fleet.parcels import agent_token
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.records import CallCard
from toolwire.protocol.subjects import ROOT, VERSION, BadSubject, Category, Subject
from toolwire.wire.utp.reading import read_object
from toolwire.wire.utp.violations import Violation
from toolwire.wire.utp.writing import json_bytes

NAME = "progress"
LONGEST = 1_000
LONGEST_OUTPUT = 4 * 1024
MOST_BYTES = 32 * 1024


class Progress(Struct, frozen=True):
    """What a tool has said about a call: `fraction` runs from 0 to 1. With a `stream`, it is a piece of its output."""

    turn_id: str
    call_id: str
    message: str
    fraction: float | None
    stream: str = ""


def output_message(card: CallCard, channel: str, text: str, stream: str) -> BusMessage:
    """Raises BadSubject."""
    said = {"agent_turn_id": card.turn_id, "tool_call_id": card.call.id, "output": text[:LONGEST_OUTPUT]}
    subject = Subject.stream(card.project, channel, agent_token(card.agent), NAME)
    return BusMessage(str(subject), json_bytes({**said, "stream": stream}))


def progress_message(card: CallCard, channel: str, message: str, fraction: float | None) -> BusMessage:
    """Raises BadSubject."""
    said: dict[str, Any] = {"agent_turn_id": card.turn_id, "tool_call_id": card.call.id, "message": message[:LONGEST]}
    if fraction is not None and math.isfinite(fraction):
        said["fraction"] = min(max(fraction, 0.0), 1.0)
    return BusMessage(str(Subject.stream(card.project, channel, agent_token(card.agent), NAME)), json_bytes(said))


def read_progress(message: BusMessage, project: str) -> Progress | None:
    """What a message says; None for one that says nothing about a call of this project (`*`: of any)."""
    try:
        subject = Subject.parse(message.subject)
    except BadSubject:
        return None
    said = read_object(message.data, MOST_BYTES, "progress")
    if isinstance(said, Violation) or subject.category is not Category.STREAM or project not in ("*", subject.project):
        return None
    match said:
        case {"agent_turn_id": str(turn_id), "tool_call_id": str(call_id), "output": str(text), "stream": str(stream)}:
            named = "stderr" if stream == "stderr" else "stdout"
            return Progress(turn_id, call_id, text[:LONGEST_OUTPUT], None, named)
        case {"agent_turn_id": str(turn_id), "tool_call_id": str(call_id), "message": str(words)}:
            fraction = said.get("fraction")
            if not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
                fraction = None
            return Progress(turn_id, call_id, words[:LONGEST], fraction)
    return None


async def hear_progress(bus: Bus, project: str, tell: Callable[[Progress], None]) -> None:
    """Tell of the calls of a project, until canceled."""
    async with (
        bus.listen(f"{ROOT}.{VERSION}.{project}.*.{Category.STREAM.value}.agent.*.{NAME}") as messages,
        aclosing(messages),  # type: ignore[type-var]
    ):
        async for message in messages:
            if (progress := read_progress(message, project)) is not None:
                tell(progress)
