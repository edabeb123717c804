"""`te cat`, `find`, `ls`, `git` and `run`: the programs themselves, with their output made ready for an envelope."""

import shutil
from collections.abc import Callable, Mapping, Sequence

from toolwire.deliver.envelope import one_line
from toolwire.deliver.envelope_ranking import hot_zone, kind_of
from toolwire.te.gathered import RankedResults, ResultUnit, decode_output, lines_of, notes_on
from toolwire.te.grep import grep
from toolwire.te.running import ProgramRun, run

FILES_AT_ONCE = 200
_LOOKED_AT = 65_536
_ACTIONS = frozenset(
    "-print -print0 -printf -fprint -fprint0 -fprintf -ls -fls -exec -execdir -ok -okdir -delete -quit -help -version "
    "--help --version".split()
)
_BEFORE_PLACES = ("-H", "-L", "-P", "-O")
_SHELL_WORDS = frozenset(" \t\n|&;<>()$`")

Work = Callable[[Sequence[str], float | None], RankedResults | None]


def cat(words: Sequence[str], timeout_s: float | None) -> RankedResults:
    """Files as text; of a binary one only how large it is."""
    ran = run(("cat", *words), timeout_s=timeout_s)
    if b"\0" in ran.out[:_LOOKED_AT]:
        facts = {"size": len(ran.out), "content_type": "binary"}
        return RankedResults(
            "cat", "lines", (), ran.code, facts, ("binary content is not shown", *notes_on("cat", ran))
        )
    return _as_lines("cat", ran, {"size": len(ran.out)})


def ls(words: Sequence[str], timeout_s: float | None) -> RankedResults:
    """A folder; control characters in names are shown as question marks."""
    return _as_lines("ls", run(("ls", "-q", *words), timeout_s=timeout_s))


def find(words: Sequence[str], timeout_s: float | None) -> RankedResults:
    """Files by name and nature: those of the project first, then tests, then what was not written by hand."""
    argv, by_name = _find_command(words)
    ran = run(argv, timeout_s=timeout_s)
    if not by_name:
        return _as_lines("find", ran)
    found = (path for path in decode_output(ran.out).split("\0") if path)
    paths = sorted(found, key=lambda path: (kind_of(path), path))
    zone = hot_zone(paths)
    facts = {"hot_zone": one_line(zone)} if zone else {}
    units = [
        ResultUnit(name, {"path": name, "kind": kind_of(path).name.lower()})
        for path in paths
        for name in [one_line(path)]
    ]
    return RankedResults(
        "find",
        "files",
        units,
        ran.code,
        facts,
        notes_on("find", ran),
        most_at_once=FILES_AT_ONCE,
        whole=not ran.stopped,
    )


def git(words: Sequence[str], timeout_s: float | None) -> RankedResults:
    """Git, without its pager."""
    return _as_lines("git", run(("git", "--no-pager", *words), both_ends=True, timeout_s=timeout_s))


def run_program(words: Sequence[str], timeout_s: float | None) -> RankedResults:
    """Any program, its error messages among its output."""
    return _as_lines("run", run(program(words), both_ends=True, timeout_s=timeout_s), both_ends=True)


def program(words: Sequence[str]) -> tuple[str, ...]:
    """The program that the words name. A single word that only a shell understands is given to one."""
    line = words[0]
    in_a_shell = len(words) == 1 and _SHELL_WORDS & set(line) and shutil.which(line) is None
    return ("/bin/sh", "-c", line) if in_a_shell else tuple(words)


COMMANDS: Mapping[str, Work] = {"grep": grep, "cat": cat, "find": find, "ls": ls, "git": git, "run": run_program}


def _as_lines(
    cmd: str, ran: ProgramRun, facts: Mapping[str, int] | None = None, *, both_ends: bool = False
) -> RankedResults:  # fmt: skip
    lines = lines_of(ran.out + ran.tail) if not ran.missing else [*lines_of(ran.out), *lines_of(ran.tail)]
    notes = notes_on(cmd, ran)
    if ran.missing:
        notes = (f"{ran.missing:,} bytes in the middle of the output were too much to be kept", *notes)
    units = [ResultUnit(line.removesuffix("\r")) for line in lines]
    whole = not ran.stopped and not ran.missing
    return RankedResults(cmd, "lines", units, ran.code, facts or {}, notes, both_ends=both_ends, whole=whole)


def _find_command(words: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """The command line, and whether it gives whole names: only what does nothing else can be asked for them."""
    if _ACTIONS & set(words):
        return ("find", *words), False
    at = 0
    while at < len(words) and (words[at].startswith(_BEFORE_PLACES) or not words[at].startswith(("-", "(", "!"))):
        at += 1
    places, tests = words[:at], words[at:]
    wrapped = ("(", *tests, ")") if tests else ()
    return ("find", *places, *wrapped, "-print0"), True
