"""What the bus inside one process keeps and forgets."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.bus.in_flight import InFlight
from toolwire.bus.in_process import InProcessBus
from toolwire.errors import BusUnavailable
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import Subject, check_filter, filter_matches

SUBJECT = str(Subject.tool("acme", "public", "search"))
PATTERN = "cg.v1r4.acme.*.cmd.tool.>"


async def published(bus: InProcessBus, count: int) -> None:
    for number in range(count):
        await bus.publish(BusMessage(SUBJECT, str(number).encode()))


async def test_of_more_messages_than_it_keeps_the_oldest_are_forgotten() -> None:
    async with InProcessBus(most_messages=3) as bus:
        await published(bus, 10)
        async with bus.subscribe(PATTERN, durable="late") as late:
            found = [(await anext(late)).message.data for _ in range(3)]
            await published(bus, 5)
            found += [(await anext(late)).message.data for _ in range(3)]
    assert found == [b"7", b"8", b"9", b"2", b"3", b"4"]


async def test_as_many_ids_are_remembered_as_messages() -> None:
    async with InProcessBus(most_messages=2) as bus:
        kept = [await bus.publish(BusMessage(SUBJECT), dedupe_id=name) for name in ("a", "b", "b", "c", "a")]
    assert kept == [True, True, False, True, True]


async def test_closing_ends_all_waits() -> None:
    bus = InProcessBus()
    async with bus.subscribe(PATTERN, durable="workers") as subscription:
        waiting = asyncio.ensure_future(anext(subscription))
        await asyncio.sleep(0)
        await bus.close()
        async with asyncio.timeout(5):
            with pytest.raises(StopAsyncIteration):
                await waiting
    with pytest.raises(BusUnavailable):
        async with bus.subscribe(PATTERN, durable="workers"):
            pass


async def test_a_subscriber_has_room_for_one_message_at_least() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        InFlight(0)


tokens = st.sampled_from(["a", "b", "c1"])


@settings(deadline=None)
@given(st.lists(tokens, min_size=1, max_size=5), st.data())
def test_a_filter_made_from_a_subject_stands_for_it(subject: list[str], data: st.DataObject) -> None:
    wild = [data.draw(st.sampled_from([token, "*"])) for token in subject]
    cut = data.draw(st.integers(0, len(wild)))
    pattern = ".".join([*wild[:cut], ">"] if cut < len(wild) else wild)
    assert check_filter(pattern) == pattern
    assert filter_matches(pattern, ".".join(subject))
    assert not filter_matches(".".join([*wild, ">"]), ".".join(subject))
    assert not filter_matches(".".join([*wild, "*"]), ".".join(subject))
    assert not filter_matches(".".join(["other", *wild[1:]]), ".".join(subject))
