"""Which options of programs that are approved by their first words run another program or other code. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from toolwire.decide.shell_words import UNKNOWN


class _Starts(Struct, frozen=True):
    """Letters and long names of such options; in `anywhere` what makes any word one."""

    letters: str = ""
    long: str = ""
    anywhere: tuple[str, ...] = ()

    def fits(self, word: str) -> bool:
        """Whether a word is such an option: also abbreviated, in a cluster, or made when the command runs."""
        if word.startswith(UNKNOWN) or any(part in word for part in self.anywhere):
            return True
        if not word.startswith("-") or not word.strip("-"):
            return False
        # Some take long names behind one dash, and write them with capitals or with dashes.
        given = _folded(word.partition("=")[0].partition(":")[0])
        names = [_folded(name) for name in self.long.split()]
        if any(given.startswith(name) for name in names):
            return True
        if word.startswith("--"):
            return any(name.startswith(given) for name in names)
        return any(letter in word for letter in self.letters)


def _folded(name: str) -> str:
    return name.replace("-", "").casefold()


_PACKAGES = _Starts(
    "C",
    "script-shell shell prefix dir cwd userconfig globalconfig node-options config pnpmfile global-pnpmfile git editor "
    "init-module node-gyp python use-yarnrc registry",
)
_STARTS: Mapping[str, _Starts] = {
    "zip": _Starts("", "unzip-command", ("TT",)),
    "go": _Starts("C", "exec toolexec vettool overlay modfile", ("extld", "toolexec")),
    "cargo": _Starts("CZ", "config manifest-path"),
    **dict.fromkeys(("npm", "pnpm", "yarn"), _PACKAGES),
    **dict.fromkeys(
        ("pytest", "py.test"),
        _Starts("pco", "rootdir config-file override-ini confcutdir pdbcls pythonpath plugin cov-config"),
    ),
    "git": _Starts("", "exec strategy upload-pack receive-pack template open-files-in-pager ext-diff textconv"),
    "uv": _Starts("p", "directory project config-file python"),
    "dotnet": _Starts("pl", "property logger settings test-adapter-path", ("/p:", "/l:", "/logger", "/property", "@")),
    "eslint": _Starts("cf", "config rulesdir resolve-plugins-relative-to plugin parser format"),
    "prettier": _Starts("", "config plugin"),
    "jest": _Starts(
        "c", "config root-dir runner test-runner setup-files global-setup global-teardown transform resolver reporters "
        "env test-environment snapshot-serializers preset projects watch-plugins filter haste",
    ),
    "vitest": _Starts("cr", "config root dir reporter environment global-setup runner pool workspace"),
    "mypy": _Starts("", "config-file python-executable"),
    "flake8": _Starts("", "config append-config"),
    "pylint": _Starts("", "load-plugins init-hook rcfile"),
    "patch": _Starts("eg", "ed get"),
}  # fmt: skip


def runs_more(name: str, words: Sequence[str]) -> bool:
    """Whether a word behind the name of a program makes it run something that its first words do not name."""
    starts = _STARTS.get(name)
    if starts is None:
        return False
    if name == "git":  # what stands before the question sets anything; a pattern of names behind it is a file
        known = [word for word in words if not word.startswith(UNKNOWN)]
        return any(word.startswith("-") for word in words[:1]) or any(map(starts.fits, known))
    reads_words = name in ("pytest", "py.test") and any(word.startswith("@") for word in words)
    return reads_words or any(map(starts.fits, words))
