"""Runs inside a box: carries connections to 127.0.0.1:PORT over to a unix socket, then becomes COMMAND.

    python3 bridge.py SOCKET PORT COMMAND [ARGUMENT…]

One file, standard library only, so that it can be bound into any box that has a Python (3.8 or later). It listens
before COMMAND starts, so that nothing has to be waited for. Without COMMAND it serves until it is ended.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys

AT_ONCE = 64
_PR_SET_PDEATHSIG = 1


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything from one side to the other, and then the news that there is no more."""
    with contextlib.suppress(OSError):
        while True:
            piece = await reader.read(65536)
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


async def serve(listener: socket.socket, path: str) -> None:
    """Carry every connection until the process ends."""
    free = asyncio.Semaphore(AT_ONCE)

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with free:
            try:
                out_reader, out_writer = await asyncio.open_unix_connection(path)
            except OSError:
                writer.close()
                return
            await asyncio.gather(carry(reader, out_writer), carry(out_reader, writer))
            out_writer.close()
            writer.close()

    server = await asyncio.start_server(join, sock=listener)
    await server.serve_forever()


def main(arguments: "list[str]") -> None:
    path, port, command = arguments[0], int(arguments[1]), arguments[2:]
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    if command and (child := os.fork()):
        listener.close()
        del child
        os.execvp(command[0], command)  # noqa: S606 (an argument list, given by whoever built the box)
    if command:
        # Where there is no pid namespace to end it, the bridge goes when the command does.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for standard in (0, 1, 2):  # whoever waits for the end of the command's output must not wait for us
            os.dup2(os.open(os.devnull, os.O_RDWR), standard)
    asyncio.run(serve(listener, path))


if __name__ == "__main__":
    main(sys.argv[1:])
