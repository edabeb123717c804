"""The Tool Envelope around what built-in commands give: lines that match, files found, what was read or run. Pure.

A model reads ranked lines under a header that says how much there is; programs still have the value behind them.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.deliver.envelope import Envelope, one_line, write
from toolwire.deliver.envelope_budget import SizeBudget, ends, pieces
from toolwire.deliver.envelope_ranking import files_among, hot_zone, kind_of, plain_word
from toolwire.protocol.calls import Text, ToolResult

_AS_MANY_AS_FIT = 1_000_000
_MARK_BYTES = 6


class View(Struct, frozen=True):
    """What a command gave as lines, the best first. `counted` names what they are: matches, files or lines.

    With `both_ends` the last of them matter as much as the first. `notes` say what is not among them.
    """

    cmd: str
    counted: str
    lines: Sequence[str]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    both_ends: bool = False
    whole: bool = True

    @property
    def body(self) -> str:
        return "\n".join(self.lines)


def view_of(result: ToolResult, arguments: Mapping[str, Any]) -> View | None:
    """The result of a command as lines; None for every other result, and for a tool that only has a command's name."""
    make = COMMANDS.get(result.name)
    if make is None or not result.ok or not isinstance(result.structured, dict):
        return None
    return make(result.name, result.structured, arguments)


def with_note(view: View | None, note: str) -> View:
    """The same with one more sentence about what is not among the lines."""
    return View("", "lines", (), notes=(note,)) if view is None else replace(view, notes=(*view.notes, note))


def fits(view: View, most_chars: int) -> bool:
    """Whether all lines can be shown."""
    return sum(map(len, view.lines)) + len(view.lines) <= most_chars


def with_envelope(result: ToolResult, view: View, most_chars: int, handle: str | None, seal: bytes) -> ToolResult:
    """The result with an envelope for its words. Where not all lines fit, `handle` names the whole.

    The mark is made of everything in the envelope with `seal`, a secret: no output can know it beforehand, and the
    same output gets the same mark, so that a call made twice is seen to give the same.
    """
    cut = not fits(view, most_chars)
    shown, crumbs, count = _cut(view, most_chars, handle) if cut else (view.body, (), len(view.lines))
    truncated = cut or not view.whole
    facts = {view.counted: len(view.lines), **view.facts, "shown": count, "truncated": truncated}
    facts |= {"handle": handle} if handle and cut else {}
    envelope = Envelope(view.cmd, shown, facts, (*crumbs, *view.notes))
    drawn = repr((envelope.cmd, envelope.body, facts, envelope.left_out)).encode("utf-8", "replace")
    mark = hashlib.blake2b(drawn, key=seal, digest_size=_MARK_BYTES).hexdigest()
    text = Text(write(envelope, mark))
    if not cut:
        return replace(result, content=(text,))
    return replace(result, content=(text,), structured=None, truncated=True, handle=handle)


def _cut(view: View, most_chars: int, handle: str | None) -> tuple[str, tuple[str, ...], int]:
    """What fits, what is said about the rest, and how many lines are shown."""
    budget, total = SizeBudget(most_chars), len(view.lines)
    if view.both_ends:
        both = ends(view.lines, budget)
        gap = f"[… {both.missing:,} lines left out here …]"
        crumb = f"{both.missing:,} of {total:,} {view.counted} left out in the middle"
        text = "\n".join((*both.head, gap, *both.tail))
        return text, (_where(crumb, both.head, handle),), len(both.head) + len(both.tail)
    first = pieces(view.lines, budget, _AS_MANY_AS_FIT)[0]
    left = total - len(first)
    crumb = f"{left:,} of {total:,} {view.counted} left out" if left else "the rest of a long line left out"
    return "\n".join(first), (_where(crumb, first, handle),), len(first)


def _where(crumb: str, before: Sequence[str], handle: str | None) -> str:
    offset = sum(len(line.encode("utf-8", "replace")) + 1 for line in before)
    return f"{crumb}; more handle={handle} offset={offset}" if handle else f"{crumb}; the whole could not be kept"


def _matches(cmd: str, value: dict[str, Any], arguments: Mapping[str, Any]) -> View | None:
    rows = _rows(value, "matches" if cmd == "grep" else "hits")
    if rows is None:
        return None
    if cmd == "grep":
        wanted = plain_word(str(arguments.get("pattern", "")))
        rows.sort(key=lambda row: (kind_of(_word(row, "path"), _word(row, "text")[:1000], wanted), _word(row, "path")))
    paths = [_word(row, "path") for row in rows]
    lines = [f"{one_line(_word(row, 'path'))}:{row.get('line')}:{one_line(_word(row, 'text'))}" for row in rows]
    facts = {"files": files_among(paths), **_zone(paths)}
    return View(cmd, "matches", lines, facts, _note(value), whole=not value.get("truncated"))


def _files(cmd: str, value: dict[str, Any], _: Mapping[str, Any]) -> View | None:
    rows = _rows(value, "found") if cmd == "find" else _paths(value)
    if rows is None:
        return None
    found = [(_word(row, "path"), "/" if row.get("type") == "dir" else "") for row in rows]
    found.sort(key=lambda each: (kind_of(each[0]), each[0]))
    lines = [one_line(path) + mark for path, mark in found]
    return View(cmd, "files", lines, _zone([path for path, _ in found]), _note(value), whole=not value.get("truncated"))


def _reading(cmd: str, value: dict[str, Any], _: Mapping[str, Any]) -> View | None:
    match value:
        case {"path": str(path), "text": str(text), "first_line": int(first), "last_line": int(last)}:
            facts = {"path": path, "first_line": first, "last_line": last, "total_lines": value.get("total_lines")}
            return View(cmd, "lines", _lines(text), facts, _note(value), whole=not value.get("truncated"))
    return None


def _running(cmd: str, value: dict[str, Any], _: Mapping[str, Any]) -> View | None:
    match value:
        case {"stdout": str(out), "stderr": str(errors), "exit_code": int() | None as code}:
            said, wrong = _lines(out), _lines(errors)
            facts: dict[str, Any] = {"exit": code, "stderr_lines": len(wrong)}
            facts |= {name: value[name] for name in ("signal", "limit", "engine", "profile") if value.get(name)}
            notes = tuple(note for note in value.get("notes", ()) if isinstance(note, str))
            whole = not value.get("truncated")
            return View(cmd, "lines", [*said, *wrong], facts, notes, both_ends=True, whole=whole)
    return None


COMMANDS: Mapping[str, Callable[[str, dict[str, Any], Mapping[str, Any]], View | None]] = {
    "grep": _matches,
    "search_code": _matches,
    "codesearch": _matches,
    "find": _files,
    "glob": _files,
    "read": _reading,
    "read_file": _reading,
    "bash": _running,
}
"""The tools whose output is made of lines, and how each becomes a view."""


def _rows(value: dict[str, Any], name: str) -> list[dict[str, Any]] | None:
    rows = value.get(name)
    return list(rows) if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else None


def _paths(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    paths = value.get("paths")
    return [{"path": path} for path in paths] if isinstance(paths, list) else None


def _word(row: Mapping[str, Any], name: str) -> str:
    return str(row.get(name, ""))


def _zone(paths: Sequence[str]) -> dict[str, str]:
    zone = hot_zone(paths)
    return {"hot_zone": one_line(zone)} if zone else {}


def _note(value: Mapping[str, Any]) -> tuple[str, ...]:
    note = value.get("note")
    return (note,) if note and isinstance(note, str) else ()


def _lines(text: str) -> list[str]:
    """Lines without an empty one after the last."""
    return text.removesuffix("\n").split("\n") if text else []
