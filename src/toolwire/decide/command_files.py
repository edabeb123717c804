"""The files that a command runs or reads by name, so that their content can be part of what is approved. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from toolwire.decide.shell import Reading, base_name, read_shell
from toolwire.decide.shell_reach import named_paths
from toolwire.decide.shell_words import UNKNOWN

_SCRIPTS = ("package.json",)
# Programs that obey a file which no word of the command names.
_OBEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _SCRIPTS),
    **dict.fromkeys(("pytest", "py.test"), ("conftest.py", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")),
    **dict.fromkeys(("docker", "podman", "docker-compose"), ("Dockerfile", "compose.yaml", "docker-compose.yml")),
    **dict.fromkeys(("gradle", "gradlew"), ("build.gradle", "build.gradle.kts", "settings.gradle")),
    "just": ("justfile", "Justfile", ".justfile"), "task": ("Taskfile.yml", "Taskfile.yaml"), "rake": ("Rakefile",),
    "cargo": ("Cargo.toml", "build.rs"), "go": ("go.mod",), "tox": ("tox.ini",), "nox": ("noxfile.py",),
    "mvn": ("pom.xml",), "cmake": ("CMakeLists.txt",), "pre-commit": (".pre-commit-config.yaml",),
    "composer": ("composer.json",), "bundle": ("Gemfile",), "uv": ("pyproject.toml",), "poetry": ("pyproject.toml",),
    "pip": ("setup.py", "pyproject.toml"), "ninja": ("build.ninja",), "meson": ("meson.build",), "npx": _SCRIPTS,
}  # fmt: skip
_RUNS_FILES = frozenset(
    "sh bash dash zsh ksh fish python python2 python3 node nodejs deno perl ruby php lua Rscript java tclsh source . "
    "awk gawk env nohup timeout sudo xargs find exec eval".split()
)
_FOLDER_OPTIONS = frozenset("-C --directory --prefix --cwd --dir --project --manifest-path".split())


class CommandFiles(Struct, frozen=True):
    """Paths that a command may name, as seen from the workspace: most words of a command are no files.

    `runs` says that what it names may load or run other files, `made` that some words are made when it runs.
    """

    paths: tuple[str, ...] = ()
    runs: bool = False
    made: bool = False


def command_files(text: str, folder: str, roots: Sequence[str]) -> CommandFiles:
    """The files that a shell text names, or makes a program obey."""
    reading = read_shell(text)
    if not reading.commands:
        return CommandFiles(runs=bool(reading.doubt), made=bool(reading.doubt))
    written = frozenset(reading.written)
    obeyed = tuple(tuple(_obeyed(words)) for words in reading.commands)
    widened = Reading(
        tuple((*words, *more) for words, more in zip(reading.commands, obeyed, strict=True)), opened=reading.opened
    )
    paths = [path for path in named_paths(widened, folder, roots) if path not in written]
    runs = any(map(_runs_files, reading.commands))
    made = any(UNKNOWN in word for words in reading.commands for word in words)
    return CommandFiles(tuple(paths), runs, made)


def _runs_files(words: Sequence[str]) -> bool:
    return base_name(words[0]) in _RUNS_FILES or base_name(words[0]) in _OBEYS or "/" in words[0]


def _obeyed(words: Sequence[str]) -> Iterable[str]:
    """The files that a program obeys in its folder, or in the one that an option names."""
    name = base_name(words[0])
    folders = [".", *(after for option, after in pairwise(words) if option in _FOLDER_OPTIONS)]
    for folder in folders:
        yield from (f"{folder}/{file}" for file in _OBEYS.get(name, ()))
    for option, module in pairwise(words):
        if option == "-m" and name.startswith("python") and UNKNOWN not in module:
            path = module.replace(".", "/")
            yield from (f"{path}.py", f"{path}/__main__.py", f"{path}/__init__.py")
