"""Running git on an untrusted repository: nothing that its configuration names is ever started.

Every key that names a program is overridden from the environment, which wins over all files. Drivers have names of the
repository's choosing, so its configuration is read first (reading starts nothing) and each name found is switched off.
The box, without network and read-only where git only looks, holds whatever this misses.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import PurePosixPath

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.deliver.visible import visible
from toolwire.errors import ToolFailure
from toolwire.execute.watched import watch_command
from toolwire.protocol.context import Context
from toolwire.protocol.operations import LIMITS, Command, ExecOps, Ran
from toolwire.protocol.outcomes import Code
from toolwire.toolbox.files.granted_paths import places, wrong

LONGEST_REVISION = 250
MOST_PATHS = 500
_MOST_DRIVERS = 200
_NO_PROGRAM = "/bin/false"
_NOT_IN_REVISIONS = frozenset(" \\:?*[\x7f")
_MARGIN_S, _MARGIN_PART = 2.0, 0.25

VARIABLES = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": _NO_PROGRAM,
    "GIT_ASKPASS": _NO_PROGRAM,
    "GIT_SSH_COMMAND": _NO_PROGRAM,
    # A partial clone fetches what it lacks by whatever command its remote names.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "LC_ALL": "C.UTF-8",
}
SETTINGS = {
    "safe.bareRepository": "explicit",
    "safe.directory": "*",  # whose repository it is does not matter where none is trusted
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.pager": "cat",
    "core.editor": _NO_PROGRAM,
    "core.askPass": _NO_PROGRAM,
    "core.sshCommand": _NO_PROGRAM,
    "core.alternateRefsCommand": _NO_PROGRAM,
    "core.logAllRefUpdates": "true",
    "credential.helper": "",
    "gpg.program": _NO_PROGRAM,
    "gpg.ssh.program": _NO_PROGRAM,
    "gpg.ssh.defaultKeyCommand": _NO_PROGRAM,
    "gpg.x509.program": _NO_PROGRAM,
    "log.showSignature": "false",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "protocol.allow": "never",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
}
_DRIVERS = {
    "filter": {"clean": "", "smudge": "", "process": "", "required": "false"},
    "diff": {"command": "", "textconv": ""},
    "merge": {"driver": ""},
    "hook": {"command": "", "enabled": "false"},
}


class GitRepository(Struct, frozen=True):
    """A folder in which git is asked, with every driver of its configuration switched off."""

    ops: ExecOps
    context: Context
    command: Command
    settings: Mapping[str, str] = field(default_factory=dict)

    async def git(self, *words: str) -> Ran:
        """Ask git something that changes nothing. Raises ToolFailure when git does."""
        return await self.run(("git", *words))

    async def run(self, argv: tuple[str, ...], stdin: bytes = b"", *, writable: bool = False) -> Ran:
        command = replace(self.command, argv=argv, stdin=stdin, writable=writable)
        async with watch_command(self.context, command):
            ran = await self.ops.run(command)
        self.context.ran_in(ran.engine, ran.profile)
        if ran.exit_code != 0:
            raise _failure(ran)
        return ran


async def open_repository(ops: ExecOps, context: Context, folder: str) -> GitRepository:
    """Take up a repository, defused. Raises ToolFailure for a folder that is not granted."""
    place = places(folder or ".", context)[0]
    wall_s = context.timeout_s - min(_MARGIN_S, context.timeout_s * _MARGIN_PART)
    ceiling = f"/:{PurePosixPath(place.root).parent}"
    bare = Command(
        ("git", "config", "--list", "-z", "--includes"), place.root, place.inner, writable=False,
        env={**VARIABLES, "GIT_CEILING_DIRECTORIES": ceiling},
        limits=replace(LIMITS["git"], wall_s=min(wall_s, LIMITS["git"].wall_s) if wall_s > 0 else 1.0),
    )  # fmt: skip
    ran = await GitRepository(ops, context, _with(bare, SETTINGS)).run(bare.argv)
    if ran.stdout.truncated:
        raise wrong("the configuration of this repository is too long to be read safely")
    own = _settings(git_output(ran))
    return GitRepository(ops, context, _with(bare, {**SETTINGS, **switched_off(own)}), own)


def switched_off(names: Iterable[str]) -> dict[str, str]:
    """Settings that disarm every driver among these keys. Raises ToolFailure when there are too many to be sane."""
    drivers = {
        (section, name)
        for key in names
        for section, name in [_driver(key)]
        if section in _DRIVERS and name
    }  # fmt: skip
    if len(drivers) > _MOST_DRIVERS:
        raise wrong(f"the configuration of this repository has {len(drivers)} drivers; at most {_MOST_DRIVERS} are met")
    return {f"{section}.{name}.{key}": value for section, name in drivers for key, value in _DRIVERS[section].items()}


def _driver(key: str) -> tuple[str, str]:
    section, _, rest = key.partition(".")
    return section, rest.rpartition(".")[0]


def _with(command: Command, settings: Mapping[str, str]) -> Command:
    """The command with settings that win over every file. As variables, since `-c` cannot say a name with `=`."""
    pairs = chain.from_iterable(
        ((f"GIT_CONFIG_KEY_{at}", key), (f"GIT_CONFIG_VALUE_{at}", value))
        for at, (key, value) in enumerate(settings.items())
    )
    return replace(command, env={**command.env, "GIT_CONFIG_COUNT": str(len(settings)), **dict(pairs)})


def _settings(text: str) -> dict[str, str]:
    """What `git config --list -z` says; keys in it have their section and last part in lower case."""
    entries = (entry.partition("\n") for entry in text.split("\0") if entry)
    return {key: value for key, _, value in entries}


def revision(text: str, what: str) -> str:
    """A branch, tag or commit as it may stand in a command. Raises ToolFailure for what could be read as an option."""
    if not text or len(text) > LONGEST_REVISION or text.startswith("-") or ".." in text:
        raise wrong(f"{what} names one branch, tag or commit, such as main or HEAD~2; {text[:60]!r} is none")
    if any(char < " " or char in _NOT_IN_REVISIONS or "\ud800" <= char <= "\udfff" for char in text):
        raise wrong(f"{what} {text[:60]!r} contains a character that no branch, tag or commit has")
    return text


def inner_paths(paths: Iterable[str], context: Context, folder: str) -> tuple[str, ...]:
    """Paths as git is to read them: literally, and from the repository's folder. Raises ToolFailure."""
    base = PurePosixPath(places(folder or ".", context)[0].inner)
    found = []
    for path in paths:
        inner = PurePosixPath(places(path, context)[0].inner)
        absolute = PurePosixPath(path).is_absolute()
        if absolute and not inner.is_relative_to(base):
            raise wrong(f"{path!r} is outside of the repository {folder!r}")
        found.append(str(inner.relative_to(base)) if absolute else str(inner))
    return tuple(found)


def git_output(ran: Ran) -> str:
    """What git wrote, up to where it became too much: a piece from the end would be read as something else."""
    kept = ran.stdout.head if ran.stdout.truncated else ran.stdout.head + ran.stdout.tail
    return kept.decode("utf-8", "replace")


def _failure(ran: Ran) -> ToolFailure:
    if ran.limit:
        return ToolFailure(f"git was ended by the limit {ran.limit!r}", code=Code.TIMEOUT)
    words = visible(ran.stderr.text).strip()[:600] or f"git ended with {ran.exit_code}"
    if "not a git repository" in words.lower():
        return ToolFailure("there is no git repository in this folder or above it", code=Code.NOT_FOUND)
    asked = any(sign in words for sign in ("unknown revision", "bad revision", "Needed a single", "did not match any"))
    return ToolFailure(words, code=Code.INVALID_PARAMS if asked else Code.EXECUTION_FAILED)
