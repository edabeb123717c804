"""Tools that live in another process on this machine, called over a Unix socket.

Each call has a connection of its own. The caller sends the call; the service answers with progress, then with the
result, and closes. A caller that closes its side wants no more: the service cancels the tool and closes too. So the end
of the connection says that nothing of the call is at work any more, and one that ends without a result says that the
service has died.

A fleet of workers and devices speaks the same messages over a broker: `wire.travelling` has them.
"""

import asyncio
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from contextlib import suppress
from time import perf_counter
from typing import Any

from toolwire.execute.threads import Left
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Service, Tool
from toolwire.protocol.values import changed
from toolwire.wire.codecs.travelling import (
    LENGTH,
    BadFrame,
    length_of,
    pack,
    read_ended,
    read_tools,
    unpack,
    write_allowed,
)

MARGIN_S = 5.0
"""How much longer than its tool a service may take to say that the time is over."""

GRACE_S = 3.0
LARGE_BYTES = 1 << 20
_REPEATABLE = (Effect.PURE, Effect.IDEMPOTENT)


async def read_message(reader: StreamReader) -> dict[str, Any]:
    """The next message. Raises IncompleteReadError at the end, and BadFrame."""
    length = length_of(await reader.readexactly(LENGTH.size))
    body = await reader.readexactly(length)
    return unpack(body) if length < LARGE_BYTES else await asyncio.to_thread(unpack, body)


async def send_message(writer: StreamWriter, message: dict[str, Any], *, large: bool = False) -> None:
    """Raises OSError when the other side is gone."""
    writer.write(await asyncio.to_thread(pack, message) if large else pack(message))
    await writer.drain()


async def tools_of(address: str) -> tuple[Tool, ...]:
    """The tools of a service. Raises OSError when it cannot be reached, and BadFrame."""
    reader, writer = await asyncio.open_unix_connection(address)
    try:
        await send_message(writer, {"kind": "tools"})
        return read_tools(await read_message(reader), address)
    except IncompleteReadError:
        raise BadFrame(f"the service at {address} closed without an answer") from None
    finally:
        writer.close()


class ServiceExecutor:
    """Runs calls in the process where their tools live."""

    notes_begin = True

    def __init__(self, *, margin_s: float = MARGIN_S, grace_s: float = GRACE_S) -> None:
        self._margin_s = margin_s
        self._grace_s = grace_s
        self._left: dict[str, Left] = {}
        self._endings: set[asyncio.Task[None]] = set()

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        call, target, started = allowed.call, allowed.tool.target, perf_counter()
        if not isinstance(target, Service):
            return ToolResult.failed(call, Code.UNAVAILABLE, f"{call.name!r} does not live in a service.")
        try:
            reader, writer = await asyncio.open_unix_connection(target.address)
        except OSError as error:
            reason = f"the service at {target.address} cannot be reached ({error.strerror or error})"
            return ToolResult.failed(call, Code.UNAVAILABLE, f"{call.name!r} was not started: {reason}.")
        try:
            async with asyncio.timeout(allowed.timeout_s + self._margin_s):
                result = await self._ask(reader, writer, allowed, context)
        except TimeoutError:
            message = f"{call.name!r} did not finish within {allowed.timeout_s:g} s, and its service does not answer."
            result = ToolResult.failed(call, Code.TIMEOUT, message)
            self._leave(reader, writer, context)
        except (IncompleteReadError, OSError):
            result = _died(allowed)
            writer.close()
        except BadFrame as odd:
            message = f"The service of {call.name!r} sent an unexpected response: {odd}."
            result = ToolResult.failed(call, Code.INTERNAL_ERROR, message)
            writer.close()
        except BaseException:  # most often a cancellation, which is the caller's own word and passes through
            await self._stop(reader, writer, context)
            raise
        else:
            writer.close()
        return changed(result, elapsed_ms=(perf_counter() - started) * 1000)

    def leftover(self, key: str) -> Left | None:
        return self._left.get(key)

    async def close(self) -> None:
        for ending in list(self._endings):
            ending.cancel()
        await asyncio.gather(*self._endings, return_exceptions=True)

    async def _ask(self, reader: StreamReader, writer: StreamWriter, allowed: Allowed, context: Context) -> ToolResult:
        context.begins(context.turn_id, context.call_id)
        await send_message(writer, write_allowed(allowed, context.info))
        while True:
            message = await read_message(reader)
            match message:
                case {"kind": "progress", "message": str(words)}:
                    context.progress(words, message.get("fraction"))
                case {"kind": "result"}:
                    await asyncio.sleep(0)  # watchers hear of progress on the loop, before they hear of the end
                    result, told, wanted = read_ended(message)
                    context.told.extend(told)
                    if context.trial is not None:
                        context.trial.wanted = wanted
                    return changed(result, call_id=allowed.call.id, name=allowed.call.name)
                case {"kind": "refused", "message": str(words)}:
                    sentence = f"{allowed.call.name!r} was not started: {words}."
                    return ToolResult.failed(allowed.call, Code.UNAVAILABLE, sentence)
                case _:
                    raise BadFrame(f"a message of the kind {message.get('kind')!r:.40}")

    async def _stop(self, reader: StreamReader, writer: StreamWriter, context: Context) -> None:
        """Have the tool canceled, and wait a little for its end."""
        ending = self._leave(reader, writer, context)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace_s):
                await asyncio.shield(ending)

    def _leave(self, reader: StreamReader, writer: StreamWriter, context: Context) -> "asyncio.Task[None]":
        """Say that the result is not wanted any more. What the call touches is free when its service closes."""
        key, left = context.idempotency_key, Left()
        self._left[key] = left
        ending = asyncio.get_running_loop().create_task(_await_end(reader, writer), name="toolwire-service-end")
        self._endings.add(ending)

        def ended(task: "asyncio.Task[None]") -> None:
            self._endings.discard(task)
            self._left.pop(key, None)
            left.set_result(None)

        ending.add_done_callback(ended)
        return ending


async def _await_end(reader: StreamReader, writer: StreamWriter) -> None:
    try:
        with suppress(OSError):
            writer.write_eof()
            while await reader.read(LARGE_BYTES):
                pass  # progress, or a result that came too late
    finally:
        writer.close()


def _died(allowed: Allowed) -> ToolResult:
    name = allowed.call.name
    if allowed.tool.effect in _REPEATABLE:
        message = f"{name!r} failed: the process that ran it died. Nothing is left half done; it can be called again."
        return ToolResult.failed(allowed.call, Code.UNAVAILABLE, message)
    message = (
        f"{name!r} was started, but the process that ran it died before its result was known. It may or may not have "
        "taken effect, and it was not run again. Check before you repeat it."
    )
    return ToolResult.failed(allowed.call, Code.OUTCOME_UNKNOWN, message)
