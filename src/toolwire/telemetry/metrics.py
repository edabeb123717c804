"""What happens in this process as Prometheus metrics. `CATALOG` says what each of them means.

Labels are bounded: a tool that no toolbox has is `other`, and so are models and projects beyond the first few. No label
holds the id of a turn or call. What is true for all processes together (turns that wait, calls on their way) is read
from the store when the metrics are: see `store_metrics`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import Metric

from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Usage
from toolwire.protocol.events import (
    ApprovalAsked,
    CallFinished,
    CallStarted,
    Event,
    ModelAsked,
    ModelReplied,
    TurnEnded,
    TurnStarted,
    TurnWaiting,
)
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import Turn
from toolwire.telemetry.conventions import short_name, split_model

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
MOST_TOOLS, MOST_MODELS = 500, 50
_QUICK_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)
_SLOW_S = (0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 900, 3600)
_CHANGES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_WRITE_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)

CATALOG: Mapping[str, tuple[type[Any], str, tuple[str, ...]]] = {
    "calls_total": (Counter, "Tool calls of turns that ended, by how.", ("tool", "status", "effect", "project")),
    "call_seconds": (Histogram, "How long tools took.", ("tool",)),
    "call_queue_seconds": (Histogram, "How long calls waited for a free slot or what they touch.", ()),
    "calls_in_flight": (Gauge, "Tool calls of turns that run in this process now.", ()),
    "turns_started_total": (Counter, "Turns that this process took up, begun or resumed.", ("resumed", "project")),
    "turns_ended_total": (Counter, "Turns that ended here, by reason.", ("reason", "project")),
    "turns_suspended_total": (Counter, "Turns that this process left to wait.", ("project",)),
    "turns_interrupted_total": (Counter, "Turns that this process left after an error.", ("error", "project")),
    "turns_running": (Gauge, "Turns that run in this process now.", ()),
    "turn_seconds": (Histogram, "How long turns ran in the process that ended them.", ()),
    "approvals_requested_total": (Counter, "Approvals that were requested.", ("tool",)),
    "model_calls_total": (Counter, "Replies of models, by how they finished.", ("provider", "model", "finish_reason")),
    "model_call_seconds": (Histogram, "How long models took to reply.", ("provider", "model")),
    "model_tokens_total": (Counter, "Tokens that model calls used.", ("provider", "model", "type")),
    "model_cost_usd_total": (Counter, "Cost of model calls in US dollars, if a price is known.", ("provider", "model")),
    "worker_calls_total": (Counter, "Calls that this worker ran for other processes.", ("tool", "status")),
    "worker_call_seconds": (Histogram, "How long calls of this worker took.", ("tool",)),
    "worker_calls_in_flight": (Gauge, "Calls that this worker runs now.", ()),
    "gateway_requests_total": (Counter, "Requests to the gateway.", ("method", "route", "status")),
    "gateway_request_seconds": (Histogram, "How long requests to the gateway took, streams to their end.", ("route",)),
    "gateway_calls_total": (Counter, "Tool calls in answers that the gateway passed on.", ()),
    "gateway_repaired_calls_total": (Counter, "Those of them that it had to repair.", ()),
    "store_write_seconds": (Histogram, "How long a change took to be durable, queueing included.", ("operation",)),
    "store_commit_seconds": (Histogram, "How long a transaction of the store took.", ()),
    "store_commit_changes": (Histogram, "How many changes were made durable together.", ()),
    "claims_total": (Counter, "Attempts to claim a call.", ("outcome",)),
    "lease_renewals_total": (Counter, "Renewals of a claim; lost: another process has the call.", ("outcome",)),
    "late_results_total": (Counter, "Results that came after their call was another process's.", ()),
    "store_turns": (Gauge, "Turns on record that have not ended, of all processes.", ("state",)),
    "store_approvals_pending": (Gauge, "Approvals that are pending, of all processes.", ()),
    "store_dispatches": (Gauge, "Calls on their way to workers, of all processes.", ()),
    "store_dispatch_overdue_seconds": (Gauge, "How long the oldest command that is due has not been sent.", ()),
    "store_read_failures_total": (Counter, "Times that the store could not be read for these metrics.", ()),
    "bus_connected": (Gauge, "Whether the broker can be reached.", ("bus",)),
    "bus_reconnects": (Gauge, "How often the connection to the broker came back.", ("bus",)),
}  # fmt: skip
"""Each metric by its name without `toolwire_`: its type, what it means, and its labels."""

_BUCKETS = {
    "call_seconds": _QUICK_S, "worker_call_seconds": _QUICK_S, "call_queue_seconds": _QUICK_S, "turn_seconds": _SLOW_S,
    "model_call_seconds": _SLOW_S, "gateway_request_seconds": _SLOW_S, "store_write_seconds": _WRITE_S,
    "store_commit_seconds": _WRITE_S, "store_commit_changes": _CHANGES,
}  # fmt: skip
_log = logging.getLogger(__name__)


class _FirstNames:
    """The first names that come, up to so many; any later one is `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        found = self._known.get(name)
        if found is None:
            found = OTHER if len(self._known) >= self._most else short_name(name)
            if found != OTHER:
                self._known[name] = found
        return found


class _BeforeReading:
    """A collector without metrics. It comes first, so that what is called here is seen in those that follow."""

    def __init__(self, called: list[Callable[[], None]]) -> None:
        self._called = called

    def collect(self) -> Iterator[Metric]:
        for each in self._called:
            each()
        return iter(())

    def describe(self) -> Iterator[Metric]:
        return iter(())


def leave_out_created() -> None:
    """Give no second series for each counter that says since when it counts; for all registries of this process."""
    disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of a process. With `projects`, so many of them are told apart by a label; it is empty otherwise."""

    def __init__(self, projects: int = 0) -> None:
        self.registry = CollectorRegistry()
        self.before_reading: list[Callable[[], None]] = []
        self.registry.register(_BeforeReading(self.before_reading))
        self._all: dict[str, Any] = {}
        for name, (kind, meaning, labels) in CATALOG.items():
            more = {"buckets": _BUCKETS[name]} if name in _BUCKETS else {}
            self._all[name] = kind(f"toolwire_{name}", meaning, labels, registry=self.registry, **more)
        self._effects: dict[str, str] = {}
        self._models = _FirstNames(MOST_MODELS)
        self._errors = _FirstNames(MOST_MODELS)
        self._project: Callable[[str], str] = _FirstNames(projects) if projects else lambda _: ""
        self._running: set[tuple[str, str, int]] = set()
        self._begun: set[tuple[str, str]] = set()

    def text(self) -> bytes:
        """All of them in the text format of Prometheus."""
        return generate_latest(self.registry)

    def of(self, name: str, *labels: str) -> Any:
        """A metric, with the values of its labels in their order."""
        return self._all[name].labels(*labels) if labels else self._all[name]

    def know_tools(self, tools: Iterable[Tool]) -> None:
        """Tell calls of these tools apart."""
        for tool in tools:
            if len(self._effects) < MOST_TOOLS or tool.name in self._effects:
                self._effects[tool.name] = tool.effect.value

    def tool(self, name: str) -> str:
        """The label of a tool: models call what does not exist, too."""
        return name if name in self._effects else OTHER

    # Events of turns

    def observe(self, turn: Turn, event: Event, at: float) -> None:  # noqa: ARG002 -- as every telemetry
        """Count an event. What goes wrong here is logged, and harms no turn."""
        try:
            self._observe(turn, event)
        except Exception:
            _log.exception("turn %s cannot be counted", turn.id)

    def interrupted(self, turn: Turn, error: BaseException) -> None:
        self.of("turns_interrupted_total", self._errors(type(error).__name__), self._project(turn.project)).inc()
        self._left(turn)

    def _observe(self, turn: Turn, event: Event) -> None:
        project = self._project(turn.project)
        match event:
            case TurnStarted(resumed=resumed):
                self.of("turns_started_total", str(resumed).lower(), project).inc()
                self._running.add((turn.project, turn.id, turn.epoch))
                self.of("turns_running").set(len(self._running))
            case ModelReplied(_, reply, elapsed_ms):
                self._replied(turn, reply.finish_reason, reply.usage, elapsed_ms)
            case ApprovalAsked(tool=tool):
                self.of("approvals_requested_total", self.tool(tool)).inc()
            case CallStarted(call):
                self._begun.add((turn.id, call.id))
                self.of("calls_in_flight").set(len(self._begun))
            case CallFinished(call, result) if not event.replayed:
                self._called(turn, call.id, result, project)
            case TurnWaiting():
                self.of("turns_suspended_total", project).inc()
                self._left(turn)
            case TurnEnded(_, ending, elapsed_ms):
                self.of("turns_ended_total", ending.reason.value, project).inc()
                self.of("turn_seconds").observe(elapsed_ms / 1000)
                self._left(turn)
            case ModelAsked() | _:
                return

    def _replied(self, turn: Turn, finish_reason: str, usage: Usage, elapsed_ms: float) -> None:
        model = self._models(turn.model)
        whose = (OTHER, OTHER) if model == OTHER else split_model(model)
        self.of("model_calls_total", *whose, self._errors(finish_reason)).inc()
        self.of("model_call_seconds", *whose).observe(elapsed_ms / 1000)
        for kind, count in (
            ("input", usage.input_tokens), ("output", usage.output_tokens), ("cached", usage.cached_tokens)
        ):  # fmt: skip
            if count:
                self.of("model_tokens_total", *whose, kind).inc(count)
        if usage.cost_usd:
            self.of("model_cost_usd_total", *whose).inc(usage.cost_usd)

    def _called(self, turn: Turn, call_id: str, result: ToolResult, project: str) -> None:
        tool = self.tool(result.name)
        self.of("calls_total", tool, result.status.value, self._effects.get(tool, ""), project).inc()
        if (turn.id, call_id) in self._begun:
            self.of("call_seconds", tool).observe(result.elapsed_ms / 1000)
            self.of("call_queue_seconds").observe(result.queued_ms / 1000)
            self._begun.discard((turn.id, call_id))
            self.of("calls_in_flight").set(len(self._begun))

    def _left(self, turn: Turn) -> None:
        self._running.discard((turn.project, turn.id, turn.epoch))
        self._begun = {each for each in self._begun if each[0] != turn.id} if self._begun else self._begun
        self.of("turns_running").set(len(self._running))
        self.of("calls_in_flight").set(len(self._begun))

    # Requests to the gateway

    def requested(self, method: str, route: str, status: int, elapsed_ms: float, calls: int, repaired: int) -> None:
        """Count a request that is over."""
        known = method if method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS") else OTHER
        self.of("gateway_requests_total", known, route, str(status)).inc()
        self.of("gateway_request_seconds", route).observe(elapsed_ms / 1000)
        self.of("gateway_calls_total").inc(calls)
        self.of("gateway_repaired_calls_total").inc(repaired)
