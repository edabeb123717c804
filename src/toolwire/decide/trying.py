"""Which shell texts may be tried in a box before a person is asked about them. Pure.

A trial changes nothing and reaches nothing, whatever it runs, so what may be tried needs no list of programs. These
tables only name what plainly writes or reaches out: trying that would cost time, and its question is certain.
"""

from collections.abc import Sequence

from toolwire.decide.git_reading import git_reads
from toolwire.decide.reading import only_reads
from toolwire.decide.shell import UNKNOWN, base_name, read_shell
from toolwire.lazy import lazy_pattern
from toolwire.protocol.key_files import holds_keys

_WRITERS = frozenset(
    "rm rmdir mv cp touch mkdir mkfifo mknod tee ln link unlink chmod chown chgrp truncate shred sponge rename".split()
)
_GIT_WRITES = frozenset(
    "add am apply checkout cherry-pick clean clone commit fetch filter-branch gc init merge mv prune pull push rebase "
    "repack reset restore revert rm stash switch update-index update-ref".split()
)
_PACKAGE_MANAGERS = frozenset("npm pnpm yarn pip pip3 pipx uv poetry conda cargo gem bundle composer go".split())
_INSTALLS = frozenset(
    "install i ci add remove rm uninstall update upgrade up init create link unlink publish dedupe prune sync lock new "
    "fetch vendor clean download tidy get build wheel venv".split()
)
_DRY = frozenset("-n --dry-run --check --stat --numstat --summary --version --help -h".split())
_REACHES = frozenset(
    "curl wget nc ncat netcat ssh scp sftp ftp telnet ping dig nslookup host whois traceroute gh glab aws gcloud az "
    "npx bunx uvx".split()
)
_SECRET = "{{secret:"  # where the value of a secret takes its place
_PRIVATE = ("/tmp/", "/dev/")  # noqa: S108 - the box's own, gone with it
# Where nothing can be written, no file is writable: a trial has the right answer.
_ASKS_ABOUT_WRITING = lazy_pattern(r"(?:\[|\btest\b)[^\]\n]*\s-w\s|\s-writable\b")
_NAMES = lazy_pattern(r"[^\s'\"=:;|&<>(){}$`,]+")


def only_looks(command: str) -> bool:
    """Whether a text only reads, and names no file with keys: it runs where nothing can be written, and keys hide."""
    if _SECRET in command or _ASKS_ABOUT_WRITING.search(command):
        return False
    return only_reads(read_shell(command)) and not names_keys(command)


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
    return any(map(holds_keys, _NAMES.findall(command)))


def _plainly_writes(words: Sequence[str]) -> bool:
    name, rest = base_name(words[0]), words[1:]
    if name in _WRITERS:
        return any(_is_known_place(word) for word in rest if not word.startswith("-"))
    if name == "git":
        return not _GIT_WRITES.isdisjoint(_git_command(rest)) and _DRY.isdisjoint(rest) and not git_reads(rest)
    if name in _PACKAGE_MANAGERS:
        task = next((word for word in rest if not word.startswith("-")), "")
        return task in _INSTALLS and _DRY.isdisjoint(rest)
    if name in ("sed", "gsed"):
        return any(word.startswith("--in-place") or _SED_IN_PLACE.match(word) for word in rest)
    return name == "find" and "-delete" in rest


_SED_IN_PLACE = lazy_pattern(r"-[nErsuz]*i")


def _git_command(words: Sequence[str]) -> Sequence[str]:
    """The word that says what git is to do, behind its own options."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace") else rest[1:]
    return rest[:1]


def _plainly_reaches(words: Sequence[str]) -> bool:
    return base_name(words[0]) in _REACHES
