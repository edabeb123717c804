"""Files that hold keys, certificates and configurations of servers."""

import os
from pathlib import Path

PRIVATE, PUBLIC = 0o600, 0o644


def write_whole(file: Path, content: bytes, mode: int) -> None:
    """Write a file whole, never through a link, and with this mode from the beginning."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)
    draft.replace(file)
