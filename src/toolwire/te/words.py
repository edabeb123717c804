"""The words given to `te`: its own flags, and the command that they are about."""

from collections.abc import Sequence

from msgspec import Struct

COMMANDS = ("grep", "cat", "find", "ls", "git", "run")
_FREE = frozenset({"grep", "cat", "find", "ls"})
_FLAGS = {"--raw", "--json", "--help", "--version"}
_VALUES = {"--handle", "--chunk", "--budget", "--timeout", "--agent"}
_TAKES_ANY_WORD = {"-e", "-f", "--regexp", "--file", "-name", "-iname", "-path"}

HELP = """\
Usage: te [FLAGS] grep|cat|find|ls|git|run WORDS...
       te --handle ID [--chunk N]

Run a command and show its output in a Tool Envelope: a header that says how
much there is, the best results first, and what was left out.

Commands:
  grep   search, definitions first and tests last; folders are searched through
  cat    show files
  find   find files, those of the project first
  ls     list folders
  git    ask git
  run    run any program, or one quoted line of shell

Flags, before the command (after it too, for grep, cat, find and ls):
  --raw         give the command's own output, unchanged
  --json        give one JSON object
  --handle ID   show more of an output that was too long
  --chunk N     which part of it; the first is 1
  --budget N    show at most N characters, or with 3000t about 3000 tokens
  --agent NAME  who reads this, which decides the budget; else TE_AGENT_ID
  --timeout S   stop after S seconds (grep, cat, find and ls: 30)
  --version, --help
"""


class UsageError(Exception):
    """The words make no sense; the text says what would."""


class TeArguments(Struct, frozen=True):
    """What was asked of te."""

    command: str = ""
    words: tuple[str, ...] = ()
    raw: bool = False
    json: bool = False
    help: bool = False
    version: bool = False
    handle: str = ""
    chunk: int = 1
    budget: str = ""
    agent: str = ""
    timeout_s: float | None = None


def read(argv: Sequence[str]) -> TeArguments:
    """Tell te's flags from the command's words. Raises UsageError."""
    own, rest = _split(argv)
    command = rest[0] if rest else ""
    if command and command not in COMMANDS:
        raise UsageError(f"te knows no {command[:40]!r}; it knows {', '.join(COMMANDS)}, and `te run` runs any program")
    words = rest[1:]
    if command in _FREE:
        more, words = _split(words, stop_at_command=False)
        own = {**own, **more}
    if command == "run" and words and words[0] == "--":
        words = words[1:]
    nothing = not command and "--handle" not in own and not own.keys() & {"--help", "--version"}
    if nothing or (command == "run" and not words):
        raise UsageError("say what to run, such as: te grep PATTERN, or: te run make test")
    return TeArguments(
        command, tuple(words), "--raw" in own, "--json" in own, "--help" in own, "--version" in own,
        own.get("--handle", ""), int(_number(own, "--chunk") or 1), own.get("--budget", ""), own.get("--agent", ""),
        _number(own, "--timeout"),
    )  # fmt: skip


def _split(argv: Sequence[str], *, stop_at_command: bool = True) -> tuple[dict[str, str], list[str]]:
    """Our flags with their values, and the rest. Nothing after `--` is ours, nor after the command."""
    own: dict[str, str] = {}
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "-h" and stop_at_command:
            word = "--help"
        flag, equals, value = word.partition("=")
        if rest and rest[-1] in _TAKES_ANY_WORD:
            rest.append(word)
        elif word in _FLAGS and not (word in {"--help", "--version"} and not stop_at_command):
            own[word] = ""
        elif flag in _VALUES:
            if not equals and not words:
                raise UsageError(f"{flag} needs a value")
            own[flag] = value if equals else words.pop(0)
        elif stop_at_command and word.startswith("-"):
            raise UsageError(f"te has no flag {word[:40]!r}; flags of a command stand after it")
        elif stop_at_command or word == "--":
            return own, [*rest, word, *words]
        else:
            rest.append(word)
    return own, rest


def _number(own: dict[str, str], flag: str) -> float | None:
    given = own.get(flag)
    if given is None:
        return None
    try:
        number = float(given)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise UsageError(f"{flag} {given[:40]!r}: give a number above 0")
    return number
