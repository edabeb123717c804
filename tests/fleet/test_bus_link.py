"""The bus as a process of a project uses it."""

import asyncio
from pathlib import Path

from tests.bus.servers import NatsServer
from toolwire.assemble.bus_link import BusLink
from toolwire.assemble.project import ProjectFolder
from toolwire.bus.nats_jetstream import NatsServers, nats_bus
from toolwire.fleet.parcels import wakeup_message
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.records import CallCard, Dispatch
from toolwire.record.memory import MemoryStore
from toolwire.settings import load


async def test_a_call_that_is_sent_before_the_broker_answers_leaves_its_process_woken(
    nats: NatsServer, tmp_path: Path
) -> None:
    folder = tmp_path / "linked"
    folder.mkdir()
    (folder / "toolwire.toml").write_text(f'[bus]\nkind = "nats"\nurl = ["{nats.url}"]\n')
    place = ProjectFolder(folder, {}, load(folder, {"TOOLWIRE_TRUST": str(folder)}))
    card = CallCard("card-1", "turn-1", 1, ToolCall("note", {}, "call-1"), "0" * 64, project=place.name, agent="writer")
    wakeup = wakeup_message(card, "public")
    assert isinstance(wakeup, BusMessage)
    woken = asyncio.Event()
    async with nats_bus(NatsServers((nats.url,))) as bus:
        link = BusLink(place, MemoryStore())
        link.start(woken.set)
        link.send_soon(Dispatch(place.name, "turn-1", "call-1", "card-1", 1, "no.subject", "{}", 0.0, 0.0), card)
        await bus.publish(wakeup)
        try:
            async with asyncio.timeout(20):
                await woken.wait()
        finally:
            await link.close()
