"""What came of all requests, in figures and as tables that people read. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.local_eval.asking import Played
from benchmarks.local_eval.rows import GROUPS

COLUMNS = f"{'':<28}{'asked':>6}{'tool':>7}{'+ args':>8}{'answer':>8}{'all':>7}{'false calls':>13}"


@dataclass(frozen=True, slots=True)
class Share:
    """How many of how many."""

    part: int
    whole: int

    @classmethod
    def of(cls, played: Iterable[Played], right: Callable[[Played], bool]) -> "Share":
        marks = [right(one) for one in played]
        return cls(sum(marks), len(marks))

    def __str__(self) -> str:
        return f"{100 * self.part / self.whole:.0f}%" if self.whole else "-"


def line(name: str, played: Sequence[Played]) -> str:
    """Right tool (or none), right tool and arguments, right answer where the calls were right, and all of it."""
    calls_right = [one for one in played if one.calls_right]
    return (
        f"{name:<28}{len(played):>6}{Share.of(played, lambda one: one.tool)!s:>7}"
        f"{Share.of(played, lambda one: one.calls_right)!s:>8}"
        f"{Share.of(calls_right, lambda one: one.answer)!s:>8}"
        f"{Share.of(played, lambda one: one.right)!s:>7}{_false_calls(played)!s:>13}"
    )


def _false_calls(played: Iterable[Played]) -> Share:
    """Requests after which something was called although nothing, or nothing more, was to be called."""
    return Share.of(played, lambda one: one.too_many)


def by_group(played: Sequence[Played]) -> list[str]:
    groups = [(group, [one for one in played if one.row.group == group]) for group in GROUPS]
    return [COLUMNS, *(line(group, found) for group, found in groups if found), line("in all", played)]


def by_tool(played: Sequence[Played]) -> list[str]:
    """A line for each tool, the worst first."""
    wanted: dict[str, list[Played]] = {}
    for one in played:
        for name in {call.tool for call in one.row.wanted}:
            wanted.setdefault(name, []).append(one)
    order = sorted(wanted.items(), key=lambda item: (sum(one.right for one in item[1]) / len(item[1]), item[0]))
    return [COLUMNS, *(line(name, found) for name, found in order)]


def pick(played: Sequence[Played]) -> str:
    """How often the tools that a request needs were among those that the model was shown."""
    share = Share.of([one for one in played if one.row.wanted], lambda one: one.shown)
    return f"With more tools than the model is shown, the wanted ones were among them for {share} of the requests."


def times(played: Sequence[Played]) -> list[str]:
    """Seconds until a reply: the first one with tools seen before, with new tools, and the answer after results."""
    kinds = {
        "first reply, known tools": [one.seconds[0] for one in played if one.seconds and one.known_tools],
        "first reply, new tools": [one.seconds[0] for one in played if one.seconds and not one.known_tools],
        "replies to results": [second for one in played for second in one.seconds[1:]],
    }
    lines = [f"{name:<28}{len(found):>6}{middle(found):>9.2f}{late(found):>8.2f}" for name, found in kinds.items()]
    return [f"{'seconds':<28}{'count':>6}{'median':>9}{'p95':>8}", *lines]


def middle(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) // 2] if seconds else 0.0


def late(seconds: Sequence[float]) -> float:
    """The time within which 95 of 100 are done."""
    return sorted(seconds)[min(len(seconds) - 1, int(0.95 * len(seconds)))] if seconds else 0.0
