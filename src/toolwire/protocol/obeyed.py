"""The one list of names that other programs obey: git, shells, editors, coding agents, CI, package managers. Pure.

File tools and boxes both go by it, at every depth of a workspace and however a name is spelled: file systems of other
machines ignore case, trailing dots, or characters that cannot be seen.

Each name has a class, which says what is done about it:

- `REFUSED`: file tools never write it. Own state, keys, version control, start-up files of shells.
- `ASKED`: file tools write it only after a person has agreed to that call, or a rule names it. Editors, agents, CI,
  package managers, hooks, start-up files of interpreters and debuggers.
- `TOLD`: file tools write it like any other file. Documents that agents read as instructions, `.tool-versions`, and
  `*.pth`, which package installers write all the time.

In a box the first two can be read and not changed where they are there, and are held back where a command made them;
what is new or changed of the third is told in the result.
"""

import unicodedata
from enum import IntEnum
from functools import lru_cache

OWN_STATE = ".toolwire"
HELD_BACK = "held-back"
"""A name that was moved aside ends with this word and a number: `.vscode.held-back-1a2b3c4d`."""


class Obeyed(IntEnum):
    """What is done about a name that other programs obey, the mildest first."""

    TOLD = 1
    ASKED = 2
    REFUSED = 3


VERSION_CONTROL = frozenset({".git", ".svn"})
"""Folders of version control in which commands work: git's are judged by what lies in them, svn's start nothing."""

_REFUSED = """
.git .hg .svn .jj .toolwire toolwire.toml .gitmodules .gitconfig .hgrc .lfsconfig
.ssh .gnupg .aws .kube .docker .netrc .pypirc .curlrc .wgetrc
.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout
.kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc .xinitrc .xprofile .xsessionrc config.fish
.vimrc .nvimrc .exrc .gvimrc .emacs .emacs.d .vim .nvim
"""
_ASKED = """
.gitlab .gitea .forgejo .circleci .buildkite .woodpecker .teamcity .tekton
.gitlab-ci.yml .gitlab-ci.yaml .travis.yml .drone.yml .woodpecker.yml .woodpecker.yaml .cirrus.yml .appveyor.yml
appveyor.yml jenkinsfile azure-pipelines.yml azure-pipelines.yaml bitbucket-pipelines.yml buildspec.yml
cloudbuild.yaml cloudbuild.yml
.vscode .vscode-server .idea .vs .zed .fleet .devcontainer .devcontainer.json .sublime .cursor .windsurf
.dir-locals.el .dir-locals-2.el .editorrc .nvim.lua .lvimrc .exrc.lua
.claude .claude.json .codex .gemini .aider .aider.conf.yml .continue .agents .roo .cline .clinerules .kiro .amazonq
.opencode opencode.json opencode.jsonc .goose .mcp.json mcp.json .cursorrules .windsurfrules
.qwen .trae .junie .augment .crush.json crush.json .factory
.envrc .direnv .mise.toml mise.toml .shadowenv.d .autoenv .autoenv.zsh
.rprofile .irbrc .pryrc .ghci .pdbrc .gdbinit .lldbinit .octaverc .mvn .jvmopts
.husky .githooks .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml
lefthook.yml lefthook.yaml .lefthook.yml .lefthook.yaml lefthook.toml .overcommit.yml
.npmrc .yarnrc .yarnrc.yml .pnpmrc .pnpmfile.cjs pip.conf pip.ini .condarc .gemrc .bundle .bazelrc .bowerrc
bunfig.toml
sitecustomize usercustomize
"""
_TOLD = "agents.md claude.md claude.local.md gemini.md copilot-instructions.md .tool-versions"
_CLASSES = {
    name: kind
    for names, kind in ((_TOLD, Obeyed.TOLD), (_ASKED, Obeyed.ASKED), (_REFUSED, Obeyed.REFUSED))
    for name in names.split()
}
# Names that matter only in such a folder.
_IN_FOLDERS = {
    ("state", "toolwire"): Obeyed.REFUSED,
    (".config", "toolwire"): Obeyed.REFUSED,
    (".config", "autostart"): Obeyed.REFUSED,
    ("systemd", "user"): Obeyed.REFUSED,
    (".local", "bin"): Obeyed.REFUSED,
    (".config", "git"): Obeyed.REFUSED,
    (".config", "fish"): Obeyed.REFUSED,
    (".config", "nvim"): Obeyed.REFUSED,
    (".config", "direnv"): Obeyed.REFUSED,
    (".config", "pip"): Obeyed.ASKED,
    (".pip", "pip.conf"): Obeyed.ASKED,
    (".cargo", "config"): Obeyed.ASKED,
    (".cargo", "config.toml"): Obeyed.ASKED,
    (".yarn", "plugins"): Obeyed.ASKED,
    (".yarn", "releases"): Obeyed.ASKED,
    (".config", "mise"): Obeyed.ASKED,
}
# What a code host does with the rest of such a folder is shown to people before anything runs.
_FORGES = frozenset({".github"})
_HARMLESS_THERE = frozenset("issue_template pull_request_template discussion_template readme.md".split())
# Names that Windows gives to ".git" and the like where it keeps short ones.
_SHORT = ("git~", "gitmod~", "toolwi~")
_PATHS_OF_MODULES = ".pth"
_SETTINGS_OF_EDITORS = ".code-workspace"
_ENDINGS = (_PATHS_OF_MODULES, _SETTINGS_OF_EDITORS)
# Python imports them when it starts, whatever their ending says about how they were made.
_START_UP_MODULES = ("sitecustomize", "usercustomize")
# Every other name of the list begins with a dot, so that most names of a folder need no further look.
_WITHOUT_DOT = frozenset(name for name in (*_CLASSES, *(name for _, name in _IN_FOLDERS)) if not name.startswith("."))


def class_of(path: str) -> tuple[Obeyed, str] | None:
    """The strictest class among the parts of a path, and the part that has it; None for an ordinary path."""
    found: tuple[Obeyed, str] | None = None
    above = ""
    for part in path.split("/"):
        if not part or part == ".":
            continue
        kind = class_in(above, part)
        if kind is not None and (found is None or kind > found[0]):
            found = kind, part
        above = part
    return found


def class_in(folder: str, name: str) -> Obeyed | None:
    """The class of a name that lies in a folder of that name."""
    if is_ordinary(name) and plain_name(folder) not in _FORGES:
        return None
    return _class_in(folder, name)


def is_ordinary(name: str) -> bool:
    """Whether a name can be told to be none of the list without a closer look. False says nothing."""
    if not name.isascii() or name[:1] == "." or name[-1:] in (".", " ") or ":" in name or "~" in name:
        return False
    lowered = name.lower()
    if lowered.endswith(_ENDINGS) or lowered.startswith(_START_UP_MODULES):
        return False
    return lowered not in _WITHOUT_DOT


@lru_cache(maxsize=4096)
def _class_in(folder: str, name: str) -> Obeyed | None:
    above, plain = plain_name(folder), plain_name(name)
    if plain.startswith(_SHORT):
        return Obeyed.REFUSED
    if above in _FORGES:
        return None if plain.partition(".")[0] in _HARMLESS_THERE or plain in _HARMLESS_THERE else Obeyed.ASKED
    kind = _CLASSES.get(plain) or _IN_FOLDERS.get((above, plain)) or _CLASSES.get(_module_of(plain))
    if kind is not None:
        return kind
    if plain.endswith(_SETTINGS_OF_EDITORS):
        return Obeyed.ASKED
    return Obeyed.TOLD if plain.endswith(_PATHS_OF_MODULES) else None


def _module_of(plain: str) -> str:
    stem = plain.partition(".")[0]
    return stem if stem in _START_UP_MODULES else ""


def is_own_state(name: str) -> bool:
    """Whether a name is that of toolwire's own folder."""
    return plain_name(name) == OWN_STATE


@lru_cache(maxsize=4096)
def plain_name(part: str) -> str:
    """The name as the least careful file system would read it."""
    if part.isascii() and part.isalnum():
        return part.lower()
    folded = unicodedata.normalize("NFKC", part).casefold()
    seen = "".join(char for char in folded if unicodedata.category(char) not in {"Cf", "Cc", "Mn"})
    return seen.partition(":")[0].rstrip(". ")
