"""A bus by way of NATS JetStream. Needs the extra `nats`.

Commands and events are kept in a stream each, as files, and are forgotten after a day and after a week. Redelivery is
without end: a broker that gives up on a message after some attempts hides it, and no subscriber ever sees it again. A
subscriber that cannot handle a message acknowledges it and writes down why.

A broker that comes back without its streams gets them anew, by the next message or subscriber.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from toolwire.bus.contract import ACK_WAIT_S, IN_FLIGHT, MAX_BYTES, BusHealth, size_of
from toolwire.bus.in_flight import InFlight, OpenDelivery
from toolwire.errors import BusError, BusUnavailable, MessageTooLarge
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import ROOT, VERSION, BadSubject, Category, Subject, check_filter, check_token
from toolwire.protocol.values import dataclass

CONNECT_S = 5.0
CONFIRM_S = 5.0
DEDUPE_WINDOW_S = 120.0
MOST_UNACKNOWLEDGED = 100_000
"""Of one durable name, over all its subscribers; each of them has a smaller limit of its own."""

_ASK_EVERY_S = 2.0
_RETRY_S = 0.2
_OWN_HEADERS = "nats-"
_ID_HEADER = "Nats-Msg-Id"
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """A stream of one category of messages, and what bounds it. Of more, the oldest are forgotten."""

    category: Category
    max_age_s: float
    max_bytes: int = 1 << 30
    replicas: int = 1

    @property
    def name(self) -> str:
        return f"{ROOT}_{self.category.value}_{VERSION}"

    @property
    def subjects(self) -> str:
        return f"{ROOT}.{VERSION}.*.*.{self.category.value}.>"

    def config(self) -> StreamConfig:
        return StreamConfig(
            name=self.name,
            subjects=[self.subjects],
            retention=RetentionPolicy.LIMITS,  # a work queue forgets ids that were acknowledged when it restarts
            discard=DiscardPolicy.OLD,
            max_age=self.max_age_s,
            max_bytes=self.max_bytes,
            storage=StorageType.FILE,
            num_replicas=self.replicas,
            duplicate_window=DEDUPE_WINDOW_S,
        )


STREAMS = (StreamPlan(Category.COMMAND, _DAY_S), StreamPlan(Category.EVENT, 7 * _DAY_S))


@dataclass(frozen=True, slots=True)
class NatsServers:
    """Where the broker is and how to log in: `NatsServers(("nats://127.0.0.1:4222",))`."""

    urls: tuple[str, ...]
    user: str = ""
    password: str = ""
    credentials_file: str = ""
    tls: ssl.SSLContext | None = None

    def options(self) -> dict[str, Any]:
        given = {
            "user": self.user, "password": self.password, "user_credentials": self.credentials_file, "tls": self.tls,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value}


@asynccontextmanager
async def nats_bus(
    servers: NatsServers,
    *,
    streams: tuple[StreamPlan, ...] = STREAMS,
    name: str = "toolwire",
    connect_s: float = CONNECT_S,
    confirm_s: float = CONFIRM_S,
) -> AsyncIterator["NatsBus"]:
    """A connected bus. Raises BusUnavailable when no server can be reached."""
    bus = NatsBus(streams, confirm_s)
    await bus.connect(servers, name, connect_s)
    try:
        yield bus
    finally:
        await bus.close()


class NatsBus:
    """See `nats_bus`."""

    def __init__(self, streams: tuple[StreamPlan, ...], confirm_s: float) -> None:
        self._streams = {plan.category: plan for plan in streams}
        self._confirm_s = confirm_s
        self._client = Client()
        self._js: JetStreamContext = self._client.jetstream(timeout=confirm_s)
        self._last_error = ""

    async def connect(self, servers: NatsServers, name: str, connect_s: float) -> None:
        options = {**servers.options(), "max_reconnect_attempts": -1, "reconnect_time_wait": _RETRY_S}
        try:
            async with asyncio.timeout(connect_s):
                await self._client.connect(list(servers.urls), name=name, error_cb=self._note, **options)
            for plan in self._streams.values():
                await self._ensure_stream(plan)
        except (NatsError, OSError, TimeoutError) as error:
            await self.close()
            shown = ", ".join(url.rpartition("@")[2] for url in servers.urls)
            raise BusUnavailable(f"no NATS server with JetStream at {shown} ({_reason(error)})") from None

    async def publish(self, message: BusMessage, *, dedupe_id: str = "") -> bool:
        subject = Subject.parse(message.subject)
        plan = self._plan(subject.category)
        if (size := size_of(message)) > MAX_BYTES:
            raise MessageTooLarge(f"a message has {size} bytes; at most {MAX_BYTES} are carried")
        headers = {**message.headers, **({_ID_HEADER: dedupe_id} if dedupe_id else {})}
        try:
            try:
                kept = await self._send(message, headers)
            except NoStreamResponseError:  # the broker has come back empty
                await self._ensure_stream(plan)
                kept = await self._send(message, headers)
        except MaxPayloadError:
            raise MessageTooLarge(f"a message has {size} bytes, and the broker takes fewer") from None
        except (NatsError, OSError, TimeoutError) as error:
            raise BusUnavailable(f"the broker did not confirm a message ({_reason(error)})") from None
        return not kept.duplicate

    async def _send(self, message: BusMessage, headers: dict[str, str]) -> Any:
        return await self._js.publish(
            message.subject, message.data, timeout=self._confirm_s, headers=headers or None
        )  # fmt: skip

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, durable: str, ack_wait_s: float = ACK_WAIT_S, in_flight: int = IN_FLIGHT
    ) -> AsyncIterator["_NatsSubscription"]:
        check_filter(pattern)
        check_token(durable, "a durable name")
        plan = self._plan(_category_of(pattern))
        subscription = _NatsSubscription(self, plan, _consumer(pattern, durable, ack_wait_s), InFlight(in_flight))
        await subscription.open()
        try:
            yield subscription
        finally:
            await subscription.close()

    async def health(self) -> BusHealth:
        connected = self._client.is_connected
        return BusHealth(connected, self._client.stats["reconnects"], "" if connected else self._last_error)

    async def close(self) -> None:
        if not self._client.is_closed:
            with suppress(NatsError, OSError, TimeoutError):
                await self._client.close()

    async def pull(self, plan: StreamPlan, config: ConsumerConfig) -> JetStreamContext.PullSubscription:
        """A durable consumer, made where it is missing, to ask for messages. Raises NatsError, BusError."""
        assert config.durable_name is not None
        try:
            known = await self._js.consumer_info(plan.name, config.durable_name)
        except NotFoundError:
            await self._ensure_stream(plan)
            await self._js.add_consumer(plan.name, config)
        else:
            if known.config.filter_subject != config.filter_subject:
                used = f"durable name {config.durable_name!r} is in use for {known.config.filter_subject}"
                raise BusError(f"{used}; choose another for {config.filter_subject}")
            if known.config.ack_wait != config.ack_wait:
                await self._js.add_consumer(plan.name, config)
        return await self._js.pull_subscribe_bind(durable=config.durable_name, stream=plan.name)

    async def _ensure_stream(self, plan: StreamPlan) -> None:
        try:
            await self._js.stream_info(plan.name)
        except NotFoundError:
            await self._js.add_stream(plan.config())

    def _plan(self, category: Category) -> StreamPlan:
        plan = self._streams.get(category)
        if plan is None:
            raise BadSubject(f"messages of the category {category.value} are not kept by this bus")
        return plan

    async def _note(self, error: Exception) -> None:
        self._last_error = _reason(error)


def _consumer(pattern: str, durable: str, ack_wait_s: float) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=durable,
        filter_subject=pattern,
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait_s,
        max_deliver=-1,
        max_ack_pending=MOST_UNACKNOWLEDGED,
    )


class _NatsSubscription:
    def __init__(self, bus: NatsBus, plan: StreamPlan, config: ConsumerConfig, in_flight: InFlight) -> None:
        self._bus = bus
        self._plan = plan
        self._config = config
        self._in_flight = in_flight
        self._pull: JetStreamContext.PullSubscription | None = None

    async def open(self) -> None:
        try:
            self._pull = await self._bus.pull(self._plan, self._config)
        except (NatsError, OSError, TimeoutError) as error:
            raise BusUnavailable(f"the broker did not answer a subscriber ({_reason(error)})") from None

    def __aiter__(self) -> "_NatsSubscription":
        return self

    async def __anext__(self) -> "_NatsDelivered":
        while True:
            await self._in_flight.wait_for_room()
            message = await self._fetch()
            if message is not None:
                return _NatsDelivered(message, self._config.ack_wait or ACK_WAIT_S, self._in_flight)

    async def drain(self, timeout_s: float) -> int:
        self._in_flight.stop()
        return await self._in_flight.wait_until_none(timeout_s)

    async def close(self) -> None:
        self._in_flight.stop()
        await self._let_go()

    async def _fetch(self) -> Msg | None:
        """The next message; None after a while without one, or once nothing more is wanted."""
        asking = asyncio.ensure_future(self._ask())
        stopping = asyncio.ensure_future(self._in_flight.stopping.wait())
        try:
            await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return None
            message = asking.result()
            if message is not None and stopping.done():
                await _quietly(message.nak())
                return None
            return message
        finally:
            for task in (asking, stopping):
                task.cancel()
            await asyncio.gather(asking, stopping, return_exceptions=True)

    async def _ask(self) -> Msg | None:
        try:
            if self._pull is None:
                self._pull = await self._bus.pull(self._plan, self._config)
            (message,) = await self._pull.fetch(1, timeout=_ASK_EVERY_S)
        except TimeoutError:
            return None
        except (NatsError, OSError):  # the broker is away, or has come back without this consumer
            await self._let_go()
            await asyncio.sleep(_RETRY_S)
            return None
        return message

    async def _let_go(self) -> None:
        pull, self._pull = self._pull, None
        if pull is not None:
            await _quietly(pull.unsubscribe())


class _NatsDelivered(OpenDelivery):
    def __init__(self, received: Msg, ack_wait_s: float, in_flight: InFlight) -> None:
        own = {
            name: text for name, text in (received.headers or {}).items() if not name.lower().startswith(_OWN_HEADERS)
        }
        self.message = BusMessage(received.subject, received.data, own)
        self.attempt = received.metadata.num_delivered or 1
        self._received = received
        super().__init__(ack_wait_s, in_flight)

    async def ack(self) -> None:
        if self._settle():
            await _quietly(self._received.ack())

    async def nak(self, delay_s: float = 0.0) -> None:
        if self._settle():
            await _quietly(self._received.nak(delay_s))

    async def progress(self) -> None:
        if self._renew():
            await _quietly(self._received.in_progress())


async def _quietly(sending: Any) -> None:
    """An acknowledgement that gets lost only makes the message come again."""
    with suppress(NatsError, OSError, TimeoutError):
        await sending


def _category_of(pattern: str) -> Category:
    tokens = pattern.split(".")
    try:
        return Category(tokens[4])
    except (IndexError, ValueError):
        kinds = " or ".join(Category)
        raise BadSubject(f"a filter says {kinds} as its fifth token, so that its stream is known") from None


def _reason(error: BaseException) -> str:
    if isinstance(error, APIError):
        return error.description or f"code {error.err_code}"
    return str(error) or type(error).__name__
