"""Commands on another machine: the far end runs them in its own sandbox, and tells how they went.

A message is a line with its length, and JSON. We send one, the command; the far end sends pieces of output while
it runs, and last how it ended. When our side of the pipe closes before that, the far end ends the command.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

import orjson
from msgspec.structs import asdict

from toolwire.errors import SandboxUnavailable, ToolFailure
from toolwire.protocol.operations import Command, ExecLimits, Listener, Output, Ran
from toolwire.protocol.outcomes import Code

LARGEST_MESSAGE = 96 * 1024 * 1024
MARGIN_S = 15.0
LEAVE_S = 5.0
_LONGEST_HEAD = 12


class ConnectionLost(Exception):
    """The other end went away, or does not speak our way."""


class ByteSource(Protocol):
    """Where bytes come from."""

    async def readuntil(self, separator: bytes, /) -> bytes: ...
    async def readexactly(self, count: int, /) -> bytes: ...


class Sink(Protocol):
    """Where bytes go to."""

    def write(self, data: bytes, /) -> None: ...
    def write_eof(self) -> None: ...
    async def drain(self) -> None: ...


class RemoteEnd(Protocol):
    """A far end that was started, and waits for a command."""

    @property
    def source(self) -> ByteSource: ...
    @property
    def sink(self) -> Sink: ...
    async def wait(self) -> None:
        """Wait until the far end is gone."""
        ...


class FarExec:
    """ExecOps on another machine. `start` starts a far end there for each command; it raises ToolFailure."""

    def __init__(self, start: Callable[[], AbstractAsyncContextManager[RemoteEnd]]) -> None:
        self._start = start

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        if command.door or command.readable:
            raise ToolFailure(
                "another machine has neither the folders nor the way out of this one", code=Code.INVALID_PARAMS
            )
        async with self._start() as far:
            try:
                async with asyncio.timeout(command.limits.wall_s + MARGIN_S):
                    return await _asked(far, command, listener)
            except TimeoutError:
                raise ToolFailure(
                    "the other machine did not say in time how it went", code=Code.OUTCOME_UNKNOWN
                ) from None
            except ConnectionLost as lost:
                raise ToolFailure(str(lost), code=Code.OUTCOME_UNKNOWN) from None
            finally:
                await _left(far)


async def _asked(far: RemoteEnd, command: Command, listener: Listener | None) -> Ran:
    try:
        far.sink.write(frame_message({"command": write_command(command), "watched": listener is not None}))
        await far.sink.drain()
    except OSError:
        raise ConnectionLost("the far end went away before it took the command") from None
    while True:
        match await receive(far.source):
            case {"stream": "stdout" | "stderr" as stream, "data": str(data)} if listener is not None:
                listener(stream, _bytes(data))
            case {"ran": dict(ran)}:
                return _read_ran(ran)
            case {"failed": {"code": str(code), "message": str(message)}}:
                raise _failure(code, message[:2000])
            case _:
                raise ConnectionLost("the far end gave an answer that makes no sense")


async def _left(far: RemoteEnd) -> None:
    """Tell the far end that the result is not wanted any more, and wait for it to have ended the command."""
    with suppress(OSError, TimeoutError):
        far.sink.write_eof()
        async with asyncio.timeout(LEAVE_S):
            await far.wait()


def frame_message(message: Any) -> bytes:
    body = orjson.dumps(message)
    return b"%d\n%b" % (len(body), body)


async def receive(source: ByteSource) -> Any:
    """The next message. Raises Lost."""
    try:
        head = await source.readuntil(b"\n")
        if len(head) > _LONGEST_HEAD or not head.strip().isdigit() or int(head) > LARGEST_MESSAGE:
            raise ConnectionLost("the far end does not speak our way")
        return orjson.loads(await source.readexactly(int(head)))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        raise ConnectionLost("the far end went away before it said how the command ended") from None
    except (orjson.JSONDecodeError, RecursionError):
        raise ConnectionLost("the far end gave an answer that makes no sense") from None


def write_command(command: Command) -> dict[str, Any]:
    return {
        "argv": command.argv,
        "workspace": command.workspace,
        "cwd": command.cwd,
        "writable": command.writable,
        "stdin": base64.b64encode(command.stdin).decode(),
        "env": dict(command.env),
        "limits": asdict(command.limits),
        "engine": command.engine,
        "trial": command.trial,
        "hides_keys": command.hides_keys,
    }


def read_command(message: Any) -> Command:
    """The command in a message. Raises ValueError, KeyError or TypeError for what is none."""
    limits = ExecLimits(**{name: type(getattr(ExecLimits(), name))(value) for name, value in message["limits"].items()})
    words = (*message["argv"], message["workspace"], message["cwd"], message["engine"])
    if not all(isinstance(word, str) for word in (*words, *message["env"], *message["env"].values())):
        raise TypeError("words are text")
    return Command(
        tuple(message["argv"]), message["workspace"], message["cwd"], message["writable"] is True,
        base64.b64decode(message["stdin"], validate=True), message["env"], limits, message["engine"],
        trial=message.get("trial") is True, hides_keys=message.get("hides_keys") is True,
    )  # fmt: skip


def write_ran(ran: Ran) -> dict[str, Any]:
    return {
        "exit_code": ran.exit_code,
        "signal": ran.signal,
        "stdout": _write_output(ran.stdout),
        "stderr": _write_output(ran.stderr),
        "elapsed_s": ran.elapsed_s,
        "limit": ran.limit,
        "engine": ran.engine,
        "profile": ran.profile,
        "weaker": ran.weaker,
        "notes": ran.notes,
        "changes": ran.changes,
        "hidden": ran.hidden,
    }


def _names(value: Any) -> tuple[str, ...] | None:
    return tuple(map(str, value)) if isinstance(value, list) else None


def _read_ran(ran: dict[str, Any]) -> Ran:
    match ran:
        case {
            "exit_code": int() | None as exit_code, "signal": int() | None as signal, "elapsed_s": float(elapsed_s),
            "limit": str(limit), "engine": str(engine), "profile": str(profile), "weaker": list(weaker),
            "stdout": dict(stdout), "stderr": dict(stderr),
        }:  # fmt: skip
            out, err = _read_output(stdout), _read_output(stderr)
            notes = tuple(map(str, ran.get("notes") or ()))
            return Ran(
                exit_code, signal, out, err, elapsed_s, limit, engine, profile, tuple(map(str, weaker)), notes,
                _names(ran.get("changes")), _names(ran.get("hidden")) or (),
            )  # fmt: skip
        case _:
            raise ConnectionLost("the far end gave an answer that makes no sense")


def _write_output(output: Output) -> dict[str, Any]:
    head, tail = (base64.b64encode(part).decode() for part in (output.head, output.tail))
    return {"head": head, "tail": tail, "size": output.size, "sha256": output.sha256}


def _read_output(output: dict[str, Any]) -> Output:
    match output:
        case {"head": str(head), "tail": str(tail), "size": int(size), "sha256": str(sha256)}:
            return Output(_bytes(head), _bytes(tail), size, sha256[:64])
        case _:
            raise ConnectionLost("the far end gave an answer that makes no sense")


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        raise ConnectionLost("the far end gave an answer that makes no sense") from None


def _failure(code: str, message: str) -> ToolFailure:
    if code == Code.SANDBOX_UNAVAILABLE:
        return SandboxUnavailable(message)
    known = {one.value: one for one in Code}
    return ToolFailure(message, code=known.get(code, Code.EXECUTION_FAILED))
