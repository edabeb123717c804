"""Runs the tools of this process for callers in other processes, whatever carries the messages.

Secrets are put in place here, where the tools live, and taken out of all that leaves: results, progress, and what a
tool tells its context, which travels with its result. What it tells later, such as at the end of a command in the
background, goes to the process that made the call; if that is gone, it waits for the next call of the same agent in the
same folders, since the record that it belongs to is there.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.errors import Suspended, ToolFailure
from toolwire.execute.channel import LARGE_BYTES, Channel, Disconnected, Json
from toolwire.execute.contract import Executor
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.output_buffer import OutputBuffer
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import CallInfo, Context
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.tools import Tool
from toolwire.wire.codecs.travelling import (
    BadFrame,
    LateNote,
    read_allowed,
    read_marks,
    write_ended,
    write_late,
    write_tool,
)

MOST_LATE = 1_000
"""So many late notes wait for a caller; beyond that the oldest are dropped."""

STALL_S = 60.0
"""How long a caller may take to read what it was sent."""

_log = logging.getLogger(__name__)
_Owner = tuple[str, str, tuple[str, ...]]


class ToolHost:
    """Serves tools. `reveal` puts secrets into a call and may raise to refuse it; `scrub` takes them out again."""

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        executor: Executor | None = None,
        reveal: Callable[[Allowed], Allowed] | None = None,
        scrub: Callable[[ToolResult], ToolResult] | None = None,
        stall_s: float = STALL_S,
    ) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.late: deque[LateNote] = deque()
        self._executor = executor or InProcessExecutor()
        self._reveal = reveal
        self._scrub = scrub
        self._stall_s = stall_s
        self._listeners: dict[str, _Caller] = {}
        self._calls: set[asyncio.Future[None]] = set()

    async def serve(self, channel: Channel) -> None:
        """Answer one caller: its one request, and what belongs to it. Raises `Disconnected`, BadFrame, TimeoutError."""
        match await channel.receive():
            case {"kind": "tools"}:
                await self._send(channel, {"kind": "tools", "tools": list(map(write_tool, self.tools.values()))})
            case {"kind": "listen", "caller": str(name)}:
                await self._listen(channel, name)
            case {"kind": "call"} as message:
                over = asyncio.get_running_loop().create_future()
                self._calls.add(over)
                try:
                    await self._call(channel, message)
                finally:
                    self._calls.discard(over)
                    over.cancel()
            case message:
                words = f"there are no requests of the kind {message.get('kind')!r:.40}"
                await self._send(channel, {"kind": "refused", "message": words})

    async def drain(self, within_s: float) -> None:
        """Let calls that run here finish, for so long."""
        if self._calls and within_s > 0:
            await asyncio.wait(self._calls, timeout=within_s)

    async def close(self) -> None:
        await self._executor.close()

    async def _listen(self, channel: Channel, name: str) -> None:
        """Tell a caller what its tools say after their calls, until it goes."""
        caller = self._listeners[name] = _Caller(channel, self._stall_s)
        try:
            await self._send(channel, {"kind": "listening"})
            await caller.listen()
        finally:
            if self._listeners.get(name) is caller:
                del self._listeners[name]

    async def _call(self, channel: Channel, message: Json) -> None:
        try:
            allowed, info = read_allowed(message, self.tools)
        except BadFrame as wrong:
            return await self._send(channel, {"kind": "refused", "message": str(wrong)})
        loop, caller = asyncio.get_running_loop(), _Caller(channel, self._stall_s)

        def report(words: str, fraction: float | None) -> None:
            clean, part = self._clean([words, fraction])
            loop.call_soon_threadsafe(channel.offer, {"kind": "progress", "message": clean, "fraction": part})

        def tell(text: str, stream: str, _offset: int) -> None:
            channel.offer({"kind": "output", "text": text, "stream": stream})

        output = OutputBuffer(tell, self._clean)
        recorder = _CallRecorder(self, caller, str(message.get("caller", "")))
        context = replace(Context.of(info, report), write=output.write, reveal=self._reveal, recorder=recorder)
        work = loop.create_task(self._run(allowed, context, caller), name="toolwire-served-call")
        listening = loop.create_task(caller.listen(), name="toolwire-caller")
        try:
            await asyncio.wait((work, listening), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():  # the caller wants no more
                work.cancel()
                await asyncio.wait((work,))
                return None
            result = work.result()
            output.close()
            large = sum(len(getattr(block, "text", "")) for block in result.content) > LARGE_BYTES
            wanted = None if context.trial is None else context.trial.wanted
            told = self._without_secrets(write_ended(result, context.told, wanted), "told", "wanted")
            await self._send(channel, told, large=large)
        finally:
            caller.leave()
            listening.cancel()
            work.cancel()
            await asyncio.gather(listening, work, return_exceptions=True)

    async def _run(self, allowed: Allowed, context: Context, caller: "_Caller") -> ToolResult:
        await self._tell_late(caller, context.info)
        result = await self._executed(allowed, context)
        return result if self._scrub is None else await asyncio.to_thread(self._scrub, result)

    async def _executed(self, allowed: Allowed, context: Context) -> ToolResult:
        try:
            return await self._executor.execute(allowed, context)
        except Suspended as waiting:
            message = f"{allowed.call.name!r} waits for another turn, which no tool of a service can: {waiting}."
            return ToolResult.failed(allowed.call, Code.EXECUTION_FAILED, message)
        except Exception as error:  # secrets that the tool may not have; whatever a tool raises is a result already
            return ToolResult.failed(allowed.call, Code.PERMISSION_DENIED, f"{error}.")

    def _clean(self, value: Any) -> Any:
        """Any JSON without the secrets of this process: what `scrub` makes of it in a result."""
        if self._scrub is None:
            return value
        return self._scrub(ToolResult("", "", Status.SUCCESS, structured=value)).structured

    def _without_secrets(self, message: Json, *keys: str) -> Json:
        return message | {key: self._clean(message[key]) for key in keys if key in message}

    async def _send(self, channel: Channel, message: Json, *, large: bool = False) -> None:
        async with asyncio.timeout(self._stall_s):
            await channel.send(message, large=large)

    async def tell(self, note: LateNote, name: str) -> None:
        """Have a late note put on record by the caller of this name, or keep it for the next one of its kind."""
        if (caller := self._listeners.get(name)) is not None and await self._is_kept(caller, note):
            return
        self.late.append(note)
        while len(self.late) > MOST_LATE:
            lost = self.late.popleft()
            _log.warning("what %s told after its call is lost: no caller came to put it on record", lost.tool)

    async def _tell_late(self, caller: "_Caller", info: CallInfo) -> None:
        """Have notes put on record that callers of the same kind were not there for."""
        mine = [note for note in self.late if _owner(note.info) == _owner(info)]
        for note in mine:
            if await self._is_kept(caller, note):
                with suppress(ValueError):  # another call of the same moment was faster
                    self.late.remove(note)

    async def _is_kept(self, caller: "_Caller", note: LateNote) -> bool:
        """Whether a caller has put a note on record."""
        try:
            return (await caller.ask(self._without_secrets(write_late(note), "told"))).get("kind") == "kept"
        except (Disconnected, TimeoutError):
            return False


def _owner(info: CallInfo) -> _Owner:
    return info.project, info.agent, info.grant.roots


class _Caller:
    """The process at the other end, asked for what only it knows. Answers come in any order."""

    def __init__(self, channel: Channel, stall_s: float) -> None:
        self._channel = channel
        self._stall_s = stall_s
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._is_gone = False

    async def ask(self, message: Json) -> Json:
        """Its answer. Raises `Disconnected` and TimeoutError."""
        if self._is_gone:
            raise Disconnected("the caller is gone")
        number = next(self._numbers)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            async with asyncio.timeout(self._stall_s):
                await self._channel.send({**message, "number": number})
                return await answer
        finally:
            del self._asked[number]

    async def listen(self) -> None:
        """Take answers until the caller goes."""
        with suppress(Disconnected, BadFrame):
            while True:
                message = await self._channel.receive()
                answer = self._asked.get(message.get("number", 0))
                if answer is not None and not answer.done():
                    answer.set_result(message)
        self.leave()

    def leave(self) -> None:
        self._is_gone = True
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(Disconnected("the caller is gone"))


class _CallRecorder(Struct, frozen=True):
    """What a context records by, where its record is in another process."""

    host: ToolHost
    caller: _Caller
    name: str

    async def record_told(self, context: Context, tool: str) -> None:
        await self.host.tell(LateNote(context.info, tool, tuple(context.told)), self.name)

    async def marks(self, project: str) -> Sequence[UntrustedMark]:
        try:
            return read_marks(await self.caller.ask({"kind": "marks", "project": project}))
        except (Disconnected, TimeoutError, BadFrame) as lost:
            # Without the marks nothing says what is untrusted, so the tool must not go on.
            raise ToolFailure(f"the caller did not say which files are untrusted ({lost})") from None
