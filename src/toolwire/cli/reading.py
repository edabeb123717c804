"""What a command reads: a file, or standard input for `-`, never more than it can hold."""

import sys
from pathlib import Path

from toolwire.errors import SettingsError

LARGEST_INPUT = 64 * 1024 * 1024


def read_bytes(file: str, most: int = LARGEST_INPUT) -> bytes:
    """The content of a file, or of standard input for `-`. Raises SettingsError that says what is wrong."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(most + 1)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > most:
        raise SettingsError(f"{'standard input' if file == '-' else file} is larger than {most // 1024:,} KiB")
    return data
