"""`toolwire schedule`: what is to happen at certain times, by `toolwire run` and `toolwire serve`."""

import datetime
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.records import record_service
from toolwire.assemble.stores import store_of
from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.rules.schedule_definitions import SCHEDULE
from toolwire.breadcrumbs.rules.schedules import check_schedule, next_after
from toolwire.breadcrumbs.rules.wall_clock import read_zone
from toolwire.breadcrumbs.scheduler import ListedSchedule, list_schedules, schedule_object
from toolwire.breadcrumbs.service import RecordService
from toolwire.cli.entry.command import LOOK, CliCommand, Group
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.ids import only_match
from toolwire.cli.resolve.options import AsJson, Home, NoColor, Project
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.identity import system_user
from toolwire.cli.terminal.screen import Screen
from toolwire.errors import InvalidRecord, NotFound, SettingsError
from toolwire.protocol.breadcrumbs import Record

schedule = typer.Typer(**LOOK, cls=Group, help="Let something happen at certain times.")

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MOST_SHOWN = 100

Which = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The id of a schedule, or enough of it; or its title.")]
Cron = Annotated[str | None, typer.Option("--cron", metavar="LINE", help='Five fields, e.g. "30 9 * * MON-FRI".')]
Every = Annotated[str | None, typer.Option("--every", metavar="TIME", help="Every so often: 15m, 2h, 3d or 1w.")]
Daily = Annotated[str | None, typer.Option("--daily", metavar="HH:MM", help="Each day at this time.")]
Interval = Annotated[
    str | None, typer.Option("--interval", metavar="JSON", help="Any other interval; `toolwire docs schedules`.")
]
Timezone = Annotated[str, typer.Option("--timezone", metavar="NAME", help="Such as Europe/Berlin.")]


@schedule.command("list", cls=CliCommand)
def list_all(
    project: Project = "default", home: Home = None, as_json: AsJson = False, no_color: NoColor = False
) -> Exit:
    """List the schedules, with when each runs next and how often it has."""
    place, screen = _opened(home, project, no_color=no_color)
    found = run_sync(_listed(place))
    if as_json:
        screen.json([schedule_object(one) for one in found])
        return Exit.DONE
    if not found:
        screen.tell("There are no schedules. Add one with: toolwire schedule add TITLE --daily 09:00 --ask QUESTION")
        return Exit.DONE
    screen.table(("id", "title", "when", "next run", "runs", "state"), [_row(one) for one in found])
    return Exit.DONE


@schedule.command("add", cls=CliCommand)
def add(
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What it is for.")],
    cron: Cron = None,
    every: Every = None,
    daily: Daily = None,
    interval: Interval = None,
    timezone: Timezone = "UTC",
    ask: Annotated[str | None, typer.Option("--ask", metavar="QUESTION", help="Begin a turn with this.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Who answers the question.")] = None,
    call: Annotated[str | None, typer.Option("--call", metavar="TOOL", help="Call this tool.")] = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="The arguments of the call.")
    ] = None,
    record: Annotated[str | None, typer.Option("--record", metavar="JSON", help="Create this record.")] = None,
    missed: Annotated[
        str, typer.Option("--missed", metavar="POLICY", help="What to do about missed runs: skip, once or all.")
    ] = "once",
    max_runs: Annotated[int | None, typer.Option("--max-runs", metavar="N", help="End after so many runs.")] = None,
    project: Project = "default",
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Add a schedule. It runs while `toolwire run` or `toolwire serve --agents` does, in any number of processes.

    Without --ask, --call or --record, each run only leaves a record of the type schedule.tick.v1.
    """
    place, screen = _opened(home, project, no_color=no_color)
    _require_lasting(place)
    context: dict[str, Any] = {"interval": _interval(cron, every, daily, interval), "timezone": timezone}
    context |= {"missed": missed} | ({} if max_runs is None else {"max_runs": max_runs})
    if action := _action(ask, agent, call, arguments, record):
        context["action"] = action
    made = run_sync(_create(place, title, context))
    if as_json:
        screen.json(schedule_object(made))
    else:
        screen.tell(f"Schedule {made.record.id} runs next at {_shown(made, made.next_run)}.", "green")
    return Exit.DONE


@schedule.command("pause", cls=CliCommand)
def pause(which: Which, project: Project = "default", home: Home = None, no_color: NoColor = False) -> Exit:
    """Pause a schedule. What would have run while it is paused does not run later."""
    place, screen = _opened(home, project, no_color=no_color)
    run_sync(_enable(place, which, enabled=False))
    screen.tell("Paused.", "green")
    return Exit.DONE


@schedule.command("resume", cls=CliCommand)
def resume(which: Which, project: Project = "default", home: Home = None, no_color: NoColor = False) -> Exit:
    """Let a paused schedule go on."""
    place, screen = _opened(home, project, no_color=no_color)
    run_sync(_enable(place, which, enabled=True))
    screen.tell("It goes on.", "green")
    return Exit.DONE


@schedule.command("remove", cls=CliCommand)
def remove(which: Which, project: Project = "default", home: Home = None, no_color: NoColor = False) -> Exit:
    """Remove a schedule for good."""
    place, screen = _opened(home, project, no_color=no_color)
    run_sync(_remove(place, which))
    screen.tell("Removed.", "green")
    return Exit.DONE


@schedule.command("next", cls=CliCommand)
def next_times(
    cron: Cron = None,
    every: Every = None,
    daily: Daily = None,
    interval: Interval = None,
    timezone: Timezone = "UTC",
    count: Annotated[
        int, typer.Option("--count", metavar="N", help="How many times to show.", min=1, max=_MOST_SHOWN)
    ] = 5,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Show when an interval would be due next, without adding anything."""
    screen = Screen.of("never" if no_color else "auto", no_color=no_color)
    now = time.time()
    read = check_schedule({"interval": _interval(cron, every, daily, interval), "timezone": timezone}, now)
    found: list[float] = []
    at = next_after(read, now)
    while at is not None and len(found) < count:
        found.append(at)
        at = next_after(read, at)
    times = [_local(one, timezone) for one in found]
    if as_json:
        screen.json(times)
    else:
        screen.say("\n".join(times))
    return Exit.DONE


def _opened(home: str | None, project: str, *, no_color: bool) -> tuple[ProjectFolder, Screen]:
    place = current_project({"store.home": home}, project=project)
    return place, Screen.of(place.settings.output.color, no_color=no_color)


def _interval(cron: str | None, every: str | None, daily: str | None, interval: str | None) -> dict[str, Any]:
    given = [one for one in (cron, every, daily, interval) if one is not None]
    if len(given) != 1:
        raise SettingsError("say when: one of --cron, --every, --daily and --interval")
    if cron is not None:
        return {"type": "cron", "expression": cron}
    if daily is not None:
        return {"type": "daily", "time": daily}
    if interval is not None:
        return _json("--interval", interval)
    number, unit = (every or "")[:-1], (every or "")[-1:]
    if unit not in _UNITS or not number.isdecimal() or not number.isascii():
        raise SettingsError(f"--every {every}: write a number and m, h, d or w, such as 15m")
    return {"type": "every", _UNITS[unit]: int(number)}


def _action(
    ask: str | None, agent: str | None, call: str | None, arguments: str | None, record: str | None
) -> dict[str, Any] | None:
    if sum(one is not None for one in (ask, call, record)) > 1:
        raise SettingsError("a schedule does one thing: --ask, --call or --record")
    if agent is not None and ask is None:
        raise SettingsError("--agent says who answers: give --ask, too")
    if arguments is not None and call is None:
        raise SettingsError("--arguments are those of a call: give --call, too")
    if ask is not None:
        return {"type": "ask", "question": ask, **({} if agent is None else {"agent": agent})}
    if call is not None:
        return {"type": "call", "tool": call, "arguments": _json("--arguments", arguments or "{}")}
    return None if record is None else {"type": "record", "record": _json("--record", record)}


def _json(flag: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as wrong:
        raise SettingsError(f"{flag}: this is not JSON: {wrong}") from None
    if not isinstance(value, dict):
        raise SettingsError(f"{flag}: this is not a JSON object")
    return value


@asynccontextmanager
async def _records(place: ProjectFolder, *, only_reads: bool = False) -> AsyncIterator[RecordService]:
    async with store_of(place, only_reads=only_reads) as store:
        records = record_service(place, store)
        try:
            yield records
        finally:
            records.close()


async def _listed(place: ProjectFolder) -> list[ListedSchedule]:
    if not place.store_exists:
        return []
    async with _records(place, only_reads=True) as records:
        return await list_schedules(records, time.time())


async def _create(place: ProjectFolder, title: str, context: Mapping[str, Any]) -> ListedSchedule:
    async with _records(place) as records:
        record = await _told(records, NewRecord(SCHEDULE, title, context=context))
        return next(one for one in await list_schedules(records, time.time()) if one.record.id == record.id)


async def _told(records: RecordService, new: NewRecord) -> Record:
    try:
        return await records.create(new, _user())
    except InvalidRecord as wrong:
        raise SettingsError(str(wrong)) from None


async def _enable(place: ProjectFolder, which: str, *, enabled: bool) -> None:
    async with _records(place) as records:
        record = await _find(records, which)
        await records.patch(record.id, {"context": {"enabled": enabled}}, record.version, _user())


async def _remove(place: ProjectFolder, which: str) -> None:
    async with _records(place) as records:
        record = await _find(records, which)
        await records.delete(record.id, _user(), expected=record.version)


async def _find(records: RecordService, which: str) -> Record:
    """A schedule by its id, part of it, or its title. Raises NotFound, and SettingsError where several fit."""
    known = [one.record for one in await list_schedules(records, time.time())]
    titled = [record for record in known if record.title == which]
    wanted = titled[0].id if len(titled) == 1 else only_match(which, (one.id for one in known), "schedules")
    for record in known:
        if record.id == wanted:
            return record
    raise NotFound(f"there is no schedule {which!r}; `toolwire schedule list` shows them")


def _user() -> Caller:
    """Who runs commands in a project may do everything in it."""
    return Caller(system_user(), Role.ADMIN)


def _row(one: ListedSchedule) -> tuple[str, ...]:
    runs = 0 if one.state is None else one.state.runs
    if one.definition is None:
        return one.record.id, one.record.title, "", "", str(runs), one.fault
    state = "active" if one.next_run is not None else "ended" if one.definition.enabled else "paused"
    if one.state is not None and one.state.last_error:
        state = f"{state}; last run: {one.state.last_error}"
    when = json.dumps(dict(one.definition.schedule.interval), ensure_ascii=False)
    return one.record.id, one.record.title, when, _shown(one, one.next_run), str(runs), state


def _shown(one: ListedSchedule, at: float | None) -> str:
    return "" if at is None or one.definition is None else _local(at, one.definition.schedule.timezone)


def _local(at: float, timezone: str) -> str:
    return datetime.datetime.fromtimestamp(at, read_zone(timezone)).isoformat(timespec="minutes")


def _require_lasting(place: ProjectFolder) -> None:
    if not place.settings.store.lasts:
        raise SettingsError("schedules in memory end with their process; set store.kind = sqlite, libsql or postgres")
