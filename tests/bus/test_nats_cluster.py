"""Three real servers with the files of `toolwire nats config`: one of them is killed."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.js.api import StreamInfo

from tests.bus.servers import NatsServer, free_port
from tests.cli.stage import Stage
from toolwire.assemble.buses import nats_servers, open_bus
from toolwire.assemble.project import ProjectFolder
from toolwire.bus.contract import Bus, Subscription
from toolwire.bus.nats_connection import SecureClient
from toolwire.errors import BusUnavailable
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import Subject
from toolwire.settings import load

SOON_S = 60.0
SUBJECT = str(Subject.tool("acme", "public", "search"))
PATTERN = "cg.v1r4.acme.*.cmd.tool.search"
STREAM = "cg_cmd_v1r4"


class Cluster:
    """Three servers on loopback, and the settings of the orchestrator of project acme."""

    def __init__(self, folder: Path) -> None:
        stage = Stage(folder)
        ports = [free_port() for _ in range(3)]
        words = [word for port in ports for word in ("--node", f"127.0.0.1:{port}")]
        ran = stage.run("nats", "config", "brk", "--project", "acme", *words, "--stream-mb", "8", "--json")
        assert ran.code == 0, ran.err
        (orchestrator,) = [user for user in ran.json["users"] if user["role"] == "orchestrator"]
        stage.settings(orchestrator["settings"])
        self.place = ProjectFolder(folder, {}, load(folder, {"TOOLWIRE_TRUST": str(folder)}))
        self.nodes: dict[str, NatsServer] = {}
        for config, port in zip(map(Path, ran.json["configs"]), ports, strict=True):
            own = folder / config.stem
            own.mkdir()
            self.nodes[config.stem] = NatsServer(own, config=config, port=port)

    def start(self) -> None:
        for node in self.nodes.values():
            node.start(answers=False)
        for node in self.nodes.values():
            node.await_answer()

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    @staticmethod
    def _is_whole(found: StreamInfo) -> bool:
        replicas = found.cluster.replicas if found.cluster else None
        return replicas is not None and len(replicas) == 2 and all(replica.current for replica in replicas)

    async def leader(self) -> NatsServer:
        """The server that keeps the stream of commands for the others."""
        servers = nats_servers(self.place)
        client = SecureClient(servers)
        await client.connect(list(servers.urls), **servers.options())
        try:
            found = await client.jetstream().stream_info(STREAM)
            while not self._is_whole(found):  # until then it is with one server only
                await asyncio.sleep(0.05)
                found = await client.jetstream().stream_info(STREAM)
        finally:
            await client.close()
        assert found.cluster is not None
        assert found.cluster.leader is not None
        assert found.config.num_replicas == 3
        return self.nodes[found.cluster.leader]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    made.start()
    try:
        yield made
    finally:
        made.kill()


async def publish_until_kept(bus: Bus, number: int) -> None:
    """As the relay does: again and again, under one id."""
    while True:
        try:
            await bus.publish(BusMessage(SUBJECT, str(number).encode()), dedupe_id=f"m{number}")
            return
        except BusUnavailable:
            await asyncio.sleep(0.02)


async def receive(subscription: Subscription, wanted: set[int], half: asyncio.Event) -> None:
    missing = set(wanted)
    while missing:
        delivered = await anext(subscription)
        missing.discard(int(delivered.message.data))
        await delivered.ack()
        if len(missing) < len(wanted) / 2:
            half.set()


async def test_a_node_that_is_killed_under_load_loses_nothing_and_stops_no_one(cluster: Cluster) -> None:
    wanted, half = set(range(400)), asyncio.Event()
    numbers = iter(sorted(wanted))

    async def publish(bus: Bus) -> None:
        for number in numbers:
            await publish_until_kept(bus, number)

    async with (
        asyncio.timeout(SOON_S),
        open_bus(cluster.place, connect_s=SOON_S) as sender,
        open_bus(cluster.place) as receiver,
        receiver.subscribe(PATTERN, durable="workers", ack_wait_s=2.0) as subscription,
        asyncio.TaskGroup() as group,
    ):
        node = await cluster.leader()
        group.create_task(receive(subscription, wanted, half))
        for _ in range(8):
            group.create_task(publish(sender))
        await half.wait()
        node.kill()
