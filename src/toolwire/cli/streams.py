"""Standard streams that cannot fail a command: closed ones lead nowhere, poor encodings get lookalikes."""

import codecs
import os
import sys
from io import TextIOWrapper
from pathlib import Path

LOOKALIKES = {
    "✓": "+", "✗": "x", "→": "->", "›": ">", "…": "...", "·": "-", "—": "-", "×": "x",
}  # fmt: skip
_HANDLER = "toolwire-lookalike"


def prepare() -> None:
    """Make standard output and standard error fit for whatever is printed."""
    codecs.register_error(_HANDLER, _lookalike)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, TextIOWrapper(os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb"), "utf-8"))
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 -- it lives as long as the process
    elif isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")


def _lookalike(error: UnicodeError) -> tuple[str, int]:
    """What to write for characters that the stream's encoding does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(LOOKALIKES.get(char, "?") for char in error.object[error.start : error.end]), error.end
