"""Metrics of turns in one process: what is counted, and that no label grows without bound."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from toolwire import Agent, tool
from toolwire.errors import CallHeld, Fenced, ModelError
from toolwire.hub.event_hub import EventHub
from toolwire.protocol.chat import Reply, Usage
from toolwire.record.contract import Workload
from toolwire.record.memory import MemoryStore
from toolwire.telemetry.metrics import CATALOG, Metrics
from toolwire.telemetry.process import ProcessTelemetry
from toolwire.telemetry.store_metrics import SharedState, measure_store
from toolwire.testing import FrozenClock, ScriptedModel, call, says

DOCS = Path(__file__).parents[2] / "docs"


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"a mouse in {where}"


def agent(metrics: Metrics, *script: Any, **more: Any) -> Agent:
    model = more.pop("model", None) or ScriptedModel(*script, name="openai:tiny")
    made = Agent(model, [look], events=EventHub(telemetry=ProcessTelemetry(metrics=metrics)), **more)
    metrics.know_tools(made.toolbox)
    return made


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"toolwire_{name}", labels)


async def test_turns_calls_and_tokens_are_counted() -> None:
    metrics = Metrics()
    usage = Usage(10, 5, 2, 0.25)
    await agent(metrics, says("", call("look", where="bed"), usage=usage), says("A mouse.", usage=usage)).ask("?")

    whose = {"provider": "openai", "model": "tiny"}
    assert value(metrics, "calls_total", tool="look", status="success", effect="unsafe", project="") == 1
    assert value(metrics, "call_seconds_count", tool="look") == 1
    assert value(metrics, "turns_started_total", resumed="false", project="") == 1
    assert value(metrics, "turns_ended_total", reason="answered", project="") == 1
    assert value(metrics, "model_tokens_total", **whose, type="input") == 20
    assert value(metrics, "model_tokens_total", **whose, type="cached") == 4
    assert value(metrics, "model_cost_usd_total", **whose) == 0.5
    assert value(metrics, "model_call_seconds_count", **whose) == 2
    assert value(metrics, "turns_running") == value(metrics, "calls_in_flight") == 0


async def test_names_that_models_invent_and_projects_beyond_the_bound_are_one_label() -> None:
    metrics = Metrics(projects=2)
    for number in range(4):
        script = [call(f"invented_{number}"), "Sorry."]
        await agent(metrics, *script, project=f"project-{number}").ask("?")
    text = metrics.text().decode()

    assert "invented" not in text
    found = set(re.findall(r'toolwire_calls_total\{.*project="([^"]*)".*tool="other"', text))
    assert found == {"project-0", "project-1", "other"}
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-7", text)  # no id of a turn


class Broken(ScriptedModel):
    async def ask(self, *_: Any) -> Reply:
        raise ModelError("the model is gone")


async def test_a_turn_that_is_interrupted_runs_no_longer() -> None:
    metrics = Metrics()
    with pytest.raises(ModelError):
        await agent(metrics, model=Broken()).ask("?")

    assert value(metrics, "turns_interrupted_total", error="ModelError", project="") == 1
    assert value(metrics, "turns_running") == 0


class Contested(MemoryStore):
    """Another process has every call."""

    async def claim(self, *_: Any, **__: Any) -> Any:
        raise CallHeld("held")

    async def renew(self, *_: Any, **__: Any) -> Any:
        raise Fenced("lost")

    async def close(self, *_: Any, **__: Any) -> Any:
        raise Fenced("late")


async def test_claims_lost_leases_and_late_results_are_counted() -> None:
    metrics, store = Metrics(), Contested()
    measure_store(store, metrics)
    nothing: Any = None
    with pytest.raises(CallHeld):
        await store.claim(nothing)
    for write in (store.renew, store.close):
        with pytest.raises(Fenced):
            await write(nothing)

    assert value(metrics, "claims_total", outcome="held") == 1
    assert value(metrics, "lease_renewals_total", outcome="lost") == 1
    assert value(metrics, "late_results_total") == 1


async def test_what_all_processes_share_is_read_when_it_is_asked_for_and_not_too_often() -> None:
    metrics, clock, reads = Metrics(), FrozenClock(), [Workload(waiting=3), None, Workload(waiting=1)]

    async def read() -> Workload:
        if (found := reads.pop(0)) is None:
            raise Fenced("down")
        return found

    SharedState(metrics, read, monotonic=clock, cache_s=5)
    for waiting, failures, step in ((3, 0, 1), (3, 0, 5), (3, 1, 5), (1, 1, 0)):
        text = await asyncio.to_thread(metrics.text)
        assert f'toolwire_store_turns{{state="waiting"}} {waiting}.0' in text.decode()
        assert value(metrics, "store_read_failures_total") == failures
        clock.advance(step)
    assert reads == []


def families() -> dict[str, str]:
    """Every metric by its name in queries, with its type."""
    found = {each.name: each.type for each in text_string_to_metric_families(Metrics().text().decode())}
    named = {name if kind != "counter" else f"{name}_total": kind for name, kind in found.items()}
    return {name: kind for name, kind in named.items() if not name.endswith("_created")}


def test_the_catalog_is_what_there_is() -> None:
    assert {f"toolwire_{name}" for name in CATALOG} == families().keys()


def queried(text: str) -> set[str]:
    """The metrics that queries name, without the suffixes of histograms."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\btoolwire_\w+", text)}


def test_the_dashboard_asks_for_metrics_and_labels_that_exist() -> None:
    board = json.loads((DOCS / "dashboards" / "toolwire.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    known, labels = families(), {f"toolwire_{name}": set(row[2]) for name, row in CATALOG.items()}

    assert len(queries) > 15
    for query in queries:
        names = queried(query)
        assert names
        assert names <= known.keys(), query
        grouped = {word.strip() for group in re.findall(r"by \(([^)]*)\)", query) for word in group.split(",")}
        matched = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query))
        allowed = {"le", "instance", "job"}.union(*(labels[name] for name in names))
        assert grouped | matched <= allowed, query
        assert ("histogram_quantile" in query) == ("_bucket" in query), query


def test_the_page_explains_every_metric_and_its_alerts_ask_for_metrics_that_exist() -> None:
    page = (DOCS / "observability.md").read_text(encoding="utf-8")
    table = page.partition("| metric |")[2].partition("\n\n")[0]

    assert set(re.findall(r"\| `(toolwire_\w+)`", table)) == families().keys()
    assert queried("\n".join(re.findall(r"expr: (.*)", page))) <= families().keys()
