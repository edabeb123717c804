"""Standard streams that cannot fail a command: closed ones lead nowhere, poor encodings get lookalikes."""

import codecs
import os
import sys
from io import TextIOWrapper

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


def _lookalike(error: UnicodeError) -> tuple[str, int]:
    """What to write for characters that the stream's encoding does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(LOOKALIKES.get(char, "?") for char in error.object[error.start : error.end]), error.end
