"""What a git command would reach and which settings it would write, told from its words. Pure.

A box decides what is really reached and written; this decides what the model is told, and whether a command is one that
does nothing but set settings, whose result is then looked at.
"""

import re
from collections.abc import Iterator, Sequence

from toolwire.decide.shell import Reading
from toolwire.decide.shell_words import UNKNOWN, base_name
from toolwire.lazy import lazy_pattern

_NETWORK = frozenset("push pull fetch clone ls-remote submodule".split())
_SUBMODULE_HERE = frozenset("status init deinit foreach summary sync absorbgitdirs set-branch set-url".split())
_TAKES_VALUE = frozenset(
    "-b --branch -o --origin -u --upload-pack --template --reference --reference-if-able --depth --shallow-since "
    "--shallow-exclude -c --config -j --jobs --separate-git-dir --filter --server-option --bundle-uri -s --strategy "
    "-X --strategy-option --receive-pack --exec --push-option --deepen --refmap --negotiation-tip".split()
)
_LOCAL = lazy_pattern(r"(?![a-z0-9+.-]+://|[^/:]+:)[^-].*|file://.*", re.IGNORECASE | re.DOTALL)
_REMOTE = frozenset("add remove rm rename set-url set-head set-branches get-url".split())
_CONFIG_STYLE = frozenset("set unset get list".split())
_CONFIG_OPTIONS = frozenset(
    "--local --add --replace-all --unset --unset-all --get --get-all --list -l --bool --int --bool-or-int --path "
    "--null -z --name-only --show-origin --show-scope --all --fixed-value --type=bool --type=int --type=path".split()
)


def needs_network(words: Sequence[str]) -> bool:
    """Whether a git command reaches another machine; one whose repository is a path here does not."""
    if len(words) < 2 or words[1] not in _NETWORK:
        return False
    if words[1] == "submodule":
        return not _SUBMODULE_HERE.intersection(words[2:3]) and len(words) > 2
    first = next(_positional(words[2:]), "")
    return not first or UNKNOWN in first or _LOCAL.fullmatch(first) is None or not _is_path(words[1], first)


def written_settings(reading: Reading) -> list[tuple[str, str]] | None:
    """The keys and values that commands would set, where they do nothing but set or show settings of git; else None."""
    if not reading.plain or reading.doubt or reading.written or not reading.commands:
        return None
    found: list[tuple[str, str]] = []
    for words in reading.commands:
        settings = _settings(words)
        if settings is None:
            return None
        found += settings
    return found


def _settings(words: Sequence[str]) -> list[tuple[str, str]] | None:
    if base_name(words[0]) != "git" or any(UNKNOWN in word for word in words):
        return None
    match list(words[1:]):
        case ["config", *rest]:
            return _of_config(rest)
        case ["remote"] | ["remote", "-v" | "--verbose"]:
            return []
        case ["remote", "add" | "set-url" as verb, *rest]:
            return _of_address(verb, rest)
        case ["remote", verb, *rest] if verb in _REMOTE and not any(word.startswith("-") for word in rest):
            return [(f"remote.{name}.fetch", "") for name in rest[:2]]
        case ["branch", "-u" | "--set-upstream-to", _, *rest] if len(rest) <= 1:
            return []
        case ["branch", "--unset-upstream", *rest] if len(rest) <= 1:
            return []
    return None


def _of_config(words: list[str]) -> list[tuple[str, str]] | None:
    options = [word for word in words if word.startswith("-")]
    plain = [word for word in words if not word.startswith("-")]
    if not _CONFIG_OPTIONS.issuperset(options):
        return None
    if plain[:1] and plain[0] in _CONFIG_STYLE:
        plain = plain[1:]
    return [(_canonical(plain[0]), plain[1] if len(plain) > 1 else "")] if plain else []


def _of_address(verb: str, words: list[str]) -> list[tuple[str, str]] | None:
    if any(word.startswith("-") and word not in {"--push", "--add"} for word in words):
        return None
    plain = [word for word in words if not word.startswith("-")]
    if len(plain) != 2 and not (verb == "set-url" and len(plain) == 3):
        return None
    return [(f"remote.{plain[0]}.url", plain[1])]


def _canonical(key: str) -> str:
    """A key as git writes it: the section and the last part in lower case."""
    section, _, rest = key.partition(".")
    middle, dot, last = rest.rpartition(".")
    return f"{section.lower()}.{middle}{dot}{last.lower()}"


def _positional(words: Sequence[str]) -> Iterator[str]:
    skipped = False
    for word in words:
        if skipped:
            skipped = False
        elif word.startswith("-") and word != "-":
            skipped = word in _TAKES_VALUE
        else:
            yield word


def _is_path(verb: str, word: str) -> bool:
    """Whether a word is a path and not the name of a remote, which may be anywhere."""
    return verb == "clone" or word.startswith((".", "/", "~", "file://"))
