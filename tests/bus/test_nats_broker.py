"""A broker that dies, comes back, comes back empty, or was never there."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import nats
import pytest

from tests.bus.servers import NatsServer, running
from toolwire.bus.contract import HandoffAnswer, Subscription
from toolwire.bus.nats_connection import NatsServers, SecureClient
from toolwire.bus.nats_jetstream import STREAMS, NatsBus, nats_bus
from toolwire.bus.nkeys import UserKey
from toolwire.errors import BusUnavailable
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import BadSubject, Subject

PATTERN = "cg.v1r4.acme.*.cmd.tool.>"
SUBJECT = str(Subject.tool("acme", "public", "search"))
SOON_S = 30.0


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[NatsServer]:
    with running(tmp_path) as server:
        yield server


def message(number: int) -> BusMessage:
    return BusMessage(SUBJECT, str(number).encode())


async def publish_until_kept(bus: NatsBus, number: int) -> None:
    """As an outbox does: again and again, under one id."""
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                await bus.publish(message(number), dedupe_id=f"m{number}")
                return
            except BusUnavailable:
                await asyncio.sleep(0)


async def numbers(subscription: Subscription, wanted: set[int]) -> list[int]:
    """All numbers that come until none is missing."""
    found: list[int] = []
    async with asyncio.timeout(SOON_S):
        while not wanted <= set(found):
            delivered = await anext(subscription)
            found.append(int(delivered.message.data))
            await delivered.ack()
    return found


async def test_what_was_confirmed_survives_a_broker_that_is_killed(mortal: NatsServer) -> None:
    async with nats_bus(NatsServers((mortal.url,)), confirm_s=1.0) as bus:
        for number in range(20):
            await bus.publish(message(number), dedupe_id=f"m{number}")
        mortal.kill()
        mortal.start()
        await publish_until_kept(bus, 0)
        async with bus.subscribe(PATTERN, durable="workers") as subscription:
            assert sorted(await numbers(subscription, set(range(20)))) == list(range(20))


async def test_a_subscriber_goes_on_when_its_broker_was_killed_and_started_again(mortal: NatsServer) -> None:
    async with nats_bus(NatsServers((mortal.url,)), confirm_s=1.0) as bus:
        async with bus.subscribe(PATTERN, durable="workers", ack_wait_s=1.0) as subscription:
            await bus.publish(message(1), dedupe_id="m1")
            assert await numbers(subscription, {1}) == [1]
            waiting = asyncio.create_task(numbers(subscription, {2, 3}))
            mortal.kill()
            mortal.start()
            for number in (2, 3):
                await publish_until_kept(bus, number)
            assert set(await waiting) >= {2, 3}
        assert (await bus.health()).reconnects >= 1


async def test_an_id_is_remembered_by_a_broker_that_was_killed(mortal: NatsServer) -> None:
    async with nats_bus(NatsServers((mortal.url,)), confirm_s=1.0) as bus:
        assert await bus.publish(message(1), dedupe_id="m1")
        async with bus.subscribe(PATTERN, durable="workers") as subscription:
            assert await numbers(subscription, {1}) == [1]
        mortal.kill()
        mortal.start()
        await publish_until_kept(bus, 2)
        assert not await bus.publish(message(1), dedupe_id="m1")


async def test_a_broker_that_comes_back_empty_gets_its_streams_anew(mortal: NatsServer) -> None:
    async with (
        nats_bus(NatsServers((mortal.url,)), confirm_s=1.0) as bus,
        bus.subscribe(PATTERN, durable="workers") as subscription,
    ):
        await bus.publish(message(1))
        assert await numbers(subscription, {1}) == [1]
        waiting = asyncio.create_task(numbers(subscription, {2}))
        mortal.kill()
        shutil.rmtree(mortal.folder / "jetstream")
        mortal.start()
        await publish_until_kept(bus, 2)
        assert set(await waiting) == {2}


async def test_a_message_that_the_broker_did_not_confirm_is_an_error_and_health_says_why(mortal: NatsServer) -> None:
    async with nats_bus(NatsServers((mortal.url,)), confirm_s=0.2) as bus:
        mortal.kill()
        with pytest.raises(BusUnavailable, match="did not confirm"):
            await bus.publish(message(1))
        async with asyncio.timeout(SOON_S):
            while not (health := await bus.health()).last_error:  # noqa: ASYNC110 (health is asked, it does not tell)
                await asyncio.sleep(0.01)
        assert not health.connected
        with pytest.raises(BusUnavailable):
            async with bus.subscribe(PATTERN, durable="workers"):
                pass


async def test_a_user_who_was_refused_for_a_while_goes_on(tmp_path: Path) -> None:
    """As while keys are being replaced."""
    key = UserKey.new()
    allowed, refused = (f"authorization {{ users: [{{ nkey: {one.public} }}] }}" for one in (key, UserKey.new()))
    with running(tmp_path, more=allowed) as server:
        async with (
            nats_bus(NatsServers((server.url,), key=key), confirm_s=1.0) as bus,
            bus.subscribe(PATTERN, durable="workers") as subscription,
        ):
            waiting = asyncio.create_task(numbers(subscription, {2}))
            await publish_until_kept(bus, 1)
            server.reload(refused)
            async with asyncio.timeout(SOON_S):
                while "refused" not in (await bus.health()).last_error:  # noqa: ASYNC110 (health is asked)
                    await asyncio.sleep(0.01)
            server.reload(allowed)
            await publish_until_kept(bus, 2)
            assert set(await waiting) == {1, 2}
            assert (await bus.health()).reconnects


async def test_a_server_that_ends_sessions_with_an_error_is_logged_in_to_again(mortal: NatsServer) -> None:
    """The client library gives up for ever where a server says why it ends a session."""
    async with (
        nats_bus(NatsServers((mortal.url,)), confirm_s=1.0) as bus,
        bus.subscribe(PATTERN, durable="workers") as subscription,
    ):
        waiting = asyncio.create_task(numbers(subscription, {2}))
        await publish_until_kept(bus, 1)
        mortal.kill()
        mortal.start("max_subscriptions: 1\n")
        async with asyncio.timeout(SOON_S):
            while (await bus.health()).reconnects < 2:  # noqa: ASYNC110 (health is asked, it does not tell)
                await asyncio.sleep(0.01)
        mortal.kill()
        mortal.start()
        await publish_until_kept(bus, 2)
        assert set(await waiting) == {1, 2}


async def test_acknowledging_while_the_broker_is_away_does_not_raise(mortal: NatsServer) -> None:
    async with (
        nats_bus(NatsServers((mortal.url,)), confirm_s=0.5) as bus,
        bus.subscribe(PATTERN, durable="workers") as subscription,
    ):
        for number in range(3):
            await bus.publish(message(number))
        held = [await anext(subscription) for _ in range(3)]
        mortal.kill()
        await held[0].progress()
        await held[0].ack()
        await held[1].nak()
        assert await subscription.drain(0.01) == 1


async def test_a_broker_that_was_never_there_is_named_without_its_password() -> None:
    servers = NatsServers(("nats://ann:secret@127.0.0.1:1",))
    with pytest.raises(BusUnavailable, match=r"127\.0\.0\.1:1") as refused:
        async with nats_bus(servers, connect_s=0.5):
            pass
    assert "secret" not in str(refused.value)


async def test_a_message_is_never_given_up_and_the_streams_are_bounded(broker: NatsServer) -> None:
    """A broker that stops delivering after some attempts hides the message: no consumer ever sees it."""
    async with nats_bus(NatsServers((broker.url,))) as bus, bus.subscribe(PATTERN, durable="workers"):
        client = await nats.connect(broker.url)
        js = client.jetstream()
        consumer = await js.consumer_info("cg_cmd_v1r4", "workers")
        streams = [await js.stream_info(plan.name) for plan in STREAMS]
        await client.close()
    assert consumer.config.max_deliver == -1
    assert [stream.config.max_age for stream in streams] == [86_400, 7 * 86_400]
    assert all(stream.config.max_bytes and stream.config.max_bytes > 0 for stream in streams)


async def test_streams_that_are_not_kept_are_refused(broker: NatsServer) -> None:
    async with nats_bus(NatsServers((broker.url,))) as bus:
        with pytest.raises(BadSubject, match="str are not kept"):
            await bus.publish(BusMessage(str(Subject.stream("acme", "public", "ann"))))
        with pytest.raises(BadSubject):
            async with bus.subscribe("cg.v1r4.acme.>", durable="all"):
                pass


async def test_a_foreign_service_can_ring_the_same_doorbell(broker: NatsServer) -> None:
    async with (
        nats_bus(NatsServers((broker.url,))) as bus,
        bus.subscribe("cg.v1r4.acme.*.cmd.sys.execution.report", durable="reports") as subscription,
    ):
        client = await nats.connect(broker.url)
        subject = str(Subject.report("acme", "public"))
        await client.jetstream().publish(subject, b"{}", headers={"CG-Agent-Id": "ann"})
        await client.close()
        async with asyncio.timeout(SOON_S):
            delivered = await anext(subscription)
        await delivered.ack()
    assert delivered.message == BusMessage(subject, b"{}", {"CG-Agent-Id": "ann"})


@pytest.mark.parametrize(
    ("answer", "meant"),
    [
        (b'{"taken":true}', HandoffAnswer.TAKEN),
        (b'{ "taken" : true, "by": "me" }\n', HandoffAnswer.TAKEN),
        (b'{"taken": false}', HandoffAnswer.BUSY),
        (b'{"taken": 1}', HandoffAnswer.BUSY),
        (b"[true]", HandoffAnswer.BUSY),
        (b"yes", HandoffAnswer.BUSY),
        (b"", HandoffAnswer.BUSY),
    ],
)
async def test_a_foreign_service_writes_its_answer_to_a_handoff_as_any_json(
    broker: NatsServer, answer: bytes, meant: HandoffAnswer
) -> None:
    subject = str(Subject.tool(f"p{uuid4().hex}", "public", "search"))
    foreign = SecureClient(NatsServers((broker.url,)))
    async with nats_bus(NatsServers((broker.url,))) as bus, foreign:
        await foreign.connect(broker.url)
        heard = await foreign.subscribe(subject.replace(".cmd.", ".str."), queue="search")
        await foreign.flush_all()
        asked = asyncio.create_task(bus.hand_over(BusMessage(subject, b"1"), timeout_s=SOON_S))
        await (await heard.next_msg(timeout=SOON_S)).respond(answer)
        assert await asked is meant


async def test_who_has_flushed_a_subscription_is_known_to_the_server() -> None:
    """A server may answer a ping that comes before a subscription, and only then read on."""
    lines, ended = list[bytes](), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"s","version":"2.14.3","max_payload":1048576,"headers":true}\r\n')
        while line := await reader.readline():
            lines.append(line.partition(b" ")[0].strip())
            if lines[-1] == b"PING":
                writer.write(b"PONG\r\n")
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = SecureClient(NatsServers(()))
        await client.connect(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await client.subscribe("a")
        await client.flush_all()
        assert lines[lines.index(b"SUB") :] == [b"SUB", b"PING"]
        await client.close()
        await ended.wait()


async def test_being_canceled_while_it_connects_is_never_lost(mortal: NatsServer) -> None:
    """Python 3.11 loses it at some moments, so all of the first ones are tried."""

    async def connected() -> None:
        async with nats_bus(NatsServers((mortal.url,))):
            await asyncio.Event().wait()

    for moments in range(40):
        task = asyncio.create_task(connected())
        for _ in range(moments):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5.0)
        if not done:
            task.cancel()
            await asyncio.wait([task])
        assert done, f"canceled after {moments} steps of the loop, it went on"
