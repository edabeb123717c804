"""The Tool Envelope: what a command gave, between marks that its output cannot imitate. Pure.

A header of one line of JSON says what there is; the results follow, best first; the lines after them say what was left
out and how to get it. The mark is drawn anew for each envelope by its maker. Words of the output that look like
a line of the envelope are moved out of the first column, so that they fool not even a reader who skips the mark.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from toolwire.deliver.visible_text import visible

VERSION = 1
_LINE = "# TE"
_BEGIN = "# TE_BEGIN_META "
_END = "# TE_END_META "
_CRUMB = "# TE "
_MOVED = "\\"


class Envelope(Struct, frozen=True):
    """What a reader gets of a command's output.

    `facts` go into the header: how much there is (`matches`, `lines`, `files`), how much is `shown`, `truncated`,
    the `handle` of the whole, the `hot_zone`. `left_out` are sentences, one line each.
    """

    cmd: str
    body: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def header(self) -> dict[str, Any]:
        return {"v": VERSION, "cmd": self.cmd, **self.facts}


def write(envelope: Envelope, mark: str) -> str:
    """The envelope as text. Nothing in it acts on a terminal, and only our own lines begin like ours."""
    header = visible(json.dumps(envelope.header, ensure_ascii=False, separators=(",", ":")))
    body = visible(envelope.body)
    crumbs = [f"{_CRUMB}{mark}: {one_line(sentence)}" for sentence in envelope.left_out]
    lines = [_BEGIN + mark, header, _END + mark, *_moved(body), *crumbs]
    return "\n".join(lines) + "\n"


def read(text: str) -> tuple[Envelope, str] | None:
    """The envelope that a text is, and its mark; None if it is none. What stands inside of it is never believed."""
    begin, _, rest = text.partition("\n")
    header, _, rest = rest.partition("\n")
    end, _, rest = rest.partition("\n")
    mark = begin.removeprefix(_BEGIN)
    if not begin.startswith(_BEGIN) or not mark or end != _END + mark:
        return None
    try:
        facts = json.loads(header)
    except (ValueError, RecursionError):
        return None
    if (
        not isinstance(facts, dict)
        or facts.pop("v", None) != VERSION
        or not isinstance(cmd := facts.pop("cmd", 0), str)
    ):
        return None
    crumb = f"{_CRUMB}{mark}: "
    lines = rest.removesuffix("\n").split("\n") if rest else []
    body = [line[1:] if _looks_like_ours(line) else line for line in lines if not line.startswith(crumb)]
    left_out = tuple(line.removeprefix(crumb) for line in lines if line.startswith(crumb))
    return Envelope(cmd, "\n".join(body), facts, left_out), mark


def one_line(text: str) -> str:
    """A name or sentence on one line: what cannot be seen in it is written as in a program, such as \\n or \\u202e."""
    if text.isprintable():
        return visible(text)
    seen = (char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return visible("".join(seen))


def _moved(body: str) -> Iterator[str]:
    if not body:
        return
    for line in body.removesuffix("\n").split("\n"):
        yield _MOVED + line if _looks_like_ours(line) else line


def _looks_like_ours(line: str) -> bool:
    """Whether a line is one of the envelope's, or was moved because it looks like one."""
    return line.lstrip(_MOVED).startswith(_LINE)
