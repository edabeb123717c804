"""The other end of `service`: runs the tools of this process for callers on a Unix socket.

Secrets are put in place here, where the tools live, and taken out of results before those leave. The socket is for the
user who made it: others cannot connect.
"""

import asyncio
import os
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from toolwire.errors import Suspended
from toolwire.execute.contract import Executor
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.service import LARGE_BYTES, read_message, send_message
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool
from toolwire.protocol.values import changed
from toolwire.wire.codecs.travelling import BadFrame, pack, read_allowed, write_ended, write_tool

_OWNER_ONLY = 0o177


class ServiceHost:
    """Serves tools. `reveal` puts secrets into a call and may raise to refuse it; `scrub` takes them out of results."""

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        executor: Executor | None = None,
        reveal: Callable[[Allowed], Allowed] | None = None,
        scrub: Callable[[ToolResult], ToolResult] | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._executor = executor or InProcessExecutor()
        self._reveal = reveal
        self._scrub = scrub

    @asynccontextmanager
    async def listening(self, address: str) -> AsyncIterator[None]:
        """Serve at this path until the block ends. Raises OSError."""
        before = os.umask(_OWNER_ONLY)
        try:
            server = await asyncio.start_unix_server(self._connected, address)
        finally:
            os.umask(before)
        try:
            async with server:
                yield
        finally:
            with suppress(FileNotFoundError):
                os.unlink(address)  # noqa: PTH108 - a path may be any text
            await self._executor.close()

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            with suppress(OSError, IncompleteReadError, BadFrame):  # the caller is gone, or is not one of ours
                match await read_message(reader):
                    case {"kind": "tools"}:
                        listed = list(map(write_tool, self._tools.values()))
                        await send_message(writer, {"kind": "tools", "tools": listed})
                    case {"kind": "call"} as message:
                        await self._called(message, reader, writer)
        finally:
            writer.close()

    async def _called(self, message: dict[str, Any], reader: StreamReader, writer: StreamWriter) -> None:
        try:
            allowed, info = read_allowed(message, self._tools)
        except BadFrame as odd:
            return await send_message(writer, {"kind": "refused", "message": str(odd)})
        loop = asyncio.get_running_loop()

        def report(words: str, fraction: float | None) -> None:
            progress: dict[str, Any] = {"kind": "progress", "message": words, "fraction": fraction}
            loop.call_soon_threadsafe(_tell, writer, progress)

        context = changed(Context.of(info, report), reveal=self._reveal)
        work = loop.create_task(self._run(allowed, context), name="toolwire-served-call")
        gone = loop.create_task(reader.read(1), name="toolwire-caller-gone")
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():  # the caller wants no more
                work.cancel()
                await asyncio.wait((work,))
                return None
            result = work.result()
            large = sum(len(getattr(block, "text", "")) for block in result.content) > LARGE_BYTES
            wanted = None if context.trial is None else context.trial.wanted
            await send_message(writer, write_ended(result, context.told, wanted), large=large)
        finally:
            gone.cancel()
            work.cancel()

    async def _run(self, allowed: Allowed, context: Context) -> ToolResult:
        try:
            result = await self._executor.execute(allowed, context)
        except Suspended as waiting:
            message = f"{allowed.call.name!r} waits for another turn, which no tool of a service can: {waiting}."
            return ToolResult.failed(allowed.call, Code.EXECUTION_FAILED, message)
        except Exception as error:  # secrets that the tool may not have; whatever a tool raises is a result already
            return ToolResult.failed(allowed.call, Code.PERMISSION_DENIED, f"{error}.")
        return result if self._scrub is None else await asyncio.to_thread(self._scrub, result)


def _tell(writer: StreamWriter, progress: dict[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(pack(progress))
