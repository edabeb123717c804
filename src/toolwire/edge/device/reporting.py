"""Sends what an agent has to say: signed, in chunks where it is large, and reports again until the broker has them."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from toolwire.define.canonical import canonical
from toolwire.deliver.size import trim_result, whole
from toolwire.edge.device.journal import CallJournal, JournalRow
from toolwire.edge.link_contract import Link
from toolwire.errors import BusError, BusUnavailable, StoreUnavailable
from toolwire.protocol.calls import ToolResult
from toolwire.wire.mqtt.chunks import split_message
from toolwire.wire.mqtt.commands import EdgeCommand, read_stored_command, write_command
from toolwire.wire.mqtt.reports import (
    AgentMessage,
    EdgeProgress,
    EdgeReport,
    ProgressKind,
    channel_of,
    encode_agent_message,
    report_to,
)
from toolwire.wire.mqtt.results import write_tool_result
from toolwire.wire.mqtt.signing import Signer
from toolwire.wire.mqtt.topics import Topics
from toolwire.wire.utp.writing import json_bytes

_SHOWN_CHARS = 16_000
_FLUSH_S = 1.0
_PROGRESS_PAUSE_S = 0.1
_LONGEST_PROGRESS = 2_000
_ALWAYS_FITS = 8 * 1024
"""Bytes of a message that every broker takes."""


class Reporter:
    """Publishes for one agent."""

    def __init__(
        self,
        link: Link,
        journal: CallJournal,
        topics: Topics,
        signer: Signer,
        *,
        max_message_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._link = link
        self._journal = journal
        self._topics = topics
        self._signer = signer
        self.most_bytes = max_message_bytes
        self._clock = clock

    def encode(self, message: AgentMessage) -> tuple[str, bytes]:
        topic = self._topics.of(message.agent_id, channel_of(message))
        return topic, encode_agent_message(message, self._topics, self._signer, canonical)

    async def publish(self, message: AgentMessage, *, retain: bool = False) -> None:
        """Raises BusError."""
        topic, data = self.encode(message)
        for piece in split_message(data, self.most_bytes) if isinstance(message, EdgeReport) else [data]:
            try:
                await self._link.publish(topic, piece, retain=retain)
            except (BusUnavailable, asyncio.CancelledError):  # with a connection, what was sent as it began is canceled
                if len(piece) > _ALWAYS_FITS:
                    # A broker with a lower limit ends the connection over it, and would again and again.
                    self.most_bytes = max(min(self.most_bytes, len(piece)) // 2, _ALWAYS_FITS)
                raise

    async def answer(self, command: EdgeCommand, body: Mapping[str, Any]) -> None:
        """Report what is not kept; it can be asked for again."""
        with suppress(BusError):
            await self.publish(report_to(command, body, self._clock()))

    async def deliver(self, row: JournalRow) -> None:
        """Report how a call has ended. Without a connection it stays to be delivered."""
        command = read_stored_command(row.command)
        assert row.body is not None
        try:
            await self.publish(report_to(command, orjson.loads(row.body), self._clock()))
        except BusUnavailable:
            return
        with suppress(StoreUnavailable):  # then it is delivered once more
            await self._journal.set_delivered(row.key)

    async def deliver_all(self) -> None:
        """Report every call whose report the broker may not have."""
        for row in await self._journal.undelivered():
            await self.deliver(row)


class ProgressSender:
    """Tells how far one call is. A tool may report as often as it likes: the newest word is sent, at a steady pace."""

    def __init__(self, reporter: Reporter, newest: Callable[[], EdgeCommand]) -> None:
        self._reporter = reporter
        self._newest = newest
        self._loop = asyncio.get_running_loop()
        self._seq = 0
        self._word: tuple[str, float | None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._pieces: list[asyncio.Task[None]] = []

    def report(self, message: str, fraction: float | None) -> None:
        """May be called from any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._take, message[:_LONGEST_PROGRESS], fraction)

    def write(self, text: str, stream: str, _offset: int) -> None:
        """Send a piece of output, after those that came before it."""
        before = self._pieces[-1] if self._pieces else None
        task = self._loop.create_task(self._send_piece(before, text, stream), name="toolwire-edge-output")
        self._pieces.append(task)
        task.add_done_callback(self._pieces.remove)

    async def _send_piece(self, before: "asyncio.Task[None] | None", text: str, stream: str) -> None:
        if before is not None:
            await asyncio.wait((before,))
        await self._send(ProgressKind.OUTPUT, text, None, stream)

    async def flush(self) -> None:
        """Wait a little until output and the newest word are sent: what comes after the report is not heard."""
        await asyncio.sleep(0)  # words of other threads come by the loop
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                if self._word is not None:
                    (message, fraction), self._word = self._word, None
                    await self._send(ProgressKind.PROGRESS, message, fraction)
                if self._pieces:
                    await asyncio.wait(list(self._pieces))

    async def accepted(self) -> None:
        """Say that the call is there and has not ended."""
        await self._send(ProgressKind.ACCEPTED, "", None)

    def close(self) -> None:
        for task in (*([self._task] if self._task is not None else []), *self._pieces):
            task.cancel()

    def _take(self, message: str, fraction: float | None) -> None:
        self._word = message, fraction
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._send_words(), name="toolwire-edge-progress")

    async def _send_words(self) -> None:
        while self._word is not None:
            (message, fraction), self._word = self._word, None
            await self._send(ProgressKind.PROGRESS, message, fraction)
            await asyncio.sleep(_PROGRESS_PAUSE_S)

    async def _send(self, kind: ProgressKind, text: str, fraction: float | None, stream: str = "") -> None:
        self._seq += 1
        command = self._newest()
        message = EdgeProgress(
            command.request_id, command.agent_id, self._seq, kind, command.record_id, command.epoch, text, fraction,
            stream,
        )  # fmt: skip
        with suppress(BusError):
            await self._reporter.publish(message)


async def body_of(result: ToolResult, journal: CallJournal, inline_bytes: int, kept_until: float) -> bytes:
    """The body of a report. What is too large for it is kept as an artifact, which `fetch` reads piece by piece."""
    body = await asyncio.to_thread(write_tool_result, result) if len(result.content) > 1 else write_tool_result(result)
    data = json_bytes(body)
    if len(data) <= inline_bytes:
        return data
    raw = data if not result.text else whole(result)
    name = hashlib.sha256(raw).hexdigest()
    try:
        await journal.keep_artifact(name, raw, kept_until)
    except StoreUnavailable:  # a full disk costs the whole, not the result
        return json_bytes(write_tool_result(trim_result(result, _SHOWN_CHARS, None, raw)))
    shown = write_tool_result(trim_result(result, min(_SHOWN_CHARS, inline_bytes // 2), name, raw))
    return json_bytes({**shown, "artifact": {"id": name, "size": len(raw), "sha256": name}})


def stored_command(command: EdgeCommand) -> bytes:
    """What of a command is needed to report about it, and to run it again where that does no harm."""
    return json_bytes(write_command(command) | ({"key_id": command.key_id} if command.key_id else {}))
