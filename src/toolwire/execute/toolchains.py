"""Toolchains in the user's home, lent to boxes to read: found by their known places, never with what holds keys.

A box sees the programs of the system, and a home of its own. A Python of pyenv or uv, a Rust of rustup or a Node of nvm
lie in the user's home; the folders of these alone are shown where they are, and their programs are on the `PATH`. The
Python behind a `.venv` of the workspace is lent as well, wherever it lies, if it is one.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cache
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.execute.sandbox.inside import PROGRAMS
from toolwire.execute.sandbox.workspace import MOST_LENT
from toolwire.protocol.operations import Command, ExecOps, Listener, Ran

KEYS = (
    "credentials*", ".npmrc", ".yarnrc*", ".pypirc", ".netrc", "_netrc", ".git-credentials", ".ssh", ".aws", ".azure",
    ".gnupg", ".kube", ".docker", ".config", ".password-store", ".env", ".env.*", ".vault-token", "auth.json", "id_*",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "hosts.yml", "gcloud", "keyrings", ".mozilla", ".terraformrc",
    "settings.xml", "gradle.properties", "init.gradle", ".sentryclirc", ".envrc", "*_history", ".*_history",
)  # fmt: skip
"""Names of what holds keys. A folder with such a name in it is not lent as a whole."""

_MOST_LINKS = 10
_MOST_NAMES = 2_000


class _KnownToolchain(Struct, frozen=True):
    """A toolchain: its folders beneath the home, where its programs are (patterns), and the variables it needs."""

    folders: tuple[str, ...]
    programs: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def places(self, home: Path) -> list[Path]:
        """Its folders that are there, of several that one pattern names the last first."""
        return [each for pattern in self.folders for each in sorted(home.glob(pattern), reverse=True)]


_KNOWN = (
    _KnownToolchain((".pyenv",), (".pyenv/bin", ".pyenv/shims"), {"PYENV_ROOT": ".pyenv"}),
    _KnownToolchain((".local/share/uv/python",), (".local/share/uv/python/*/bin",)),
    _KnownToolchain((".cargo/bin",), (".cargo/bin",)),
    _KnownToolchain((".rustup",), (), {"RUSTUP_HOME": ".rustup"}),
    _KnownToolchain((".nvm/versions",), (".nvm/versions/node/*/bin",)),
    _KnownToolchain((".volta/bin", ".volta/tools"), (".volta/bin",), {"VOLTA_HOME": ".volta"}),
    _KnownToolchain((".local/share/fnm",), (".local/share/fnm/aliases/default/bin",)),
    _KnownToolchain((".fnm",), (".fnm/aliases/default/bin",)),
    _KnownToolchain(("go/bin",), ("go/bin",)),
    _KnownToolchain((".bun/bin",), (".bun/bin",)),
    _KnownToolchain((".deno/bin",), (".deno/bin",)),
    _KnownToolchain(
        (".sdkman/candidates",), (".sdkman/candidates/*/current/bin",), {"JAVA_HOME": ".sdkman/candidates/java/current"}
    ),
    _KnownToolchain((".rbenv",), (".rbenv/bin", ".rbenv/shims"), {"RBENV_ROOT": ".rbenv"}),
    _KnownToolchain((".asdf",), (".asdf/bin", ".asdf/shims"), {"ASDF_DATA_DIR": ".asdf"}),
    _KnownToolchain((".local/share/mise/installs",), (".local/share/mise/installs/*/latest/bin",)),
    _KnownToolchain((".goenv",), (".goenv/bin", ".goenv/shims"), {"GOENV_ROOT": ".goenv"}),
    # The last, since each of them counts; other folders in `sdk` may be anything.
    _KnownToolchain(("sdk/go[0-9]*", "sdk/gotip"), ("sdk/go[0-9]*/bin", "sdk/gotip/bin")),
)  # fmt: skip


class Toolchains(Struct, frozen=True):
    """Folders that boxes may read, folders with programs for their `PATH`, and variables."""

    folders: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def find_toolchains(home: Path, path: str, named: Sequence[str] = (), *, recognise: bool = True) -> Toolchains:
    """What lies in a home: folders that the user named, then toolchains. `path` is the user's own `PATH`."""
    known = [one for one in _KNOWN if recognise and any(each.is_dir() for each in one.places(home))]
    wanted = [Path(each) for each in named] + [each for one in known for each in one.places(home)]
    folders = tuple(dict.fromkeys(str(one) for each in wanted for one in _without_keys(each, home)))[:MOST_LENT]
    own = [each for each in path.split(os.pathsep) if _beneath(each, folders)]
    usual = [
        str(each) for one in known for pattern in one.programs for each in sorted(home.glob(pattern), reverse=True)
    ]
    usual += [str(each) for one in named for each in (Path(one) / "bin",) if each.is_dir()]
    programs = dict.fromkeys(each for each in (*own, PROGRAMS, *usual) if each == PROGRAMS or _beneath(each, folders))
    variables = {
        name: str(home / each) for one in known for name, each in one.variables.items() if (home / each).exists()
    }
    return Toolchains(folders, tuple(programs), variables)


def is_too_wide(folder: Path, home: Path) -> bool:
    """Whether lending a folder would lend all of the home, or the system."""
    real, own = folder.resolve(), home.resolve()
    return own.is_relative_to(real) or real in (Path("/etc"), Path("/var"), Path("/run"), Path("/proc"), Path("/sys"))


def _without_keys(folder: Path, home: Path) -> Iterator[Path]:
    """The folder, or those in it that hold no keys where it does; nothing where it is too wide."""
    if (
        not folder.is_dir()
        or is_too_wide(folder, home)
        or _holds_keys(folder.name)
        or _holds_keys(folder.resolve().name)
    ):
        return
    try:
        inner = sorted(folder.iterdir())[:_MOST_NAMES]
    except OSError:
        return
    if not any(_holds_keys(each.name) for each in inner):
        yield folder
        return
    for each in inner:
        if each.is_dir() and not each.is_symlink() and not _holds_keys(each.name):
            yield from _without_keys(each, home)


def _holds_keys(name: str) -> bool:
    return _keys().match(name.lower()) is not None


@cache
def _keys() -> re.Pattern[str]:
    return re.compile("|".join(map(translate, KEYS)))


def _beneath(path: str, folders: Iterable[str]) -> bool:
    return bool(path) and any(path == each or path.startswith(f"{each}/") for each in folders)


def pythons_behind(workspace: Path, home: Path) -> tuple[str, ...]:
    """The folders of the Pythons to which the virtual environments of a workspace lead.

    Anybody may have made these links, so only what is a Python is lent: its programs beside its library.
    """
    found: dict[str, None] = {}
    for name in (".venv", "venv"):
        environment = workspace / name
        if environment.is_symlink() or not (environment / "pyvenv.cfg").is_file():
            continue
        for link in _chain(environment / "bin" / "python"):
            prefix = link.parent.parent
            if _is_apart(prefix, workspace) and _is_python(prefix) and not is_too_wide(prefix, home):
                found[str(prefix)] = None
    return tuple(found)


def _chain(link: Path) -> Iterator[Path]:
    """Where a link leads, step by step."""
    for _ in range(_MOST_LINKS):
        try:
            target = link.readlink()
        except OSError:
            return
        link = Path(os.path.normpath(link.parent / target))
        yield link


def _is_apart(folder: Path, workspace: Path) -> bool:
    """Whether no part of the way to a folder lies in the workspace, where a command could turn it elsewhere."""
    own = workspace.resolve()
    return not any(each.resolve().is_relative_to(own) for each in (folder, *folder.parents))


def _is_python(prefix: Path) -> bool:
    """Whether this is where a Python was installed, and not below a folder for keys."""
    library = next((each for each in sorted(prefix.glob("lib/python3*/os.py"))), None)
    return library is not None and prefix != Path("/usr") and not any(map(_holds_keys, prefix.resolve().parts))


class ToolchainExec:
    """ExecOps whose commands can use the user's toolchains."""

    def __init__(self, ops: ExecOps, home: Path, find: Callable[[], Toolchains], *, environments: bool = True) -> None:
        self._ops, self._home = ops, home
        self._find = cache(find)  # few turns run a command, and what is installed seldom changes
        self._environments = environments

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        """See `ExecOps`."""
        return await self._ops.run(self._lent(command), listener)

    def _lent(self, command: Command) -> Command:
        if not command.workspace:
            return command
        workspace, known = Path(command.workspace), self._find()
        behind = pythons_behind(workspace, self._home) if self._environments else ()
        wanted = (*(each for each in behind if not _beneath(each, known.folders)), *known.folders)
        folders = [each for each in wanted if not _overlap(Path(each), workspace)]
        room = MOST_LENT - len(command.readable)
        if not folders or room < 1:
            return command
        env = {**known.variables, "PATH": ":".join(known.programs or (PROGRAMS,)), **command.env}
        return replace(command, readable=(*command.readable, *folders[:room]), env=env)


def _overlap(folder: Path, workspace: Path) -> bool:
    return folder.is_relative_to(workspace) or workspace.is_relative_to(folder)
