"""The trace of a turn whose call runs behind a broker: real processes, a real NATS server, a real collector."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bus.servers import NatsServer
from tests.cli.stage import LIMIT_S, Stage, scripted
from tests.telemetry.collector import collecting
from toolwire.fleet.parcels import wakeup_message
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.records import CallCard
from toolwire.wire.utp.messages import CallOrigin, Wakeup, decode_wakeup

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

TOOLS = '''
from toolwire import Effect, tool

@tool(effect=Effect.PURE)
def where() -> str:
    """Say where this runs."""
    return "in the shed"
'''


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.module("garden", TOOLS)
    yield stage
    stage.close()


def test_a_call_behind_the_broker_belongs_to_the_trace_of_its_turn(stage: Stage, nats: NatsServer) -> None:
    project = ("--project", f"t{abs(hash(str(stage.folder)))}")
    with collecting() as collector, scripted([("where", {})], "Done.") as model:
        stage.settings(
            f"""
            [tools]
            modules = ["garden:where"]
            [bus]
            kind = "nats"
            url = ["{nats.url}"]
            [services.shed]
            via = "bus"
            tools = ["where"]
            [telemetry]
            endpoint = "{collector.url}"
            """
        )
        worker = stage.start("worker", "shed", *project, OTEL_SERVICE_NAME="shed")
        assert worker.stdout is not None
        worker.stdout.readline()
        asked = stage.run("ask", "Where?", *model.flags, *project)
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=LIMIT_S)

    assert asked.out.strip() == "Done.", asked.err
    [turn] = collector.of("invoke_agent")
    served = [span for span in collector.of("execute_tool") if span.resource["service.name"] == "shed"]
    assert [(span.trace_id, span.parent_id) for span in served] == [(turn.trace_id, turn.span_id)]
    assert {span.trace_id for span in collector.spans} == {turn.trace_id}
    assert {span.parent_id for span in collector.spans if span is not turn} == {turn.span_id}


def test_a_wakeup_carries_the_trace_of_the_call_that_ended() -> None:
    call = ToolCall("where", {}, id="call-1")
    card = CallCard("card-1", "turn-1", 1, call, "0" * 64, project="p", agent="ann")
    message = wakeup_message(card, "public", CallOrigin(traceparent=PARENT, tracestate="vendor=1"))

    assert isinstance(message, BusMessage)
    assert {name: message.headers[name] for name in ("traceparent", "tracestate")} == {
        "traceparent": PARENT, "tracestate": "vendor=1",
    }  # fmt: skip
    read = decode_wakeup(message)
    assert isinstance(read, Wakeup)
    assert read.origin.traceparent == PARENT
