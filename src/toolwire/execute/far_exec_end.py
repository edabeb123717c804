"""The far end of `FarExec`: runs one command in the sandbox of the machine it runs on.

`python -m toolwire.execute.far_exec_end ROOT…` reads a command from its standard input. Its workspace must be one of
the roots. When the input ends before the command does, its caller is gone, and the command is ended.
"""

import asyncio
import base64
import sys
from collections.abc import Callable, Sequence

from toolwire.errors import ToolFailure
from toolwire.execute.far_exec import ByteSource, ConnectionLost, frame_message, read_command, receive, write_ran
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.protocol.operations import Command, ExecOps, Listener
from toolwire.protocol.outcomes import Code

MOST_WAITING = 1024 * 1024
_PIPE_LIMIT = 1024 * 1024


async def serve(ops: ExecOps, roots: Sequence[str], source: ByteSource, send: Callable[[bytes], int]) -> None:
    """Run the one command that comes, unless its caller goes away. `send` gives how many bytes wait to be sent."""
    try:
        message = await receive(source)
        command, watched = read_command(message["command"]), message.get("watched") is True
    except (ConnectionLost, ValueError, TypeError, KeyError, AttributeError):
        return
    running = asyncio.ensure_future(_answer(ops, roots, command, _listener(send) if watched else None))
    gone = asyncio.ensure_future(_until_gone(source))
    try:
        await asyncio.wait((running, gone), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            send(running.result())
    finally:
        for task in (running, gone):
            task.cancel()
        await asyncio.gather(running, gone, return_exceptions=True)


async def _answer(ops: ExecOps, roots: Sequence[str], command: Command, listener: Listener | None) -> bytes:
    try:
        if command.workspace not in roots:
            raise ToolFailure("this folder is not offered there", code=Code.PERMISSION_DENIED)
        return frame_message({"ran": write_ran(await ops.run(command, listener))})
    except ToolFailure as failure:
        return frame_message({"failed": {"code": failure.code.value, "message": str(failure)}})


def _listener(send: Callable[[bytes], int]) -> Listener:
    waiting = 0

    def listen(stream: str, piece: bytes) -> None:
        """Pass a piece on, unless the way is full: a watcher sees less, and the result has it all."""
        nonlocal waiting
        waiting = send(b"") if waiting > MOST_WAITING else waiting
        if waiting <= MOST_WAITING:
            waiting = send(frame_message({"stream": stream, "data": base64.b64encode(piece).decode()}))

    return listen


async def _until_gone(source: ByteSource) -> None:
    while True:
        try:
            await source.readexactly(1)
        except (asyncio.IncompleteReadError, OSError):
            return


async def main(roots: Sequence[str]) -> None:
    """Serve standard input and output."""
    loop = asyncio.get_running_loop()
    source = asyncio.StreamReader(limit=_PIPE_LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(source), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    sink = asyncio.StreamWriter(transport, protocol, None, loop)

    def send(data: bytes) -> int:
        sink.write(data)
        return transport.get_write_buffer_size()

    await serve(local_sandbox(), roots, source, send)
    await sink.drain()
    sink.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
