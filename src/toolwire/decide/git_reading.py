"""Which questions to git only read, as far as git itself goes; what a repository makes it run, its box holds. Pure."""

from collections.abc import Mapping, Sequence

from toolwire.decide.habits import OptionTable

_HISTORY = (
    "oneline stat shortstat numstat dirstat summary name-only name-status graph all decorate no-decorate abbrev-commit "
    "no-abbrev-commit abbrev no-abbrev pretty format date relative-date since after until before author committer grep "
    "all-match invert-grep regexp-ignore-case extended-regexp fixed-strings perl-regexp merges no-merges first-parent "
    "reverse follow max-count skip branches tags remotes patch no-patch unified raw no-renames find-renames "
    "find-copies diff-filter cached staged merge-base ignore-all-space ignore-space-change ignore-space-at-eol "
    "ignore-blank-lines word-diff word-diff-regex color-words color no-color minimal patience histogram "
    "diff-algorithm full-index binary check exit-code quiet pickaxe-regex pickaxe-all left-right cherry-pick "
    "cherry-mark topo-order date-order author-date-order count boundary simplify-by-decoration full-history parents "
    "children no-walk walk-reflogs notes no-notes source use-mailmap no-ext-diff no-textconv function-context "
    "inter-hunk-context text no-prefix relative cc compact-summary no-index color-moved no-color-moved numbered "
    "email root no-commit-id"
)
_LOOKING = OptionTable("psuzRabwqcmtrigeEFP0123456789", "nUSGLMCB", _HISTORY)

_QUESTIONS: Mapping[str, OptionTable] = {
    **dict.fromkeys(
        "log diff show shortlog rev-list diff-tree diff-index diff-files whatchanged cherry".split(), _LOOKING
    ),
    "status": OptionTable("sbvz", "u", "short branch porcelain long verbose untracked-files ignored show-stash "
                     "ahead-behind no-ahead-behind renames no-renames find-renames column ignore-submodules"),
    "ls-files": OptionTable("cdomiustvfz", "xX", "cached deleted modified others ignored stage unmerged killed "
                       "full-name exclude-standard error-unmatch eol deduplicate abbrev directory "
                       "no-empty-directory exclude"),
    "ls-tree": OptionTable("rtdlz", "", "long name-only name-status full-name full-tree object-only abbrev format"),
    "blame": OptionTable("lstcpfnewbk", "LMCS", "line-porcelain porcelain show-email show-name show-number date since "
                    "abbrev root incremental ignore-rev reverse first-parent"),
    "grep": OptionTable("nilLcwovhHIEFGPaqpWzr0123456789", "eABCmf", "line-number ignore-case files-with-matches "
                   "files-without-match name-only count word-regexp extended-regexp basic-regexp fixed-strings "
                   "perl-regexp show-function function-context untracked cached no-index and or not all-match "
                   "max-depth max-count heading break color no-color column only-matching invert-match context "
                   "after-context before-context full-name null recursive no-recursive text quiet exclude-standard"),
    "rev-parse": OptionTable("q", "", "abbrev-ref short verify quiet show-toplevel git-dir absolute-git-dir "
                        "is-inside-work-tree is-inside-git-dir is-bare-repository show-prefix show-cdup git-path "
                        "symbolic symbolic-full-name all branches tags remotes is-shallow-repository git-common-dir"),
    "describe": OptionTable("", "", "tags all always long abbrev dirty broken contains match exclude exact-match "
                       "first-parent candidates"),
    "cat-file": OptionTable("tspe", "", "batch-check batch-all-objects unordered buffer"),
    "merge-base": OptionTable("a", "", "all octopus independent is-ancestor fork-point"),
    "for-each-ref": OptionTable("", "", "format sort count points-at merged no-merged contains no-contains exclude"),
    "show-ref": OptionTable("qsd", "", "heads branches tags verify hash abbrev dereference quiet"),
    "name-rev": OptionTable("", "", "tags refs name-only all always"),
    "count-objects": OptionTable("vH", "", "verbose human-readable", 0),
    "check-ignore": OptionTable("qvn", "", "quiet verbose non-matching no-index"),
    "version": OptionTable("", "", "build-options", 0),
    "remote": OptionTable("v", "", "verbose", 0),
    "branch": OptionTable("arvl", "", "all remotes list verbose show-current contains no-contains merged no-merged "
                     "points-at sort format column color no-color abbrev", 0),
    "tag": OptionTable("ln0123456789", "", "list contains no-contains merged no-merged points-at sort format column "
                  "color", 0),
}  # fmt: skip

# With one of these, further words choose among what is listed; without, they name what is made.
_LISTS = frozenset("-l --list --contains --no-contains --merged --no-merged --points-at".split())
_CONFIG = OptionTable("lz", "", "get get-all get-regexp list global local system worktree show-origin show-scope "
                 "name-only null includes no-includes type bool int path")  # fmt: skip
_CONFIG_READS = frozenset("--get --get-all --get-regexp --list -l".split())
_BEFORE = frozenset("--no-pager -P --no-optional-locks --literal-pathspecs".split())


def git_reads(words: Sequence[str]) -> bool:
    """Whether git is only asked something by these words behind its name."""
    rest = list(words)
    while rest[:1] and (rest[0] in _BEFORE or rest[0] == "-C"):
        rest = rest[2:] if rest[0] == "-C" else rest[1:]
    if rest == ["--version"]:
        return True
    match rest:
        case ["stash", "list" | "show", *more]:
            return _LOOKING.hold(more)
        case ["reflog"] | ["reflog", "show"]:
            return True
        case ["worktree", "list", *more]:
            return OptionTable("vz", "", "porcelain verbose", 0).hold(more)
        case ["remote", "get-url", *more]:
            return OptionTable("", "", "all push", 1).hold(more)
        case ["config", *more]:
            return _CONFIG.hold(more) and not _CONFIG_READS.isdisjoint(more)
        case ["branch" | "tag" as question, *more] if not _LISTS.isdisjoint(more):
            asked = _QUESTIONS[question]
            return OptionTable(asked.flags, asked.valued, asked.long).hold(more)
        case [question, *more] if question in _QUESTIONS:
            return _QUESTIONS[question].hold(more)
    return False
