"""Which shell texts may be tried in a box before a person is asked about them. Pure.

A trial changes nothing and reaches nothing, whatever it runs, so what may be tried needs no list of programs. These
tables only name what plainly writes or reaches out: trying that would cost time, and its question is certain.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from toolwire.decide.git_reading import git_reads
from toolwire.decide.reading import only_reads
from toolwire.decide.shell import UNKNOWN, base_name, read_shell
from toolwire.protocol.key_files import KEY_FOLDERS_IN, is_key_file

_WRITERS = frozenset(
    "rm rmdir mv cp touch mkdir mkfifo mknod tee ln link unlink chmod chown chgrp install truncate shred dd split "
    "csplit rsync patch sponge rename apt apt-get dpkg dnf yum apk brew snap systemctl service useradd passwd mount "
    "umount crontab docker podman kubectl helm terraform ansible-playbook".split()
)
_GIT_WRITES = frozenset(
    "add am apply checkout cherry-pick clean clone commit fetch filter-branch gc init merge mv notes pull push rebase "
    "reset restore revert rm submodule switch update-index update-ref worktree bisect config remote stash tag branch "
    "replace prune repack lfs".split()
)
# What these package managers only tell; everything else they are asked for, they do.
_TELLS = frozenset(
    "list ls show freeze tree outdated view info why check version help env search explain audit doc metadata root "
    "prefix bin config ping whoami fund query pkgid locate-project --version -V -v --help -h --list".split()
)
_PACKAGE_MANAGERS = frozenset("npm pnpm yarn pip pip3 pipx uv poetry conda cargo gem bundle composer".split())
_REACHES = frozenset(
    "curl wget nc ncat netcat ssh scp sftp ftp telnet ping dig nslookup host whois traceroute gh glab aws gcloud az "
    "npx bunx uvx".split()
)
_SECRET = "{{secret:"  # where the value of a secret takes its place
_PRIVATE = ("/tmp/", "/dev/")  # noqa: S108 - the box's own, gone with it
_NAMES = re.compile(r"[^\s'\"=:;|&<>(){}$`,]+")


def only_looks(command: str) -> bool:
    """Whether a text only reads, and names no file with keys: it runs where nothing can be written, and keys hide."""
    return only_reads(read_shell(command)) and not names_keys(command) and _SECRET not in command


def may_be_tried(command: str, *, reaches: bool) -> bool:
    """Whether a trial can tell something: nothing in the text plainly writes or, where it `reaches` hosts, goes out.

    A text with a secret is not tried either: what is done with the secret would reach the model without a question.
    """
    reading = read_shell(command)
    if _SECRET in command or any(map(_is_known_place, reading.written)):
        return False
    return not any(_plainly_writes(words) or (reaches and _plainly_reaches(words)) for words in reading.commands)


def _is_known_place(path: str) -> bool:
    """Whether a path that is written lies in the workspace for sure; where only running tells, a trial does."""
    return not path.startswith((*_PRIVATE, UNKNOWN)) or "/.." in path


def names_keys(command: str) -> bool:
    """Whether a text names a file that holds keys."""
    for name in _NAMES.findall(command):
        parts = name.split("/")
        if any(map(is_key_file, parts)) or not KEY_FOLDERS_IN.isdisjoint(pairwise(parts)):
            return True
    return False


def _plainly_writes(words: Sequence[str]) -> bool:
    name, rest = base_name(words[0]), words[1:]
    if name in _WRITERS:
        return any(_is_known_place(word) for word in rest if not word.startswith("-")) or not rest
    if name == "git":
        return not _GIT_WRITES.isdisjoint(_git_command(rest)) and not git_reads(rest)
    if name in _PACKAGE_MANAGERS:
        return bool(rest) and _TELLS.isdisjoint(rest[:2])
    if name in ("sed", "gsed"):
        return any(word.startswith("--in-place") or _SED_IN_PLACE.match(word) for word in rest)
    return name == "find" and "-delete" in rest


_SED_IN_PLACE = re.compile(r"-[nErsuz]*i")


def _git_command(words: Sequence[str]) -> Sequence[str]:
    """The word that says what git shall do, behind its own options."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace") else rest[1:]
    return rest[:1]


def _plainly_reaches(words: Sequence[str]) -> bool:
    return base_name(words[0]) in _REACHES
