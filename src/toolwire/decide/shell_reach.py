"""What a shell text could do to the files and pages that a rule is about. Pure.

Where a command names such a file plainly, the rule means it. Where it could reach one (through a folder, a word made
at run time, a program that opens what it likes), the rule may be meant, and people are asked. What is behind a link is
not seen from here: the caller that runs the text looks there.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from toolwire.decide.addresses import address_fits
from toolwire.decide.families import RuleReach, reach
from toolwire.decide.file_options import git_strays, strays
from toolwire.decide.fit import RuleMatch
from toolwire.decide.paths import BOX_ROOT, may_hold, path_fits, plain
from toolwire.decide.reading import only_reads, runs_nothing_else
from toolwire.decide.shell import Reading
from toolwire.decide.shell_globs import listed_folders, may_list
from toolwire.decide.shell_words import UNKNOWN, base_name
from toolwire.lazy import lazy_pattern
from toolwire.protocol.policy import Rule
from toolwire.protocol.tools import Grant

# These open no file that a word of theirs names.
_NO_FILES = frozenset(
    "echo printf true false : pwd seq expr sleep yes whoami id groups uname arch uptime free ps locale nproc tty "
    "getconf lscpu cal factor numfmt exit break continue wait set type which whereis command test basename dirname "
    "kill cd".split()
)
# These show names and sizes, but nothing of what is in a file.
_NAMES_ONLY = frozenset("ls dir vdir stat du df realpath readlink".split())
# These read the files that their words name, and nothing beneath a folder.
_OPENS_ITS_WORDS = frozenset(
    "cat tac nl rev head tail wc cut fold fmt expand unexpand paste join comm cmp od hexdump strings column cksum sum "
    "md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum base64 base32 egrep fgrep jq bc sort uniq shuf xxd "
    "file iconv sed tr grep tsort date hostname pgrep".split()
)
# These change what their words name, and show nothing.
_CHANGES_ITS_WORDS = frozenset("touch mkdir rmdir rm tee truncate chmod chown unlink".split())
_COPIES_ITS_WORDS = frozenset("cp install".split())
_MOVES_ITS_WORDS = frozenset("mv ln".split())
_GIT_TELLS_NO_CONTENT = frozenset(
    "status branch tag remote rev-parse describe config merge-base for-each-ref show-ref name-rev count-objects "
    "check-ignore version ls-files ls-tree rev-list shortlog add commit".split()
)
_GIT_CONFIG_STAYS = frozenset(
    "--get --get-all --get-regexp --list -l --global --local --system --worktree --show-origin --show-scope "
    "--name-only --null -z --bool --int --path --add --replace-all --unset --unset-all --all --fixed-value "
    "--type=bool --type=int --type=path".split()
)
_GIT_RAW = lazy_pattern(r"%\(\*?raw")
# What these are given may show differences.
_GIT_SHOWS_CHANGES = lazy_pattern(r"-(?!-).*[vpie].*", re.DOTALL)
_GIT_LOG_TELLS_NO_CONTENT = lazy_pattern(
    r"-[0-9]+|-n[0-9]*|-i|--(?:oneline|graph|stat|shortstat|numstat|name-only|name-status|format|pretty|date|since|after"
    r"|until|before|author|committer|grep|all|branches|tags|remotes|decorate|no-decorate|merges|no-merges|first-parent"
    r"|reverse|abbrev-commit|follow|skip|max-count|color|no-color|topo-order|date-order)(?:=.*)?|[^-].*|--",
    re.DOTALL,
)
_DEEP = {
    **dict.fromkeys(("ls", "dir", "vdir"), lazy_pattern(r"-(?!-).*R.*|--recursive")),
    **dict.fromkeys(("grep", "egrep", "fgrep"), lazy_pattern(r"-(?!-).*[rRd].*|--recursive|--d.*")),
    "du": lazy_pattern(r"-(?!-).*[aL].*|--all|--dereference.*"),
    "cp": lazy_pattern(r"-(?!-).*[rRadP].*|--recursive|--archive|--no-dereference|--preserve.*"),
    "file": lazy_pattern(r"-(?!-).*f.*"),
    **dict.fromkeys(("rm", "chmod", "chown"), lazy_pattern(r"-(?!-).*[rR].*|--recursive")),
}
# Through these a process reaches its own files by other names.
_OTHER_NAMES = lazy_pattern(r"^/+(?:\.*/+)*(?:proc|dev/fd)(?:/|$)", re.IGNORECASE)
# Commands that follow links in folders, which lead anywhere, and the options that make them do so.
_FOLLOWS_LINKS = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), lazy_pattern(r"-(?!-).*R.*|--d.*")),
    **dict.fromkeys(("rg", "du", "ls", "dir", "vdir"), lazy_pattern(r"-(?!-).*L.*|--follow|--dereference.*")),
    "find": lazy_pattern(r"-L|-H|-follow"),
    "tree": lazy_pattern(r"-(?!-).*l.*"),
    "cp": lazy_pattern(r"-(?!-).*[LH].*|--dereference"),
    "diff": lazy_pattern(r".*", re.DOTALL),
}
_JQ_LOADS = lazy_pattern(r"\b(?:import|include|input_filename)\b|^-[a-zA-Z]*[Lf]|^--(?:library-path|from-file)")
_PIECES = lazy_pattern(r"[=:,;@\s'\"()<>|&`]+")


def reaches(rule: Rule, reading: Reading, grant: Grant, folder: str) -> RuleMatch:
    """Whether a shell text that is run in this folder could do what a rule about a path or an address is about."""
    about = reach(rule)
    if RuleReach.PAGES in about:
        return _fetches(rule, reading, grant)
    sight = _Sight(rule, grant, _Folders(folder, grant.roots, reading))
    found = RuleMatch.NO
    if about & (RuleReach.CONTENT | RuleReach.NAMES):
        found = sight.shows(reading)
    return max(found, sight.changes(reading)) if RuleReach.CHANGES in about else found


def named_paths(reading: Reading, folder: str, roots: Sequence[str]) -> list[str]:
    """Every path that a shell text run in this folder may name, as seen from the workspace.

    Folders in which it has the shell look for names may have `STAR` in them.
    """
    places = _Folders(folder, roots, reading)
    found: dict[str, None] = {}
    for word in (word for words in reading.commands for word in words if UNKNOWN not in word):
        for one in candidates(word):
            found.update(dict.fromkeys(places.seen_from(one)))
    for folder in listed_folders(reading.globs):
        found.update(dict.fromkeys(places.seen_from(folder)))
    for word in (*reading.opened, *reading.written):
        found.update(dict.fromkeys(places.seen_from(word) if UNKNOWN not in word else ()))
    return list(found)


def candidates(word: str) -> Iterator[str]:
    """What of a word may be a path: all of it, the value of an option, a part behind a colon."""
    yield word
    if word.startswith("-") and not word.startswith("--"):
        yield from (word[at:] for at in range(2, min(len(word), _LONGEST_CLUSTER)))
    pieces = _PIECES.split(word)
    if len(pieces) > 1:
        yield from filter(None, pieces)
        yield from filter(None, (_PIECES.split(word, maxsplit=1)[1],))


_LONGEST_CLUSTER = 20


class _Folders:
    """The folders in which a command may run, as seen from the workspace.

    A `cd` may lead to one more, or fail. In a loop it counts for what stands before it too. So does `git -C`.
    """

    def __init__(self, folder: str, roots: Sequence[str], reading: Reading) -> None:
        inner = _inner(folder, roots) if folder.startswith("/") else folder
        self._folders = ["" if inner in ("", ".") else inner]
        self.anywhere = False
        for words in reading.commands:
            for one in (words, *_entered_by_git(words)):
                self._enter(one)

    def _enter(self, words: Sequence[str]) -> None:
        if base_name(words[0]) in ("pushd", "popd"):
            self.anywhere = True
        if base_name(words[0]) != "cd":
            return
        if len(words) != 2 or UNKNOWN in words[1] or words[1].startswith("-") or len(self._folders) > _MOST_FOLDERS:
            self.anywhere = True
        else:
            self._folders += [_joined(one, words[1]) for one in self._folders]

    def seen_from(self, path: str) -> list[str]:
        return [_joined(one, path) for one in self._folders]


_MOST_FOLDERS = 16


def _entered_by_git(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Each folder that git is told to work in, as the `cd` that leads there."""
    if base_name(words[0]) == "git":
        yield from (("cd", folder) for option, folder in pairwise(words) if option == "-C")


def _joined(folder: str, path: str) -> str:
    found = path if path.startswith("/") or not folder else plain(f"{folder}/{path}")
    return plain(f"{BOX_ROOT}/{found}") if plain(found).startswith("..") else found


class _Sight:
    """What a rule about a path means, as seen from the folders that a command may run in."""

    def __init__(self, rule: Rule, grant: Grant, folders: _Folders) -> None:
        self._pattern = rule.pattern
        self._roots = grant.roots
        self._folders = folders

    def shows(self, reading: Reading) -> RuleMatch:
        """Whether it could show what is in such a file."""
        listed = RuleMatch.MAYBE if self._finds(reading.globs) else RuleMatch.NO
        return max(_each(reading, self._shown_by), *map(self._word, reading.opened), listed)

    def changes(self, reading: Reading) -> RuleMatch:
        """Whether it could change such a file."""
        found = RuleMatch.NO if only_reads(reading) else _each(reading, self._changed_by)
        return max(found, *map(self._word, reading.written), RuleMatch.NO)

    def _shown_by(self, words: Sequence[str]) -> RuleMatch:
        name, rest = base_name(words[0]), words[1:]
        if name in _NO_FILES:
            return RuleMatch.NO
        plainly = max(map(self._word, words))
        if plainly is RuleMatch.YES or name in ("touch", "mkdir", "rmdir", "rm"):
            return plainly
        if name == "git" and _tells_no_content(rest):
            return RuleMatch.NO
        if name == "jq" and any(_JQ_LOADS.search(word) for word in rest):
            return RuleMatch.MAYBE
        if _strays(name, rest):
            return RuleMatch.MAYBE
        if _goes_deeper(name, rest):
            return max(plainly, self._beneath(name, rest))
        if name in _NAMES_ONLY:
            return max(plainly, *map(self._lists, [*_plain_words(rest)] or ["."]), RuleMatch.NO)
        return plainly if name in _OPENS_ITS_WORDS | _COPIES_ITS_WORDS else max(plainly, self._beneath(name, rest))

    def _changed_by(self, words: Sequence[str]) -> RuleMatch:
        name, rest = base_name(words[0]), words[1:]
        if name in _NO_FILES or runs_nothing_else(words):
            return RuleMatch.NO
        if name == "git" and rest[:1] and rest[0] in ("add", "commit"):
            return RuleMatch.NO
        if name not in _CHANGES_ITS_WORDS | _COPIES_ITS_WORDS | _MOVES_ITS_WORDS:
            return RuleMatch.MAYBE
        if _strays(name, rest):
            return max(RuleMatch.MAYBE, *map(self._word, words))
        folders = _target_folders(rest) if name in _COPIES_ITS_WORDS | _MOVES_ITS_WORDS else []
        deep = name in _MOVES_ITS_WORDS or _goes_deeper(name, rest)
        further = self._beneath(name, [*rest, *folders]) if deep else self._put_into(folders, rest)
        return max(*map(self._word, words), further)

    def _put_into(self, folders: Sequence[str], words: Sequence[str]) -> RuleMatch:
        """Whether a file that keeps its name is put in the place of such a file; with `--parents`, its folders too."""
        names = {name for word in words for name in (word, word.rpartition("/")[2]) if name}
        found = len(folders) > _MOST_FOLDERS or any(self._fits(f"{into}/{name}") for into in folders for name in names)
        return RuleMatch.MAYBE if found else RuleMatch.NO

    def _word(self, word: str) -> RuleMatch:
        """Whether a word names such a file; a part of a longer word may do so by chance."""
        if UNKNOWN in word or self._folders.anywhere or any(map(_OTHER_NAMES.search, candidates(word))):
            return RuleMatch.MAYBE
        if not any(map(self._fits, candidates(word))):
            return RuleMatch.NO
        return RuleMatch.MAYBE if any(char.isspace() for char in word) else RuleMatch.YES

    def _fits(self, path: str) -> bool:
        return any(path_fits(one, self._pattern, self._roots) for one in self._folders.seen_from(path))

    def _lists(self, word: str) -> RuleMatch:
        """Whether a folder is listed in which such files lie."""
        start = self._pattern.partition("*")[0].rpartition("/")[0]
        places = self._folders.seen_from(word) if start else ()
        return RuleMatch.MAYBE if any(path_fits(one, start, self._roots) for one in places) else RuleMatch.NO

    def _finds(self, globs: Sequence[str]) -> bool:
        """Whether the shell may put names of such files in place of a pattern."""
        if not globs or self._folders.anywhere:
            return bool(globs)
        return may_list(globs, self._pattern, self._folders.seen_from(""), self._roots)

    def _beneath(self, name: str, rest: Sequence[str]) -> RuleMatch:
        """What a command may do that enters folders, or opens what it likes."""
        follows = name in _FOLLOWS_LINKS and any(map(_FOLLOWS_LINKS[name].fullmatch, rest))
        if name not in _ENTERS_ITS_WORDS or self._folders.anywhere or follows:
            return RuleMatch.MAYBE
        words = [*_plain_words(rest)]
        if len(words) < _ENTERS_ITS_WORDS[name]:
            words.append(".")
        places = [place for word in words for place in self._folders.seen_from(word)]
        return RuleMatch.MAYBE if any(may_hold(place, self._pattern, self._roots) for place in places) else RuleMatch.NO


def _each(reading: Reading, judge: Callable[[Sequence[str]], RuleMatch]) -> RuleMatch:
    found = RuleMatch.MAYBE if reading.doubt and not only_reads(reading) else RuleMatch.NO
    return max(found, *map(judge, reading.commands), RuleMatch.NO)


def _goes_deeper(name: str, words: Sequence[str]) -> bool:
    """Whether a command that otherwise stays with its words enters folders, or takes names from a file."""
    return name in _DEEP and any(map(_DEEP[name].fullmatch, words))


def _target_folders(words: Sequence[str]) -> list[str]:
    """Where a command puts what its words name, if that is a folder: its last word, or what `-t` is given."""
    apart = [folder for option, folder in pairwise(words) if _TARGET.fullmatch(option)]
    attached = [found[1] for found in map(_TARGET.match, words) if found and found[1]]
    return [*apart, *attached, *[*_plain_words(words)][-1:]]


_TARGET = lazy_pattern(r"(?:-(?!-)[^t]*t|--target-directory=?)(.*)", re.DOTALL)


def _strays(name: str, words: Sequence[str]) -> bool:
    """Whether a command has an option of which it is not known what it opens or runs."""
    tables = [table[name] for table in (_DEEP, _FOLLOWS_LINKS) if name in table]
    return strays(name, [word for word in words if not any(table.fullmatch(word) for table in tables)])


# Commands that go into the folders among their words: with fewer words than this, into the one they run in.
_ENTERS_ITS_WORDS = {
    "ls": 1, "dir": 1, "vdir": 1, "du": 1, "find": 1, "tree": 1, "grep": 2, "egrep": 2, "fgrep": 2, "rg": 2, "diff": 2,
    "cp": 2, "mv": 2, "ln": 2, "install": 2, "rm": 1, "chmod": 2, "chown": 2,
}  # fmt: skip


def _tells_no_content(words: Sequence[str]) -> bool:
    rest = list(words)
    while rest[:1] and rest[0] in ("--no-pager", "-P", "-C"):
        rest = rest[2:] if rest[0] == "-C" else rest[1:]
    if rest[:1] in (["log"], ["reflog"]):
        return all(UNKNOWN not in word and _GIT_LOG_TELLS_NO_CONTENT.fullmatch(word) for word in rest[1:])
    if rest[:1] and rest[0] in ("status", "add", "commit"):
        shows = any(UNKNOWN in word[:1] or _GIT_SHOWS_CHANGES.fullmatch(word) for word in rest[1:])
        return not shows and not git_strays(rest[0], rest[1:])
    if rest[:1] == ["config"]:  # other options name files, or follow what a file includes
        return all(not word.startswith(("-", UNKNOWN)) or word in _GIT_CONFIG_STAYS for word in rest[1:])
    return bool(rest) and rest[0] in _GIT_TELLS_NO_CONTENT and not any(map(_GIT_RAW.search, rest))


def _plain_words(words: Iterable[str]) -> Iterator[str]:
    return (word for word in words if not word.startswith("-") and UNKNOWN not in word)


def _inner(folder: str, roots: Sequence[str]) -> str:
    for root in (*roots, BOX_ROOT):
        if f"{folder}/".startswith(f"{root.rstrip('/')}/"):
            return folder[len(root.rstrip("/")) :].strip("/")
    return folder


def _fetches(rule: Rule, reading: Reading, grant: Grant) -> RuleMatch:
    """Whether it could fetch such a page. What only reads has no way out."""
    if "network" not in grant.permissions or not grant.network or only_reads(reading):
        return RuleMatch.NO
    words = [word for words in reading.commands for word in words[1:]]
    if any(address_fits(one, rule.pattern) for word in words if UNKNOWN not in word for one in _addresses(word)):
        return RuleMatch.YES
    harmless = _NO_FILES | _CHANGES_ITS_WORDS | _COPIES_ITS_WORDS | _MOVES_ITS_WORDS
    idle = all(base_name(words[0]) in harmless or runs_nothing_else(words) for words in reading.commands)
    return RuleMatch.NO if idle and not reading.doubt else RuleMatch.MAYBE


def _addresses(word: str) -> Iterator[str]:
    for one in dict.fromkeys((word, *word.split(), *word.split("="))):
        if "://" in one:
            yield one[max(one.find("http"), 0) :]
        elif "." in one or ":" in one:
            yield from (f"http://{one}", f"https://{one}")
