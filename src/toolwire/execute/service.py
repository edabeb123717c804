"""Tools that live in another process on this machine, called over a Unix socket.

Each call has a connection of its own. Both sides say hello first; until then nothing has begun. The caller sends the
call; the service answers with progress, asks for what only the caller knows, gives the result and closes. A caller that
closes its side wants no more: the service cancels the tool and closes too. So the end of the connection says that
nothing of the call is at work any more, and one that ends without a result says that the service has died.

One more connection to each service hears what tools tell after their calls.

A fleet of workers and devices speaks the same messages over a broker: `wire.codecs.travelling` has them.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter
from uuid import uuid4

from msgspec.structs import replace

from toolwire.errors import ToolwireError
from toolwire.execute.channel import HELLO_S, Disconnected, Json, SocketChannel
from toolwire.execute.endings import Endings
from toolwire.execute.threads import Left
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context, Recorder
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import REPEATABLE, Service, Tool
from toolwire.wire.codecs.travelling import (
    BadFrame,
    hello_fault,
    read_ended,
    read_late,
    read_tools,
    write_allowed,
    write_hello,
    write_marks,
)

MARGIN_S = 5.0
"""How much longer than its tool a service may take to say that the time is over."""

GRACE_S = 3.0
_log = logging.getLogger(__name__)


class ServiceUnavailable(ConnectionError):
    """A service cannot be used; nothing was sent to it that it could run."""


async def connect(address: str, token: str = "", hello_s: float = HELLO_S) -> SocketChannel:
    """A connection to a service that has said hello. Raises ServiceUnavailable."""
    try:
        channel = SocketChannel(*await asyncio.open_unix_connection(address))
    except OSError as error:
        raise ServiceUnavailable(f"the service at {address} cannot be reached ({error.strerror or error})") from None
    try:
        # Asked before the token and the call are sent: a socket in a shared folder may be anybody's.
        if channel.foreign_user is not None:
            raise ServiceUnavailable(f"the socket {address} belongs to another user ({channel.foreign_user})")
        await channel.send(write_hello(token))
        fault = hello_fault(await channel.receive_hello(hello_s))
        if fault:
            raise ServiceUnavailable(f"the service at {address} refused: {fault}")
    except BadFrame as odd:
        channel.abort()
        raise ServiceUnavailable(f"what listens at {address} is not a toolwire service ({odd})") from None
    except Disconnected:
        channel.abort()
        raise ServiceUnavailable(f"what listens at {address} closed the connection without a hello") from None
    except TimeoutError:
        channel.abort()
        raise ServiceUnavailable(f"what listens at {address} does not answer") from None
    except BaseException:
        channel.abort()
        raise
    return channel


async def tools_of(address: str, token: str = "", within_s: float = HELLO_S) -> tuple[Tool, ...]:
    """The tools of a service. Raises ServiceUnavailable."""
    channel = await connect(address, token, within_s)
    try:
        async with asyncio.timeout(within_s):
            await channel.send({"kind": "tools"})
            return read_tools(await channel.receive(), address)
    except TimeoutError:
        raise ServiceUnavailable(f"the service at {address} does not say which tools it has") from None
    except Disconnected:
        raise ServiceUnavailable(f"the service at {address} closed without an answer") from None
    except BadFrame as odd:
        raise ServiceUnavailable(f"the service at {address} sent an unexpected response: {odd}") from None
    finally:
        channel.close()


_described: dict[str, tuple[tuple[int, int, int], tuple[Tool, ...]]] = {}


def tools_at(address: str, token: str = "") -> tuple[Tool, ...]:
    """The same for callers that cannot wait, asked once of each service that listens there; one that is started anew
    has a new socket. Raises ServiceUnavailable.
    """
    try:
        status = os.stat(address)  # noqa: PTH116 - a path may be any text
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServiceUnavailable(f"the service at {address} cannot be reached ({why})") from None
    identity = (status.st_dev, status.st_ino, status.st_ctime_ns)
    known = _described.get(address)
    if known is not None and known[0] == identity:
        return known[1]
    with ThreadPoolExecutor(1) as thread:  # a loop may be running in this one
        tools = thread.submit(asyncio.run, tools_of(address, token)).result()
    _described[address] = (identity, tools)
    return tools


class ServiceExecutor:
    """Runs calls in the process where their tools live. `tokens` are those of services that want one, by address."""

    notes_begin = True

    def __init__(
        self,
        tokens: Mapping[str, str] | None = None,
        *,
        margin_s: float = MARGIN_S,
        grace_s: float = GRACE_S,
        hello_s: float = HELLO_S,
    ) -> None:
        self._tokens = tokens or {}
        self._hello_s = hello_s
        self._margin_s = margin_s
        self._grace_s = grace_s
        self._name = uuid4().hex
        self._endings = Endings("toolwire-service-end")
        self._recorders: dict[str, Recorder] = {}
        self._listening: dict[str, asyncio.Task[None]] = {}

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        call, target, started = allowed.call, allowed.tool.target, perf_counter()
        if not isinstance(target, Service):
            return ToolResult.failed(call, Code.UNAVAILABLE, f"{call.name!r} does not live in a service.")
        try:
            await self._listen(target.address, context)
            channel = await self._connect(target.address)
        except ServiceUnavailable as reason:
            return ToolResult.failed(call, Code.UNAVAILABLE, f"{call.name!r} was not started: {reason}.")
        try:
            async with asyncio.timeout(allowed.timeout_s + self._margin_s):
                result = await self._ask(channel, allowed, context)
        except TimeoutError:
            message = f"{call.name!r} did not finish within {allowed.timeout_s:g} s, and its service does not answer."
            result = ToolResult.failed(call, Code.TIMEOUT, message)
            self._leave(channel, context)
        except Disconnected:
            result = _lost(allowed, "the process that ran it died")
            channel.close()
        except BadFrame as odd:
            result = _lost(allowed, f"its service sent an unexpected response ({odd})")
            channel.close()
        except BaseException:  # most often a cancellation, which is the caller's own word and passes through
            await self._stop(channel, context)
            raise
        else:
            channel.close()
        return replace(result, elapsed_ms=(perf_counter() - started) * 1000)

    def leftover(self, key: str) -> Left | None:
        return self._endings.leftover(key)

    async def close(self) -> None:
        tasks = [*self._endings.tasks, *self._listening.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self, address: str) -> SocketChannel:
        return await connect(address, self._tokens.get(address, ""), self._hello_s)

    async def _ask(self, channel: SocketChannel, allowed: Allowed, context: Context) -> ToolResult:
        context.begins(context.turn_id, context.call_id)
        await channel.send(write_allowed(allowed, context.info, self._name))
        while True:
            message = await channel.receive()
            match message:
                case {"kind": "progress", "message": str(words)}:
                    context.progress(words, message.get("fraction"))
                case {"kind": "output", "text": str(text), "stream": str(stream)}:
                    context.output(text, stream)
                case {"kind": "marks"}:
                    marks = await context.recorder.marks(context.project)
                    await channel.send({**write_marks(marks), "number": message.get("number")})
                case {"kind": "late"}:
                    await _record_late(channel, message, context.recorder, context.project)
                case {"kind": "result"}:
                    await asyncio.sleep(0)  # watchers hear of progress on the loop, before they hear of the end
                    result, told, wanted = read_ended(message)
                    context.told.extend(told)
                    if context.trial is not None:
                        context.trial.wanted = wanted
                    return replace(result, call_id=allowed.call.id, name=allowed.call.name)
                case {"kind": "refused", "message": str(words)}:
                    sentence = f"{allowed.call.name!r} was not started: {words}."
                    return ToolResult.failed(allowed.call, Code.UNAVAILABLE, sentence)
                case _:
                    raise BadFrame(f"a message of the kind {message.get('kind')!r:.40}")

    # What tools tell after their calls

    async def _listen(self, address: str, context: Context) -> None:
        """Hear from now on what tools of a service tell after their calls. Raises ServiceUnavailable."""
        self._recorders[context.project] = context.recorder
        if address in self._listening:
            return
        channel = await self._connect(address)
        if address in self._listening:  # a call of the same moment was faster
            channel.close()
            return
        task = asyncio.get_running_loop().create_task(self._hear(channel), name="toolwire-service-notes")
        self._listening[address] = task
        task.add_done_callback(lambda _: self._listening.pop(address, None))

    async def _hear(self, channel: SocketChannel) -> None:
        """Put on record what tools tell after their calls. The next call connects anew where the service has died."""
        try:
            await channel.send({"kind": "listen", "caller": self._name})
            while True:
                match await channel.receive():
                    case {"kind": "late", "info": {"project": str(project)}} as message if project in self._recorders:
                        await _record_late(channel, message, self._recorders[project], project)
        except (Disconnected, BadFrame):
            pass
        finally:
            channel.close()

    # Calls that are given up

    async def _stop(self, channel: SocketChannel, context: Context) -> None:
        """Have the tool canceled, and wait a little for its end."""
        ending = self._leave(channel, context)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace_s):
                await asyncio.shield(ending)

    def _leave(self, channel: SocketChannel, context: Context) -> "asyncio.Task[None]":
        """Say that the result is not wanted any more. What the call touches is free when its service closes."""
        return self._endings.wait_for(context.idempotency_key, channel.wait_for_end())


async def _record_late(channel: SocketChannel, message: Json, recorder: Recorder, project: str) -> None:
    """Put a late note on record, and say whether it is. A note of another project is not ours to keep."""
    note, kind = read_late(message), "kept"
    if note.info.project != project:
        raise BadFrame(f"a note of project {note.info.project!r:.40}")
    try:
        await recorder.record_told(replace(Context.of(note.info), told=list(note.told)), note.tool)
    except ToolwireError as error:
        kind = "not_kept"
        _log.warning("what %s told after its call is not on record yet: %s", note.tool, error)
    await channel.send({"kind": kind, "number": message.get("number")})


def _lost(allowed: Allowed, reason: str) -> ToolResult:
    """The result of a call that was delivered, and whose own result never came."""
    name = allowed.call.name
    if allowed.tool.effect in REPEATABLE:
        message = f"{name!r} failed: {reason}. Nothing is left half done; it can be called again."
        return ToolResult.failed(allowed.call, Code.UNAVAILABLE, message)
    message = (
        f"{name!r} was started, but {reason} before its result was known. It may or may not have "
        "taken effect, and it was not run again. Check before you repeat it."
    )
    return ToolResult.failed(allowed.call, Code.OUTCOME_UNKNOWN, message)
