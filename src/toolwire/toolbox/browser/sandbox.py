"""The box around Chromium: no network but the door of an egress proxy, no file of this machine but its programs.

Chromium speaks over two inherited pipes with its driver, so its launcher is a script that passes them on.
Inside, Chromium's own sandbox stays on.
"""

import os
import shlex
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from toolwire.errors import SandboxUnavailable, ToolFailure
from toolwire.execute.egress.proxy import BRIDGE, BRIDGE_PORT
from toolwire.execute.sandbox.cgroups import BoxGroup, Cgroups
from toolwire.execute.sandbox.workspace import FIRST_USER, USERS
from toolwire.protocol.operations import LIMITS, MIB
from toolwire.protocol.outcomes import Code

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
PROXY = f"http://127.0.0.1:{BRIDGE_PORT}"
_USER = FIRST_USER + USERS  # no workspace has it
_PYTHON, _PATH = "/usr/bin/python3", "/usr/local/bin:/usr/bin:/bin"
_READABLE = (
    "/usr", "/etc/alternatives", "/etc/fonts", "/etc/ssl/certs", "/etc/chromium.d", "/etc/ld.so.cache",
    "/etc/localtime",
)  # fmt: skip
_LINKS = ("bin", "lib", "lib32", "lib64")
_TMP = "/tmp"  # noqa: S108 - the box's own
_MEMORY = {"/dev/shm": 256 * MIB, "/home/agent": 256 * MIB, _TMP: LIMITS["browser"].tmp_bytes}  # noqa: S108


def find_chromium(program: str = "") -> str:
    """The path of a Chromium on this machine. Raises ToolFailure where there is none."""
    for name in (program,) if program else PROGRAMS:
        if path := shutil.which(name, path=_PATH):
            return path
    raise ToolFailure("no Chromium is installed (Debian: apt install chromium)", code=Code.UNAVAILABLE)


class BrowserBox:
    """A place for one Chromium, made before and removed after it. `launcher` is what to start, `door` the way out."""

    def __init__(self, program: str, cgroups: Cgroups) -> None:
        self._program = find_chromium(program)
        self._bwrap = _needed("bwrap", "bubblewrap")
        self._group: BoxGroup = cgroups.make(LIMITS["browser"])
        self.folder = Path(tempfile.mkdtemp(prefix="toolwire-browser-"))
        self.door = self.folder / "door"
        self.launcher = self.folder / "chromium"
        self.launcher.write_text(self._script())
        self.launcher.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(self.folder, _USER, _USER)

    def __enter__(self) -> "BrowserBox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._group.kill()
        self._group.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _script(self) -> str:
        lines = ["#!/bin/sh", *(f"echo 0 > {shlex.quote(door)}" for door in self._group.doors)]
        command = [
            *_as_user(),
            "/usr/bin/env",
            "-i",
            f"PATH={_PATH}",
            self._bwrap,
            *self._walls(),
            "--",
            *self._inside(),
        ]
        return "\n".join([*lines, f'exec {shlex.join(command)} "$@" 2> /dev/null', ""])

    def _walls(self) -> list[str]:
        flags = "--unshare-all --unshare-user --die-with-parent --new-session --cap-drop ALL --clearenv --uid 1000"
        words = [*flags.split(), "--gid", "1000", "--hostname", "browser"]
        for name, value in (("PATH", _PATH), ("HOME", "/home/agent"), ("LANG", "C.UTF-8"), ("TMPDIR", _TMP)):
            words += ["--setenv", name, value]
        for path in (*_READABLE, *self._elsewhere()):
            words += ["--ro-bind-try", path, path]
        for name in _LINKS:
            if (link := Path("/", name)).is_symlink():
                words += ["--symlink", str(link.readlink()), str(link)]
        words += ["--proc", "/proc", "--dev", "/dev"]
        for path, size in _MEMORY.items():
            words += ["--size", str(size), "--tmpfs", path]
        return [*words, "--ro-bind", str(BRIDGE), "/run/bridge.py", "--bind", str(self.door), "/run/door"]

    def _elsewhere(self) -> list[str]:
        """Where a Chromium lives that is not a part of the system."""
        home = Path(self._program).resolve().parent
        return [] if home.is_relative_to("/usr") else [str(home)]

    def _inside(self) -> list[str]:
        return [_PYTHON, "/run/bridge.py", "/run/door", str(BRIDGE_PORT), self._program]


def _as_user() -> list[str]:
    """Out of root, for good."""
    if os.geteuid() != 0:
        return []
    user = str(_USER)
    return [_needed("setpriv", "util-linux"), "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"]


def _needed(program: str, package: str) -> str:
    path = shutil.which(program, path=_PATH)
    if not path or not os.access(_PYTHON, os.X_OK):
        missing = f"{program} (Debian: apt install {package})" if not path else _PYTHON
        raise SandboxUnavailable(f"the browser runs in a box or not at all, and that needs {missing}")
    return path
