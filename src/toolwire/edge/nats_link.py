"""A connection by way of NATS to devices that speak MQTT with the same server: topic `a/b` is subject `a.b` there.

The server keeps retained messages of MQTT clients in a stream of its own, which is read after each connection. What is
published here reaches a device only while that is connected, so a command has to be sent again until its report is
there; that is done for any link.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterable
from contextlib import suppress

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from toolwire.bus.nats_connection import NatsServers, SecureClient, reason_of
from toolwire.edge.link_contract import ACKNOWLEDGE_S, Incoming, OnConnect, Receive, StaysConnected
from toolwire.errors import BusError, BusUnavailable, MessageTooLarge

RETRY_S = 0.5
_RETAINED = "$MQTT_rmsgs"
_RETAINED_SUBJECT = "$MQTT.rmsgs."
_TOPIC = "Nmqtt-RTopic"
_MOST_BYTES = 1_000_000
_READ_S = 5.0
_AT_ONCE = 256

_log = logging.getLogger(__name__)


class NatsLink(StaysConnected):
    """A `Link` to a nats-server with an MQTT listener: `async with NatsLink(servers, receive, filters=[…]) as link`."""

    def __init__(
        self,
        servers: NatsServers,
        receive: Receive,
        *,
        filters: Iterable[str] = (),
        on_connect: OnConnect | None = None,
        name: str = "toolwire",
    ) -> None:
        self._servers = servers
        self._receive = receive
        self._filters = list(filters)
        self._on_connect = on_connect
        self._name = name
        self._client: SecureClient | None = None
        self._session = ""
        self._lost = asyncio.Event()
        self.connected = asyncio.Event()
        self.problem = ""

    @property
    def session(self) -> str:
        return self._session

    async def publish(self, topic: str, data: bytes, *, retain: bool = False, timeout_s: float = ACKNOWLEDGE_S) -> None:
        if retain:
            raise BusError("messages of NATS clients are not retained; publish it over MQTT")
        if len(data) > _MOST_BYTES:
            raise MessageTooLarge(f"a message of {len(data)} bytes is too large; at most {_MOST_BYTES} are sent")
        client = self._client
        if client is None:
            raise BusUnavailable(self._unreachable())
        try:
            await client.publish(subject_of(topic), data)
            await client.flush(timeout=timeout_s)  # type: ignore[arg-type]  # fractions are fine
        except (NatsError, OSError, TimeoutError) as wrong:
            raise BusUnavailable(f"the message for {topic} could not be sent: {reason_of(wrong)}") from None

    async def subscribe(self, topic_filter: str) -> None:
        if topic_filter not in self._filters:
            self._filters.append(topic_filter)
            if self._client is not None:
                await self._listen(self._client, topic_filter)

    async def _stay_connected(self) -> None:
        while True:
            try:
                await self._hold_connection()
            except (NatsError, JetStreamError, BusError, OSError, TimeoutError) as lost:
                if (problem := reason_of(lost)) != self.problem:
                    _log.warning("the connection to the NATS server at %s is lost: %s", self._servers.shown, problem)
                self.problem = problem
            await asyncio.sleep(RETRY_S)

    async def _hold_connection(self) -> None:
        """Connect, and return when the connection is lost. The library's own reconnecting is left out."""
        client = SecureClient(self._servers)
        self._lost = asyncio.Event()
        await client.connect(
            list(self._servers.urls), name=self._name, allow_reconnect=False, connect_timeout=5,
            closed_cb=self._note_lost, disconnected_cb=self._note_lost, error_cb=self._note_error,
            **self._servers.options(),
        )  # fmt: skip
        try:
            for one in self._filters:
                await self._listen(client, one)
            await client.flush()
            self._client, self._session, self.problem = client, secrets.token_hex(8), ""
            await self._read_retained(client)
            self.connected.set()
            if self._on_connect is not None:
                with suppress(BusError):
                    await self._on_connect(self._session)
            await self._lost.wait()
        finally:
            self._client, self._session = None, ""
            self.connected.clear()
            with suppress(NatsError, OSError, TimeoutError):
                await client.close()

    async def _listen(self, client: SecureClient, topic_filter: str) -> None:
        await client.subscribe(subject_of(topic_filter), cb=self._hear)

    async def _hear(self, message: Msg) -> None:
        self._receive(Incoming(message.subject.replace(".", "/"), message.data, False, _done))

    async def _read_retained(self, client: SecureClient) -> None:
        """Receive the newest retained message of each topic. A server without MQTT clients has none."""
        jetstream = client.jetstream(timeout=_READ_S)
        for one in self._filters:
            config = ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, ack_policy=AckPolicy.NONE,
                                    inactive_threshold=30.0)  # fmt: skip
            subject = f"{_RETAINED_SUBJECT}{subject_of(one)}"
            try:
                reader = await jetstream.pull_subscribe(subject, stream=_RETAINED, config=config)
            except JetStreamError:
                return
            while (left := (await reader.consumer_info()).num_pending or 0) > 0:
                for message in await reader.fetch(min(left, _AT_ONCE), timeout=_READ_S):
                    topic = (message.headers or {}).get(_TOPIC, "")
                    self._receive(Incoming(topic, message.data, True, _done))
            await reader.unsubscribe()

    async def _note_lost(self) -> None:
        self._lost.set()

    async def _note_error(self, error: Exception) -> None:
        self.problem = reason_of(error)

    def _unreachable(self) -> str:
        why = f" ({self.problem})" if self.problem else ""
        return f"there is no connection to the NATS server at {self._servers.shown}{why}; it is tried again"


def subject_of(topic: str) -> str:
    """The subject under which a nats-server has a topic or a filter. Topics of devices have no dots and blanks."""
    return topic.replace("/", ".").replace("+", "*").replace("#", ">")


def _done() -> None:
    """Nothing is to be acknowledged."""
