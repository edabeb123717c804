"""Runs a command in a box as an ordinary user: `python -m tests.sandbox.ordinary_user UID ENGINE FOLDER [HOW] < TEXT`.

`HOW` is `yes` for a command that may set git, or `trial`.

Started by root, since an ordinary user may not be able to read where this Python lies; everything is imported before
root is given up.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401 - loaded on demand otherwise, when it can no longer be read
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from toolwire.errors import ToolFailure
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.protocol.operations import Command, shell


async def boxed(engine: str, workspace: str, text: str, how: str) -> Mapping[str, object]:
    sandbox = local_sandbox(floor=engine, default=engine)
    try:
        command = Command(shell(text), workspace, may_set_git=how == "yes")
        if how == "trial":
            command = replace(command, writable=False, trial=True, hides_keys=True)
        ran = await sandbox.run(command)
    except ToolFailure as failure:
        return {"failure": str(failure)}
    held = [note for note in ran.notes if "held-back" in note]
    told = {"out": ran.stdout.text, "err": ran.stderr.text, "exit": ran.exit_code, "held": held, "notes": ran.notes}
    return told | {"changes": ran.changes}


def main(user: int, engine: str, workspace: str, how: str = "") -> None:
    home = Path(os.environ.get("HOME_OF_USER") or Path(workspace).parent)
    os.environ.update(HOME=str(home), XDG_STATE_HOME=str(home / "state"))
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    sys.stdout.write(json.dumps(asyncio.run(boxed(engine, workspace, sys.stdin.read(), how))))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
