"""The newest events of turns, within bounds: whoever reads late is told that something is missing."""

import asyncio
import json

from toolwire.assemble.event_log import MOST_BYTES, MOST_IN_ALL, EventLog
from toolwire.protocol.chat import TextDelta
from toolwire.protocol.events import EventEnvelope

LONG = "x" * (MOST_BYTES // 10)


def event(seq: int, text: str = "a", turn: str = "t", epoch: int = 2) -> EventEnvelope:
    return EventEnvelope("default", turn, epoch, seq, 0.0, TextDelta(text))


def ids(log: EventLog, number: int = 0) -> list[str]:
    return [each.id for each in log.read("t", number)[0]]


def test_events_are_read_from_a_number_on() -> None:
    log = EventLog()
    log.expect("t")
    assert log.start("t", None) == (0, True)
    log.add(event(1))
    log.add(event(2))
    assert ids(log) == ["2.1", "2.2"]
    assert log.start("t", (2, 1)) == (1, True)
    assert log.start("t", (2, 2)) == (2, True)
    assert ids(log, 2) == []


def test_what_no_one_reads_is_dropped_and_that_is_told() -> None:
    log = EventLog()
    log.expect("t")
    for seq in range(1, 101):
        log.add(event(seq, LONG))
    kept, dropped = log.read("t", 0)
    assert dropped
    assert sum(len(each.body) for each in kept) <= MOST_BYTES
    assert kept[-1].id == "2.100"
    first = kept[0].place
    assert log.start("t", None) == (kept[0].number, False)
    assert log.start("t", (2, 1)) == (kept[0].number, False)
    assert log.start("t", (2, first[1] - 1)) == (kept[0].number, True)  # the last one dropped: nothing is missing
    assert log.read("t", kept[0].number)[1] is False


def test_an_event_beyond_the_bound_is_told_without_what_it_says() -> None:
    log = EventLog()
    log.add(event(1, LONG * 20))
    log.add(event(2))
    assert ids(log) == ["2.1", "2.2"]
    told = json.loads(log.read("t", 0)[0][0].body)
    assert (told["event"], told["turn"], told["seq"], "text" in told) == ("text", "t", 1, False)
    assert told["left_out_bytes"] > MOST_BYTES


def test_all_turns_together_are_bounded_too() -> None:
    log = EventLog()
    turns = [f"turn {number}" for number in range(40)]
    for turn in turns:
        for seq in range(1, 10):
            log.add(event(seq, LONG, turn))
    kept = {turn: sum(len(each.body) for each in log.read(turn, 0)[0]) for turn in turns}
    assert 0 < sum(kept.values()) <= MOST_IN_ALL
    assert kept["turn 39"] > 0
    assert kept["turn 0"] == 0


def test_events_of_before_this_process_are_missing() -> None:
    log = EventLog()
    assert log.start("t", None) == (0, False)
    log.add(event(1, epoch=3))
    assert log.start("t", None) == (0, False)
    assert log.start("t", (2, 5)) == (0, False)
    assert log.start("t", (9, 9)) == (1, False)


def test_only_so_many_turns_are_kept_the_newest() -> None:
    log = EventLog(most_turns=2)
    for turn in ("t", "u", "v"):
        log.add(event(1, turn=turn))
    assert log.read("t", 0) == ([], False)
    assert [each.id for turn in ("u", "v") for each in log.read(turn, 0)[0]] == ["2.1", "2.1"]


async def test_a_reader_waits_for_the_next_event_and_leaves_when_the_turn_is_dropped() -> None:
    log = EventLog(most_turns=1)
    log.expect("t")
    waiting = asyncio.create_task(log.wait("t", 0, 60))
    await asyncio.sleep(0)
    log.add(event(1))
    await waiting
    await log.wait("t", 0, 60)  # it is there already
    waiting = asyncio.create_task(log.wait("t", 1, 60))
    await asyncio.sleep(0)
    log.add(event(1, turn="u"))
    await waiting
    assert log.read("t", 1) == ([], False)


def test_a_note_about_a_turn_has_no_id_and_stands_after_the_newest_event() -> None:
    log = EventLog()
    log.expect("t")
    log.add(event(1))
    log.note("t", "turn_failed", {"error": "no"})
    log.add(event(2))
    assert ids(log) == ["2.1", "", "2.2"]
    assert log.start("t", (2, 1)) == (2, True)
