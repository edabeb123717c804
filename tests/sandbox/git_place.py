"""A repository in which a box works and its user does too, as root or as an ordinary user."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import forked

ORDINARY = 60_321
_OUR_FOLDER = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Place:
    """`folder` is the user's home, `top` the top of the repository, `workspace` what the box is given of it."""

    folder: Path
    user: int
    workspace: Path
    top: Path

    @property
    def marker(self) -> Path:
        """Made by whatever was planted, once it is obeyed."""
        return self.folder / "marker"

    def shell(self, text: str, at: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """What the user runs outside of any box.

        Not with `user=`, for which Python copies its whole process, and that of the tests is large.
        """
        as_user = (f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups")
        return subprocess.run(
            ["setpriv", *as_user, "/bin/bash", "-c", text.replace("MARKER", str(self.marker))],
            cwd=at or self.top,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_EDITOR": "true"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def start(self, text: str, engine: str = "bubblewrap", *, may_set_git: bool = False) -> "subprocess.Popen[bytes]":
        words = [str(self.user), engine, str(self.workspace), *(["yes"] if may_set_git else [])]
        process = forked.python(
            "-m", "tests.sandbox.ordinary_user", *words, env={**os.environ, "HOME_OF_USER": str(self.folder)}
        )
        assert process.stdin is not None
        process.stdin.write(text.replace("MARKER", str(self.marker)).encode())
        process.stdin.close()
        return process

    @contextmanager
    def running(self, text: str) -> Iterator[None]:
        """A command in a box that is open meanwhile. It ends when there is a file `go`, which is made at the end."""
        waiting = f"touch started; {text}; until test -e go; do sleep 0.01; done"
        with self.start(waiting) as process:
            try:
                self.shell("until test -e started; do sleep 0.01; done; rm started", self.workspace)
                yield
            finally:
                self.shell("touch go", self.workspace)
                assert process.stdout is not None
                process.stdout.read()

    def boxed(self, text: str, engine: str = "bubblewrap", *, may_set_git: bool = False) -> dict[str, Any]:
        """What became of a command in a box, started by the user."""
        process = self.start(text, engine, may_set_git=may_set_git)
        with process:
            assert process.stdout is not None
            told = process.stdout.read()
        found = dict(json.loads(told))
        assert "cannot be used here" not in found.get("failure", ""), found
        return found

    def looked_at(self) -> str:
        """What a user does next; what git said about it."""
        looks = "git status; git diff; git add -A . ; git commit -qm next --allow-empty; git rebase --continue"
        ran = self.shell(looks)
        return ran.stdout + ran.stderr


@contextmanager
def place_for(user: int, below: str = "") -> Iterator[Place]:
    """A new repository with one commit. With `below`, the workspace is a folder of it."""
    folder = Path(tempfile.mkdtemp(prefix="toolwire-git-"))
    try:
        top = folder / "project"
        place = Place(folder, user, top / below, top)
        place.workspace.mkdir(parents=True)
        (folder / ".gitconfig").write_text("[user]\nname = A\nemail = a@b.c\n[protocol]\nallow = always\n")
        shutil.chown(folder, user, user)
        subprocess.run(["/bin/chown", "-R", f"{user}:{user}", str(folder)], check=True)
        place.shell("git init -q && echo x > file && git add file && git commit -qm first")
        yield place
    finally:
        subprocess.run(["/bin/rm", "-rf", str(folder)], check=True)
