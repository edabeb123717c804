"""What every bus promises, shown for each of them: the same tests in this process and over a real NATS server."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.bus.servers import NatsServer
from toolwire.bus.contract import MAX_BYTES, Bus, Delivered, HandoffAnswer, Subscription, Take
from toolwire.bus.in_process import InProcessBus
from toolwire.bus.nats_connection import NatsServers
from toolwire.bus.nats_jetstream import nats_bus
from toolwire.errors import BusError, MessageTooLarge
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import BadSubject, Subject

SOON_S = 20.0
SHORT_S = 0.3
_numbers = itertools.count(1)


@dataclass
class Place:
    """A bus, and names that no other test uses."""

    bus: Bus
    project: str

    @property
    def pattern(self) -> str:
        return f"cg.v1r4.{self.project}.*.cmd.tool.>"

    @property
    def durable(self) -> str:
        return f"workers-{self.project}"

    def message(self, text: str = "hello", **headers: str) -> BusMessage:
        subject = Subject.tool(self.project, "public", "search")
        return BusMessage(str(subject), text.encode(), {name.replace("_", "-"): item for name, item in headers.items()})


@pytest.fixture(params=["in_process", "nats"])
def kind(request: pytest.FixtureRequest) -> NatsServer | None:
    return request.getfixturevalue("broker") if request.param == "nats" else None


@pytest.fixture
async def place(kind: NatsServer | None) -> AsyncIterator[Place]:
    name = f"p{next(_numbers)}"
    if kind is None:
        async with InProcessBus() as bus:
            yield Place(bus, name)
    else:
        async with nats_bus(NatsServers((kind.url,))) as remote:
            yield Place(remote, name)


@asynccontextmanager
async def subscribed(
    place: Place, *, ack_wait_s: float = 30.0, in_flight: int = 64, durable: str = "", take: Take | None = None
) -> AsyncIterator[Subscription]:
    async with place.bus.subscribe(
        place.pattern, durable=durable or place.durable, ack_wait_s=ack_wait_s, in_flight=in_flight
    ) as subscription:
        if take is not None:
            await subscription.take_handoffs(take)
        yield subscription


async def soon(subscription: Subscription) -> Delivered:
    async with asyncio.timeout(SOON_S):
        return await anext(subscription)


async def texts(subscription: Subscription, count: int) -> list[str]:
    found = []
    for _ in range(count):
        delivered = await soon(subscription)
        found.append(delivered.message.data.decode())
        await delivered.ack()
    return sorted(found)


async def test_a_message_is_delivered_with_its_headers(place: Place) -> None:
    message = place.message("hello", CG_Agent_Id="ann", traceparent="00-x")
    async with subscribed(place) as subscription:
        assert await place.bus.publish(message)
        delivered = await soon(subscription)
        await delivered.ack()
    assert delivered.message == message
    assert delivered.attempt == 1


async def test_a_message_that_is_not_acknowledged_comes_again(place: Place) -> None:
    async with subscribed(place, ack_wait_s=SHORT_S) as subscription:
        await place.bus.publish(place.message())
        first = await soon(subscription)
        again = await soon(subscription)
        await again.ack()
    assert (first.attempt, again.attempt) == (1, 2)
    assert again.message == first.message


async def test_a_message_that_is_refused_comes_again(place: Place) -> None:
    async with subscribed(place) as subscription:
        await place.bus.publish(place.message())
        await (await soon(subscription)).nak()
        again = await soon(subscription)
        await again.nak(0.05)
        third = await soon(subscription)
        await third.ack()
    assert [again.attempt, third.attempt] == [2, 3]


async def test_progress_keeps_a_message_from_coming_again(place: Place) -> None:
    """The other message comes again and again meanwhile, which shows that time has passed."""
    async with subscribed(place, ack_wait_s=SHORT_S) as subscription:
        await place.bus.publish(place.message("held"))
        held = await soon(subscription)
        await place.bus.publish(place.message("restless"))
        seen: list[str] = []
        working = asyncio.create_task(keep_working(held))
        while len(seen) < 4:
            seen.append((await soon(subscription)).message.data.decode())
        working.cancel()
        await held.ack()
    assert set(seen) == {"restless"}


async def keep_working(delivered: Delivered) -> None:
    while True:
        await delivered.progress()
        await asyncio.sleep(SHORT_S / 10)


async def test_what_was_published_before_a_subscriber_came_is_delivered(place: Place) -> None:
    await place.bus.publish(place.message("early"))
    async with subscribed(place) as subscription:
        assert await texts(subscription, 1) == ["early"]


async def test_a_durable_name_keeps_its_place_while_it_is_unsubscribed(place: Place) -> None:
    async with subscribed(place) as subscription:
        await place.bus.publish(place.message("one"))
        assert await texts(subscription, 1) == ["one"]
    await place.bus.publish(place.message("two"))
    async with subscribed(place) as subscription:
        assert await texts(subscription, 1) == ["two"]


async def test_subscribers_of_one_name_share_messages_and_those_of_two_names_both_get_them(place: Place) -> None:
    async with (
        subscribed(place) as one,
        subscribed(place) as other,
        subscribed(place, durable=f"audit-{place.project}") as audit,
    ):
        for number in range(10):
            await place.bus.publish(place.message(str(number)))
        shared: list[str] = []
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
            for subscription in (one, other):
                group.create_task(collect(subscription, shared, 10, (one, other)))
        assert sorted(shared) == sorted(map(str, range(10)))
        assert await texts(audit, 10) == sorted(map(str, range(10)))


async def collect(subscription: Subscription, found: list[str], count: int, everyone: tuple[Subscription, ...]) -> None:
    async for delivered in subscription:
        found.append(delivered.message.data.decode())
        await delivered.ack()
        if len(found) == count:
            for each in everyone:
                await each.drain(0)


async def test_only_what_the_filter_stands_for_is_delivered(place: Place) -> None:
    wanted = f"cg.v1r4.{place.project}.*.cmd.tool.search"
    async with place.bus.subscribe(wanted, durable=place.durable) as subscription:
        for subject in (
            Subject.tool(place.project, "public", "other"),
            Subject.tool(place.project, "public", "search", "web"),
            Subject.tool(f"{place.project}x", "public", "search"),
            Subject.pmo(place.project, "public", "search"),
            Subject.event(place.project, "public", "tool", "search"),
        ):
            await place.bus.publish(BusMessage(str(subject), b"no"))
        await place.bus.publish(BusMessage(str(Subject.tool(place.project, "private", "search")), b"yes"))
        assert await texts(subscription, 1) == ["yes"]


async def test_a_slow_subscriber_has_only_so_many_messages_in_its_hands(place: Place) -> None:
    async with subscribed(place, in_flight=2) as slow, subscribed(place, in_flight=8) as quick:
        for number in range(6):
            await place.bus.publish(place.message(str(number)))
        held = [await soon(slow), await soon(slow)]
        third = asyncio.ensure_future(anext(slow))
        rest = [await soon(quick) for _ in range(4)]
        assert not third.done()
        for delivered in rest:
            await delivered.ack()
        await held[0].nak()
        async with asyncio.timeout(SOON_S):
            again = await third
        assert again.message == held[0].message
        await again.ack()
        await held[1].ack()


@pytest.mark.parametrize("drains", [False, True])
async def test_what_came_and_was_not_handed_out_goes_to_another_subscriber_at_once(place: Place, drains: bool) -> None:
    for number in range(10):
        await place.bus.publish(place.message(str(number)))
    async with subscribed(place, in_flight=8, ack_wait_s=60.0) as first:
        taken = await soon(first)
        await taken.ack()
        if drains:
            assert await first.drain(SOON_S) == 0
    async with subscribed(place, in_flight=16, ack_wait_s=60.0) as second:
        rest = await texts(second, 9)
    assert sorted([taken.message.data.decode(), *rest]) == sorted(map(str, range(10)))


async def test_a_message_that_was_held_too_long_is_not_counted_any_more(place: Place) -> None:
    """Else a subscriber that forgets to acknowledge would stop for good."""
    async with subscribed(place, in_flight=1, ack_wait_s=SHORT_S) as subscription:
        await place.bus.publish(place.message())
        await soon(subscription)
        again = await soon(subscription)
        await again.ack()
        await again.ack()
        await again.nak()
    assert again.attempt == 2


async def test_an_unsubscribed_subscriber_gets_nothing_and_its_messages_go_to_another(place: Place) -> None:
    async with subscribed(place, ack_wait_s=SHORT_S) as leaving:
        await place.bus.publish(place.message("held"))
        held = await soon(leaving)
    with pytest.raises(StopAsyncIteration):
        await anext(leaving)
    async with subscribed(place, ack_wait_s=SHORT_S) as staying:
        delivered = await soon(staying)
        await delivered.ack()
    assert delivered.message == held.message


async def test_leaving_ends_a_wait_for_messages(place: Place) -> None:
    async with subscribed(place) as subscription:
        waiting = asyncio.ensure_future(anext(subscription))
        await asyncio.sleep(0)
    async with asyncio.timeout(SOON_S):
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_draining_hands_out_no_more_and_waits_for_what_is_at_work(place: Place) -> None:
    async with subscribed(place) as subscription:
        await place.bus.publish(place.message("one"))
        await place.bus.publish(place.message("two"))
        held = await soon(subscription)
        draining = asyncio.create_task(subscription.drain(SOON_S))
        await asyncio.sleep(0)  # it has begun
        async with asyncio.timeout(SOON_S):
            with pytest.raises(StopAsyncIteration):
                await anext(subscription)
        assert not draining.done()
        await held.ack()
        assert await draining == 0
    async with subscribed(place) as next_one:
        left = {"one", "two"} - {held.message.data.decode()}
        assert set(await texts(next_one, 1)) == left


async def test_draining_gives_up_after_its_time_and_says_how_many_are_left(place: Place) -> None:
    async with subscribed(place) as subscription:
        await place.bus.publish(place.message())
        await soon(subscription)
        assert await subscription.drain(0.01) == 1


async def test_a_repeated_id_is_kept_once(place: Place) -> None:
    async with subscribed(place) as subscription:
        assert await place.bus.publish(place.message("one"), dedupe_id=f"a-{place.project}")
        assert not await place.bus.publish(place.message("one again"), dedupe_id=f"a-{place.project}")
        assert await place.bus.publish(place.message("two"), dedupe_id=f"b-{place.project}")
        assert await place.bus.publish(place.message("three"))
        assert await place.bus.publish(place.message("three"))
        assert await texts(subscription, 4) == ["one", "three", "three", "two"]


async def test_an_oversized_message_is_refused_and_the_bus_goes_on(place: Place) -> None:
    with pytest.raises(MessageTooLarge, match="at most"):
        await place.bus.publish(place.message("x" * MAX_BYTES))
    async with subscribed(place) as subscription:
        large = place.message("x" * (MAX_BYTES - 1_000))
        await place.bus.publish(large)
        assert (await soon(subscription)).message == large


@pytest.mark.parametrize(
    "subject", ["", "x", "cg.v1r4.a.*.cmd.tool.x", "cg.v1r4.a.b.cmd.tool.>", "cg.v9.a.b.cmd.tool.x"]
)
async def test_a_message_is_sent_to_a_whole_subject_only(place: Place, subject: str) -> None:
    with pytest.raises(BadSubject):
        await place.bus.publish(BusMessage(subject, b"x"))


@pytest.mark.parametrize("pattern", ["", "a b", "cg.>.x", "cg.v1r4.a*.b.cmd.x", "cg..x", "$JS.API.>"])
async def test_a_filter_that_is_none_is_refused(place: Place, pattern: str) -> None:
    with pytest.raises(BadSubject):
        async with place.bus.subscribe(pattern, durable="d"):
            pass
    with pytest.raises(BadSubject):
        async with place.bus.subscribe(place.pattern, durable="a.b"):
            pass


async def test_a_durable_name_stands_for_one_filter(place: Place) -> None:
    async with subscribed(place):
        pass
    with pytest.raises(BusError, match="is in use for"):
        async with place.bus.subscribe(f"cg.v1r4.{place.project}.*.cmd.sys.>", durable=place.durable):
            pass


async def test_a_bus_says_how_it_is(place: Place) -> None:
    assert (await place.bus.health()).connected
    await place.bus.close()
    await place.bus.close()
    assert not (await place.bus.health()).connected
    with pytest.raises(BusError):
        await place.bus.publish(place.message())


# Handoffs


class Taker:
    """Takes what is handed over, as long as it `wants` to."""

    def __init__(self, *, wants: bool = True) -> None:
        self.wants = wants
        self.taken: list[Delivered] = []

    def __call__(self, delivered: Delivered) -> bool:
        if self.wants:
            self.taken.append(delivered)
        return self.wants


async def hand_over(place: Place, message: BusMessage) -> HandoffAnswer:
    """What a subscriber answers, however busy the machine is."""
    return await place.bus.hand_over(message, timeout_s=SOON_S)


async def test_a_message_that_is_handed_over_is_taken_at_once_and_not_kept(place: Place) -> None:
    message, taker = place.message("hello", CG_Agent_Id="ann"), Taker()
    async with subscribed(place, take=taker):
        assert await hand_over(place, message) is HandoffAnswer.TAKEN
    await place.bus.publish(place.message("kept"))
    async with subscribed(place) as subscription:
        assert await texts(subscription, 1) == ["kept"]
    assert [delivered.message for delivered in taker.taken] == [message]
    assert taker.taken[0].attempt == 1


async def test_a_message_that_no_subscriber_wants_is_not_taken(place: Place) -> None:
    assert await hand_over(place, place.message()) is HandoffAnswer.UNHEARD
    async with subscribed(place):
        assert await hand_over(place, place.message()) is HandoffAnswer.UNHEARD
    async with subscribed(place, take=Taker(wants=False), in_flight=1):
        assert [await hand_over(place, place.message()) for _ in range(3)] == [HandoffAnswer.BUSY] * 3
    assert await hand_over(place, place.message()) is HandoffAnswer.UNHEARD


async def test_what_is_handed_over_counts_among_what_is_in_flight(place: Place) -> None:
    taker = Taker()
    async with subscribed(place, take=taker, in_flight=2) as subscription:
        answers = [await hand_over(place, place.message()) for _ in range(3)]
        assert answers == [HandoffAnswer.TAKEN, HandoffAnswer.TAKEN, HandoffAnswer.BUSY]
        await place.bus.publish(place.message("kept"))
        await taker.taken[0].ack()
        await taker.taken[0].ack()
        assert (await soon(subscription)).message.data == b"kept"
        assert await hand_over(place, place.message()) is HandoffAnswer.BUSY


async def test_subscribers_of_a_durable_name_are_handed_over_a_message_once(place: Place) -> None:
    takers = [Taker(), Taker()]
    async with subscribed(place, take=takers[0]), subscribed(place, take=takers[1]):
        for number in range(10):
            assert await hand_over(place, place.message(str(number))) is HandoffAnswer.TAKEN
    assert sorted(one.message.data for taker in takers for one in taker.taken) == [b"%d" % n for n in range(10)]


async def test_a_handed_over_message_that_is_refused_comes_again(place: Place) -> None:
    taker = Taker()
    async with subscribed(place, take=taker) as subscription:
        await hand_over(place, place.message("handed"))
        await taker.taken[0].nak()
        assert await texts(subscription, 1) == ["handed"]


async def test_a_subscriber_that_drains_takes_no_handoffs_and_waits_for_those_that_it_took(place: Place) -> None:
    taker = Taker()
    async with subscribed(place, take=taker) as subscription:
        await hand_over(place, place.message())
        assert await subscription.drain(0.0) == 1
        assert await hand_over(place, place.message()) is not HandoffAnswer.TAKEN
        draining = asyncio.create_task(subscription.drain(SOON_S))
        await taker.taken[0].ack()
        assert await draining == 0
