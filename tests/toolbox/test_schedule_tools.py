"""The tools `scheduler` and `schedule`, called by a scripted model: what a model schedules may do no more than it."""

import time
from typing import Any

import pytest

from tests.toolbox.test_record_tools import World, code
from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.rules.schedule_definitions import SCHEDULE
from toolwire.breadcrumbs.scheduler import ScheduledWork, Scheduler
from toolwire.protocol.breadcrumbs import RecordQuery, Visibility
from toolwire.protocol.outcomes import Code
from toolwire.testing import call
from toolwire.wire.codecs.stored import read_grant

ALLOWED: dict[str, Any] = {"permissions": frozenset({"records", "session"}), "confirmed": frozenset({"schedule"})}
DAILY = {"type": "daily", "time": "09:00"}
CREATE = {"action": "create", "title": "Report", "interval": DAILY, "run": {"type": "ask", "question": "New?"}}


@pytest.fixture
def world() -> World:
    return World()


async def schedules(world: World) -> list[Any]:
    rows = await world.service.listed(RecordQuery(schema_name=SCHEDULE), RUNTIME)
    return [row.value for row in rows]


@pytest.mark.feature("F244")
async def test_the_scheduler_tells_what_the_seed_says_it_tells(world: World) -> None:
    await world.service.create(NewRecord(SCHEDULE, "Morning", context={"interval": DAILY}), Caller("ann", Role.ADMIN))
    [before] = await world.ask(call("scheduler"))
    assert list(before.structured) == ["status", "schedules_loaded", "ticks_published", "uptime_ms", "schedules"]
    assert (before.structured["status"], before.structured["schedules_loaded"]) == ("stopped", 1)

    async def begin(work: ScheduledWork) -> None:
        raise AssertionError(work)

    process = Scheduler(world.service, begin)
    await process.fire_due()
    await process.give_sign()
    [after] = await world.ask(call("scheduler", check_interval_ms=1000))
    assert (after.structured["status"], after.structured["ticks_published"]) == ("running", 0)
    assert after.structured["uptime_ms"] >= 0
    assert after.structured["schedules"][0]["title"] == "Morning"


async def test_a_schedule_of_a_model_is_made_with_the_grant_of_its_turn_and_changed_by_its_agent_alone(
    world: World,
) -> None:
    [made] = await world.ask(call("schedule", **CREATE), **ALLOWED)
    assert made.structured["status"] == "active"
    [record] = await schedules(world)
    assert (record.created_by, record.context["action"]) == ("agent:agent", CREATE["run"])
    assert read_grant(record.context["grant"]).permissions == ALLOWED["permissions"]

    change = {"action": "pause", "schedule_id": record.id}
    [other] = await world.ask(call("schedule", **change), agent="other", **ALLOWED)
    [paused] = await world.ask(call("schedule", **change), **ALLOWED)
    [gone] = await world.ask(call("schedule", action="remove", schedule_id=record.id), **ALLOWED)
    assert (code(other), paused.structured["status"], gone.structured["status"]) == (
        Code.PERMISSION_DENIED, "paused", "removed",
    )  # fmt: skip
    assert await schedules(world) == []


async def test_scheduling_needs_an_approval_and_both_permissions(world: World) -> None:
    [unasked] = await world.ask(call("schedule", **CREATE), permissions=ALLOWED["permissions"])
    assert unasked.is_failure
    [refused] = await world.ask(call("schedule", **CREATE), confirmed=frozenset({"*"}))
    assert code(refused) is Code.PERMISSION_DENIED
    assert await schedules(world) == []


async def test_a_model_does_not_write_schedules_as_records(world: World) -> None:
    """Close the other way to the same power: the grant of a schedule is written by the tool alone."""
    record = {"schema_name": SCHEDULE, "title": "Mine", "context": {"interval": DAILY}}
    [forged] = await world.ask(call("breadcrumb-create", **record))
    [made] = await world.ask(call("schedule", **CREATE), **ALLOWED)
    widen = {"breadcrumb_id": made.structured["id"], "version": 1, "updates": {"context": {"grant": None}}}
    [widened] = await world.ask(call("breadcrumb-update", **widen))
    assert (code(forged), code(widened)) == (Code.PERMISSION_DENIED, Code.PERMISSION_DENIED)
    [record_now] = await schedules(world)
    assert record_now.context["grant"]["permissions"] == ["records", "session"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval": "0 0 30 2 *"},
        {"interval": None},
        {"timezone": "Mars/Base"},
        {"run": {"type": "ask", "question": "New?", "thread": "of-another"}},
        {"run": {"type": "shell"}},
    ],
)
async def test_what_cannot_be_meant_is_told_to_the_model(world: World, wrong: dict[str, Any]) -> None:
    [told] = await world.ask(call("schedule", **{**CREATE, **wrong}), **ALLOWED)
    assert code(told) is Code.INVALID_PARAMS
    assert await schedules(world) == []


async def test_an_agent_has_a_bounded_number_of_schedules(world: World) -> None:
    for number in range(50):
        new = NewRecord(SCHEDULE, str(number), context={"interval": DAILY})
        await world.service.create(new, Caller("agent:agent", Role.RUNTIME))
    [told] = await world.ask(call("schedule", **CREATE), **ALLOWED)
    assert told.is_failure
    assert len(await schedules(world)) == 50


async def test_T295_a_model_hears_nothing_of_private_schedules(world: World) -> None:
    run = {"type": "ask", "question": "xyzzy?"}
    hidden = await world.service.create(
        NewRecord(SCHEDULE, "xyzzy", context={"interval": DAILY, "action": run}, visibility=Visibility.PRIVATE),
        Caller("ann", Role.ADMIN),
    )
    [told] = await world.ask(call("scheduler"))
    assert (told.structured["schedules"], told.structured["schedules_loaded"]) == ([], 0)
    tried = [call("schedule", action="pause", schedule_id=name) for name in (hidden.id, "not-there")]
    there, missing = await world.ask(tried, **ALLOWED)
    assert (code(there), there.text.replace(hidden.id, "not-there")) == (Code.NOT_FOUND, missing.text)


async def test_T295_control_schedules_for_the_project_are_listed(world: World) -> None:
    await world.service.create(NewRecord(SCHEDULE, "Morning", context={"interval": DAILY}), Caller("ann", Role.ADMIN))
    [told] = await world.ask(call("scheduler"))
    assert [one["title"] for one in told.structured["schedules"]] == ["Morning"]


async def test_a_schedule_of_a_model_writes_into_no_session(world: World) -> None:
    record = {"schema_name": "note.v1", "title": "Due", "tags": ["note", "session:of-another"]}
    run = {"type": "record", "record": record}
    await world.ask(call("schedule", **{**CREATE, "run": run, "interval": "* * * * *"}), **ALLOWED)

    async def begin(work: ScheduledWork) -> None:
        raise AssertionError(work)

    await Scheduler(world.service, begin, clock=lambda: time.time() + 120).fire_due()
    rows = await world.service.listed(RecordQuery(schema_name="note.v1"), RUNTIME)
    assert [(row.value.tags, row.value.created_by) for row in rows] == [(("note",), "agent:agent")]
