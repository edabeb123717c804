import asyncio

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolwire import Agent, tool
from toolwire.hub.event_hub import EventHub
from toolwire.telemetry.traces import TurnTracer
from toolwire.testing import ScriptedModel, call


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return "nothing there"


async def main() -> None:
    exporter = InMemorySpanExporter()  # or any exporter of the SDK, behind a BatchSpanProcessor
    hub = EventHub(telemetry=TurnTracer([SimpleSpanProcessor(exporter)]))
    model = ScriptedModel(call("look", where="under the bed"), "Nothing is there.")
    answer = await Agent(model, [look], name="scout", events=hub).ask("What is under the bed?")

    spans = exporter.get_finished_spans()
    assert [span.name.split()[0] for span in spans] == ["chat", "execute_tool", "chat", "invoke_agent"]
    turn = spans[-1].context
    assert {span.parent.span_id for span in spans[:-1]} == {turn.span_id}
    assert f"{turn.trace_id:032x}" == answer.turn_id.replace("-", "")


asyncio.run(main())
