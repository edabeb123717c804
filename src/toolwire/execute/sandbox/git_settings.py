"""What git obeys for a workspace, as git itself reads it: settings, folders of hooks, programs that settings name.

Git is asked to list settings, which starts nothing of theirs; a file that is included under a condition counts as
included. The answer is kept while every file that it came from stays the same, because asking costs milliseconds.
"""

import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator
from threading import Lock

from msgspec import Struct, field

from toolwire.lazy import lazy_pattern

GIT_PATH = "/usr/local/bin:/usr/bin:/bin"
_MOST_FILES = 60
_MOST_WORDS = 20
_MOST_KEPT = 64
_ASKED_FOR_S = 5.0
_LONGEST_POINTER = 4096
_TRUE = {"true", "yes", "on", "1"}
_WORDS = lazy_pattern(r"[\s;&|()<>'\"`$=!]+")
_INCLUDE = lazy_pattern(r"include(if\..+)?\.path", re.DOTALL)

_HARMLESS = lazy_pattern(
    r"""(user|author|committer)\.(name|email|signingkey|useconfigonly)
    |remote\.(pushdefault|.+\.(url|pushurl|fetch|push|tagopt|prune|prunetags|mirror|skipdefaultupdate|skipfetchall))
    |remotes\..+
    |branch\.(autosetupmerge|autosetuprebase|sort|.+\.(remote|pushremote|merge|rebase|description|vscode-merge-base))
    |(color|column|advice|status|i18n)\..+
    |init\.defaultbranch
    |core\.(autocrlf|eol|safecrlf|filemode|ignorecase|symlinks|quotepath|abbrev|whitespace|logallrefupdates
        |precomposeunicode|longpaths|compression|preloadindex|untrackedcache|commentchar|trustctime|checkstat
        |excludesfile|sparsecheckout|sparsecheckoutcone)
    |pull\.(rebase|ff)|push\.(default|autosetupremote|followtags|gpgsign)|fetch\.(prune|prunetags|parallel)
    |merge\.(conflictstyle|ff|renames|renamelimit|stat|log|branchdesc|autostash|directoryrenames)
    |diff\.(algorithm|renames|renamelimit|colormoved|colormovedws|mnemonicprefix|noprefix|context|wserrorhighlight
        |submodule|ignoresubmodules|relative|suppressblankempty|interhunkcontext)
    |diff\..+\.(binary|xfuncname|wordregex|algorithm)
    |rebase\.(autosquash|autostash|stat|updaterefs|abbreviatecommands|missingcommitscheck)
    |commit\.(verbose|status|cleanup|gpgsign)|tag\.(sort|gpgsign|forcesignannotated)
    |log\.(date|decorate|follow|abbrevcommit|mailmap)|stash\.(showpatch|showstat|showincludeuntracked)
    |grep\.(linenumber|column|patterntype|extendedregexp|threads|fullname)
    |rerere\.(enabled|autoupdate)|gc\.(auto|autopacklimit|autodetach)|apply\.(whitespace|ignorewhitespace)
    |submodule\..+\.(active|url|branch|ignore)|lfs\.(locksverify|repositoryformatversion|.+\.(access|locksverify))""",
    re.VERBOSE | re.DOTALL,
)
_USUAL = lazy_pattern(
    r"""core\.(repositoryformatversion|bare|worktree|sharedrepository|hidedotfiles)
    |extensions\.(objectformat|compatobjectformat|partialclone|refstorage|worktreeconfig)
    |remote\..+\.(promisor|partialclonefilter|followremotehead)|submodule\.active""",
    re.VERBOSE | re.DOTALL,
)
_ADDRESS = lazy_pattern(
    r"(remote|branch|submodule)\..+\.(url|pushurl|remote|pushremote)|remote\.pushdefault", re.DOTALL
)
_NAMES_REMOTE = lazy_pattern(r"branch\..+\.(remote|pushremote)|remote\.pushdefault", re.DOTALL)
_PLAIN_ADDRESS = lazy_pattern(r"(?!-)(?![a-z0-9][\w+.-]*::)[^\x00-\x1f\x7f]*", re.IGNORECASE)
_REMOTE_ADDRESS = lazy_pattern(r"(https?|ssh|git|git\+ssh|ssh\+git|ftps?)://[^/]|[^/:.][^/:]*:(?!:)", re.IGNORECASE)


class Setting(Struct, frozen=True):
    """One line of a configuration: the key as git writes it, sections and last parts in lower case."""

    key: str
    value: str
    file: str

    def is_harmless(self, workspace: str, remotes: Collection[str]) -> bool:
        """Whether no value of this key can start a program, so that a box may set it. `remotes` are those there are."""
        if not _HARMLESS.fullmatch(self.key):
            return False
        if _NAMES_REMOTE.fullmatch(self.key) and self.value in {".", *remotes}:
            return True
        return not _ADDRESS.fullmatch(self.key) or is_plain_address(self.value, workspace)

    @property
    def is_usual(self) -> bool:
        """Whether git by itself may have written it into a repository that it made, and nothing is started by it."""
        if _ADDRESS.fullmatch(self.key):
            return bool(_PLAIN_ADDRESS.fullmatch(self.value))
        return bool(_HARMLESS.fullmatch(self.key) or _USUAL.fullmatch(self.key))


class Repository(Struct, frozen=True):
    """A repository that has a folder for its work: `git` is its own folder, `common` that of all its worktrees."""

    top: str
    git: str
    common: str


class ObeyedByGit(Struct, frozen=True):
    """What git obeys for a workspace, as absolute paths, inside of it and elsewhere.

    `configs` may be missing: git would obey them once they are there. `named` are paths among the words of settings
    that start something, where there may be files; `programs` are the first of such words. `detached` are git folders
    whose settings say where their worktree is, or that there is none.
    """

    repositories: tuple[Repository, ...] = ()
    configs: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    detached: frozenset[str] = frozenset()


class _Answer(Struct):
    obeyed: ObeyedByGit
    facts: dict[str, tuple[int, ...] | None] = field(default_factory=dict)

    def still_holds(self) -> bool:
        return all(_signature(path) == facts for path, facts in self.facts.items())


_answers: dict[tuple[object, ...], _Answer] = {}
_alone = Lock()


def obeyed_by_git(workspace: str) -> ObeyedByGit:
    """What git obeys in a workspace (a real path), for its user and for its owner."""
    repositories = tuple(_repositories(workspace))
    if not repositories:
        return ObeyedByGit()
    surroundings = _surroundings(workspace)
    key = (workspace, repositories, tuple(tuple(one.items()) for one in surroundings))
    with _alone:
        known = _answers.get(key)
    if known is None or not known.still_holds():
        known = _ask(repositories, surroundings)
        with _alone:
            while len(_answers) >= _MOST_KEPT:
                _answers.pop(next(iter(_answers)))
            _answers[key] = known
    return known.obeyed


def is_plain_address(value: str, workspace: str) -> bool:
    """Whether git would reach a remote of this address without a helper, and not in the workspace.

    Pushing to a repository in a folder runs the hooks that lie there, and a box may have made them.
    """
    if not _PLAIN_ADDRESS.fullmatch(value):
        return False
    if _REMOTE_ADDRESS.match(value) and not value.lower().startswith("file:"):
        return True
    path = value[len("file://") :] if value.lower().startswith("file://") else value
    places = {os.path.normpath(os.path.join(workspace, path)), os.path.realpath(os.path.join(workspace, path))}  # noqa: PTH118 - may be absolute
    inside = (workspace, "/workspace")
    return not any(place == top or place.startswith(f"{top}/") for place in places for top in inside)


def parse_settings(content: bytes) -> list[Setting] | None:
    """What a file of settings with this content says, without what it includes; None where git cannot read it."""
    program = _program()
    return _listed(program, ("--file", "-"), {"HOME": "/"}, content) if program else None


def _ask(repositories: tuple[Repository, ...], surroundings: list[dict[str, str]]) -> _Answer:
    program = _program()
    facts: dict[str, tuple[int, ...] | None] = {}
    if not program:
        return _Answer(ObeyedByGit(repositories), facts)
    wanted = [name for one in repositories for name in (f"{one.common}/config", f"{one.git}/config.worktree")]
    settings: list[tuple[Setting, str]] = []
    for variables in surroundings:
        home = variables["HOME"]
        for path in _user_files(variables):
            facts[path] = _signature(path)
        settings += [(one, home) for one in _listed(program, (), variables) or ()]
    for path in wanted:
        facts[path] = _signature(path)
        settings += [
            (one, surroundings[0]["HOME"]) for one in _listed(program, ("--file", path), surroundings[0]) or ()
        ]
    settings += _included(program, settings, facts)
    return _Answer(_summed_up(repositories, settings, (*facts,)), facts)


def _included(
    program: str, settings: list[tuple[Setting, str]], facts: dict[str, tuple[int, ...] | None]
) -> list[tuple[Setting, str]]:
    """What further files say that these name, whatever the condition; each file is looked at once."""
    found: list[tuple[Setting, str]] = []
    waiting, seen = list(settings), {one.file for one, _ in settings if _INCLUDE.fullmatch(one.key) is None}
    for one, _ in settings:
        if one.file:
            facts.setdefault(one.file, _signature(one.file))
    while waiting and len(facts) < _MOST_FILES:
        one, home = waiting.pop()
        if not _INCLUDE.fullmatch(one.key) or not one.value:
            continue
        path = _resolve(one.value, os.path.dirname(one.file) or "/", home)  # noqa: PTH120 - text from a setting
        if path in facts and path in seen:
            continue
        seen.add(path)
        facts.setdefault(path, _signature(path))
        more = [(each, home) for each in _listed(program, ("--file", path), {"HOME": home}) or ()]
        found += more
        waiting += more
    return found


def _summed_up(
    repositories: tuple[Repository, ...], settings: Iterable[tuple[Setting, str]], configs: tuple[str, ...]
) -> ObeyedByGit:
    hooks: dict[str, None] = {}
    programs: dict[str, None] = {}
    named: dict[str, None] = {}
    detached = set()
    for one, home in settings:
        if one.key == "core.worktree" or (one.key == "core.bare" and one.value.lower() in _TRUE):
            detached |= {each.git for each in repositories if one.file.startswith((f"{each.common}/", f"{each.git}/"))}
        for top in [each.top for each in repositories]:
            if one.key == "core.hookspath" and one.value:
                hooks[_resolve(one.value, top, home)] = None
            elif not one.key.startswith("alias.") and not _HARMLESS.fullmatch(one.key):
                words = [word for word in _WORDS.split(one.value)[:_MOST_WORDS] if word and not word.startswith("-")]
                programs |= dict.fromkeys(_resolve(word, top, home) for word in words[:1] if "/" in word.strip("/"))
                named |= dict.fromkeys(_resolve(word, top, home) for word in words)
    return ObeyedByGit(repositories, configs, tuple(hooks), tuple(programs), tuple(named), frozenset(detached))


def _resolve(value: str, base: str, home: str) -> str:
    """A path of a setting as git means it."""
    if value == "~" or value.startswith("~/"):
        value = home + value[1:]
    elif value.startswith("~"):
        value = os.path.expanduser(value)  # noqa: PTH111 - another user's home
    return os.path.normpath(os.path.join(base, value))  # noqa: PTH118 - may be absolute


def _listed(
    program: str, words: tuple[str, ...], variables: dict[str, str], content: bytes = b""
) -> list[Setting] | None:
    """The settings that git lists; None where it refuses. Nothing that a setting names is started by listing."""
    environment = {"PATH": GIT_PATH, "GIT_CEILING_DIRECTORIES": "/", "LC_ALL": "C.UTF-8", **variables}
    argv = [program, "config", *words, "--list", "-z", "--show-origin"]
    try:
        told = subprocess.run(  # noqa: S603 - our own words
            argv, input=content, capture_output=True, check=False, cwd="/proc", env=environment, timeout=_ASKED_FOR_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if told.returncode != 0:
        return None
    fields = os.fsdecode(told.stdout).split("\0")
    found = []
    for origin, entry in zip(fields[::2], fields[1::2], strict=False):
        key, has_value, value = entry.partition("\n")
        file = origin.removeprefix("file:") if origin.startswith("file:") else ""
        found.append(Setting(key, value if has_value else "true", file))
    return found


def _program() -> str:
    return shutil.which("git", path=GIT_PATH) or ""


def _surroundings(workspace: str) -> list[dict[str, str]]:
    """The variables by which git finds settings: those of this process, and those of the workspace's owner."""
    names = [name for name in os.environ if name.startswith("GIT_CONFIG") or name == "XDG_CONFIG_HOME"]
    own = {name: os.environ[name] for name in names}
    found = [{"HOME": os.environ.get("HOME", "/"), **own}]
    try:
        owner = os.stat(workspace).st_uid  # noqa: PTH116 - done for every box
        home = pwd.getpwuid(owner).pw_dir if owner != os.geteuid() else found[0]["HOME"]
    except (KeyError, OSError):
        return found
    return found if home == found[0]["HOME"] else [*found, {"HOME": home}]


def _user_files(variables: dict[str, str]) -> tuple[str, ...]:
    """Where git looks for the settings of a user, whether they are there or not."""
    home = variables["HOME"]
    other = variables.get("XDG_CONFIG_HOME") or f"{home}/.config"
    named = [variables[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM") if variables.get(name)]
    return (f"{home}/.gitconfig", f"{other}/git/config", "/etc/gitconfig", *named)


def _repositories(workspace: str) -> Iterator[Repository]:
    """The repository that a workspace is in, and those further up, which would be obeyed if a nearer one broke."""
    folder = workspace
    while True:
        git = _git_folder(folder) or (folder if folder == workspace and is_bare(folder) else "")
        if git:
            yield Repository(folder, git, _common_folder(git))
        if folder == "/":
            return
        folder = os.path.dirname(folder)  # noqa: PTH120 - the same work as Path, ten times as often


def is_bare(folder: str) -> bool:
    """Whether git would take a folder itself for a repository without a `.git`."""
    return all(os.path.lexists(f"{folder}/{name}") for name in ("HEAD", "objects", "refs"))


def _git_folder(folder: str) -> str:
    """The git folder of a worktree whose top is here; empty where this is none."""
    path = f"{folder}/.git" if folder != "/" else "/.git"
    try:
        kind = os.lstat(path).st_mode
    except OSError:
        return ""
    if stat.S_ISDIR(kind) or stat.S_ISLNK(kind):
        return path
    text = _pointer(path)
    return os.path.normpath(os.path.join(folder, text[7:].strip())) if text.startswith("gitdir:") else ""  # noqa: PTH118 - may be absolute


def _common_folder(git: str) -> str:
    text = _pointer(f"{git}/commondir").strip()
    return os.path.normpath(os.path.join(git, text)) if text else git  # noqa: PTH118 - may be absolute


def _pointer(path: str) -> str:
    """The text of a small file that says where something is."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(opened, "rb") as file:
        return os.fsdecode(file.read(_LONGEST_POINTER)) if stat.S_ISREG(os.fstat(opened).st_mode) else ""


def _signature(path: str) -> tuple[int, ...] | None:
    """What changes whenever a file does; None where there is none."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - done for every box
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
