"""Fires what schedules say, in any number of processes that share a store: each firing happens once.

    decide (one change of the schedule's state, by one process) → tick → effect → done

Whatever dies in between, the next process finds what was decided and does it again. The tick and the effect have ids
that follow from the schedule and the time, so doing them again changes nothing.
"""

import asyncio
import datetime
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from uuid import UUID, uuid4, uuid5

from msgspec import Struct
from msgspec.structs import replace

from toolwire.breadcrumbs.new_records import NewRecord, read_new_record
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.rules.responses import with_session
from toolwire.breadcrumbs.rules.schedule_definitions import (
    SCHEDULE,
    STATE,
    TICK,
    AskAgent,
    CallTool,
    CreateRecord,
    Firing,
    ScheduleDefinition,
    ScheduleState,
    decide,
    firing_key,
    first_state,
    next_run,
    read_definition,
    read_state,
    write_state,
)
from toolwire.breadcrumbs.service import RecordService
from toolwire.errors import Conflict, InvalidRecord, NotFound, NotPermitted, StoreUnavailable, ToolwireError
from toolwire.plan.references import BadReference, resolve
from toolwire.protocol.breadcrumbs import Record, RecordQuery

MOST_SCHEDULES = 10_000
"""Of a project; older ones are not fired, which the log says."""
POLL_S = 5.0
"""How often definitions are looked at: a new one is taken up after so long at the latest."""
TICK_TTL = {"type": "duration", "duration": "24h"}
SIGN = "schedule.sign.v1"
"""A process that fires schedules has one of these."""
SIGN_TTL = {"type": "duration", "duration": "3m"}
_SIGN_EVERY_S = 60.0
_LONGEST_PAUSE_S = 60.0
_PAGE = 200
_MOST_ERROR = 500

_FIRINGS = UUID("0d9c1c2e-3f0a-4b57-9a64-5be0c7d1a2f3")

_log = logging.getLogger(__name__)


class ScheduledWork(Struct, frozen=True):
    """What a firing is to begin as a turn with this id, for the schedule of this record."""

    turn_id: str
    action: AskAgent | CallTool
    record: Record
    grant: Mapping[str, Any] | None


class BeginWork(Protocol):
    """Keeps a turn that runs in whichever process takes it up; one with the same id that is kept already is left alone.

    Raises ToolwireError where it cannot be begun.
    """

    def __call__(self, work: ScheduledWork) -> Awaitable[None]: ...


class ListedSchedule(Struct, frozen=True):
    """A schedule as it stands. `fault` says why it cannot be used."""

    record: Record
    definition: ScheduleDefinition | None
    state: ScheduleState | None
    next_run: float | None
    fault: str = ""


class Scheduler:
    """The schedules of one project."""

    def __init__(
        self,
        records: RecordService,
        begin: BeginWork,
        *,
        clock: Callable[[], float] = time.time,
        poll_s: float = POLL_S,
    ) -> None:
        self._records = records
        self._begin = begin
        self._clock = clock
        self._poll_s = poll_s
        self._faults: dict[str, int] = {}
        self._sign: Record | None = None
        self._signed_at = -math.inf
        self._process = str(uuid4())
        self._is_full = False
        self.loaded = 0
        self.published = 0

    async def run_forever(self) -> None:
        """Fire what is due until canceled. A store that is away is tried again after a pause, which grows."""
        pause_s = self._poll_s
        while True:
            try:
                soonest = await self.fire_due()
                now = self._clock()
                if self.loaded and now - self._signed_at >= _SIGN_EVERY_S:
                    await self.give_sign()
                pause_s = self._poll_s if soonest is None else min(max(soonest - now, 0.05), self._poll_s)
            except ToolwireError as error:
                _log.warning("schedules cannot be looked up: %s", error)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            except Exception:  # one broken schedule must not end all of them
                _log.exception("internal error (please report it): schedules of %s", self._records.project)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def give_sign(self) -> None:
        """Say that this process fires schedules. The sign is gone soon after the process is."""
        now = self._clock()
        try:
            if self._sign is None:
                new = NewRecord(SIGN, "", (), {"started_at": now, "process": self._process}, ttl=SIGN_TTL)
                self._sign = await self._records.create(new, RUNTIME)
            else:
                patch = {"context": {"published": self.published}, "ttl": SIGN_TTL}
                self._sign = await self._records.patch(self._sign.id, patch, self._sign.version, RUNTIME)
        except (Conflict, NotFound):  # it has expired, as after a long pause of this machine
            self._sign = None
        self._signed_at = now

    async def fire_due(self) -> float | None:
        """Fire what is due now, each firing once; when the next one is due. Raises StoreError."""
        records = await list_all(self._records, SCHEDULE)
        if (is_full := len(records) >= MOST_SCHEDULES) and not self._is_full:
            _log.warning("%s has too many schedules: the newest %d are fired", self._records.project, MOST_SCHEDULES)
        self._is_full = is_full
        states = await _states(self._records)
        soonest: list[float] = []
        self.loaded = 0
        for record in reversed(records):  # the oldest first
            definition = self._read(record)
            if definition is None:
                continue
            self.loaded += definition.enabled
            try:
                state = await self._advance(record, definition, states.pop(record.id, None))
            except (Conflict, NotFound):  # another process was faster, or the schedule is gone
                soonest.append(self._clock())
                continue
            except (InvalidRecord, NotPermitted) as wrong:  # of this schedule alone: the others go on
                _log.warning("schedule %s (%s) cannot be fired: %s", record.id, record.title, wrong)
                continue
            due = next_run(definition, state, self._clock())
            soonest += [] if due is None else [due]
        for orphan, _ in states.values():
            await _forget(self._records, orphan)
        return min(soonest, default=None)

    def _read(self, record: Record) -> ScheduleDefinition | None:
        try:
            return read_definition(record.context, record.created_at)
        except InvalidRecord as wrong:
            if self._faults.get(record.id) != record.version:
                self._faults[record.id] = record.version
                _log.warning("schedule %s cannot be used: %s", record.id, wrong)
            return None

    async def _advance(
        self, record: Record, definition: ScheduleDefinition, kept: tuple[Record, ScheduleState] | None
    ) -> ScheduleState:
        """Decide what fires now, and do it. Raises Conflict where another process has done so."""
        if kept is None:
            kept = await self._begin_state(record, definition)
        at, before = kept
        state = decide(definition, before, record.updated_at, self._clock())
        if state != before:
            at = await self._keep(at, state)
        if not state.pending:
            return state
        failures = [await self._fire(record, definition, firing) for firing in state.pending]
        told = next((why for why in reversed(failures) if why), "")
        done = replace(state, pending=(), last_error=told)
        await self._keep(at, done)
        return done

    async def _begin_state(self, record: Record, definition: ScheduleDefinition) -> tuple[Record, ScheduleState]:
        state = first_state(definition, record.created_at)
        new = NewRecord(STATE, "", (_tag(record.id),), write_state(state))
        return await self._records.create(new, RUNTIME, key=f"schedule-state:{record.id}"), state

    async def _keep(self, at: Record, state: ScheduleState) -> Record:
        return await self._records.patch(at.id, {"context": write_state(state)}, at.version, RUNTIME)

    async def _fire(self, record: Record, definition: ScheduleDefinition, firing: Firing) -> str:
        """Do one firing, or find it done; what went wrong with its effect. Raises StoreUnavailable."""
        turn_id = firing_id(self._records.project, record.id, firing.due)
        tick = _tick(record, definition, firing, turn_id)
        owner = await self._owner(record, definition)
        ticking = replace(RUNTIME, turn_id=owner.turn_id, origins=owner.origins)
        try:
            if await self._records.create_first(tick, ticking, key=firing_key(record.id, firing.due)) is not None:
                self.published += 1
        except Conflict:  # it has been there, perhaps with another title; its effect may still be missing
            pass
        try:
            await self._act(record, definition, tick.context or {}, turn_id, firing, owner)
        except (StoreUnavailable, asyncio.CancelledError):
            raise
        except ToolwireError as error:
            _log.warning("schedule %s (%s) could not do its work: %s", record.id, record.title, error)
            return str(error)[:_MOST_ERROR]
        return ""

    async def _owner(self, record: Record, definition: ScheduleDefinition) -> Caller:
        """Who writes what a schedule creates: with no more rights than the one who made the schedule had.

        For an agent those are the rights of the turn that made it, even if others have changed the schedule since.
        """
        if definition.grant is None:
            return Caller(record.created_by, Role.ADMIN, origins=record.origins)
        first = record
        if record.version > 1:
            first = (await self._records.history(record.id, RUNTIME, limit=1, before=2) or [record])[0]
        name = record.created_by.removeprefix("agent:")
        return Caller(name, Role.MODEL, first.turn_id, first.call_id, record.origins)

    async def _act(
        self, record: Record, definition: ScheduleDefinition, tick: Mapping[str, Any], turn_id: str, firing: Firing,
        owner: Caller,
    ) -> None:  # fmt: skip
        match definition.action:
            case CreateRecord(template):
                new = read_new_record(_filled(template, tick))
                if definition.grant is not None:  # of a model, which writes into no session but its own
                    new = replace(new, tags=with_session(new.tags, ""))
                await self._records.create(new, owner, key=firing_key(record.id, firing.due))
            case AskAgent() | CallTool() as action:
                await self._begin(ScheduledWork(turn_id, action, record, definition.grant))


async def running_since(records: RecordService) -> float | None:
    """Since when a process has fired schedules without a pause; None where none does."""
    signs = await records.listed(RecordQuery(schema_name=SIGN), RUNTIME, limit=_PAGE)
    return min((row.value.created_at for row in signs), default=None)


async def list_schedules(records: RecordService, now: float) -> list[ListedSchedule]:
    """All schedules of a project with their states, the oldest first."""
    states = await _states(records)
    return [_listed(record, states.get(record.id), now) for record in reversed(await list_all(records, SCHEDULE))]


def schedule_object(one: ListedSchedule) -> dict[str, Any]:
    """A schedule for programs."""
    state, definition = one.state, one.definition
    return {
        "id": one.record.id,
        "title": one.record.title,
        "interval": one.record.context.get("interval"),
        "timezone": "UTC" if definition is None else definition.schedule.timezone,
        "action": one.record.context.get("action"),
        "enabled": definition is not None and definition.enabled,
        "next_run": None if one.next_run is None else _date(one.next_run),
        "runs": 0 if state is None else state.runs,
        "missed": 0 if state is None else state.missed,
        "error": one.fault or ("" if state is None else state.last_error),
        "owner": one.record.created_by,
    }


def _listed(record: Record, kept: tuple[Record, ScheduleState] | None, now: float) -> ListedSchedule:
    state = None if kept is None else kept[1]
    try:
        definition = read_definition(record.context, record.created_at)
        return ListedSchedule(record, definition, state, next_run(definition, state, now))
    except InvalidRecord as wrong:
        return ListedSchedule(record, None, state, None, str(wrong))


async def list_all(
    records: RecordService, schema_name: str, most: int = MOST_SCHEDULES, *, tags: tuple[str, ...] = ()
) -> list[Record]:
    """All records of a schema (with these tags) that the runtime sees, the newest first, up to a bound."""
    query = RecordQuery(schema_name=schema_name, all_tags=tags)
    found: list[Record] = []
    before: int | None = None
    while len(found) < most:
        rows = await records.listed(query, RUNTIME, limit=_PAGE, before=before)
        found += [row.value for row in rows]
        if len(rows) < _PAGE:
            break
        before = rows[-1].cursor
    return found[:most]


async def _states(records: RecordService) -> dict[str, tuple[Record, ScheduleState]]:
    """The states by the schedules that they are of."""
    return {
        tag.removeprefix("schedule:"): (record, read_state(record.context))
        for record in await list_all(records, STATE, MOST_SCHEDULES * 2)
        for tag in record.tags[:1]
    }


async def _forget(records: RecordService, state: Record) -> None:
    """Delete a state whose schedule was deleted. One that has just been made may not be in the list yet."""
    try:
        await records.read(state.tags[0].removeprefix("schedule:"), RUNTIME)
    except NotFound:
        try:
            await records.delete(state.id, RUNTIME)
        except (NotFound, Conflict):
            return


def _tick(record: Record, definition: ScheduleDefinition, firing: Firing, turn_id: str) -> NewRecord:
    interval = dict(definition.schedule.interval)
    kind = interval.pop("type")
    context = {
        "schedule_id": record.id,
        "schedule_title": record.title,
        "fired_at": _date(firing.fired_at),
        "due_at": _date(firing.due),
        "interval_type": kind,
        "interval_details": interval,
        "timezone": definition.schedule.timezone,
    }
    if isinstance(definition.action, (AskAgent, CallTool)):
        context["turn_id"] = turn_id
    tags = ("schedule:tick", _tag(record.id), *definition.labels)
    return NewRecord(TICK, record.title, tags, context, ttl=TICK_TTL)


def firing_id(project: str, schedule_id: str, due: float) -> str:
    """The id of the turn that a firing begins."""
    return str(uuid5(_FIRINGS, f"{project}\0{firing_key(schedule_id, due)}"))


def _filled(template: Mapping[str, Any], tick: Mapping[str, Any]) -> Any:
    try:
        return resolve(template, {"tick": tick})
    except BadReference as wrong:
        raise InvalidRecord(f"the record of the schedule cannot be filled in: {wrong}") from None


def _tag(schedule_id: str) -> str:
    return f"schedule:{schedule_id}"


def _date(at: float) -> str:
    whole = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return whole.isoformat(timespec="milliseconds").replace("+00:00", "Z")
