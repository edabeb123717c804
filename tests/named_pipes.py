"""Named pipes, by which a test hears of another process without asking again and again."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


@asynccontextmanager
async def hearing(path: Path, *, for_long: bool = False) -> AsyncIterator[asyncio.StreamReader]:
    """What is written into a new pipe, as it comes. It ends when nobody who opened it is left, unless `for_long`."""
    os.mkfifo(path)
    path.chmod(0o666)  # noqa: ASYNC240 - a file of the test's own
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
    kept_open = os.open(path, os.O_WRONLY) if for_long else -1
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), file
    )
    try:
        yield reader
    finally:
        transport.close()
        if for_long:
            os.close(kept_open)
