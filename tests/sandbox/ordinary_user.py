"""Runs a command in a box as an ordinary user: `python -m tests.sandbox.ordinary_user UID ENGINE WORKSPACE < TEXT`.

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

from toolwire.errors import ToolFailure
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.protocol.operations import Command, shell


async def boxed(engine: str, workspace: str, text: str, *, may_set_git: bool) -> Mapping[str, object]:
    sandbox = local_sandbox(floor=engine, default=engine)
    try:
        ran = await sandbox.run(Command(shell(text), workspace, may_set_git=may_set_git))
    except ToolFailure as failure:
        return {"failure": str(failure)}
    held = [note for note in ran.notes if "held-back" in note]
    return {"out": ran.stdout.text, "err": ran.stderr.text, "exit": ran.exit_code, "held": held, "notes": ran.notes}


def main(user: int, engine: str, workspace: str, may_set_git: str = "") -> None:
    home = Path(workspace).parent
    os.environ.update(HOME=str(home), XDG_STATE_HOME=str(home / "state"))
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    sys.stdout.write(json.dumps(asyncio.run(boxed(engine, workspace, sys.stdin.read(), may_set_git=bool(may_set_git)))))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
