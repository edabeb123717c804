"""How well each format works for each model, counted reply by reply: what was offered and what came back."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from toolwire.protocol.calls import Problem
from toolwire.protocol.chat import Reply

KEPT_NAMES = 20
LONGEST_NAME = 64

# Servers that know a text form hand its calls over as native ones; that is no mismatch.
EXPECTED: Mapping[str, frozenset[str]] = {
    "hermes": frozenset({"native", "hermes"}),
    "qwen_xml": frozenset({"native", "hermes", "qwen_xml", "qwen3_coder"}),
    "rcrt": frozenset({"native", "bare_json", "rcrt", "rcrt_breadcrumb"}),
    "compact": frozenset({"native", "bare_json", "rcrt", "pythonic"}),
    "grammar": frozenset({"native", "bare_json", "rcrt", "rcrt_breadcrumb", "grammar"}),
}
_NATIVE_ONLY = frozenset({"native"})


class FormatTally(Struct, frozen=True):
    """The sums for one model and one definition format.

    `calls` counts what the model tried to call, lost calls included; `clean` those that could be run as written.
    `came_as` says in which formats calls came back, `unknown_names` which names were called that were not offered.
    """

    model: str
    offered: str
    replies: int = 0
    calling: int = 0
    calls: int = 0
    clean: int = 0
    repaired: int = 0
    mismatched: int = 0
    unknown: int = 0
    malformed: int = 0
    truncated: int = 0
    invalid: int = 0
    confidence: float = 0.0
    came_as: tuple[tuple[str, int], ...] = ()
    unknown_names: tuple[tuple[str, int], ...] = ()

    @property
    def success_rate(self) -> float | None:
        """The share of calls that could be run as written; None before the first call."""
        return self.clean / self.calls if self.calls else None

    @property
    def mean_confidence(self) -> float | None:
        """How sure the parser was of the calls that it found."""
        found = sum(count for _, count in self.came_as)
        return self.confidence / found if found else None

    def __add__(self, other: "FormatTally") -> "FormatTally":
        """Both sums together. They must be about the same model and format."""
        numbers = {name: getattr(self, name) + getattr(other, name) for name in _NUMBERS}
        came_as, unknown_names = _sum(self.came_as, other.came_as), _sum(self.unknown_names, other.unknown_names)
        return FormatTally(self.model, self.offered, **numbers, came_as=came_as, unknown_names=unknown_names)


_NUMBERS = ("replies", "calling", "calls", "clean", "repaired", "mismatched", "unknown", "malformed", "truncated",
            "invalid", "confidence")  # fmt: skip


def tally(model: str, offered: str, reply: Reply) -> FormatTally:
    """What one reply adds: the model, the definition format it was given, and everything that came of it."""
    codes = [problem.code for problem in reply.problems]
    spoiled = {problem.call for problem in reply.problems if problem.code in _SPOILS and problem.call is not None}
    lost = sum(problem.call is None for problem in reply.problems if problem.code in _SPOILS)
    expected = EXPECTED.get(offered, _NATIVE_ONLY)
    return FormatTally(
        model=model[:200],
        offered=offered,
        replies=1,
        calling=bool(reply.calls or lost),
        calls=len(reply.calls) + lost,
        clean=sum(at not in spoiled and not call.fault for at, call in enumerate(reply.calls)),
        repaired=codes.count("repaired"),
        mismatched=sum(call.format not in expected for call in reply.calls),
        unknown=codes.count("unknown_tool"),
        malformed=codes.count("malformed"),
        truncated=codes.count("truncated"),
        invalid=codes.count("invalid_arguments"),
        confidence=sum(call.confidence for call in reply.calls),
        came_as=_sum((), tuple((call.format, 1) for call in reply.calls)),
        unknown_names=_sum((), tuple((_unknown_name(problem, reply), 1) for problem in _unknown(reply))),
    )


_SPOILS = frozenset({"unknown_tool", "malformed", "truncated", "invalid_arguments"})


def _unknown(reply: Reply) -> Iterable[Problem]:
    return (problem for problem in reply.problems if problem.code == "unknown_tool")


def _unknown_name(problem: Problem, reply: Reply) -> str:
    """The name that was not offered: the call's where there is one, else what the problem quotes."""
    if problem.call is not None and problem.call < len(reply.calls):
        return reply.calls[problem.call].name[:LONGEST_NAME]
    quoted = problem.message[:500].split("'")
    return quoted[1][:LONGEST_NAME] if len(quoted) > 2 else "?"


def _sum(one: tuple[tuple[str, int], ...], other: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Counts by name, the most frequent first. Names come from models, so only so many are kept."""
    counts = dict(one)
    for name, count in other:
        counts[name] = counts.get(name, 0) + count
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:KEPT_NAMES])


def merge_tallies(tallies: Iterable[FormatTally]) -> tuple[FormatTally, ...]:
    """One sum for each model and format, by model and then by format."""
    sums: dict[tuple[str, str], FormatTally] = {}
    for one in tallies:
        key = (one.model, one.offered)
        sums[key] = sums[key] + one if key in sums else one
    return tuple(sums[key] for key in sorted(sums))


def write_tally(one: FormatTally) -> dict[str, Any]:
    """The sums as a JSON-ready object, what is zero left out."""
    out: dict[str, Any] = {"model": one.model, "offered": one.offered}
    out |= {name: value for name in _NUMBERS if (value := getattr(one, name))}
    for name in ("came_as", "unknown_names"):
        if counts := getattr(one, name):
            out[name] = dict(counts)
    return out


def read_tally(data: Mapping[str, Any]) -> FormatTally:
    """Read what `write_tally` wrote; unknown fields are ignored."""
    numbers = {name: data[name] for name in _NUMBERS if name in data}
    unknown_names = data.get("unknown_names") or data.get("strangers", {})  # the name of the field in earlier versions
    return FormatTally(
        data["model"],
        data["offered"],
        **numbers,
        came_as=tuple(data.get("came_as", {}).items()),
        unknown_names=tuple(unknown_names.items()),
    )
