"""`te`: run a command, show its output in an envelope, and end as the command did."""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolwire import __version__
from toolwire.deliver.envelope import Envelope, write
from toolwire.deliver.envelope_budget import SizeBudget, budget_for, ends, pieces
from toolwire.deliver.visible_text import visible
from toolwire.lazy import lazy_module
from toolwire.te.commands import COMMANDS, program
from toolwire.te.gathered import RankedResults, ResultUnit
from toolwire.te.grep import NotGrep
from toolwire.te.running import NOT_THERE
from toolwire.te.words import HELP, TeArguments, UsageError, read

if TYPE_CHECKING:
    from toolwire.te import kept
else:
    kept = lazy_module("toolwire.te.kept")  # most outputs are short, and need nothing kept or fetched

USAGE = 2
NOT_FOUND = 5
INTERRUPTED = 130
READER_GONE = 141
WAIT_S = 30.0
_WAITS = frozenset({"grep", "cat", "find", "ls"})


def main() -> None:
    """Run the command line given to this process, and end the process with its exit code."""
    try:
        code = te(sys.argv[1:], os.environ)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = READER_GONE
    sys.exit(code)


def te(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what the words say, and give the exit code."""
    try:
        words = read(argv)
        agent = words.agent or environ.get("TE_AGENT_ID") or _who()
        budget = budget_for(agent, words.budget or environ.get("TE_BUDGET", ""))
        if words.help or words.version:
            _say(HELP if words.help else f"te {__version__}\n")
            return 0
        if words.handle:
            return _show_more(words, environ)
        return _run(words, budget, environ)
    except (UsageError, NotGrep, ValueError) as error:
        sys.stderr.write(f"te: {visible(str(error))}\n")
        return USAGE


def _run(words: TeArguments, budget: SizeBudget, environ: Mapping[str, str]) -> int:
    timeout_s = words.timeout_s or (WAIT_S if words.command in _WAITS else None)
    gathered = None if words.raw else COMMANDS[words.command](words.words, timeout_s)
    if gathered is None:
        return _become(program(words.words) if words.command == "run" else (words.command, *words.words))
    envelope, shown = _enveloped(gathered, budget, environ)
    _print(envelope, shown, as_json=words.json)
    return gathered.code


def _enveloped(
    gathered: RankedResults, budget: SizeBudget, environ: Mapping[str, str]
) -> tuple[Envelope, Sequence[ResultUnit]]:
    """What is shown now; what is not shown is kept."""
    units = [ResultUnit(visible(unit.text), unit.parts) for unit in gathered.units]
    parts = pieces([unit.text for unit in units], budget, gathered.most_at_once)
    facts: dict[str, Any] = {gathered.counted: len(units), **gathered.facts}
    cut = len(parts) > 1
    handle = _keep(gathered, len(units), parts, environ) if cut else ""
    body, shown, crumb = _first(gathered, units, parts, budget)
    facts |= {"shown": len(shown), "truncated": cut or not gathered.whole, "exit": gathered.code}
    crumbs = (_where(crumb, handle, 1 if gathered.both_ends else 2, len(parts)),) if cut else ()
    facts |= {"handle": handle} if handle else {}
    return Envelope(gathered.cmd, body, facts, (*crumbs, *gathered.notes)), shown


def _keep(gathered: RankedResults, total: int, parts: Sequence[Sequence[str]], environ: Mapping[str, str]) -> str:
    handle: str = kept.keep(kept.PagedOutput(gathered.cmd, gathered.counted, total, tuple(map(tuple, parts))), environ)
    return handle


def _first(
    gathered: RankedResults, units: Sequence[ResultUnit], parts: Sequence[Sequence[str]], budget: SizeBudget
) -> tuple[str, Sequence[ResultUnit], str]:
    """What is shown before anyone asks for more: its text, its units, and what is left out."""
    if len(parts) <= 1:
        return "\n".join(unit.text for unit in units), units, ""
    if gathered.both_ends:
        both = ends([unit.text for unit in units], budget)
        gap = f"[… {both.missing:,} lines left out here …]"
        shown = [ResultUnit(line) for line in (*both.head, *both.tail)]
        crumb = f"{both.missing:,} of {len(units):,} lines left out in the middle"
        return "\n".join((*both.head, gap, *both.tail)), shown, crumb
    shown = [unit if unit.text == part else ResultUnit(part) for unit, part in zip(units, parts[0], strict=False)]
    left = len(units) - len(shown)
    crumb = f"{left:,} of {len(units):,} {gathered.counted} left out" if left else "the rest of a long line left out"
    return "\n".join(parts[0]), shown, crumb


def _show_more(words: TeArguments, environ: Mapping[str, str]) -> int:
    try:
        found = kept.fetch(words.handle, environ)
    except kept.NoHandle as error:
        sys.stderr.write(f"te: {visible(str(error))}\n")
        return NOT_FOUND
    last = len(found.pieces)
    if words.chunk > last:
        raise UsageError(f"--chunk {words.chunk}: this output has {last} chunks")
    part = found.pieces[words.chunk - 1]
    if words.raw:
        _say("".join(f"{unit}\n" for unit in part))
        return 0
    facts = {found.counted: found.total, "shown": len(part), "truncated": words.chunk < last, "handle": words.handle}
    facts |= {"chunk": words.chunk, "chunks": last}
    crumbs = (_where(f"chunk {words.chunk} of {last}", words.handle, words.chunk + 1, last),)
    _print(Envelope(found.cmd, "\n".join(part), facts, crumbs), [ResultUnit(unit) for unit in part], as_json=words.json)
    return 0


def _where(left_out: str, handle: str, chunk: int, last: int) -> str:
    if chunk > last:
        return f"{left_out}; this is the end"
    return f"{left_out}; te --handle {handle} --chunk {chunk}" if handle else f"{left_out}; the whole could not be kept"


def _print(envelope: Envelope, shown: Sequence[ResultUnit], *, as_json: bool) -> None:
    if as_json:
        results = [unit.text if unit.parts is None else {**unit.parts} for unit in shown]
        _say(json.dumps({**envelope.header, "results": results, "left_out": envelope.left_out}) + "\n")
        return
    _say(write(envelope, os.urandom(6).hex()))


def _become(argv: Sequence[str]) -> int:
    """Give the program our streams, and end as it does."""
    if shutil.which(argv[0]) is None:
        sys.stderr.write(f"te: {visible(argv[0])}: there is no such program\n")
        return NOT_THERE
    sys.stdout.flush()
    return os.execvp(argv[0], tuple(argv))  # noqa: S606 - the user who types a command may run it


def _who() -> str:
    return "human-cli" if sys.stdout.isatty() else "unknown"


def _say(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
