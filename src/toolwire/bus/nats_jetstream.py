"""A bus by way of NATS JetStream. Needs the extra `nats`.

Commands and events are kept in a stream each, as files, and are forgotten after a day and after a week. Redelivery is
without end: a broker that gives up on a message after some attempts hides it, and no subscriber ever sees it again. A
subscriber that cannot handle a message acknowledges it and writes down why.

A broker that comes back without its streams gets them anew, by the next message or subscriber.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace as with_fields
from typing import Any, TypeVar

import orjson
from msgspec import Struct
from msgspec.structs import force_setattr, replace
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
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
from nats.js.errors import (
    BadRequestError,
    NoStreamResponseError,
    NotFoundError,
    ServerError,
    ServiceUnavailableError,
)

from toolwire.bus.contract import (
    ACK_WAIT_S,
    HANDOFF_S,
    IN_FLIGHT,
    MAX_BYTES,
    MOST_UNHEARD,
    BusHealth,
    HandoffAnswer,
    Take,
    size_of,
)
from toolwire.bus.in_flight import InFlight, OpenDelivery
from toolwire.bus.nats_connection import NatsServers, SecureClient, is_denied, is_hopeless, reason_of
from toolwire.bus.nats_pull import NatsPull
from toolwire.errors import BrokerNotReady, BusError, BusUnavailable, MessageTooLarge
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import (
    ROOT,
    VERSION,
    BadSubject,
    Category,
    Subject,
    check_filter,
    check_token,
    command_subject,
    handoff_subject,
)

T = TypeVar("T")
CONNECT_S = 5.0
CONFIRM_S = 5.0
DEDUPE_WINDOW_S = 120.0
MOST_UNACKNOWLEDGED = 100_000
"""Of one durable name, over all its subscribers; each of them has a smaller limit of its own."""

_RETRY_S = 0.2
_ADMIN_S = 2.0
"""For a request about streams and consumers. Servers without a leader are silent, so it is rather asked again."""

_STREAM_CREATE = "stream.create"
_TOO_FEW_SERVERS = frozenset({10005, 10074})
"""No suitable peers, and replicas of a server that is alone."""

_OWN_HEADERS = "nats-"
_ID_HEADER = "Nats-Msg-Id"
_DAY_S = 86_400.0
_TAKEN, _BUSY = b'{"taken":true}', b'{"taken":false}'


class StreamPlan(Struct, frozen=True):
    """A stream of one category of messages, and what bounds it. Of more, the oldest are forgotten."""

    category: Category
    max_age_s: float
    max_bytes: int = 1 << 30
    replicas: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "name", self.name or f"{ROOT}_{self.category.value}_{VERSION}")

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


__all__ = ["STREAMS", "BrokerState", "NatsBus", "NatsServers", "StreamPlan", "nats_bus", "streams_named"]

STREAMS = (StreamPlan(Category.COMMAND, _DAY_S), StreamPlan(Category.EVENT, 7 * _DAY_S))


def streams_named(commands: str, events: str, replicas: int, max_bytes: int) -> tuple[StreamPlan, ...]:
    """The streams under other names, each message kept by so many servers."""
    names = {Category.COMMAND: commands, Category.EVENT: events}
    return tuple(
        replace(plan, name=names[plan.category], replicas=replicas, max_bytes=max_bytes) for plan in STREAMS
    )  # fmt: skip


class BrokerState(Struct, frozen=True):
    """What a process that logs in finds: the server, and how many messages each stream has and servers keep them."""

    server: str
    version: str
    tls: bool
    streams: Mapping[str, str]


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
    bus = NatsBus(servers, streams, name, confirm_s)
    try:
        await _unless_canceled(bus.connect(connect_s))
        yield bus
    finally:
        await bus.close()


async def _unless_canceled(connecting: Coroutine[Any, Any, None]) -> None:
    """Connect, and be canceled also where the library lost that: Python 3.11's wait_for does, if both come at once."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    await connecting
    if task.cancelling() > before:
        raise asyncio.CancelledError


class NatsBus:
    """See `nats_bus`."""

    def __init__(self, servers: NatsServers, streams: tuple[StreamPlan, ...], name: str, confirm_s: float) -> None:
        self._servers = servers
        self._streams = {plan.category: plan for plan in streams}
        self._name = name
        self._confirm_s = confirm_s
        self._client, self._js = self._new_client()
        self._last_error = self._denied = ""
        self._gives_up = False
        self._hopeless = 0
        self._earlier_reconnects = 0
        self._reopening: asyncio.Task[None] | None = None
        self._is_closing = False

    async def connect(self, connect_s: float) -> None:
        """Raises BusUnavailable when no server lets this process in within so many seconds."""
        try:
            async with asyncio.timeout(connect_s):
                self._gives_up = True
                await self._connect_client()
                self._gives_up = False
                await self._ensure_streams()
        except BrokerNotReady:
            await self.close()
            raise
        except (NatsError, OSError, TimeoutError) as error:
            reason = self._last_error or reason_of(error)
            await self.close()
            raise BusUnavailable(f"no NATS server with JetStream at {self._servers.shown}: {reason}") from None

    def _new_client(self) -> tuple[SecureClient, JetStreamContext]:
        client = SecureClient(self._servers)
        return client, client.jetstream(timeout=min(self._confirm_s, _ADMIN_S))

    async def _connect_client(self) -> None:
        await self._client.connect(
            list(self._servers.urls),
            name=self._name,
            error_cb=self._note,
            closed_cb=self._on_closed,
            max_reconnect_attempts=-1,
            reconnect_time_wait=_RETRY_S,  # type: ignore[arg-type]  # fractions are fine
            **self._servers.options(),
        )

    async def _on_closed(self) -> None:
        """The library gives up for ever where a server refuses it once, as one does that is being set up anew."""
        if not self._is_closing:
            if self._client.last_error is not None:
                await self._note(self._client.last_error)
            self._reopening = asyncio.create_task(self._reopen(), name="reopen NATS")

    async def _reopen(self) -> None:
        self._earlier_reconnects += 1 + self._client.stats["reconnects"]
        self._client, self._js = self._new_client()
        await self._connect_client()

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
            raise BusUnavailable(f"the broker did not confirm a message ({self.why(error)})") from None
        self._denied = ""
        return not kept.duplicate

    async def _send(self, message: BusMessage, headers: dict[str, str]) -> Any:
        return await self._js.publish(
            message.subject, message.data, timeout=self._confirm_s, headers=headers or None
        )  # fmt: skip

    async def hand_over(self, message: BusMessage, *, timeout_s: float = HANDOFF_S) -> HandoffAnswer:
        Subject.parse(message.subject)
        if not self._client.is_connected:
            return HandoffAnswer.UNHEARD
        try:
            answer = await self._client.request(
                handoff_subject(message.subject), message.data, timeout_s, headers=dict(message.headers) or None
            )
        except (NatsError, OSError, TimeoutError):
            return HandoffAnswer.UNHEARD
        return HandoffAnswer.TAKEN if _says_taken(answer.data) else HandoffAnswer.BUSY

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, durable: str, ack_wait_s: float = ACK_WAIT_S, in_flight: int = IN_FLIGHT
    ) -> AsyncIterator["_NatsSubscription"]:
        check_filter(pattern)
        check_token(durable, "a durable name")
        plan = self._plan(_category_of(pattern))
        subscription = _NatsSubscription(self, plan, _consumer(pattern, durable, ack_wait_s), InFlight(in_flight))
        await subscription.open(self._confirm_s)
        try:
            yield subscription
        finally:
            await subscription.close()

    async def stream(self, message: BusMessage) -> None:
        Subject.parse(message.subject)
        if (size := size_of(message)) > MAX_BYTES:
            raise MessageTooLarge(f"a message has {size} bytes; at most {MAX_BYTES} are carried")
        with suppress(NatsError, OSError, TimeoutError):
            await self._client.publish(message.subject, message.data, headers=dict(message.headers) or None)

    @asynccontextmanager
    async def listen(self, pattern: str) -> AsyncIterator[AsyncIterator[BusMessage]]:
        check_filter(pattern)
        try:
            subscription = await self._client.subscribe(pattern, pending_msgs_limit=MOST_UNHEARD)
        except (NatsError, OSError, TimeoutError) as error:
            raise BusUnavailable(f"the broker did not answer a listener ({reason_of(error)})") from None

        async def heard() -> AsyncIterator[BusMessage]:
            async for one in subscription.messages:
                yield BusMessage(one.subject, one.data, dict(one.headers or {}))

        try:
            yield heard()
        finally:
            await _quietly(subscription.unsubscribe())

    async def health(self) -> BusHealth:
        connected = self._client.is_connected
        reconnects = self._earlier_reconnects + self._client.stats["reconnects"]
        return BusHealth(connected, reconnects, "" if connected else self._last_error)

    async def broker_state(self) -> BrokerState:
        """Raises BusUnavailable."""
        streams = {}
        try:
            for plan in self._streams.values():
                found = await self._js.stream_info(plan.name)
                streams[plan.name] = f"{found.state.messages:,} messages, {found.config.num_replicas} replicas"
        except (NatsError, OSError, TimeoutError) as error:
            raise BusUnavailable(f"the broker did not answer ({self._last_error or reason_of(error)})") from None
        url = self._client.connected_url
        version = str(self._client.connected_server_version).strip("<>").rpartition(" v")[2]
        return BrokerState(url.netloc if url else "", version, self._client.uses_tls, streams)

    def why(self, error: BaseException) -> str:
        """What went wrong, in plain words. A request that was denied has no answer, and looks like a slow one."""
        return self._denied if self._denied and isinstance(error, TimeoutError) else reason_of(error)

    async def close(self) -> None:
        self._is_closing = True
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)
        if not self._client.is_closed:
            with suppress(NatsError, OSError, TimeoutError):
                await self._client.close()

    async def pull(self, plan: StreamPlan, config: ConsumerConfig, room: Callable[[], int]) -> NatsPull:
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
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{plan.name}.{config.durable_name}"
        pull = NatsPull(self._client, subject, self._client.new_inbox(), room)
        await pull.open()
        return pull

    async def hear_handoffs(self, config: ConsumerConfig, is_taken: Callable[[Msg], bool]) -> NatsSubscription:
        """Be asked, in turn with others of the same durable name, about what is handed over. Raises NatsError."""
        assert config.filter_subject is not None

        async def hear(handed: Msg) -> None:  # the library's own answer would repeat all headers
            await _quietly(self._client.publish(handed.reply, _TAKEN if is_taken(handed) else _BUSY))

        subject = handoff_subject(config.filter_subject)
        heard = await self._client.subscribe(subject, queue=config.durable_name or "", cb=hear)
        await self._client.flush_all()  # from here on the server knows of it
        return heard

    async def _ensure_streams(self) -> None:
        """Wait for a cluster that is starting, too: until it has a leader it is silent."""
        self._last_error = ""
        for plan in self._streams.values():
            while True:
                try:
                    await self._ensure_stream(plan)
                    break
                except NatsTimeoutError:
                    if _STREAM_CREATE in self._denied.lower():
                        raise BrokerNotReady(
                            f"the streams at {self._servers.shown} are not there yet, and this user may not make them; "
                            "start what runs turns first: toolwire run"
                        ) from None
                    self._last_error = (
                        self._last_error or "JetStream does not answer; a cluster needs most of its servers"
                    )
                except (ServiceUnavailableError, NoRespondersError) as error:
                    await self._note(error)
                    await asyncio.sleep(_RETRY_S)

    async def _ensure_stream(self, plan: StreamPlan) -> None:
        """Have the stream, kept by at least as many servers as planned: a server can become a cluster later."""
        try:
            found = await self._js.stream_info(plan.name)
        except NotFoundError:
            await self._require_replicas(plan, self._js.add_stream(plan.config()))
        else:
            if (found.config.num_replicas or 1) < plan.replicas:
                more = with_fields(found.config, num_replicas=plan.replicas)
                await self._require_replicas(plan, self._js.update_stream(more))

    async def _require_replicas(self, plan: StreamPlan, request: Coroutine[Any, Any, Any]) -> None:
        """Raises BrokerNotReady where there are not so many servers that could keep each message."""
        try:
            await request
        except (BadRequestError, ServerError) as error:
            if plan.replicas > 1 and error.err_code in _TOO_FEW_SERVERS:
                raise BrokerNotReady(
                    f"bus.replicas = {plan.replicas} needs a cluster of so many servers, and {self._servers.shown} has "
                    "fewer; set bus.replicas = 1, or start the others"
                ) from None
            raise

    def _plan(self, category: Category) -> StreamPlan:
        plan = self._streams.get(category)
        if plan is None:
            raise BadSubject(f"messages of the category {category.value} are not kept by this bus")
        return plan

    async def _note(self, error: Exception) -> None:
        """Remember what is wrong. Raises it where the first connection is made and every server has refused it."""
        self._last_error = reason_of(error)
        if is_denied(error):
            self._denied = f"this user may not do that: {self._last_error}"
        if self._gives_up and is_hopeless(error):
            self._hopeless += 1
            if self._hopeless >= len(self._servers.urls):
                raise error


def _consumer(pattern: str, durable: str, ack_wait_s: float) -> ConsumerConfig:
    return ConsumerConfig(
        name=durable,  # the request then names the filter too, so that a server can judge it by its subject
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
        self._take: Take | None = None
        self._ack_wait_s = config.ack_wait or ACK_WAIT_S
        self._pull: NatsPull | None = None
        self._handoffs: NatsSubscription | None = None

    async def open(self, patience_s: float) -> None:
        """Servers that choose a leader have no answer for a moment. Raises BusUnavailable."""
        end = asyncio.get_running_loop().time() + patience_s
        while self._pull is None:
            try:
                await self._start()
            except (NatsError, OSError, TimeoutError) as error:
                is_moment = isinstance(error, (ServiceUnavailableError, NoRespondersError, NatsTimeoutError))
                if not is_moment or asyncio.get_running_loop().time() >= end:
                    raise BusUnavailable(f"the broker did not answer a subscriber ({self._bus.why(error)})") from None
                await asyncio.sleep(_RETRY_S)

    async def take_handoffs(self, take: Take) -> None:
        self._take = take
        try:
            self._handoffs = await self._bus.hear_handoffs(self._config, self._is_taken)
        except (NatsError, OSError, TimeoutError) as error:
            raise BusUnavailable(f"the broker did not answer a subscriber ({self._bus.why(error)})") from None

    async def _start(self) -> None:
        """Ask for messages, and be asked about those that are handed over."""
        if self._take is not None and self._handoffs is None:
            self._handoffs = await self._bus.hear_handoffs(self._config, self._is_taken)
        self._pull = await self._bus.pull(self._plan, self._config, lambda: self._in_flight.room)

    def _is_taken(self, handed: Msg) -> bool:
        assert self._take is not None
        if self._pull is not None and not self._pull.has_room:
            return False
        message = BusMessage(command_subject(handed.subject), handed.data, dict(handed.headers or {}))
        return self._in_flight.hand_over(message, self._take, self._bus.publish)

    def __aiter__(self) -> "_NatsSubscription":
        return self

    async def __anext__(self) -> "_NatsDelivered":
        while True:
            await self._in_flight.wait_for_room()
            try:
                if self._pull is None:
                    await self._unless_stopped(self._start())
                    continue
                found = await self._pull.next(self._in_flight.room)
            except (NatsError, OSError, TimeoutError):  # the broker is away, or has come back without this consumer
                await self._let_go()
                await self._unless_stopped(asyncio.sleep(_RETRY_S))
                continue
            if found is not None and await self._is_in_time(*found):
                return _NatsDelivered(found[1], self._ack_wait_s, self._in_flight)

    async def drain(self, timeout_s: float) -> int:
        self._in_flight.stop()
        await self._let_go()
        return await self._in_flight.wait_until_none(timeout_s)

    async def close(self) -> None:
        self._in_flight.stop()
        await self._let_go()

    async def _is_in_time(self, came: float, message: Msg) -> bool:
        """Whether a message is still for this subscriber. The time of one that waited here begins anew."""
        if self._in_flight.stopping.is_set():
            await _quietly(message.nak())
            return False
        waited_s = asyncio.get_running_loop().time() - came
        if self._ack_wait_s / 4 < waited_s < self._ack_wait_s:
            await _quietly(message.in_progress())
        return waited_s < self._ack_wait_s

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work gives; None once nothing more is wanted."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._in_flight.stopping.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() and not working.cancelled() else None
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)

    async def _let_go(self) -> None:
        """Give back what was not handed out."""
        handoffs, self._handoffs = self._handoffs, None
        if handoffs is not None:
            await _quietly(handoffs.unsubscribe())
        pull, self._pull = self._pull, None
        if pull is not None:
            pull.wake()
            for message in await pull.close():
                await _quietly(message.nak())


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


def _says_taken(answer: bytes) -> bool:
    """Whether an answer to a handoff says yes, however its JSON is written."""
    with suppress(orjson.JSONDecodeError):
        said = orjson.loads(answer)
        return isinstance(said, dict) and said.get("taken") is True
    return False


def _category_of(pattern: str) -> Category:
    tokens = pattern.split(".")
    try:
        return Category(tokens[4])
    except (IndexError, ValueError):
        kinds = " or ".join(Category)
        raise BadSubject(f"a filter says {kinds} as its fifth token, so that its stream is known") from None
