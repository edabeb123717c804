"""Whether a shell text only reads: every command in it is known, with every option that it is given. Pure.

What is not in these tables is taken to write. A tool that lets such a text run unasked holds it to that: in a box in
which nothing can be written, without a way out.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from toolwire.decide.git_reading import git_reads
from toolwire.decide.habits import OptionTable
from toolwire.decide.shell import Reading
from toolwire.decide.shell_words import UNKNOWN, after_options

# No option and no word of these writes a file, sets anything or runs anything.
_WHATEVER = frozenset(
    "ls dir vdir cat tac nl rev head tail wc cut tr fold fmt expand unexpand paste join comm cmp diff od hexdump "
    "strings column basename dirname realpath readlink pwd echo seq expr true false : du df stat cksum sum md5sum "
    "sha1sum sha224sum sha256sum sha384sum sha512sum b2sum base64 base32 nproc whoami id groups uname arch uptime "
    "free ps locale printenv grep egrep fgrep jq which whereis type bc cal factor numfmt tsort sleep yes cd exit "
    "break continue lscpu lsblk tty getconf pgrep".split()
)

_HABITS: Mapping[str, OptionTable] = {
    "sort": OptionTable("bdfghiMnRrVcCmsuz", "ktS",
        "reverse numeric-sort unique key field-separator human-numeric-sort version-sort general-numeric-sort "
        "ignore-case dictionary-order ignore-leading-blanks month-sort random-sort stable zero-terminated check merge "
        "debug sort parallel buffer-size"),
    "uniq": OptionTable("cdDiuz", "fsw", "count repeated unique ignore-case all-repeated group zero-terminated", 1),
    "shuf": OptionTable("erz", "in", "echo head-count input-range repeat zero-terminated"),
    "tree": OptionTable("adfipsughDFqrtcUvxNQSACnJXl", "LPI",
        "dirsfirst noreport gitignore prune du filelimit ignore-case charset filesfirst"),
    "file": OptionTable("bhikLNrvE0", "F", "brief mime mime-type mime-encoding dereference keep-going extension"),
    "xxd": OptionTable("abCeipu", "cglosn", words=1),
    "hostname": OptionTable("sfdiIA", words=0),
    "rg": OptionTable("nNilcwovFHIPUSsLuax0q.", "ABCgtTemMdEfrj",
        "glob iglob type type-not hidden no-ignore files files-with-matches files-without-match count count-matches "
        "line-number no-line-number ignore-case smart-case case-sensitive word-regexp line-regexp fixed-strings "
        "invert-match multiline multiline-dotall context after-context before-context max-count max-depth max-columns "
        "max-filesize only-matching heading no-heading with-filename no-filename color sort sortr json stats trim null "
        "vimgrep pcre2 regexp follow unrestricted no-messages column type-list replace passthru version"),
    "iconv": OptionTable("cls", "ft", "from-code to-code list"),
    "wait": OptionTable(words=0),
    "env": OptionTable("i0v", words=0),
    "command": OptionTable("vV"),
}  # fmt: skip

_TELLS_ITS_VERSION = frozenset("python python3 node perl ruby php lua bash gcc g++ clang make cmake go rustc".split())
_STRICT = frozenset(
    [("-e",), ("-u",), ("-eu",), ("-x",), ("-o", "pipefail"), ("-eo", "pipefail"), ("-euo", "pipefail")]
)


def only_reads(reading: Reading) -> bool:
    """Whether nothing that this text runs could change anything."""
    return reading.plain and bool(reading.commands) and all(map(_reads, reading.commands))


def runs_nothing_else(words: Sequence[str]) -> bool:
    """Whether no word of a command is one that it would run."""
    return bool(words) and words[0] != "xargs" and _reads(tuple(words))


def _reads(words: tuple[str, ...]) -> bool:
    name, rest = words[0], words[1:]
    if name in _WHATEVER:
        return True
    if name in _SPECIAL:
        return _SPECIAL[name](rest)
    if name in _TELLS_ITS_VERSION:
        return rest == ("--version",)
    if name == "set":
        return rest in _STRICT
    return name in _HABITS and _HABITS[name].hold(rest)


def _tests(words: Sequence[str]) -> bool:
    """`test`: in `-v NAME` the name's subscript is evaluated."""
    return not any(UNKNOWN in word or word in ("-v", "-R") for word in words)


def _prints(words: Sequence[str]) -> bool:
    """`printf`: with -v it sets a variable."""
    return bool(words) and not words[0].startswith(("-", UNKNOWN))


def _tells_time(words: Sequence[str]) -> bool:
    """`date`: a word without + would set the clock."""
    options = after_options(words, "uRI", "dr")
    return options is not None and all(word.startswith("+") for word in options) and UNKNOWN not in "".join(words)


_FIND_TESTS = frozenset(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -size -mtime -mmin -atime "
    "-amin -ctime -cmin -newer -maxdepth -mindepth -not -and -or -a -o -print -print0 -printf -ls -empty -perm -user "
    "-group -uid -gid -links -inum -samefile -lname -ilname -prune -quit -true -false -depth -mount -xdev -follow -L "
    "-H -P -readable -writable -executable -nouser -nogroup -daystart -noleaf".split()
)
_FIND_VALUES = re.compile(r"-[0-9]+[a-zA-Z]?|-newer[aBcm][aBcmt]")


def _finds(words: Sequence[str]) -> bool:
    """`find`: tests only. Words that begin otherwise are places and the tests' values."""
    return not any(
        UNKNOWN in word or (word.startswith("-") and word not in _FIND_TESTS and not _FIND_VALUES.fullmatch(word))
        for word in words
    )


def _hands_over(words: Sequence[str]) -> bool:
    """`xargs`: runs only what reads whatever words it is given."""
    rest = after_options(words, "0rtx", "nLPsd")
    return rest is not None and (not rest or rest[0] in _WHATEVER)


def edits_in_place(words: Sequence[str]) -> bool:
    """`sed -i`: it changes the files that it is given, by commands that print, delete or replace, and nothing else."""
    if words[:1] != ("-i",):
        return False
    # A pattern of names that begins with a known letter finds no file that sed would take for an option.
    return _edits_nothing([word[0] if UNKNOWN in word[1:] and word[0] not in _UNSURE else word for word in words[1:]])


_UNSURE = frozenset({"-", UNKNOWN})


def _edits_nothing(words: Sequence[str]) -> bool:
    """`sed`: no option that writes, and a script made of commands that print, delete or replace."""
    scripts, rest = [], list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option = rest.pop(0)
        if option in ("-e", "--expression") and rest:
            scripts.append(rest.pop(0))
        elif option.startswith("--expression="):
            scripts.append(option.removeprefix("--expression="))
        elif not (set(option[1:]) <= set("nErsuz") or option in _SED_LONG):
            return False
    if not scripts and rest:
        scripts.append(rest.pop(0))
    known = not any(UNKNOWN in word for word in (*scripts, *rest)) and not any(word.startswith("-") for word in rest)
    return known and bool(scripts) and all(_SED_SCRIPT.fullmatch(script) for script in scripts)


_SED_LONG = frozenset("--quiet --silent --regexp-extended --separate --unbuffered --null-data".split())


def _sed_script() -> re.Pattern[str]:
    """Scripts in which `/` ends a pattern for every reader: brackets hold neither slashes nor brackets."""
    piece = r"(?>[^/\\\n\[]|\\[^\nc]|\[\^?[^\]\[\^/\\\n]++\])*+"
    address = rf"(?:[0-9]++(?:~[0-9]++)?|\$|/{piece}/I?)"
    command = rf"(?:[pdqPD=]|[qQ][0-9]*+|s/{piece}/(?>[^/\\\n]|\\[^\nc])*+/[gpIi0-9]*+)"
    line = rf"(?:{address}(?:,(?:{address}|[+~][0-9]++))?)?[ ]?!?[ ]?(?:{command})?"
    return re.compile(rf"[ ]*+{line}(?>[ ]*+[;\n][ ]*+{line})*+[ ]*+;?")


_SED_SCRIPT = _sed_script()
_SPECIAL: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "test": _tests, "printf": _prints, "date": _tells_time, "find": _finds, "xargs": _hands_over,
    "sed": _edits_nothing, "git": git_reads,
}  # fmt: skip
