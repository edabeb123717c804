"""From figures to findings: what is measured, beside which floor, with which target, and who else was measured."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from benchmarks.collecting import Collected, Figures
from benchmarks.subjects import PEERS
from benchmarks.task import SHAPES

Derive = Callable[[Figures], float]
TEN = SHAPES["ten"].model_calls
EXTRA = SHAPES["wide"].parallel - SHAPES["one"].parallel


@dataclass(frozen=True, slots=True)
class Spread:
    """Several repetitions of one number."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number comes from: a subject, and how it follows from that subject's figures."""

    subject: str
    derive: Derive

    def read(self, collected: Collected) -> Spread | None:
        """The number in every repetition; None when the subject was not measured."""
        known = collected.figures.get(self.subject)
        try:
            return Spread.of([self.derive(figures) for figures in known]) if known else None
        except KeyError:  # another group of this subject's figures was measured
            return None


@dataclass(frozen=True, slots=True)
class Target:
    """What we want to reach: at most or at least a number, of ours or of its ratio to the floor."""

    words: str
    limit: float
    at_least: bool = False
    of_ratio: bool = False

    def met(self, ours: float, ratio: float | None) -> bool:
        value = ours if not self.of_ratio else math.inf if ratio is None else ratio
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True, slots=True)
class Measure:
    label: str
    unit: str
    ours: Source
    floor_name: str
    floor: Source
    target: Target | None = None
    peers: Mapping[str, Source] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    measure: str
    unit: str
    ours: Spread
    floor_name: str
    floor: Spread | None
    ratio: float | None
    target: str
    met: bool | None
    peers: Mapping[str, Spread | None]


def rows(collected: Collected) -> Iterator[Row]:
    """A row for every measure whose subject was measured."""
    for measure in MEASURES:
        ours = measure.ours.read(collected)
        if ours is not None:
            yield _row(measure, ours, collected)


def _row(measure: Measure, ours: Spread, collected: Collected) -> Row:
    floor, target = measure.floor.read(collected), measure.target
    ratio = ours.median / floor.median if floor and floor.median > 0 else None
    peers = {name: source.read(collected) for name, source in measure.peers.items()}
    words, met = (target.words, target.met(ours.median, ratio)) if target else ("", None)
    return Row(measure.label, measure.unit, ours, measure.floor_name, floor, ratio, words, met, peers)


def _figure(name: str) -> Derive:
    return lambda figures: figures[name]


def _per_model_call(figures: Figures) -> float:
    return figures["ten"] / TEN


def _per_extra_call(figures: Figures) -> float:
    return (figures["wide"] - figures["one"]) / EXTRA


def _total_ms(figures: Figures) -> float:
    return figures["two_hundred"] / 1000


def _late_to_early(figures: Figures) -> float:
    """A turn between the 100th and the 200th, against one between the first and the tenth."""
    return ((figures["two_hundred"] - figures["hundred"]) / 100) / ((figures["ten"] - figures["one"]) / 9)


def _exponent(figures: Figures) -> float:
    return math.log2(figures["two_hundred"] / figures["hundred"])


def _more_tools(figures: Figures) -> float:
    return (figures["many_tools"] - figures["ten"]) / TEN


def _loop(
    label: str, unit: str, derive: Derive, target: Target | None = None, *, ours: str = "toolwire",
    floor: str = "bare_safe",
) -> Measure:  # fmt: skip
    peers = {name: Source(name, derive) for name in PEERS} if ours == "toolwire" and floor == "bare_safe" else {}
    return Measure(label, unit, Source(ours, derive), floor, Source(floor, derive), target, peers)


def _started(label: str, unit: str, figure: str, target: Target | None, ours: str = "toolwire") -> Measure:
    derive = _figure(figure)
    peers = {name: Source(name, derive) for name in PEERS} if figure in ("import_ms", "rss_mib") else {}
    return Measure(label, unit, Source(ours, derive), "interpreter", Source("interpreter", derive), target, peers)


def _checked(label: str, figure: str) -> Measure:
    ours, floor, peer = (Source("validating", _figure(f"{who}{figure}")) for who in ("", "floor_", "pydantic_"))
    return Measure(label, "µs", ours, "jsonschema-rs", floor, Target("≤ 10 µs", 10), {"pydantic": peer})


def _translated(label: str, figure: str, target: Target) -> Measure:
    ours, floor = Source("translation", _figure(figure)), Source("translation", _figure("floor"))
    return Measure(label, "µs", ours, "all by hand", floor, target)


def _durable(label: str, unit: str, figure: str, floor: str, floor_name: str, target: Target | None) -> Measure:
    ours = Source("durable", _figure(figure))
    return Measure(label, unit, ours, floor_name, Source("durable_floor", _figure(floor)), target)


MEASURES = (
    _loop("CPU per model call, 10 turns × 1 tool", "µs", _per_model_call, Target("≤ 6 × floor", 6, of_ratio=True)),
    _loop("… beside a loop without any safety", "µs", _per_model_call, floor="bare"),
    _loop("… request not encoded", "µs", _per_model_call, ours="toolwire_unencoded", floor="bare"),
    _loop("… and the reply parsed from JSON values", "µs", _per_model_call, ours="toolwire_parsed"),
    _loop("CPU per extra parallel call, 16 in a turn", "µs", _per_extra_call, Target("≤ 40 µs", 40)),
    _loop("CPU of a run of 200 turns", "ms", _total_ms, Target("≤ 50 ms", 50)),
    _loop("late turn / early turn", "×", _late_to_early, Target("≤ 1.5", 1.5)),
    _loop("growth from 100 to 200 turns, exponent", "", _exponent),
    _loop("CPU per turn for 198 more tools", "µs", _more_tools, Target("≤ 10 µs", 10)),
    _durable("durable call, 1 in flight, p50", "µs", "alone_us", "alone_us", "2 commits", Target("≤ 400 µs", 400)),
    _durable("… beside a writer that groups commits", "µs", "alone_us", "grouped_alone_us", "grouping writer", None),
    _durable(
        "… that changes nothing, with its reply", "µs", "pure_alone_us", "alone_us", "2 commits",
        Target("≤ 400 µs", 400),
    ),
    _durable(
        "durable calls, 64 in flight", "/s", "per_s", "grouped_per_s", "grouping writer",
        Target("≥ 20,000 /s", 20_000, at_least=True),
    ),
    _started("import toolwire, CPU", "ms", "import_ms", Target("≤ 200 ms", 200)),
    _started("import toolwire, memory", "MiB", "rss_mib", Target("≤ 40 MiB", 40)),
    _started("from toolwire import Agent, tool, CPU", "ms", "import_ms", None, "toolwire_agent"),
    _started("from toolwire import Agent, tool, memory", "MiB", "rss_mib", None, "toolwire_agent"),
    _started("toolwire --help, wall", "ms", "help_ms", Target("≤ 250 ms", 250)),
    _started("toolwire call calculator, CPU", "ms", "call_calculator_ms", Target("≤ 300 ms", 300)),
    _started("toolwire call read --tools coding, CPU", "ms", "call_read_ms", Target("≤ 300 ms", 300)),
    _started("toolwire call bash --tools shell, CPU", "ms", "call_bash_ms", Target("≤ 300 ms", 300)),
    _checked("check of 1 kB of arguments, valid", "valid"),
    _checked("… with all faults told", "wrong"),
    _translated("50 tools + 40 messages to OpenAI, cold", "openai_cold", Target("≤ 150 µs", 150)),
    _translated("… the newest 2 messages new", "openai_newest", Target("≤ 20 µs", 20)),
    _translated("50 tools + 40 messages to Anthropic, cold", "anthropic_cold", Target("≤ 150 µs", 150)),
    _translated("… the newest 2 messages new", "anthropic_newest", Target("≤ 20 µs", 20)),
    _translated("50 tools + 40 messages to the slowest of 13 dialects, cold", "slowest_cold", Target("≤ 150 µs", 150)),
    _translated("… the newest 2 messages new", "slowest_newest", Target("≤ 20 µs", 20)),
)  # fmt: skip
