"""Follows a box to its end: output through fixed buffers, the wall clock, and what ended it."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from time import perf_counter

from msgspec.structs import replace

from toolwire.errors import SandboxUnavailable, ToolFailure
from toolwire.execute.sandbox.contract import Box
from toolwire.protocol.operations import Command, Listener, Output, Ran
from toolwire.protocol.outcomes import Code

_PIECE = 65_536
_DRAIN_S = 1.0
_END_S = 5.0
_LOOK_EVERY_S = 0.1
_MOST_PLANTED = 3
_LONGEST_STATUS = 4096
_OURS = {"wall", "repositories", "changes"}
_SIGNALS = {24: "cpu", 25: "file_size"}


class CommandNotStarted(SandboxUnavailable):
    """A box has ended, or was ended at a limit, before the command in it began."""


class Capture:
    """The beginning and the end of a stream, its length and its digest, in bounded memory."""

    def __init__(self, most: int) -> None:
        self._half = max(most // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0
        self._digest = hashlib.sha256()

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        self._digest.update(piece)
        room = self._half - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        self._tail += piece
        # Cut only now and then: moving the rest down at every piece would cost time in proportion to its length.
        if len(self._tail) > self._half + max(_PIECE, self._half // 4):
            del self._tail[: -self._half]

    def output(self) -> Output:
        del self._tail[: -self._half]
        return Output(bytes(self._head), bytes(self._tail), self._size, self._digest.hexdigest())


class BoxWatch:
    """One box, from its first byte to its last. `began` is when its time started to count, before it was launched."""

    def __init__(self, box: Box, command: Command, listener: Listener | None, began: float) -> None:
        self._box = box
        self._command = command
        self._listener = listener
        self._began = began
        self._loop = asyncio.get_running_loop()
        self._streams = {
            "stdout": Capture(command.limits.output_bytes),
            "stderr": Capture(command.limits.output_bytes),
        }
        self._status = Capture(_LONGEST_STATUS)
        self._open: dict[int, Callable[[bytes], None]] = {}
        self._silent = self._loop.create_future()
        self._over = self._loop.create_future()

    async def end(self) -> Ran:
        """Wait for the end of the command, or bring it about when its time is up."""
        box = self._box
        self._follow()
        try:
            limit = await self._limit()
            hits = box.group.hits() if box.group is not None else frozenset()
            if limit:
                await asyncio.to_thread(box.kill)
                await asyncio.wait((self._over,), timeout=_END_S)
            else:
                box.kill()  # only what it left behind is still there, so this takes no time worth a thread
            await asyncio.wait((self._silent,), timeout=_DRAIN_S)
        finally:
            self._leave()
        code = box.end() if self._over.done() else await asyncio.to_thread(box.end)
        ran = self._ran(code, limit, hits, perf_counter() - self._began)
        if box.workspace is None or not self._command.hides_keys:
            return ran
        changes = await asyncio.to_thread(box.workspace.changes)
        return replace(ran, changes=changes, hidden=box.workspace.hidden_keys())

    async def _limit(self) -> str:
        """Wait for the end; the limit that is reached before, or nothing. Looks at the workspace from time to time."""
        until, planted = self._began + self._command.limits.wall_s, 0
        while (left_s := until - perf_counter()) > 0:
            await asyncio.wait((self._over,), timeout=min(left_s, _LOOK_EVERY_S))
            if self._over.done():
                return ""
            if self._box.workspace is not None and await asyncio.to_thread(self._box.workspace.look):
                planted += 1
                if planted > _MOST_PLANTED:  # it does so again and again: between two looks someone could obey it
                    return "repositories"
            if self._command.trial and await asyncio.to_thread(self._has_changed):
                return "changes"
        return "" if self._over.done() else "wall"

    def _has_changed(self) -> bool:
        return self._box.workspace is not None and bool(self._box.workspace.changes())

    def _follow(self) -> None:
        for descriptor, add in (
            (self._box.stdout, self._adding("stdout")),
            (self._box.stderr, self._adding("stderr")),
            (self._box.status, self._status.add),
        ):
            self._open[descriptor] = add
            self._loop.add_reader(descriptor, self._read, descriptor)
        self._loop.add_reader(self._box.pidfd, self._ended)

    def _adding(self, name: str) -> Callable[[bytes], None]:
        add, listener = self._streams[name].add, self._listener
        if listener is None:
            return add

        def tell(piece: bytes) -> None:
            add(piece)
            listener(name, piece)

        return tell

    def _read(self, descriptor: int) -> None:
        try:
            piece = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return
        if piece:
            self._open[descriptor](piece)
            return
        self._loop.remove_reader(descriptor)
        del self._open[descriptor]
        if not self._open and not self._silent.done():
            self._silent.set_result(None)

    def _ended(self) -> None:
        self._loop.remove_reader(self._box.pidfd)
        if not self._over.done():
            self._over.set_result(None)

    def _leave(self) -> None:
        for descriptor in (*self._open, self._box.pidfd):
            self._loop.remove_reader(descriptor)

    def _ran(self, code: int, limit: str, hits: frozenset[str], elapsed_s: float) -> Ran:
        out, err = self._streams["stdout"].output(), self._streams["stderr"].output()
        box = self._box
        signal = -code if code < 0 else code - 128 if 128 < code < 193 else None
        limit = limit or self._reached(signal, code, hits)
        lines = self._status.output().text.splitlines()
        if not limit or lines.count("ready") < box.stages:
            self._check(lines, err, limit)
        exit_code = None if limit in _OURS or code < 0 else code
        return Ran(exit_code, signal, out, err, elapsed_s, limit, box.engine, box.profile, box.weaker)

    def _reached(self, signal: int | None, code: int, hits: frozenset[str]) -> str:
        if "memory" in hits and code != 0:
            return "memory"
        if signal in _SIGNALS:
            return _SIGNALS[signal]
        return "processes" if "processes" in hits and code != 0 else ""

    def _check(self, lines: list[str], stderr: Output, limit: str) -> None:
        """Tell a command that ended from one that never began."""
        is_confined = lines.count("ready") >= self._box.stages
        if is_confined and lines[-1].startswith("noexec"):
            reason = lines[-1].removeprefix("noexec ")
            raise ToolFailure(f"{self._command.argv[0]!r} cannot be run: {reason}", code=Code.NOT_FOUND)
        if lines and lines[-1].startswith("fail enter"):
            raise ToolFailure(f"there is no folder {self._command.cwd!r} to work in", code=Code.INVALID_PARAMS)
        if not is_confined:
            failed = [line.removeprefix("fail ") for line in lines if line != "ready"]
            late = f"it had not begun when the limit {limit!r} was reached" if limit else "it said nothing"
            said = "; ".join(failed) or stderr.text.strip()[:500] or late
            raise CommandNotStarted(f"{self._box.engine} could not confine the command: {said}")
