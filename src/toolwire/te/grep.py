"""`te grep`: grep as everyone writes it, ranked. Folders are searched through, and this one if none is named."""

import getopt
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolwire.deliver.envelope import one_line
from toolwire.deliver.envelope_ranking import ASIDE, MatchKind, files_among, hot_zone, kind_of, plain_word
from toolwire.deliver.visible_text import visible
from toolwire.te.gathered import RankedResults, ResultUnit, cut, decode_output, notes_on
from toolwire.te.running import ProgramRun, run

AT_ONCE = 50
_SHORT = "EFGPe:f:iyvwxcLlm:oqsbHhnTZA:B:C:UzrRaD:d:IV0123456789"
_LONG = (
    "extended-regexp fixed-strings basic-regexp perl-regexp regexp= file= ignore-case no-ignore-case invert-match "
    "word-regexp line-regexp count color= colour= files-with-matches files-without-match max-count= only-matching "
    "quiet silent no-messages byte-offset with-filename no-filename label= line-number initial-tab null after-context= "
    "before-context= context= binary null-data recursive dereference-recursive text binary-files= devices= "
    "directories= include= exclude= exclude-from= exclude-dir= line-buffered version help"
).split()
_PATTERNS = {"-e", "-f", "--regexp", "--file"}
_NAMES_ONLY = {"-l", "-L", "--files-with-matches", "--files-without-match"}
_COUNTS = {"-c", "--count"}
_CONTEXT = {
    "-A",
    "-B",
    "-C",
    "--after-context",
    "--before-context",
    "--context",
    *(f"-{digit}" for digit in "0123456789"),
}
_AS_IT_IS = {"-q", "--quiet", "--silent", "-V", "--version", "--help", "-z", "--null-data"}
_OURS = {"-n", "-H", "-h", "-Z", "-T", "-b", "--line-number", "--with-filename", "--no-filename", "--null"}
_OURS |= {"--initial-tab", "--byte-offset", "--color", "--colour", "--line-buffered"}
_OF_BINARY = {"-a", "-I", "-U", "--text", "--binary-files", "--binary"}


class NotGrep(Exception):
    """The words are not what grep takes; the text says why."""


class GrepQuery(NamedTuple):
    """What grep was asked: its command line made for a program to read, and how its answer is to be read."""

    argv: tuple[str, ...]
    shape: str
    wanted: str
    not_searched: tuple[str, ...]


def read_query(words: Sequence[str]) -> GrepQuery | None:
    """Read grep's own words; None if its output is not for ranking. Raises NotGrep."""
    try:
        options, operands = getopt.gnu_getopt(list(words), _SHORT, _LONG)
    except getopt.GetoptError as error:
        raise NotGrep(str(error)) from None
    names = {name for name, _ in options}
    if names & _AS_IT_IS:
        return None
    patterns = [value for name, value in options if name in {"-e", "--regexp"}]
    if not names & _PATTERNS:
        if not operands:
            raise NotGrep("grep needs a pattern")
        patterns = [operands.pop(0)]
        options.append(("-e", patterns[0]))
    places = operands or ["."]
    aside = _aside(places)
    argv = ["grep", *_flat(options), "-n", "-H", "--null", "--color=never", *([] if names & _OF_BINARY else ["-I"])]
    argv += [] if names & {"-R", "--dereference-recursive", "-d", "--directories"} else ["-r"]
    argv += [f"--exclude-dir={name}" for name in aside]
    shape = (
        "names" if names & _NAMES_ONLY else "counts" if names & _COUNTS else "groups" if names & _CONTEXT else "lines"
    )
    wanted = plain_word(patterns[0]) if len(patterns) == 1 else ""
    there = tuple(name for name in aside if any((Path(place) / name).is_dir() for place in places))
    return GrepQuery((*argv, "--", *places), shape, wanted, there)


def grep(words: Sequence[str], timeout_s: float | None) -> RankedResults | None:
    """Search, and rank what was found: definitions first, tests last. None if grep's own output is to be shown."""
    question = read_query(words)
    if question is None:
        return None
    ran = run(question.argv, timeout_s=timeout_s)
    hits = list(_READERS[question.shape](ran, question.wanted))
    hits.sort(key=lambda hit: (hit.kind, hit.path, hit.line))
    paths = [hit.path for hit in hits]
    zone = hot_zone(paths)
    facts = {"files": files_among(paths), **({"hot_zone": one_line(zone)} if zone else {})}
    left = ", ".join(f"{name}/" for name in question.not_searched)
    notes = (*notes_on("grep", ran), *((f"not searched unless named: {left}",) if left else ()))
    units = [_unit(hit) for hit in hits]
    return RankedResults(
        "grep", "matches", units, ran.code, facts, notes, most_at_once=AT_ONCE, whole=not ran.stopped
    )  # fmt: skip


class _Hit(NamedTuple):
    path: str
    line: int
    text: str
    kind: MatchKind


def _lines(ran: ProgramRun, wanted: str) -> Iterator[_Hit]:
    for path, rest in _records(ran):
        number, colon, text = rest.partition(":")
        if colon and number.isdigit():
            yield _Hit(path, int(number), f"{number}:{cut(text)}", kind_of(path, text[:1000], wanted))


def _groups(ran: ProgramRun, wanted: str) -> Iterator[_Hit]:
    """Matches with the lines around them: a group is as good as the best line in it."""
    group: list[_Hit] = []
    for path, rest in [*_records(ran), ("", "")]:
        if path:
            text = rest.lstrip("0123456789")
            number = rest[: len(rest) - len(text)]
            kind = kind_of(path, text[1:1001], wanted) if text.startswith(":") else MatchKind.ASIDE
            group.append(_Hit(path, int(number or 0), f"{number}{cut(text)}", kind))
        elif group:
            best = min(group, key=lambda hit: hit.kind)
            yield _Hit(best.path, best.line, "\n".join(hit.text for hit in group), best.kind)
            group = []


def _names(ran: ProgramRun, _wanted: str) -> Iterator[_Hit]:
    for path in decode_output(ran.out).split("\0"):
        if path:
            yield _Hit(path, 0, "", kind_of(path))


def _counts(ran: ProgramRun, _wanted: str) -> Iterator[_Hit]:
    for path, count in _records(ran):
        if count != "0":
            yield _Hit(path, 0, count, kind_of(path))


_READERS = {"lines": _lines, "groups": _groups, "names": _names, "counts": _counts}


def _unit(hit: _Hit) -> ResultUnit:
    path = one_line(hit.path)
    parts = {"path": path, "kind": hit.kind.name.lower()}
    if not hit.text:
        return ResultUnit(path, parts)
    if not hit.line:
        return ResultUnit(f"{path}:{hit.text}", {**parts, "count": int(hit.text) if hit.text.isdigit() else 0})
    lines = hit.text.split("\n")
    text = "\n".join(f"{path}:{line}" for line in lines)
    said = hit.text.partition(":")[2] if len(lines) == 1 else hit.text
    return ResultUnit(text, {**parts, "line": hit.line, "text": visible(said)})


def _records(ran: ProgramRun) -> Iterator[tuple[str, str]]:
    """`path NUL rest`, a line each: no name can be mistaken for anything else. An empty pair stands between groups."""
    text, at = decode_output(ran.out), 0
    while at < len(text):
        if text.startswith("--\n", at):
            yield "", ""
            at += 3
            continue
        zero = text.find("\0", at)
        if zero < 0:
            return
        end = text.find("\n", zero)
        end = len(text) if end < 0 else end
        yield text[at:zero], text[zero + 1 : end]
        at = end + 1


def _flat(options: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Options as words, without those about how lines are written, which are ours to say."""
    digits = "".join(name[1] for name, _ in options if name[1:].isdigit())
    yield from ("-C", digits) if digits else ()
    for name, value in options:
        if name in _OURS or name[1:].isdigit():
            continue
        if name.startswith("--"):
            yield f"{name}={value}" if f"{name[2:]}=" in _LONG else name
        else:
            yield from (name, value) if f"{name[1]}:" in _SHORT else (name,)


def _aside(places: Sequence[str]) -> list[str]:
    """Folders that are not meant, unless one of them is named."""
    named = {part for place in places for part in place.split("/")}
    return sorted(ASIDE - named)
