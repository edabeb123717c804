"""Names that no file tool may write, because something later runs or obeys what is in them.

They are refused whether they exist or not, however they are spelled: file systems of other machines ignore case,
trailing dots, or characters that cannot be seen.
"""

import unicodedata

from toolwire.protocol.files import Protected

OWN_STATE = ".toolwire"

_FOLDERS = """
.git .hg .svn .jj .toolwire .ssh .gnupg .aws .kube .docker
.github .gitlab .gitea .forgejo .circleci .buildkite .woodpecker .teamcity .tekton
.vscode .vscode-server .idea .vs .zed .fleet .devcontainer .vim .nvim .emacs.d .sublime .cursor .windsurf
.husky .githooks .direnv .claude .codex .gemini .aider .continue .agents
"""
_FILES = """
.gitmodules .gitconfig .hgrc .lfsconfig .netrc .npmrc .yarnrc .yarnrc.yml .pnpmrc .pypirc pip.conf .curlrc .wgetrc
.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout
.kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc .xinitrc .xprofile .xsessionrc .envrc config.fish
.gitlab-ci.yml .travis.yml .drone.yml .woodpecker.yml .cirrus.yml .appveyor.yml appveyor.yml jenkinsfile
azure-pipelines.yml bitbucket-pipelines.yml buildspec.yml cloudbuild.yaml
.pre-commit-config.yaml lefthook.yml .lefthook.yml
.vimrc .nvimrc .exrc .gvimrc .emacs .dir-locals.el .editorrc
toolwire.toml .mcp.json mcp.json .cursorrules .aider.conf.yml sitecustomize.py usercustomize.py
"""
_NAMES = frozenset(_FOLDERS.split()) | frozenset(_FILES.split())
# Names that matter only in such a folder: what toolwire trusts and obeys, and what a desktop starts by itself.
_IN_FOLDERS = frozenset([
    ("state", "toolwire"), (".config", "toolwire"), (".config", "autostart"), ("systemd", "user"), (".local", "bin"),
])  # fmt: skip
# Names that Windows gives to ".git" and the like where it keeps short ones.
_SHORT = ("git~", "gitmod~", "toolwi~")


def refuse_protected(path: str) -> None:
    """Raise `Protected` if a part of the path is a name that tools may not write."""
    above = ""
    for part in path.split("/"):
        name = _plain_name(part)
        if name in _NAMES or name.startswith(_SHORT) or (above, name) in _IN_FOLDERS:
            raise Protected(part)
        above = name or above


def refuse_own_state(path: str) -> None:
    """Raise `Protected` if the path leads into what toolwire itself keeps, which is nobody's business to read."""
    for part in path.split("/"):
        if _plain_name(part) == OWN_STATE:
            raise Protected(part)


def is_own_state(name: str) -> bool:
    return _plain_name(name) == OWN_STATE


def _plain_name(part: str) -> str:
    """The name as the least careful file system would read it."""
    if part.isascii() and part.isalnum():
        return part.lower()
    folded = unicodedata.normalize("NFKC", part).casefold()
    seen = "".join(char for char in folded if unicodedata.category(char) not in {"Cf", "Cc", "Mn"})
    return seen.partition(":")[0].rstrip(". ")
