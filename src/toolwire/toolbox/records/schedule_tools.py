"""The tools with which models look at schedules and make them. What a model schedules may do no more than its turn."""

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict

from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.access import may_see
from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.rules.schedule_definitions import SCHEDULE
from toolwire.breadcrumbs.scheduler import list_schedules, running_since, schedule_object
from toolwire.breadcrumbs.service import RecordService
from toolwire.define.fields import Field
from toolwire.errors import ToolFailure
from toolwire.protocol.breadcrumbs import Record
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool
from toolwire.toolbox.records.access import caller_of, creation_key, failures, finding, required, tell_read, writing
from toolwire.wire.codecs.stored import write_grant

MOST_OF_AN_AGENT = 50
"""So many schedules an agent has at most."""


class SchedulerOutput(TypedDict):
    status: Annotated[str, Field(description="running where a process fires schedules, else stopped.")]
    schedules_loaded: Annotated[int, Field(description="How many schedules are active.")]
    ticks_published: Annotated[int, Field(description="How often schedules have fired.")]
    uptime_ms: Annotated[int, Field(description="For how long a process has fired schedules.")]
    schedules: Annotated[list[dict[str, Any]], Field(description="The schedules, with when each runs next.")]


class ScheduleOutput(TypedDict):
    id: Annotated[str, Field(description="The id of the schedule.")]
    status: Annotated[str, Field(description="active, paused, ended or removed.")]
    next_run: Annotated[str | None, Field(description="When it runs next, in UTC.")]


def scheduler_tool(records: RecordService | None, clock: Callable[[], float] = time.time) -> Tool:
    """The tool `scheduler`."""

    @finding(name="scheduler", examples=({},))
    async def scheduler(
        context: Context, check_interval_ms: Annotated[int, Field(ge=1_000, le=86_400_000)] = 60_000
    ) -> SchedulerOutput:
        """Show the schedules of this project, and whether a process fires them.

        Args:
            check_interval_ms: Not needed: schedules fire when they are due.
        """
        del check_interval_ms
        service, now = required(records), clock()
        found = [one for one in await list_schedules(service, now) if may_see(one.record, caller_of(context))]
        for one in found:
            tell_read(context, one.record)
        since = await running_since(service)
        return {
            "status": "stopped" if since is None else "running",
            "schedules_loaded": sum(one.next_run is not None for one in found),
            "ticks_published": sum(one.state.runs for one in found if one.state is not None),
            "uptime_ms": 0 if since is None else max(int((now - since) * 1000), 0),
            "schedules": [schedule_object(one) for one in found],
        }

    return scheduler


def schedule_tool(records: RecordService | None, clock: Callable[[], float] = time.time) -> Tool:
    """The tool `schedule`. It acts later, when no one watches: it asks for approval."""

    @writing(
        name="schedule",
        needs={"records", "session"},
        requires_confirmation=True,
        examples=(
            {
                "action": "create",
                "title": "Morning report",
                "interval": {"type": "daily", "time": "09:00"},
                "timezone": "Europe/Berlin",
                "run": {"type": "ask", "question": "What is new since yesterday?"},
            },
        ),
    )
    async def schedule(
        context: Context,
        action: Literal["create", "pause", "resume", "remove"],
        title: Annotated[str, Field(max_length=500)] = "",
        interval: str | dict[str, Any] | None = None,
        timezone: Annotated[str, Field(max_length=64)] = "UTC",
        run: dict[str, Any] | None = None,
        missed: Literal["skip", "once", "all"] = "once",
        max_runs: Annotated[int, Field(ge=1)] | None = None,
        schedule_id: Annotated[str, Field(max_length=200)] = "",
    ) -> ScheduleOutput:
        """Let something happen at certain times, or pause, resume or remove a schedule that you created.

        Args:
            action: What to do.
            title: What the schedule is for.
            interval: A cron line of five fields, or an object whose type is minutely (every_n_minutes), hourly
                (minute), daily (time), weekly (weekdays, time), monthly (day_of_month or nth_weekday, time) or every
                (minutes, hours, days or weeks).
            timezone: The zone of these times.
            run: What happens: {"type": "ask", "question"}, {"type": "call", "tool", "arguments"} or
                {"type": "record", "record"}; without it, only a tick is recorded.
            missed: What happens after a time in which nothing ran.
            max_runs: The schedule ends after so many runs.
            schedule_id: The schedule to pause, resume or remove.
        """
        service = required(records)
        with failures():
            if action != "create":
                return await _change(service, context, schedule_id, action, clock())
            asked: dict[str, Any] = {"interval": interval, "timezone": timezone, "missed": missed}
            asked |= {} if max_runs is None else {"max_runs": max_runs}
            asked |= {} if run is None else {"action": _required_run(run)}
            new = NewRecord(SCHEDULE, title, context={**asked, "grant": write_grant(context.grant)})
            await _require_room(service, context)
            record = await service.create(new, _author(context), key=creation_key(context))
            return await _shown(service, record, clock())

    return schedule


def _required_run(run: dict[str, Any]) -> dict[str, Any]:
    if "thread" in run:
        raise ToolFailure("run has no thread: each run is a conversation of its own", code=Code.INVALID_PARAMS)
    return run


async def _change(
    service: RecordService, context: Context, schedule_id: str, action: str, now: float
) -> ScheduleOutput:
    record = await service.read(schedule_id, caller_of(context))
    if record.schema_name != SCHEDULE or record.created_by != _author(context).author:
        raise ToolFailure(
            "this is not a schedule that you created; the scheduler tool lists them with their owners",
            code=Code.PERMISSION_DENIED,
        )
    if action == "remove":
        await service.delete(record.id, _author(context), expected=record.version)
        return {"id": record.id, "status": "removed", "next_run": None}
    patch = {"context": {"enabled": action == "resume"}}
    return await _shown(service, await service.patch(record.id, patch, record.version, _author(context)), now)


async def _require_room(service: RecordService, context: Context) -> None:
    own = _author(context).author
    listed = [one for one in await list_schedules(service, 0.0) if one.record.created_by == own]
    if len(listed) >= MOST_OF_AN_AGENT:
        raise ToolFailure(f"an agent has at most {MOST_OF_AN_AGENT} schedules; remove one that is not needed")


async def _shown(service: RecordService, record: Record, now: float) -> ScheduleOutput:
    one = next(one for one in await list_schedules(service, now) if one.record.id == record.id)
    shown = schedule_object(one)
    status = "active" if one.next_run is not None else "ended" if shown["enabled"] else "paused"
    return {"id": record.id, "status": status, "next_run": shown["next_run"]}


def _author(context: Context) -> Caller:
    """The runtime, for an agent: models write no schedules as records, since those act later."""
    return Caller(f"agent:{context.agent}", Role.RUNTIME, context.turn_id, context.call_id, context.tainted_by)
