import asyncio
from collections import Counter

from toolwire import Agent, tool
from toolwire.hub.event_hub import EventHub
from toolwire.protocol.events import CallFinished, EventEnvelope
from toolwire.testing import ScriptedModel, call
from toolwire.wire.codecs.events import write_envelope


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return "nothing there"


async def main() -> None:
    hub, calls = EventHub(), Counter[str]()

    def count(envelope: EventEnvelope) -> None:
        if isinstance(envelope.event, CallFinished):
            calls[envelope.event.call.name] += 1
            assert write_envelope(envelope)["event"] == "call_finished"  # ready for JSON

    stop = hub.watch(count)
    for name in ("scout", "guard"):
        model = ScriptedModel(call("look", where="under the bed"), "Nothing is there.")
        await Agent(model, [look], name=name, events=hub).ask("What is under the bed?")
    stop()
    assert calls == {"look": 2}


asyncio.run(main())
