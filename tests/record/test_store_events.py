"""Events of turns in every store: each once, in order, found by place and by cursor, within bounds."""

from pathlib import Path

import pytest

from toolwire.errors import StoreError
from toolwire.record.contract import KeptEvent, Store
from toolwire.record.event_rows import EVENTS_S, MOST_BYTES
from toolwire.record.projects import of_project
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW


def an_event(number: int, turn_id: str = "turn-1", *, epoch: int = 1, at: float = NOW, **more: str) -> KeptEvent:
    return KeptEvent(more.get("project", "default"), turn_id, epoch, number, at, "noted", more.get("body", "{}"))


async def test_events_of_a_turn_are_found_after_a_place_and_kept_once(store: Store) -> None:
    first, second, third = an_event(1), an_event(7), an_event(1, epoch=2)
    await store.append_events([first, second])
    await store.append_events([second, third])

    assert await store.turn_events("turn-1") == [first, second, third]
    assert await store.turn_events("turn-1", (1, 1)) == [second, third]
    assert await store.turn_events("turn-1", (1, 4), limit=1) == [second]
    assert await store.turn_events("turn-1", (2, 1)) == await store.turn_events("turn-2") == []


async def test_a_follower_of_events_sees_each_once_by_cursors_that_rise(store: Store) -> None:
    events = [an_event(number, f"turn-{number % 2}") for number in range(1, 8)]
    await store.append_events(events)
    cursor, seen = 0, list[KeptEvent]()

    while rows := await store.events_after(cursor, limit=2):
        assert all(one.cursor > cursor for one in rows)
        cursor = rows[-1].cursor
        seen += [one.value for one in rows]

    assert seen == events


async def test_T62_events_of_the_same_turn_id_are_a_projects_own(store: Store) -> None:
    mine, other = of_project(store, "tenant-a"), of_project(store, "tenant-b")
    for view in (mine, other):
        await view.append_events([an_event(1, project=view.project, body=f'"{view.project}"')])

    assert [event.body for event in await mine.turn_events("turn-1")] == ['"tenant-a"']
    assert [one.value.body for one in await other.events_after()] == ['"tenant-b"']
    with pytest.raises(StoreError, match="is not the one whose record is open"):
        await mine.append_events([an_event(2, project="tenant-b")])


async def test_events_are_dropped_after_days_and_beyond_a_size(tmp_path: Path) -> None:
    now = NOW
    async with await SqliteStore.at(tmp_path, clock=lambda: now) as store:
        await store.append_events([an_event(number, "old") for number in range(1, 4)])
        now += EVENTS_S + 1
        large = "x" * (MOST_BYTES // 4)
        await store.append_events([an_event(number, "large", at=now, body=large) for number in range(1, 9)])

        assert await store.turn_events("old") == []
        assert [event.number for event in await store.turn_events("large")] == [6, 7, 8]
        [*_, newest] = await store.events_after(0)
        assert newest.value.number == 8
