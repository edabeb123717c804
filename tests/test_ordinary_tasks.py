"""Safety that is not in the way: a developer's day, and a sample of the five hundred ordinary tasks."""

import asyncio

import pytest
from benchmarks.developer_tasks import all_tried, developer_report, developer_tasks, is_possible
from benchmarks.ordinary_tasks import Task, all_done, report, sample, tasks

BY_CHOICE = ["200 + 10%", "1,000 + 1", "2 pi"]
"""What is answered with advice instead, since it can mean two things."""


def is_refused_by_choice(task: Task) -> bool:
    return any(value in BY_CHOICE for value in task.arguments.values() if isinstance(value, str))


def test_there_are_five_hundred_different_tasks_for_many_tools() -> None:
    found = tasks()

    assert len({repr(task) for task in found}) == len(found) == 500
    assert len({task.tool for task in found}) >= 20
    assert sum(is_refused_by_choice(task) for task in found) == len(BY_CHOICE)


@pytest.mark.parametrize("seed", [1, 2])
async def test_ordinary_tasks_work_under_the_default_policy_in_a_granted_workspace(seed: int) -> None:
    chosen = [task for task in sample(15, seed) if not is_refused_by_choice(task)]

    async with asyncio.timeout(60):
        outcomes = await all_done(chosen)

    assert [one for one in outcomes if one.trouble] == [], report(outcomes)


def test_a_developers_day_has_sixty_tasks_of_which_twenty_six_only_read() -> None:
    found = developer_tasks()

    assert len({repr(one.task) for one in found}) == len(found) == 60
    assert sum(one.reads for one in found) == 26


@pytest.mark.parametrize("reads", [True, False])
async def test_a_developers_tasks_work_and_those_that_only_read_run_unasked(reads: bool) -> None:
    chosen = [one for one in developer_tasks() if one.reads is reads and is_possible(one)]

    async with asyncio.timeout(120):
        tried = await all_tried(chosen)

    assert [one for one in tried if one.trouble] == [], developer_report(tried)
