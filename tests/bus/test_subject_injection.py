"""Ids that become parts of a subject, on a real broker: one that could mean more than itself must not be sent."""

import asyncio

import nats
import pytest

from tests.bus.servers import NatsServer
from toolwire.bus.nats_connection import NatsServers
from toolwire.bus.nats_jetstream import nats_bus
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import BadSubject, Subject, TargetSubject


def posing(victim: str) -> str:
    """A project of this name would be addressed where the victim listens."""
    return f"{victim}.public.cmd.tool.search.x"


def naive(project: str) -> str:
    return f"cg.v1r4.{project}.public.cmd.tool.search"


async def heard(broker: NatsServer, victim: str, subject: str) -> bytes:
    """What the victim's subscriber gets first, after a message at this subject and one of its own."""
    async with (
        nats_bus(NatsServers((broker.url,))) as bus,
        bus.subscribe(f"cg.v1r4.{victim}.*.cmd.tool.>", durable=victim) as subscription,
        asyncio.timeout(20),
    ):
        client = await nats.connect(broker.url)
        await client.jetstream().publish(subject, b"forged")
        await client.close()
        await bus.publish(BusMessage(str(Subject.tool(victim, "public", "search")), b"own"))
        delivered = await anext(subscription)
        await delivered.ack()
    return delivered.message.data


async def test_T51_control_a_project_with_dots_reaches_another_one(broker: NatsServer) -> None:
    assert await heard(broker, "victim1", naive("ordinary")) == b"own"
    assert await heard(broker, "victim2", naive(posing("victim2"))) == b"forged"


@pytest.mark.parametrize("project", [posing("victim"), "*", ">", "victim.*", "a b", "victim\r\nPUB x", "", "victim."])
def test_T51_an_id_that_could_mean_more_than_itself_makes_no_subject(project: str) -> None:
    with pytest.raises(BadSubject):
        Subject.tool(project, "public", "search")
    with pytest.raises(BadSubject):
        TargetSubject.parse("cg.v1r4.{project_id}.{channel_id}.cmd.tool.search").fill(project, "public")


@pytest.mark.parametrize("project", ["*", ">", "victim.*", "a b", "victim\r\nPUB x", "", "victim."])
async def test_T51_a_subject_that_was_put_together_elsewhere_is_not_sent_either(
    broker: NatsServer, project: str
) -> None:
    async with nats_bus(NatsServers((broker.url,))) as bus:
        with pytest.raises(BadSubject):
            await bus.publish(BusMessage(naive(project), b"forged"))


def test_T51_a_registered_target_stays_under_the_prefix_of_its_project() -> None:
    target = TargetSubject.parse("cg.v1r4.victim.{channel_id}.cmd.tool.search")
    assert str(target.fill("victim", "public")) == "cg.v1r4.victim.public.cmd.tool.search"
    with pytest.raises(BadSubject, match="another project"):
        target.fill("attacker", "public")
