"""Which files with keys an approved command can read in its workspace, so that the question about it can name them."""

import os
from pathlib import Path

from toolwire.execute.sandbox.key_hiding import find_keys
from toolwire.execute.sandbox.obeyed_scan import scan
from toolwire.protocol.key_files import is_always_hidden


def readable_keys(workspace: str) -> tuple[str, ...]:
    """Folders and files with keys that are hidden only from commands that run unasked."""
    try:
        root = os.open(Path(workspace), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        named = scan(root).keys
        hidden = tuple(path for path in named if is_always_hidden(path))
        keys = find_keys(root, named, hidden)
    finally:
        os.close(root)
    return (*keys.folders, *keys.files)
