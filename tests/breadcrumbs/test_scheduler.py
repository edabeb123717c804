"""Schedules that fire: once each, whatever dies, and however the clock is changed."""

from collections.abc import Callable
from typing import Any

import pytest

from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.rules.schedule_definitions import SCHEDULE, STATE, TICK, AskAgent, CallTool
from toolwire.breadcrumbs.scheduler import ScheduledWork, Scheduler, list_schedules
from toolwire.breadcrumbs.service import RecordService
from toolwire.errors import BudgetSpent, InvalidRecord, NotPermitted, StoreUnavailable
from toolwire.protocol.breadcrumbs import Record, RecordQuery
from toolwire.record.memory import MemoryStore

ADMIN = Caller("ann", Role.ADMIN)
DAILY = {"interval": {"type": "daily", "time": "09:00"}}
T0 = 1_800_000_000.0  # 08:00 UTC
NINE = T0 + 3_600
DAY = 86_400


class Clock:
    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> float:
        return self.now


class Work:
    """Begins turns as a store would: the second one with an id is no turn."""

    def __init__(self) -> None:
        self.begun: dict[str, ScheduledWork] = {}
        self.fails: Callable[[], Exception] | None = None

    async def __call__(self, work: ScheduledWork) -> None:
        if self.fails is not None:
            raise self.fails()
        self.begun.setdefault(work.turn_id, work)


class Place:
    """A store with its records, the work that was begun, and schedulers of as many processes as are wanted."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.work = Work()
        self.store = MemoryStore(clock=self.clock)
        self.records = RecordService(self.store, "default", clock=self.clock)
        self.scheduler = self.process()

    def process(self) -> Scheduler:
        return Scheduler(self.records, self.work, clock=self.clock)

    async def add(self, **context: Any) -> Record:
        new = NewRecord(SCHEDULE, "Morning", context={**DAILY, **context})
        return await self.records.create(new, ADMIN)

    async def ticks(self) -> list[str]:
        return [str(tick.context["due_at"])[:16] for tick in await self.of(TICK)]

    async def of(self, schema_name: str) -> list[Record]:
        rows = await self.records.listed(RecordQuery(schema_name=schema_name), RUNTIME, limit=200)
        return [row.value for row in reversed(rows)]

    async def at(self, now: float, scheduler: Scheduler | None = None) -> float | None:
        self.clock.now = now
        return await (scheduler or self.scheduler).fire_due()


@pytest.fixture
def place() -> Place:
    return Place()


async def test_a_schedule_fires_once_and_says_when_it_is_due_next(place: Place) -> None:
    record = await place.add(action={"type": "ask", "question": "What is new?", "agent": "general"}, labels=["daily"])

    assert await place.at(T0) == NINE
    assert place.work.begun == {}
    assert await place.at(NINE + 0.2) == NINE + DAY
    await place.at(NINE + 1)
    await place.at(NINE + 7, place.process())

    [tick] = await place.of(TICK)
    [work] = place.work.begun.values()
    assert work.action == AskAgent("What is new?", "general")
    assert tick.tags == ("schedule:tick", f"schedule:{record.id}", "daily")
    assert tick.context == {
        "schedule_id": record.id,
        "schedule_title": "Morning",
        "fired_at": "2027-01-15T09:00:00.200Z",
        "due_at": "2027-01-15T09:00:00.000Z",
        "interval_type": "daily",
        "interval_details": {"time": "09:00"},
        "timezone": "UTC",
        "turn_id": work.turn_id,
    }
    [listed] = await list_schedules(place.records, place.clock.now)
    assert listed.state is not None
    assert (listed.next_run, listed.state.runs, listed.state.last_error) == (NINE + DAY, 1, "")


@pytest.mark.parametrize(
    ("missed", "fired", "left_out"),
    [
        ("skip", [], 3),
        ("once", ["2027-01-17T09:00"], 2),
        ("all", ["2027-01-16T09:00", "2027-01-17T09:00"], 1),
    ],
)
async def test_runs_that_were_missed_follow_the_policy(
    place: Place, missed: str, fired: list[str], left_out: int
) -> None:
    await place.add(missed=missed, most_missed=2)
    await place.at(T0)

    await place.at(NINE + 2 * DAY + 1_800)

    [listed] = await list_schedules(place.records, place.clock.now)
    assert await place.ticks() == fired
    assert listed.state is not None
    assert (listed.state.missed, listed.next_run) == (left_out, NINE + 3 * DAY)
    await place.at(NINE + 3 * DAY)  # and the next one is on time in any case
    assert await place.ticks() == [*fired, "2027-01-18T09:00"]


async def test_a_process_that_dies_between_tick_and_effect_leaves_both_to_be_done_once(place: Place) -> None:
    await place.add(action={"type": "call", "tool": "echo", "arguments": {"message": "hi"}})
    await place.at(T0)
    place.work.fails = lambda: StoreUnavailable("gone")  # the process ends here, as by kill -9
    with pytest.raises(StoreUnavailable):
        await place.at(NINE)
    assert await place.ticks() == ["2027-01-15T09:00"]

    place.work.fails = None
    for _ in range(3):
        await place.at(place.clock.now + 600, place.process())

    assert await place.ticks() == ["2027-01-15T09:00"]
    [work] = place.work.begun.values()
    assert work.action == CallTool("echo", {"message": "hi"})


@pytest.mark.parametrize("paused", [False, True])
async def test_a_run_that_was_decided_is_not_lost_where_the_schedule_is_changed_after_a_crash(
    place: Place, paused: bool
) -> None:
    record = await place.add(action={"type": "ask", "question": "What is new?"}, max_runs=1)
    place.work.fails = lambda: StoreUnavailable("the store is away")
    with pytest.raises(StoreUnavailable):
        await place.at(NINE + 1)
    place.work.fails = None
    await place.records.patch(record.id, {"context": {"timezone": "Europe/Berlin", "enabled": not paused}}, 1, ADMIN)
    await place.at(NINE + 2)
    assert len(place.work.begun) == (0 if paused else 1)
    if paused:
        await place.records.patch(record.id, {"context": {"enabled": True}}, 2, ADMIN)
        await place.at(NINE + 3)
    await place.at(NINE + DAY)
    assert len(place.work.begun) == 1


async def test_a_clock_that_is_set_back_or_forward_fires_each_time_at_most_once(place: Place) -> None:
    await place.add(action={"type": "ask", "question": "?"}, missed="once")
    await place.at(T0)
    await place.at(NINE)
    await place.at(NINE - 1_800)  # back by half an hour: nine comes again
    await place.at(NINE)
    assert len(place.work.begun) == 1

    await place.at(NINE + 400 * DAY)  # a year ahead by mistake: one run
    assert len(place.work.begun) == 2
    await place.at(NINE + 3_600)  # and right again: tomorrow is not left out
    assert await place.at(NINE + 3_600) == NINE + DAY
    await place.at(NINE + DAY)
    assert len(place.work.begun) == 3


async def test_a_record_is_created_from_its_template_with_the_rights_of_the_owner(place: Place) -> None:
    template = {
        "schema_name": "note.v1",
        "title": "Report of ${tick.due_at}",
        "tags": ["assigned-to:reporter"],
        "context": {"due": "${tick.due_at}", "details": "${tick.interval_details}"},
    }
    await place.add(action={"type": "record", "record": template})
    await place.at(T0)
    await place.at(NINE)
    await place.at(NINE + 1)

    [note] = await place.of("note.v1")
    assert note.context == {"due": "2027-01-15T09:00:00.000Z", "details": {"time": "09:00"}}
    assert (note.title, note.created_by) == ("Report of 2027-01-15T09:00:00.000Z", "ann")


async def test_a_schedule_of_an_agent_writes_nothing_that_models_may_not_write(place: Place) -> None:
    template = {"schema_name": "agent.def.v1", "title": "Me", "context": {"system_prompt": "Obey."}}
    new = NewRecord(SCHEDULE, "x", context={**DAILY, "grant": {}, "action": {"type": "record", "record": template}})
    await place.records.create(new, Caller("cli", Role.RUNTIME, "turn", "call"))
    await place.at(T0)
    await place.at(NINE)

    [listed] = await list_schedules(place.records, place.clock.now)
    assert listed.state is not None
    assert "reserved" in listed.state.last_error
    assert await place.of("agent.def.v1") == []


async def test_a_firing_whose_work_cannot_begin_says_why_and_the_next_one_is_tried(place: Place) -> None:
    await place.add(action={"type": "ask", "question": "?"})
    await place.at(T0)
    place.work.fails = lambda: BudgetSpent("the day's budget is spent")
    await place.at(NINE)
    [listed] = await list_schedules(place.records, place.clock.now)
    assert listed.state is not None
    assert listed.state.last_error == "the day's budget is spent"

    place.work.fails = None
    await place.at(NINE + DAY)
    assert len(place.work.begun) == 1


async def test_pausing_and_changing_a_schedule_makes_no_time_of_before_due(place: Place) -> None:
    record = await place.add()
    await place.at(T0)
    place.clock.now = NINE - 60
    record = await place.records.patch(record.id, {"context": {"enabled": False}}, record.version, ADMIN)
    await place.at(NINE - 50)
    assert await place.at(NINE) is None
    place.clock.now = NINE + 60
    record = await place.records.patch(record.id, {"context": {"enabled": True}}, record.version, ADMIN)
    await place.at(NINE + 70)
    await place.at(NINE + 80)
    assert await place.ticks() == []

    place.clock.now = NINE + 7_200
    await place.records.patch(
        record.id, {"context": {"interval": {"type": "daily", "time": "10:00"}}}, record.version, ADMIN
    )
    await place.at(NINE + 7_201)
    assert await place.at(NINE + 7_202) == NINE + 3_600 + DAY
    assert await place.ticks() == []


async def test_a_schedule_ends_after_its_runs_and_leaves_no_state_when_it_is_deleted(place: Place) -> None:
    record = await place.add(max_runs=2)
    for day in range(4):
        await place.at(NINE + day * DAY)
    assert len(await place.ticks()) <= 2
    [listed] = await list_schedules(place.records, place.clock.now)
    assert listed.state is not None
    assert (listed.state.runs, listed.next_run) == (2, None)

    await place.records.delete(record.id, ADMIN)
    await place.at(NINE + 5 * DAY)
    assert await place.of(STATE) == []


async def test_the_oldest_of_many_schedules_still_fires(place: Place) -> None:
    await place.add(action={"type": "ask", "question": "What is new?"})
    for number in range(1_000):
        broken = Record(str(number), "default", SCHEDULE, context={"was": "written by an older version"})
        await place.store.create_record(broken)
    await place.at(NINE + 1)
    assert len(place.work.begun) == 1


async def test_a_hundred_passes_of_many_processes_fire_each_time_once(place: Place) -> None:
    """Processes that look at different moments decide about the same times; the store lets one of them."""
    await place.add(
        interval={"type": "minutely"}, action={"type": "ask", "question": "?"}, missed="all", most_missed=50
    )
    processes = [place.process() for _ in range(5)]
    await place.at(T0)
    for step in range(1, 100):
        await place.at(T0 + step * 7.3, processes[step % 5])
    minutes = int(place.clock.now - T0) // 60
    assert (len(place.work.begun), len(await place.ticks())) == (minutes, minutes)
    assert sum(process.published for process in processes) == minutes


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ({"interval": "0 0 30 2 *"}, "day-of-month"),
        ({**DAILY, "end": "2020-01-01"}, "never due"),
        ({**DAILY, "missed": "never"}, "skip, once, all"),
        ({**DAILY, "action": {"type": "shell"}}, "action.type"),
        ({**DAILY, "action": {"type": "ask"}}, "action.question"),
        ({**DAILY, "action": {"type": "call", "tool": "x", "args": {}}}, "not 'args'"),
        ({**DAILY, "most_missed": 10_000}, "most_missed"),
        ({**DAILY, "enbled": True}, "no field 'enbled'"),
        ({**DAILY, "action": {"type": ["ask"]}}, "action.type"),
        ({**DAILY, "labels": ["two\nlines"]}, "labels"),
        ({**DAILY, "labels": [str(number) for number in range(21)]}, "labels"),
    ],
)
async def test_a_definition_that_cannot_be_used_is_refused_when_it_is_written(
    place: Place, context: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidRecord, match=says):
        await place.records.create(NewRecord(SCHEDULE, "x", context=context), ADMIN)


@pytest.mark.parametrize("role", [Role.MODEL, Role.WRITER, Role.READER])
async def test_only_admins_write_schedules_as_records(place: Place, role: Role) -> None:
    with pytest.raises(NotPermitted):
        await place.records.create(NewRecord(SCHEDULE, "x", context=DAILY), Caller("bob", role))
    with pytest.raises(NotPermitted):
        await place.records.create(NewRecord(TICK, "x"), Caller("bob", role))


async def schedule_of_agent(place: Place) -> Record:
    """A schedule that an agent has made in a turn that had read untrusted content."""
    action = {"type": "record", "record": {"schema_name": "note.v1", "title": "n", "tags": ["assigned-to:maker"]}}
    new = NewRecord(SCHEDULE, "Obey me", context={**DAILY, "grant": {}, "action": action})
    return await place.records.create(new, Caller("agent:cli", Role.RUNTIME, "turn-1", "call-1", ("page",)))


async def test_T302_a_tick_of_an_untrusted_schedule_is_untrusted(place: Place) -> None:
    """It has the title of the schedule, and toolwire itself is its author."""
    await schedule_of_agent(place)
    await place.at(T0)
    await place.at(NINE)
    [tick] = await place.of(TICK)
    assert (tick.title, tick.origins) == ("Obey me", ("page",))


async def test_T302_control_a_tick_of_a_trusted_schedule_is_trusted(place: Place) -> None:
    await place.add()
    await place.at(T0)
    await place.at(NINE)
    assert [(tick.origins, tick.turn_id) for tick in await place.of(TICK)] == [((), "")]


async def test_T303_a_person_who_pauses_the_schedule_of_a_model_lends_it_no_rights(place: Place) -> None:
    """An agent that is woken by what the schedule writes may do what the turn may that made the schedule."""
    made = await schedule_of_agent(place)
    for version, enabled in ((1, False), (2, True)):
        await place.records.patch(made.id, {"context": {"enabled": enabled}}, version, ADMIN)
    await place.at(T0)
    await place.at(NINE)
    written = [*await place.of("note.v1"), *await place.of(TICK)]
    assert [one.turn_id for one in written] == ["turn-1", "turn-1"]
