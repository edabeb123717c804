"""Standard streams that cannot fail a command.

Closed ones lead nowhere, poor encodings get lookalikes, and what finds no room on standard error is lost: the answer is
on standard output.
"""

import codecs
import errno
import json
import logging
import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import Any

from toolwire.cli.terminal.text import on_one_line

LOOKALIKES = {
    "✓": "+", "✗": "x", "→": "->", "›": ">", "…": "...", "·": "-", "—": "-", "×": "x",
}  # fmt: skip
_HANDLER = "toolwire-lookalike"

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What says that a disk is full."""


class LineFormatter(logging.Formatter):
    """What is logged, for people or as JSON lines.

    For people only its first line begins at the margin, so that no text from outside can look like a line of its own.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        text, level = super().format(record), record.levelname.lower()
        if self._as_json:
            return json.dumps({"level": level, "message": text})
        first, *rest = (on_one_line(line) for line in text.splitlines() or [""])
        return "\n".join([f"{level}: {first}", *(f"  {line}" for line in rest)])


class _DropsWithoutRoom(FileIO):
    """A file that takes everything: what its disk has no room for is lost."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return memoryview(data).nbytes


def prepare() -> None:
    """Make standard output and standard error fit for whatever is printed or logged."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LineFormatter())
    codecs.register_error(_HANDLER, _lookalike)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, TextIOWrapper(os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb"), "utf-8"))
        elif isinstance(stream, TextIOWrapper) and name == "stdout":
            stream.reconfigure(errors=_HANDLER)
        elif isinstance(stream, TextIOWrapper):
            file = BufferedWriter(_DropsWithoutRoom(stream.fileno(), "w", closefd=False))
            sys.stderr = TextIOWrapper(file, stream.encoding, _HANDLER, line_buffering=True)
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 -- it lives as long as the process
    elif isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")


def _lookalike(error: UnicodeError) -> tuple[str, int]:
    """What to write for characters that the stream's encoding does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(LOOKALIKES.get(char, "?") for char in error.object[error.start : error.end]), error.end
