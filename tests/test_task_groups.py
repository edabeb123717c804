"""Groups of tasks leave the task that opened them as it was, on every Python."""

import asyncio

import pytest

from toolwire.task_groups import TaskGroup


async def failing(*, at: asyncio.Event | None = None) -> None:
    if at is not None:
        await at.wait()
    raise ValueError


async def test_after_a_task_that_failed_a_timeout_is_one() -> None:
    with pytest.RaisesGroup(ValueError):
        async with TaskGroup() as group:
            group.create_task(failing())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_a_body_that_fails_or_is_interrupted_leaves_nothing_counted() -> None:
    with pytest.RaisesGroup(ValueError):
        async with TaskGroup():
            raise ValueError
    with pytest.RaisesGroup(ValueError):
        async with TaskGroup() as group:
            group.create_task(failing())
            await asyncio.Event().wait()

    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_who_is_canceled_while_a_task_fails_is_still_canceled() -> None:
    may_fail = asyncio.Event()
    counted: list[int] = []

    async def opens() -> None:
        try:
            async with TaskGroup() as group:
                group.create_task(failing(at=may_fail))
        finally:
            counted.append(asyncio.current_task().cancelling())  # type: ignore[union-attr]

    opening = asyncio.create_task(opens())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    may_fail.set()
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.RaisesGroup(ValueError):
        await opening

    assert counted == [1]
