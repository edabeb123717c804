"""The connection to a broker: acknowledged, kept across connections, made again."""

import asyncio
import gc
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.edge.brokers import AnyBroker, running
from toolwire.edge.link import MqttBroker, MqttLink, Pauses
from toolwire.edge.link_contract import Incoming
from toolwire.errors import BusError, BusUnavailable, MessageTooLarge

SOON = Pauses(first=0.01, longest=0.05)
WAIT_S = 10.0


class Inbox:
    """What a link received; acknowledged at once, or never."""

    def __init__(self, *, acknowledges: bool = True) -> None:
        self.queue: asyncio.Queue[Incoming] = asyncio.Queue()
        self._acknowledges = acknowledges

    def __call__(self, incoming: Incoming) -> None:
        self.queue.put_nowait(incoming)
        if self._acknowledges:
            incoming.acknowledge()

    async def next(self) -> Incoming:
        async with asyncio.timeout(WAIT_S):
            return await self.queue.get()


@asynccontextmanager
async def linked(broker: AnyBroker, inbox: Inbox, *filters: str, **more: object) -> AsyncIterator[MqttLink]:
    given = {name: more.pop(name) for name in ("client_id", "version", "user", "password") if name in more}
    given.setdefault("client_id", uuid4().hex)
    settings = MqttBroker("127.0.0.1", port=broker.mqtt_port, max_message_bytes=10_000, **given)  # type: ignore[arg-type]
    async with MqttLink(settings, inbox, filters=filters, pauses=SOON, **more) as link:  # type: ignore[arg-type]
        async with asyncio.timeout(WAIT_S):
            await link.connected.wait()
        yield link


async def test_a_publication_returns_when_the_broker_has_it(broker: AnyBroker) -> None:
    inbox, topic = Inbox(), f"t/{uuid4().hex}"
    async with linked(broker, inbox, topic) as link:
        await asyncio.gather(*(link.publish(topic, b"%d" % number) for number in range(100)))
        assert {(await inbox.next()).data for _ in range(100)} == {b"%d" % number for number in range(100)}


@pytest.mark.parametrize("kind", ["mosquitto-5", "mosquitto", "nats"])
async def test_a_message_that_was_not_acknowledged_comes_again_on_the_next_connection(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """So a command that the device could not write down is not lost, also under MQTT 5 with its session expiry."""
    broker: AnyBroker = request.getfixturevalue("nats_mqtt" if kind == "nats" else "mosquitto")
    version = 5 if kind == "mosquitto-5" else 4
    topic, name = f"t/{uuid4().hex}", uuid4().hex
    async with linked(broker, Inbox()) as sender:
        first = Inbox(acknowledges=False)
        async with linked(broker, first, topic, client_id=name, version=version):
            await sender.publish(topic, b"kept")
            assert (await first.next()).data == b"kept"
        await sender.publish(topic, b"while away")
        again = Inbox()
        async with linked(broker, again, topic, client_id=name, version=version):
            assert {(await again.next()).data, (await again.next()).data} == {b"kept", b"while away"}
        empty = Inbox()
        async with linked(broker, empty, topic, client_id=name, version=version):
            await sender.publish(topic, b"last")
            assert (await empty.next()).data == b"last"


async def publish_on_and_on(link: MqttLink) -> None:
    while True:
        await link.publish("t/a", b"lost", timeout_s=WAIT_S)


@pytest.mark.parametrize("kind", ["mosquitto", "nats"])
async def test_a_link_comes_back_when_the_broker_does(kind: str, tmp_path: Path) -> None:
    """What is on its way fails at once, and the filters are subscribed again."""
    inbox, sessions = Inbox(), []

    async def greet(session: str) -> None:
        sessions.append(session)

    with running(kind, tmp_path) as broker:
        async with linked(broker, inbox, "t/a", on_connect=greet) as link:
            broker.kill()
            with pytest.raises(BusUnavailable):
                await publish_on_and_on(link)
            broker.start()
            async with asyncio.timeout(WAIT_S):
                await link.connected.wait()
            await link.publish("t/a", b"back")
            while (await inbox.next()).data != b"back":
                pass
    assert len(set(sessions)) == 2


async def test_a_message_above_the_limit_is_not_sent(mosquitto: AnyBroker) -> None:
    async with linked(mosquitto, Inbox()) as link:
        with pytest.raises(MessageTooLarge, match="at most 10000"):
            await link.publish("t/a", b"x" * 10_001)


async def test_a_link_without_a_broker_says_so_and_keeps_trying(mosquitto: AnyBroker) -> None:
    link = MqttLink(MqttBroker("127.0.0.1", "a", port=1), Inbox(), pauses=SOON)
    async with link:
        with pytest.raises(BusUnavailable, match="no connection to the MQTT broker at"):
            await link.publish("t/a", b"")


async def test_a_filter_that_the_broker_denies_is_an_error(tmp_path: Path) -> None:
    rules = (
        'authorization { users = [ { user: "u", password: "p", permissions: { subscribe: "ok.>", publish: ">" } } ] }'
    )
    with running("nats", tmp_path, more=rules) as broker:
        settings = MqttBroker("127.0.0.1", "denied", port=broker.mqtt_port, user="u", password="p")
        async with MqttLink(settings, Inbox(), pauses=SOON) as link:
            async with asyncio.timeout(WAIT_S):
                await link.connected.wait()
            with pytest.raises(BusError, match="does not allow a subscription to other/a"):
                await link.subscribe("other/a")


async def test_a_broker_that_ends_the_connection_at_once_is_noticed_at_once() -> None:
    """As one does that knows neither the certificate nor the user. Without this, the link waits for ten seconds."""

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, MqttLink(MqttBroker("127.0.0.1", "a", port=port), Inbox(), pauses=SOON) as link:
        async with asyncio.timeout(WAIT_S / 2):
            while not link.problem:
                await asyncio.to_thread(time.sleep, 0.01)
        assert "closed the connection at once" in link.problem


async def test_a_link_that_is_closed_while_it_connects_leaves_no_error_behind() -> None:
    """The attempt ends by two ways at once; the one that no one waits for is not told as a failure of the program."""
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # no one listens there
        for _ in range(20):
            async with MqttLink(MqttBroker("127.0.0.1", uuid4().hex, port=closed.getsockname()[1]), Inbox()):
                await asyncio.sleep(0)
                await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)

    assert told == []
