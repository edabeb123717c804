"""One connection to an MQTT broker, which is made again whenever it is lost.

aiomqtt joins paho to the event loop, and this module adds what devices with bad links need:

* the socket sends at once (TCP_NODELAY): paho writes small packets, and Nagle's algorithm makes 88 ms of 0.6 ms;
* a session that outlives the connection, so that commands wait in the broker; under MQTT 5 it needs an explicit expiry;
* an incoming message is acknowledged when its receiver says so, such as after it was written down;
* a publication that waits for its acknowledgement ends when the connection does, not when a timer does;
* a new connection after a random pause that grows, so that a thousand devices do not come back in one moment. A
  connection that was lost soon does not make the pause short again: another client may be using the same id.
"""

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Self

import aiomqtt
from msgspec import Struct
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY, MQTT_ERR_SUCCESS, Client, DisconnectFlags, MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from toolwire.edge.link_contract import ACKNOWLEDGE_S, Incoming, OnConnect, Receive, StaysConnected
from toolwire.errors import BusError, BusUnavailable, MessageTooLarge

_log = logging.getLogger(__name__)
# aiomqtt warns about more than ten publications at once, and about connections that end before they are closed.
_quiet = logging.getLogger("toolwire.edge.mqtt")
_quiet.setLevel(logging.CRITICAL)

_NODELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
_REFUSED_FILTER = 0x80
_IN_FLIGHT = 1_000
_MOST_SHOWN = 3
_UNSPECIFIED = "Unspecified error"  # of paho, for a connection that ended without a word
_LOST = "the broker ended the connection, or the network did"
_CLOSED_EARLY = "it closed the connection at once; check that it knows this client's certificate, user and client id"


class LastWill(Struct, frozen=True):
    """What the broker publishes for a client that is lost."""

    topic: str
    data: bytes


class MqttBroker(Struct, frozen=True):
    """Where the broker is, and who this client is there. nats-server speaks version 4 (3.1.1) only.

    `client_id` names the session that the broker keeps: one process at a time may use it. A `clean` client leaves none.
    """

    host: str
    client_id: str
    port: int = 1883
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None
    version: int = 4
    keepalive_s: int = 30
    session_expiry_s: int = 24 * 3600
    max_message_bytes: int = 256 * 1024
    clean: bool = False

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.port}"


class Pauses(Struct, frozen=True):
    """Seconds between attempts to connect: a random share of a length that doubles from `first` to `longest`.

    The length begins anew after a connection that lasted for `stable`.
    """

    first: float = 0.2
    longest: float = 30.0
    stable: float = 10.0

    def length(self, failures: int) -> float:
        return min(self.first * 2.0 ** min(failures, 30), self.longest)


_USUAL_PAUSES = Pauses()


def client_tls(ca: Path | None, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """TLS that checks the broker's certificate, and shows one of its own. Raises OSError and ssl.SSLError."""
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context


class MqttLink(StaysConnected):
    """A `Link` to an MQTT broker: `async with MqttLink(broker, receive, filters=[…]) as link`.

    `will(session)` makes the last will of each connection. `connected` is set while there is a connection.
    """

    def __init__(
        self,
        broker: MqttBroker,
        receive: Receive,
        *,
        filters: Iterable[str] = (),
        will: Callable[[str], LastWill] | None = None,
        on_connect: OnConnect | None = None,
        pauses: Pauses = _USUAL_PAUSES,
    ) -> None:
        self.broker = broker
        self.connected = asyncio.Event()
        self.problem = self._logged = ""
        self._receive = receive
        self._filters = list(filters)
        self._will = will
        self._on_connect = on_connect
        self._pauses = pauses
        self._connection: _Connection | None = None
        self._session = ""
        self._random = Random()  # noqa: S311 (spreads devices in time; no secret)

    @property
    def session(self) -> str:
        return self._session

    async def publish(self, topic: str, data: bytes, *, retain: bool = False, timeout_s: float = ACKNOWLEDGE_S) -> None:
        most = self.broker.max_message_bytes
        if len(data) > most:
            raise MessageTooLarge(f"a message of {len(data)} bytes for {topic} is too large; at most {most} are sent")
        connection = self._connection
        if connection is None:
            raise BusUnavailable(self._unreachable())
        await connection.publish_acknowledged(topic, data, retain=retain, timeout_s=timeout_s)

    async def subscribe(self, topic_filter: str) -> None:
        if topic_filter not in self._filters:
            self._filters.append(topic_filter)
            if self._connection is not None:
                await self._connection.subscribe_checked([topic_filter])

    async def _stay_connected(self) -> None:
        failures = 0
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self._hold_connection()
            except (aiomqtt.MqttError, BusError, OSError) as lost:
                self._note_problem(lost)
            if asyncio.get_running_loop().time() - started >= self._pauses.stable:
                failures, self._logged = 0, ""
            await asyncio.sleep(self._pauses.length(failures) * self._random.uniform(0.5, 1.0))
            failures += 1

    async def _hold_connection(self) -> None:
        """Connect, and return or raise when the connection is lost."""
        session = secrets.token_hex(8)
        connection = _Connection(self.broker, self._receive, self._will(session) if self._will else None)
        async with connection:
            if self._filters:
                await connection.subscribe_checked(self._filters)
            self._connection, self._session, self.problem = connection, session, ""
            self.connected.set()
            greeting = asyncio.create_task(self._greet(session), name="toolwire-mqtt-greeting")
            try:
                await connection.lost()
            finally:
                greeting.cancel()
                self._connection, self._session = None, ""
                self.connected.clear()
                connection.fail_publications(self._unreachable())

    async def _greet(self, session: str) -> None:
        if self._on_connect is not None:
            try:
                await self._on_connect(session)
            except BusError as lost:
                self._note_problem(lost)

    def _note_problem(self, error: BaseException) -> None:
        said = str(error) or type(error).__name__
        self.problem = _LOST if said.endswith(_UNSPECIFIED) else said
        if self.problem != self._logged:  # once, and not at each of a thousand attempts
            self._logged = self.problem
            _log.warning("there is no connection to the MQTT broker at %s: %s", self.broker.shown, self.problem)

    def _unreachable(self) -> str:
        why = f" ({self.problem})" if self.problem else ""
        return f"there is no connection to the MQTT broker at {self.broker.shown}{why}; it is tried again"


class _LoopForSockets:
    """The event loop as aiomqtt uses it: a socket that is closed by the time the loop comes to it is left alone.

    A thread connects, and tells the loop of its socket; a broker may have ended the connection in between.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def add_reader(self, number: int, callback: Callable[[], None]) -> None:
        with suppress(OSError, ValueError):
            self._loop.add_reader(number, callback)

    def add_writer(self, number: int, callback: Callable[[], None]) -> None:
        with suppress(OSError, ValueError):
            self._loop.add_writer(number, callback)


class _Connection(aiomqtt.Client):
    """One connection. Messages go to their receiver directly, who acknowledges them."""

    def __init__(self, broker: MqttBroker, receive: Receive, will: LastWill | None) -> None:
        is_v5 = broker.version == aiomqtt.ProtocolVersion.V5
        super().__init__(
            broker.host,
            broker.port,
            username=broker.user or None,
            password=broker.password or None,
            identifier=broker.client_id,
            protocol=aiomqtt.ProtocolVersion(broker.version),
            will=None if will is None else aiomqtt.Will(will.topic, will.data, qos=1, retain=True),
            clean_session=None if is_v5 else broker.clean,
            clean_start=broker.clean if is_v5 else MQTT_CLEAN_START_FIRST_ONLY,
            keepalive=broker.keepalive_s,
            max_inflight_messages=_IN_FLIGHT,
            properties=_session_properties(broker) if is_v5 else None,
            tls_context=broker.tls,
            socket_options=(_NODELAY,),
            logger=_quiet,
            timeout=ACKNOWLEDGE_S,
        )
        self._loop: Any = _LoopForSockets(self._loop)
        self._receiver = receive
        self._is_connecting = False
        self._disconnected.add_done_callback(self._note_early_end)
        self._unacknowledged: dict[int, asyncio.Future[None]] = {}
        self._client.manual_ack_set(True)

    async def __aenter__(self) -> Self:
        """Connect. Canceled meanwhile, it ends what was begun: a thread connects, and would leave a socket behind."""
        self._is_connecting = True
        connecting = asyncio.ensure_future(super().__aenter__())
        try:
            await asyncio.shield(connecting)
        except BaseException:
            if not connecting.done():  # else the library has begun anew, and no one would hear of it
                self._fail_connecting()
                await asyncio.wait((connecting,))
            self._is_connecting = False
            self._client.disconnect()
            if self._misc_task is not None:
                self._misc_task.cancel()
            connecting.exception()
            raise
        finally:
            self._is_connecting = False
        return self

    def _on_disconnect(
        self,
        client: Client,
        userdata: Any,
        flags: DisconnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._fail_connecting)
        super()._on_disconnect(client, userdata, flags, reason_code, properties)

    def _note_early_end(self, ended: "asyncio.Future[None]") -> None:
        if self._is_connecting:
            ended.exception()  # it is told by the attempt to connect
            self._fail_connecting()

    def _fail_connecting(self) -> None:
        """Say at once that a broker ended the connection before it accepted it; the library would wait for its time."""
        if self._is_connecting and not self._connected.done():
            self._connected.set_exception(aiomqtt.MqttError(_CLOSED_EARLY))
            self._connected.exception()  # an attempt that fails by itself does not look at it

    async def lost(self) -> None:
        """Return or raise when the connection has ended."""
        await asyncio.shield(self._disconnected)

    async def publish_acknowledged(self, topic: str, data: bytes, *, retain: bool, timeout_s: float) -> None:
        info = self._client.publish(topic, data, 1, retain)
        if info.rc != MQTT_ERR_SUCCESS:
            raise BusUnavailable(f"the message for {topic} could not be sent; the connection to the broker is lost")
        answer = self._unacknowledged[info.mid] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await answer
        except TimeoutError:
            raise BusUnavailable(f"the broker did not confirm the message for {topic} within {timeout_s:g} s") from None
        finally:
            self._unacknowledged.pop(info.mid, None)

    async def subscribe_checked(self, filters: list[str]) -> None:
        answers = await self.subscribe([(one, 1) for one in filters])
        codes = [one.value if isinstance(one, ReasonCode) else one for one in answers]
        if denied := [one for one, code in zip(filters, codes, strict=False) if code >= _REFUSED_FILTER]:
            shown = ", ".join(denied[:_MOST_SHOWN])
            raise BusError(f"the broker does not allow a subscription to {shown}, or has too many of them")

    def fail_publications(self, why: str) -> None:
        for answer in self._unacknowledged.values():
            if not answer.done():
                answer.set_exception(BusUnavailable(why))

    def _on_publish(
        self, client: Client, userdata: Any, mid: int, reason_code: ReasonCode, properties: Properties
    ) -> None:
        answer = self._unacknowledged.get(mid)
        if answer is None or answer.done():
            super()._on_publish(client, userdata, mid, reason_code, properties)
        elif reason_code.is_failure:
            answer.set_exception(BusUnavailable(f"the broker did not take the message: {reason_code}"))
        else:
            answer.set_result(None)

    def _on_message(self, client: Client, userdata: Any, message: MQTTMessage) -> None:  # noqa: ARG002
        acknowledge = _Acknowledgement(self, message.mid, message.qos)
        try:
            self._receiver(Incoming(message.topic, bytes(message.payload), message.retain, acknowledge))
        except Exception:  # else the library loses its place in the stream of bytes, and hears nothing any more
            _log.exception("a message on %r could not be read", message.topic[:200])
            acknowledge()

    def acknowledge(self, mid: int, qos: int) -> None:
        """Harmless on a connection that has ended: the broker sends the message again on the next one."""
        if qos and not self._disconnected.done():
            self._client.ack(mid, qos)


class _Acknowledgement:
    """Acknowledges a message once: its number may be that of another message afterwards."""

    __slots__ = ("_connection", "_mid", "_qos")

    def __init__(self, connection: _Connection, mid: int, qos: int) -> None:
        self._connection, self._mid, self._qos = connection, mid, qos

    def __call__(self) -> None:
        self._connection.acknowledge(self._mid, self._qos)
        self._qos = 0


def _session_properties(broker: MqttBroker) -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call] # of paho
    properties.SessionExpiryInterval = 0 if broker.clean else broker.session_expiry_s
    properties.MaximumPacketSize = broker.max_message_bytes + 1_024
    return properties
