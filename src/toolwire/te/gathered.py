"""What a command gave, before it is known how much of it will be shown."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from toolwire.deliver.envelope import one_line
from toolwire.te.running import ProgramRun

LONGEST_LINE = 400
_MOST_ERRORS = 5


class ResultUnit(NamedTuple):
    """A result: its lines, and for a reader of JSON its parts."""

    text: str
    parts: Mapping[str, Any] | None = None


class RankedResults(Struct, frozen=True):
    """All results of a command, best first. `counted` names what they are: matches, lines or files.

    With `both_ends` the last of them matter as much as the first. `notes` say what is not among them.
    """

    cmd: str
    counted: str
    units: Sequence[ResultUnit]
    code: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    both_ends: bool = False
    most_at_once: int = 1_000_000
    whole: bool = True


def decode_output(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def lines_of(body: bytes) -> list[str]:
    """Lines of text, without an empty one after the last."""
    lines = decode_output(body).split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def cut(line: str) -> str:
    """A line that is not too long to be one result among many."""
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}… [{len(line) - LONGEST_LINE} more characters]"


def notes_on(cmd: str, ran: ProgramRun) -> tuple[str, ...]:
    """What a program complained about, and why it was stopped."""
    said = lines_of(ran.errors)
    more = [f"{cmd} said {len(said) - _MOST_ERRORS} more such lines"] if len(said) > _MOST_ERRORS else []
    ended = {
        "": (),
        "size": (f"{cmd} was stopped when it had said enough; there may be more than is counted here",),
        "time": (f"{cmd} was stopped when its time was up; there may be more than is counted here",),
    }[ran.stopped]
    return (*(one_line(cut(line)) for line in said[:_MOST_ERRORS]), *more, *ended)
