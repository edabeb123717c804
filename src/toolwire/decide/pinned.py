"""How much of a command an approval for a pattern must name, so that it covers that command and not anything. Pure.

A pattern says how a command begins. Of a program that runs what follows it (`npx`, `sh`, `python3`), the beginning
must name what is run; of one whose further words can run anything (`make`), it must be the whole command. So it must
where an option runs another program (`go test -exec`).
"""

import re
from collections.abc import Sequence

from toolwire.decide.program_options import runs_more
from toolwire.decide.reading import edits_in_place
from toolwire.decide.shell_words import UNKNOWN, base_name

# Programs that run words or text in ways that no beginning tells.
_ANYTHING = frozenset(
    "eval source . exec xargs parallel sudo doas su ssh watch script expect trap alias busybox chroot unshare nsenter "
    "systemd-run at batch crontab coproc find fd awk gawk mawk nawk env strace ltrace gdb flock entr nodemon docker "
    "podman kubectl psql mysql vi vim nvim ed ex emacs osascript".split()
)
# Programs that run a file, with the options before it that change nothing about that.
_INTERPRETERS = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh"), "eux"), "python": "uBEIsO", "perl": "wT", "ruby": "wW",
    "node": "", "php": "", "lua": "", "tsx": "", "ts-node": "", "Rscript": "", "julia": "", "pypy": "uBEIsO",
}  # fmt: skip
# Modules of Python that run the project and nothing that they are told.
_MODULES = frozenset("pytest unittest mypy ruff black isort flake8 pylint compileall json.tool build".split())
_VERSION = re.compile(r"[0-9.]+$")
# Words that run the program behind them.
_RUNNERS = (
    *(("npx",), ("bunx",), ("uvx",), ("npm", "exec"), ("npm", "x"), ("pnpm", "exec"), ("pnpm", "dlx"), ("yarn", "dlx")),
    *(("yarn", "exec"), ("bun", "x"), ("uv", "run"), ("uv", "tool", "run"), ("poetry", "run"), ("pipenv", "run")),
    *(("pdm", "run"), ("hatch", "run"), ("rye", "run"), ("pipx", "run"), ("conda", "run"), ("bundle", "exec")),
    *(("nix", "run"), ("go", "run"), ("deno", "run"), ("bun", "run"), ("npm", "run"), ("pnpm", "run"), ("yarn", "run")),
)
_WHOLE = frozenset("make gmake ninja just task rake tox nox ant gradle mvn bazel".split())

# What may be offered: programs that do no more than their name says, and what others are asked to do.
_PLAIN = frozenset(
    "touch mkdir rmdir cp ln tee pytest ruff mypy black isort flake8 prettier eslint tsc jest vitest gofmt rustfmt "
    "gzip gunzip zip unzip patch ls".split()
)
_TASKS = {
    "git": "add commit checkout switch restore reset stash merge cherry-pick revert tag branch mv rm",
    "npm": "test ci", "pnpm": "test", "yarn": "test", "cargo": "build test check fmt clippy doc bench run",
    "go": "build test vet fmt", "uv": "sync lock", "dotnet": "build test",
}  # fmt: skip


def names_program(words: Sequence[str], named: int) -> bool:
    """Whether the first `named` words of a command say what is run, so that further ones can only say how."""
    if named < 1 or any(UNKNOWN in word for word in words[:named]):
        return False
    runner = _runner(words)
    if named < len(words) and runs_more(base_name(words[0]), words[1:]):
        return False
    if runner:
        return named > runner and not words[runner].startswith("-") and names_program(words[runner:], named - runner)
    name = base_name(words[0])
    if name in _ANYTHING:
        return False
    if name in _WHOLE:
        return named == len(words)
    if name in ("sed", "gsed"):
        return edits_in_place(words[1:])
    interpreter = _interpreter(name)
    if interpreter is None:
        return True
    file = _file_at(words, interpreter)
    if file is None or named <= file:
        return False
    return words[file - 1] != "-m" or named == len(words) or not runs_more(words[file], words[file + 1 :])


def offered_words(words: Sequence[str]) -> Sequence[str]:
    """The beginning of a command that an approval for all like it would most likely name; empty where there is none."""
    name = base_name(words[0]) if words else ""
    if not words or UNKNOWN in words[0]:
        return ()
    interpreter = _interpreter(name)
    if _runner(words) > 1 and words[:2] in _SCRIPTS:
        count = 3
    elif name in _WHOLE:
        count = len(words)
    elif interpreter is not None:
        file = _file_at(words, interpreter)
        count = 0 if file is None else file + 1
    elif name in _TASKS:
        count = 2 if words[1:2] and words[1] in _TASKS[name].split() else 0
    elif name in ("sed", "gsed"):
        count = 2 if edits_in_place(words[1:]) else 0
    else:
        count = 1 if name in _PLAIN or words[0].startswith("./") else 0
    return words[:count] if len(words) >= count and names_program(words, count) else ()


def runs_whole(words: Sequence[str]) -> bool:
    """Whether a pattern of these words covers that one command only."""
    return bool(words) and base_name(words[0]) in _WHOLE


_SCRIPTS = [("npm", "run"), ("pnpm", "run"), ("yarn", "run")]


def _runner(words: Sequence[str]) -> int:
    """How many words at the beginning only say that the next ones are run."""
    return max((len(one) for one in _RUNNERS if tuple(words[: len(one)]) == one and len(words) > len(one)), default=0)


def _interpreter(name: str) -> str | None:
    """The harmless options of a program that runs a file; None for any other program."""
    return _INTERPRETERS.get(name, _INTERPRETERS.get(_VERSION.sub("", name)))


def _file_at(words: Sequence[str], harmless: str) -> int | None:
    """Where a command names the file that it runs, or `-m` its module; None where it runs something else."""
    for at, word in enumerate(words[1:], 1):
        if word == "-m" and "B" in harmless:
            return at + 1 if words[at + 1 : at + 2] and words[at + 1] in _MODULES else None
        if not word.startswith("-"):
            return at
        if word == "-" or not set(word[1:]) <= set(harmless):
            return None
    return None
