"""Which long options leave a command with the files that its words name. Pure.

GNU programs and git take every unique beginning of a long option, and some options take names from a file or run a
program. So only whole names that are listed here are known; any other may do anything.
"""

from collections.abc import Mapping, Sequence

from toolwire.decide.reading import runs_nothing_else

_EVERY = frozenset("help version".split())
_LISTING = (
    "all almost-all author escape block-size ignore-backups color directory dired classify file-type format full-time "
    "group-directories-first no-group human-readable si hide hyperlink indicator-style inode ignore kibibytes "
    "numeric-uid-gid literal hide-control-chars show-control-chars quote-name quoting-style reverse size sort time "
    "time-style tabsize width context zero"
)
_SEARCH = (
    "extended-regexp fixed-strings basic-regexp perl-regexp regexp file ignore-case no-ignore-case word-regexp "
    "line-regexp null-data no-messages invert-match max-count byte-offset line-number line-buffered with-filename "
    "no-filename label only-matching quiet silent binary-files text include exclude exclude-from exclude-dir "
    "files-without-match files-with-matches count initial-tab null before-context after-context context color colour"
)
_SUMS = "binary check tag text zero ignore-missing quiet status strict warn length algorithm base64 debug raw untagged"
_MOVING = (
    "backup force interactive no-clobber strip-trailing-slashes suffix target-directory no-target-directory update "
    "verbose debug"
)
_MODES = "changes silent quiet verbose no-preserve-root preserve-root reference from"

_KEEPS_TO_ITS_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("ls", "dir", "vdir"), _LISTING),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _SEARCH),
    **dict.fromkeys("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum".split(), _SUMS),
    **dict.fromkeys(("base64", "base32"), "decode ignore-garbage wrap"),
    **dict.fromkeys(("chmod", "chown"), _MODES),
    "stat": "dereference file-system cached format printf terse",
    "du": "apparent-size block-size bytes total max-depth human-readable inodes si summarize threshold time "
          "time-style exclude exclude-from one-file-system separate-dirs null count-links",
    "df": "all block-size human-readable si inodes local no-sync output portability sync total type print-type "
          "exclude-type",
    "realpath": "canonicalize-existing canonicalize-missing logical physical quiet relative-to relative-base strip "
                "no-symlinks zero",
    "readlink": "canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero",
    "cat": "show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting",
    "tac": "before regex separator",
    "head": "bytes lines quiet silent verbose zero-terminated",
    "tail": "bytes follow lines max-unchanged-stats pid quiet silent retry sleep-interval verbose zero-terminated",
    "wc": "bytes chars lines max-line-length words total",
    "cut": "bytes characters delimiter fields complement only-delimited output-delimiter zero-terminated",
    "paste": "delimiters serial zero-terminated",
    "fold": "bytes spaces width",
    "sort": "reverse numeric-sort unique key field-separator human-numeric-sort version-sort general-numeric-sort "
            "ignore-case dictionary-order ignore-leading-blanks month-sort random-sort random-source stable "
            "zero-terminated check merge debug sort parallel buffer-size output temporary-directory batch-size",
    "uniq": "count repeated unique ignore-case all-repeated group zero-terminated skip-fields skip-chars check-chars",
    "shuf": "echo head-count input-range output random-source repeat zero-terminated",
    "comm": "check-order nocheck-order output-delimiter total zero-terminated",
    "join": "ignore-case check-order nocheck-order header zero-terminated",
    "cmp": "print-bytes ignore-initial verbose bytes quiet silent",
    "od": "address-radix endian skip-bytes read-bytes strings format output-duplicates width traditional",
    "file": "brief mime mime-type mime-encoding dereference no-dereference keep-going extension separator print0 raw",
    "iconv": "from-code to-code list output verbose",
    "sed": "quiet silent expression in-place line-length posix regexp-extended separate sandbox unbuffered null-data "
           "debug follow-symlinks",
    "jq": "null-input raw-input slurp compact-output raw-output raw-output0 join-output ascii-output sort-keys "
          "color-output monochrome-output tab indent unbuffered stream seq exit-status arg argjson args jsonargs "
          "slurpfile rawfile",
    "tr": "complement delete squeeze-repeats truncate-set1",
    "date": "date debug file iso-8601 rfc-email rfc-3339 reference utc universal",
    "cp": f"{_MOVING} attributes-only copy-contents link parents reflink remove-destination sparse symbolic-link "
          "one-file-system",
    "install": "backup compare directory group mode owner preserve-timestamps suffix target-directory "
               "no-target-directory verbose debug",
    "mv": f"{_MOVING} no-copy exchange",
    "ln": f"{_MOVING} logical no-dereference physical relative symbolic",
    "touch": "no-create date no-dereference reference time",
    "mkdir": "mode parents verbose",
    "rmdir": "ignore-fail-on-non-empty parents verbose",
    "rm": "force interactive one-file-system no-preserve-root preserve-root dir verbose",
    "tee": "append ignore-interrupts output-error",
    "truncate": "no-create io-blocks reference size",
}  # fmt: skip
_KNOWN = {name: _EVERY.union(names.split()) for name, names in _KEEPS_TO_ITS_WORDS.items()}
# These enter folders and can run programs or take names from a file: all their options must be known.
_SEARCHES = frozenset("rg find tree".split())

# What git is given here shows nothing of what is in a file.
_GIT_KNOWN = {
    "status": frozenset(
        "short branch porcelain long untracked-files ignored show-stash ahead-behind no-ahead-behind renames "
        "no-renames find-renames column no-column ignore-submodules null".split()
    ),
    "add": frozenset(
        "all no-all update force dry-run intent-to-add ignore-errors ignore-missing ignore-removal no-ignore-removal "
        "refresh renormalize chmod sparse".split()
    ),
    "commit": frozenset(
        "message all amend no-edit no-verify signoff no-signoff author date allow-empty allow-empty-message quiet "
        "dry-run short long branch porcelain null fixup squash only include file reuse-message gpg-sign no-gpg-sign "
        "trailer cleanup reset-author no-status untracked-files no-post-rewrite".split()
    ),
}


def strays(name: str, words: Sequence[str]) -> bool:
    """Whether one of these options of a command is not known to leave it with the files that its words name."""
    if name in _SEARCHES:
        return not runs_nothing_else((name, *words))
    if name == "strings" and any(word.startswith("@") for word in words):
        return True  # it takes more words from that file
    known = _KNOWN.get(name, _EVERY)
    return any(option not in known for option in _long_names(words))


def git_strays(question: str, words: Sequence[str]) -> bool:
    """Whether one of these long options of `git status`, `add` or `commit` is not known to show no difference."""
    return any(option not in _GIT_KNOWN[question] for option in _long_names(words))


def _long_names(words: Sequence[str]) -> list[str]:
    """The long options among words, also behind `--`, which may be the value of the option before it."""
    return [word[2:].partition("=")[0] for word in words if word.startswith("--") and word != "--"]
