"""Schedules and specialists over every store, by several processes at the same moment: each work is begun once."""

import asyncio
from collections import Counter

from tests.record.conftest import NOW
from toolwire.agent import Agent
from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.agent_definitions import AGENT, RESPONSE, TASK
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.rules.schedule_definitions import SCHEDULE, TICK
from toolwire.breadcrumbs.scheduler import ScheduledWork, Scheduler, list_schedules
from toolwire.breadcrumbs.service import RecordService
from toolwire.breadcrumbs.specialists import Specialists, SpecialistWork
from toolwire.protocol.breadcrumbs import RecordQuery
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel

ADMIN = Caller("ann", Role.ADMIN)
PROCESSES = 4


async def test_every_time_fires_once_however_many_processes_look_at_it(store: Store) -> None:
    now = NOW
    begun: Counter[str] = Counter()

    async def begin(work: ScheduledWork) -> None:
        await asyncio.sleep(0)
        begun[work.turn_id] += 1

    records = [RecordService(store, "default", clock=lambda: now) for _ in range(PROCESSES)]
    context = {"interval": {"type": "minutely"}, "action": {"type": "ask", "question": "?"}, "missed": "all"}
    await records[0].create(NewRecord(SCHEDULE, "Often", context=context), ADMIN)
    processes = [Scheduler(one, begin, clock=lambda: now) for one in records]
    for minutes in (0, 1, 1, 3, 5):
        now = NOW + 60 * minutes
        await asyncio.gather(*(process.fire_due() for process in processes))

    await processes[0].fire_due()
    ticks = await records[0].listed(RecordQuery(schema_name=TICK), RUNTIME, limit=200)
    [listed] = await list_schedules(records[0], now)
    assert (len(begun), len(ticks), sum(process.published for process in processes)) == (5, 5, 5)
    assert listed.state is not None
    assert (listed.state.runs, listed.state.pending) == (5, ())


async def test_a_record_wakes_its_agent_once_however_many_processes_follow(store: Store) -> None:
    begun: Counter[str] = Counter()

    async def begin(work: SpecialistWork) -> None:
        await asyncio.sleep(0)
        begun[work.turn_id] += 1
        if begun[work.turn_id] == 1:  # as in a project, where the second one finds the turn
            agent = Agent(ScriptedModel("Made it."), store=store, name="maker")
            await agent.begin(work.question, turn_id=work.turn_id)

    records = [RecordService(store, "default", clock=lambda: NOW) for _ in range(PROCESSES)]
    maker = {"name": "maker", "system_prompt": "Make.", "subscriptions": [{"schema_name": "wish.v1"}]}
    await records[0].create(NewRecord(AGENT, "Maker", context=maker), ADMIN)
    for number in range(3):
        await records[0].create(NewRecord("wish.v1", str(number)), ADMIN)
    processes = [Specialists(one, store, begin, clock=lambda: NOW) for one in records]
    await asyncio.gather(*(process.look() for process in processes))
    for turn_id in begun:
        await Agent(ScriptedModel("Made it."), store=store, name="maker").resume(turn_id)
    for _ in range(2):
        await asyncio.gather(*(process.look() for process in processes))

    found = {name: await records[0].listed(RecordQuery(schema_name=name), RUNTIME) for name in (TASK, RESPONSE)}
    assert {name: len(rows) for name, rows in found.items()} == {TASK: 3, RESPONSE: 3}
    assert len(begun) == 3
    assert all("task:done" in row.value.tags for row in found[TASK])
