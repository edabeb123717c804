"""Delivers changes of records to the addresses of subscriptions: at least once, signed, by one process at a time.

    change feed → subscriptions that fit → attempt → (failed) kept as webhook.delivery.v1 → attempts → dead letter

One process holds the lock of the project's deliveries; when it dies, the next one takes over. A page of changes counts
as done once each of its deliveries has arrived or is kept to be tried again. What was sent and not yet noted when a
process died is sent again, under the same id.

A subscriber is told of no record that it may not read at the moment of the attempt.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Protocol
from uuid import UUID, uuid4, uuid5

from msgspec import Struct
from msgspec.structs import replace

from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.record_json import record_object
from toolwire.breadcrumbs.rules.access import may_see, shown_to
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.rules.deliveries import (
    COOL_DOWN_S,
    CURSOR,
    DEAD_LETTER,
    DELIVERY,
    WebhookDelivery,
    for_matching,
    hidden_record,
    is_about_deliveries,
    is_open,
    read_delivery,
)
from toolwire.breadcrumbs.rules.schemas import type_family
from toolwire.breadcrumbs.rules.selector_index import SelectorIndex
from toolwire.breadcrumbs.rules.selectors import fits
from toolwire.breadcrumbs.rules.subscriptions import SUBSCRIPTION, RecordSubscription, read_subscription
from toolwire.breadcrumbs.service import RecordService
from toolwire.errors import Conflict, InvalidRecord, NotFound, StoreError, ToolwireError
from toolwire.execute.webhook import PostOutcome
from toolwire.plan.resources import LockClaim
from toolwire.protocol.breadcrumbs import ChangeKind, Record, RecordChange, RecordQuery, Visibility
from toolwire.record.contract import LockStore, Numbered, RecordStore
from toolwire.task_groups import TaskGroup
from toolwire.wire.encode.outbound import to_json

POLL_S = 1.0
MOST_SUBSCRIPTIONS = 10_000
MOST_OF_AUTHOR, MOST_SEARCHING, MOST_PARTS = 1_000, 50, 10_000
"""Webhooks of one author, how many of them may have regular expressions, and parts of texts that all ask for."""
MOST_FAILING = 8
"""So many receivers of one author may fail at a time; its others are tried later, so that no other author waits."""
MOST_WAITING = 1_000
"""Deliveries of one subscription that wait; further ones become dead letters at once."""
DEAD_LETTER_TTL = {"type": "duration", "duration": "30d"}
_AT_ONCE = 8
_PAGE = 50
_LISTED = 200
_RETRIED = 50
_SAVED_EVERY = 500
_LONGEST_PAUSE_S = 60.0
_LONGEST_ERROR = 300
_LOCK = LockClaim("records:webhooks", writes=True)
_IDS = UUID("3a1f6f0e-50a5-4a86-9f0c-9c1d3fb1d6a7")
_log = logging.getLogger("toolwire.webhook")


class Post(Protocol):
    """Posts a signed message once to an address. See `execute.webhook.post_signed`."""

    def __call__(self, url: str, delivery: str, body: bytes, keys: Sequence[bytes]) -> Awaitable[PostOutcome]: ...


class WebhookStore(RecordStore, LockStore, Protocol):
    """What deliveries need of a store."""


class _Hook(Struct, frozen=True):
    """A subscription with an address, and the record that says it."""

    record: Record
    wanted: RecordSubscription


class _Waiting(Struct, frozen=True):
    """A delivery that is kept to be tried again, and the record that keeps it."""

    delivery: WebhookDelivery
    record_id: str
    version: int


class Webhooks:
    """The deliveries of one project. Any number of processes may have one; one of them delivers."""

    def __init__(
        self,
        records: RecordService,
        store: WebhookStore,
        post: Post,
        caller_of: Callable[[str], Caller | None],
        *,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        poll_s: float = POLL_S,
    ) -> None:
        """`caller_of` gives the caller of a name with the role that it has now; None for one that has none."""
        self._records = records
        self._store = store
        self._post = post
        self._caller_of = caller_of
        self._clock = clock
        self._chance = chance
        self._poll_s = poll_s
        self._project = records.project
        self._token = ""
        self._idle_at = 0
        self._forget()

    def _forget(self) -> None:
        """Know nothing of what was read from the store while another process may have delivered."""
        self._is_loaded = False
        self._hooks: dict[str, _Hook] = {}
        self._index = SelectorIndex()
        self._since: dict[str, int] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._failing: dict[str, float] = {}
        self._cursor = self._saved = 0
        self._cursor_version = 0

    async def run_forever(self) -> None:
        """Deliver until canceled. A store that is away is tried again after a pause, which grows."""
        pause_s = self._poll_s
        try:
            while True:
                try:
                    pause_s = 0.0 if await self.step() else self._poll_s
                except ToolwireError as error:
                    _log.warning("webhooks cannot be looked after: %s", error)
                    pause_s = min(max(pause_s, self._poll_s) * 2, _LONGEST_PAUSE_S)
                    self._forget()
                except Exception:  # one broken record must not end all of them
                    _log.exception("internal error (please report it): webhooks of %s", self._project)
                    pause_s = min(max(pause_s, self._poll_s) * 2, _LONGEST_PAUSE_S)
                    self._forget()
                await asyncio.sleep(pause_s)
        finally:
            await self.release()

    async def release(self) -> None:
        """Let another process deliver."""
        if self._token:
            token, self._token = self._token, ""
            with suppress(StoreError):  # without its store the lock ends with the process
                await self._store.release_locks(token, project=self._project)

    async def step(self) -> bool:
        """Do what is due, if this process is the one that delivers; whether there may be more at once."""
        if not self._token and not await self._has_subscriptions():
            return False
        if not await self._holds_lock():
            self._forget()
            return False
        if not self._is_loaded:
            await self._load()
        rows = await self._next_page()
        jobs = [job for row in rows for job in await self._jobs(row)]
        await self._deliver(jobs)
        if rows:
            self._cursor = rows[-1].cursor
        if jobs or self._cursor - self._saved >= _SAVED_EVERY:
            await self._save_cursor()
        retried = await self._retry()
        return bool(rows) or retried

    async def _has_subscriptions(self) -> bool:
        """Whether there is anything to do: most projects have no webhooks, and need neither a lock nor a cursor."""
        newest = await self._store.last_change(project=self._project)
        if newest == self._idle_at:
            return False
        for schema_name in (SUBSCRIPTION, DELIVERY):
            query = RecordQuery(schema_name=schema_name)
            if await self._store.records(query, limit=1, project=self._project):
                return True
        self._idle_at = newest
        return False

    async def _holds_lock(self) -> bool:
        if not self._token:
            self._token = str(uuid4())
            return await self._store.queue_locks([_LOCK], self._token, project=self._project)
        held = await self._store.holds_locks(self._token, project=self._project)
        if held is None:  # the lease of this process ran out
            self._token = ""
        return bool(held)

    async def _load(self) -> None:
        """Read where the last one left off. A first one begins with what is kept of the feed."""
        newest = await self._store.last_change(project=self._project)
        for record in await self._all(SUBSCRIPTION, MOST_SUBSCRIPTIONS):
            self._add(record)
        for record in await self._all(DELIVERY, MOST_WAITING * 10):
            self._take_up(record)
        with suppress(NotFound):
            kept = await self._store.record(self._cursor_id(), project=self._project)
            self._cursor, self._cursor_version = int(kept.context["change"]), kept.version
        if not self._hooks:
            self._cursor = newest
        self._saved = self._cursor
        await self._find_beginnings(newest)
        self._is_loaded = True

    async def _find_beginnings(self, newest: int) -> None:
        """Note which subscriptions are younger than changes that were not looked at yet: they do not hear of those.

        Clocks of several machines could not tell.
        """
        cursor = self._cursor
        while cursor < newest:
            rows = await self._store.record_changes(cursor, limit=_LISTED, project=self._project)
            for row in rows:
                self._note_beginning(row)
            cursor = rows[-1].cursor if rows else newest

    def _note_beginning(self, row: Numbered[RecordChange]) -> None:
        if row.value.kind is ChangeKind.CREATED and _is_subscription(row.value):
            self._since[row.value.record.id] = row.cursor

    async def _all(self, schema_name: str, most: int) -> list[Record]:
        found: list[Record] = []
        before: int | None = None
        while len(found) < most:
            query = RecordQuery(schema_name=schema_name)
            rows = await self._store.records(query, limit=_LISTED, before=before, project=self._project)
            found += [row.value for row in rows]
            if len(rows) < _LISTED:
                break
            before = rows[-1].cursor
        return found[:most]

    def _take_up(self, record: Record) -> None:
        """Have a delivery wait that is kept: from before, or asked for again by its owner."""
        try:
            delivery = read_delivery(record.context)
        except InvalidRecord:
            _log.warning("delivery %s cannot be read; it is left out", record.id)
            return
        self._waiting.setdefault(delivery.id, _Waiting(delivery, record.id, record.version))

    def _add(self, record: Record) -> None:
        self._remove(record.id)
        try:
            wanted = read_subscription(record.context)
        except InvalidRecord as wrong:
            _log.warning("subscription %s cannot be used: %s", record.id, wrong)
            return
        if not wanted.url or not wanted.is_active:
            return
        own = [one.wanted for one in self._hooks.values() if one.record.created_by == record.created_by]
        searching = sum(one.selector.searches for one in own) if wanted.selector.searches else 0
        parts = wanted.selector.parts and wanted.selector.parts + sum(one.selector.parts for one in own)
        if len(own) >= MOST_OF_AUTHOR or searching >= MOST_SEARCHING or parts > MOST_PARTS:
            _log.warning("subscription %s of %s is one too many; it is not used", record.id, record.created_by)
            return
        self._hooks[record.id] = _Hook(record, wanted)
        self._index.add(record.id, wanted.selector)

    def _remove(self, record_id: str) -> None:
        self._hooks.pop(record_id, None)
        self._index.remove(record_id)

    async def _next_page(self) -> list[Numbered[RecordChange]]:
        newest = await self._store.last_change(project=self._project)
        if newest <= self._cursor:
            return []
        return await self._store.record_changes(self._cursor, limit=_PAGE, project=self._project)

    async def _jobs(self, row: Numbered[RecordChange]) -> list[tuple[_Hook, WebhookDelivery, RecordChange]]:
        """The deliveries that a change makes."""
        change = row.value
        if _is_subscription(change):
            self._note_beginning(row)
            await self._reread(change.record.id)
        if is_about_deliveries(change):
            if change.record.schema_name == DELIVERY and change.kind is ChangeKind.CREATED:
                with suppress(NotFound):
                    self._take_up(await self._store.record(change.record.id, project=self._project))
            return []
        found = []
        for name in self._index.match(for_matching(change.record)):
            hook = self._hooks[name]
            if row.cursor > self._since.get(name, 0) and self._may_hear(hook, change):
                found.append((hook, WebhookDelivery(name, row.cursor), change))
        return found

    async def _reread(self, record_id: str) -> None:
        """Take a subscription as it is now: the feed may be behind."""
        try:
            self._add(await self._store.record(record_id, project=self._project))
        except NotFound:
            self._remove(record_id)
            self._since.pop(record_id, None)

    def _may_hear(self, hook: _Hook, change: RecordChange) -> bool:
        caller = self._caller_of(hook.record.created_by)
        if caller is None or change.kind not in hook.wanted.kinds or not may_see(change.record, caller):
            return False
        # Of other subscriptions a receiver sees a part: conditions on the rest would tell about that.
        return not _is_subscription(change) or fits(hook.wanted.selector, shown_to(change.record, caller))

    async def _deliver(self, jobs: Iterable[tuple[_Hook, WebhookDelivery, RecordChange]]) -> None:
        """Try each delivery once, those of one subscription in order; what fails is kept to be tried again."""
        by_hook: dict[str, list[tuple[_Hook, WebhookDelivery, RecordChange]]] = {}
        for job in jobs:
            by_hook.setdefault(job[1].subscription, []).append(job)

        async def all_of(own: list[tuple[_Hook, WebhookDelivery, RecordChange]]) -> None:
            for known, delivery, change in own:
                hook = await self._as_now(known)
                if hook is None:
                    continue
                until = self._paused_until(hook)
                if until > self._clock():
                    await self._keep(hook, replace(delivery, next_at=until))
                    continue
                told = await self._as_told(hook, delivery, change)
                if told is None:
                    continue
                outcome = await self._attempt(hook, delivery, change, told)
                if outcome.trouble:
                    await self._keep_failed(hook, delivery, change, outcome)

        await _side_by_side(partial(all_of, own) for own in by_hook.values())

    def _paused_until(self, hook: _Hook) -> float:
        """Until when a receiver is not tried: it has just failed, or many of its author have. 0 where it is tried."""
        if (until := self._failing.get(hook.record.id, 0.0)) > self._clock():
            return until
        author, now = hook.record.created_by, self._clock()
        others = [
            until
            for name, until in self._failing.items()
            if until > now and name in self._hooks and self._hooks[name].record.created_by == author
        ]
        return max(others) if len(others) >= MOST_FAILING else 0.0

    async def _as_now(self, known: _Hook) -> _Hook | None:
        """A subscription as it is at the moment of an attempt; None where it was deleted, paused or has no address."""
        name = known.record.id
        try:
            record = await self._store.record(name, project=self._project)
        except NotFound:
            self._remove(name)
            return None
        if record.version != known.record.version:
            self._add(record)
        return self._hooks.get(name)

    async def _as_told(self, hook: _Hook, delivery: WebhookDelivery, change: RecordChange) -> dict[str, Any] | None:
        """The record of a change as its receiver may be told of it now; None where it is not told at all.

        What is tried late is of a version that may have been for all, while the record is private or personal by now.
        """
        if not self._may_hear(hook, change):
            return None
        is_hidden = not is_open(change.record)
        try:
            current = await self._store.record(change.record.id, project=self._project)
        except NotFound:  # of what has gone meanwhile, its changes say less than they did when they were read
            left = await self._change(delivery)
            if left is None or not self._may_hear(hook, left):
                return None
            return self._said(hook, left.record, is_hidden=not is_open(left.record))
        if not self._may_hear(hook, replace(change, record=current)):
            return None
        return self._said(hook, change.record, is_hidden=is_hidden or not is_open(current))

    def _said(self, hook: _Hook, record: Record, *, is_hidden: bool) -> dict[str, Any] | None:
        caller = self._caller_of(hook.record.created_by)
        if caller is None:
            return None
        return hidden_record(record) if is_hidden else record_object(shown_to(record, caller))

    async def _change(self, delivery: WebhookDelivery) -> RecordChange | None:
        """The change of a delivery, as it is kept now; None where it is no longer kept."""
        rows = await self._store.record_changes(delivery.cursor - 1, limit=1, project=self._project)
        return rows[0].value if rows and rows[0].cursor == delivery.cursor else None

    async def _attempt(
        self, hook: _Hook, delivery: WebhookDelivery, change: RecordChange, told: dict[str, Any]
    ) -> PostOutcome:
        keys = await self._records.signing_keys(hook.record.id, RUNTIME)
        body = to_json(_payload(hook, delivery, change, told))
        outcome = await self._post(hook.wanted.url, delivery.id, body, [key.encode() for key in keys])
        if outcome.trouble:
            self._failing[delivery.subscription] = self._clock() + COOL_DOWN_S
        elif self._failing.pop(delivery.subscription, None) is not None:
            self._hurry(delivery.subscription)
        return outcome

    def _hurry(self, subscription: str) -> None:
        """What waits for a receiver that has come back is due."""
        for name, one in self._waiting.items():
            if one.delivery.subscription == subscription:
                self._waiting[name] = replace(one, delivery=replace(one.delivery, next_at=0.0))

    async def _keep_failed(
        self, hook: _Hook, delivery: WebhookDelivery, change: RecordChange, outcome: PostOutcome
    ) -> None:
        error = outcome.trouble[:_LONGEST_ERROR]
        later = None if outcome.is_refused else delivery.failed(self._clock(), error, self._chance())
        if later is None:
            await self._bury(hook, replace(delivery, attempts=delivery.attempts + 1, error=error), change.record.id)
        else:
            await self._keep(hook, later)

    async def _keep(self, hook: _Hook, delivery: WebhookDelivery) -> None:
        """Keep a delivery to be tried again, in the place of what is kept of it."""
        before = self._waiting.get(delivery.id)
        if before is None and self._count(delivery.subscription) >= MOST_WAITING:
            await self._bury(hook, replace(delivery, error="too many deliveries wait for this receiver"), "")
            return
        name = before.record_id if before else self._delivery_id(delivery)
        record = self._own_record(name, DELIVERY, delivery.as_json(), hook.record.created_by)
        try:
            if before is None:
                kept = await self._store.create_record(record)
            else:
                kept = await self._store.update_record(record, before.version)
        except Conflict:  # it was kept before this process took over
            kept = await self._store.record(name, project=self._project)
        self._waiting[delivery.id] = _Waiting(delivery, name, kept.version)

    def _count(self, subscription: str) -> int:
        return sum(one.delivery.subscription == subscription for one in self._waiting.values())

    async def _bury(self, hook: _Hook, delivery: WebhookDelivery, record_id: str) -> None:
        """Give a delivery up. Its owner finds it among the dead letters."""
        context = {**delivery.as_json(), "record": record_id, "gave_up_at": self._clock()}
        del context["next_at"]
        letter = NewRecord(
            DEAD_LETTER, hook.record.title, (f"subscription:{hook.record.id}",), context,
            visibility=Visibility.PRIVATE, ttl=DEAD_LETTER_TTL,
        )  # fmt: skip
        await self._records.create(letter, Caller(hook.record.created_by, Role.RUNTIME))
        _log.warning(
            "webhook of subscription %s gave up on change %s: %s",
            delivery.subscription, delivery.cursor, delivery.error,
        )  # fmt: skip
        await self._done(delivery)

    async def _done(self, delivery: WebhookDelivery) -> None:
        kept = self._waiting.pop(delivery.id, None)
        if kept is not None:
            with suppress(NotFound):
                await self._store.delete_record(kept.record_id, by=RUNTIME.author, project=self._project)

    async def _retry(self) -> bool:
        """Try again what is due; whether anything was."""
        now = self._clock()
        waiting = (one.delivery for one in self._waiting.values())
        due = sorted((one for one in waiting if one.next_at <= now), key=lambda one: one.next_at)
        by_hook: dict[str, list[WebhookDelivery]] = {}
        for delivery in islice(self._fairly(due), _RETRIED):
            by_hook.setdefault(delivery.subscription, []).append(delivery)
        await _side_by_side(partial(self._retry_all, own) for own in by_hook.values())
        return bool(due)

    def _fairly(self, due: Iterable[WebhookDelivery]) -> Iterator[WebhookDelivery]:
        """What is tried again now: of each author, what is due for a few receivers."""
        tried: dict[str, set[str]] = {}
        for delivery in due:
            hook = self._hooks.get(delivery.subscription)
            own = tried.setdefault(hook.record.created_by if hook else "", set())
            if hook is None or delivery.subscription in own or len(own) < MOST_FAILING:
                own.add(delivery.subscription)
                yield delivery

    async def _retry_all(self, own: Iterable[WebhookDelivery]) -> None:
        """Try again what is due of one subscription. After one that fails the others wait: each may take seconds."""
        for delivery in own:
            if not await self._retry_one(delivery):
                self._postpone(delivery.subscription)
                return

    async def _retry_one(self, delivery: WebhookDelivery) -> bool:
        """Try a delivery again, unless it is not wanted any more; False where it has failed."""
        known = self._hooks.get(delivery.subscription)
        hook = None if known is None else await self._as_now(known)
        if hook is None:
            await self._done(delivery)
            return True
        change = await self._change(delivery)
        if change is None:
            await self._bury(hook, replace(delivery, error="the change is no longer kept"), "")
        elif (told := await self._as_told(hook, delivery, change)) is None:
            await self._done(delivery)
        else:
            outcome = await self._attempt(hook, delivery, change, told)
            if outcome.trouble:
                await self._keep_failed(hook, delivery, change, outcome)
                return False
            await self._done(delivery)
        return True

    def _postpone(self, subscription: str) -> None:
        """What is due for a receiver that has failed again waits as long as new changes for it do."""
        now, until = self._clock(), self._failing.get(subscription, 0.0)
        for name, one in self._waiting.items():
            if one.delivery.subscription == subscription and one.delivery.next_at <= now:
                self._waiting[name] = replace(one, delivery=replace(one.delivery, next_at=until))

    async def _save_cursor(self) -> None:
        """Say how far this process has come. Raises Conflict where another one has taken over."""
        record = self._own_record(self._cursor_id(), CURSOR, {"change": self._cursor}, RUNTIME.author)
        if self._cursor_version:
            kept = await self._store.update_record(record, self._cursor_version)
        else:
            kept = await self._store.create_record(record)
        self._cursor_version, self._saved = kept.version, self._cursor

    def _own_record(self, record_id: str, schema_name: str, context: dict[str, Any], owner: str) -> Record:
        """A note of the deliveries themselves, which its owner may see. There may be many, so they are not audited."""
        now = self._clock()
        return Record(
            record_id, self._project, schema_name, context=context, visibility=Visibility.PRIVATE,
            created_by=owner, created_at=now, updated_by=RUNTIME.author, updated_at=now,
        )  # fmt: skip

    def _cursor_id(self) -> str:
        return str(uuid5(_IDS, f"{self._project}\0cursor"))

    def _delivery_id(self, delivery: WebhookDelivery) -> str:
        return str(uuid5(_IDS, f"{self._project}\0{delivery.id}"))


async def _side_by_side(works: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Do all of these, some at a time."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def one_of(work: Callable[[], Awaitable[None]]) -> None:
        async with places:
            await work()

    try:
        async with TaskGroup() as tasks:
            for work in works:
                tasks.create_task(one_of(work))
    except ExceptionGroup as several:  # the store went away for all of them alike
        raise several.exceptions[0] from None


def _is_subscription(change: RecordChange) -> bool:
    return type_family(change.record.schema_name) == type_family(SUBSCRIPTION)


def _payload(hook: _Hook, delivery: WebhookDelivery, change: RecordChange, told: dict[str, Any]) -> dict[str, Any]:
    return {
        "delivery": delivery.id,
        "subscription": hook.record.id,
        "event": change.kind.value,
        "change": delivery.cursor,
        "at": change.at,
        "record": told,
    }


async def redeliver(records: RecordService, letter_id: str, caller: Caller) -> None:
    """Have a dead letter delivered after all, by the process that delivers. It is no longer among them then.

    Raises `NotFound` for one that the caller does not own, or whose subscription is gone.
    """
    letter = await records.read(letter_id, caller)
    if letter.schema_name != DEAD_LETTER:
        raise NotFound(f"there is no dead letter {letter_id[:80]!r}")
    given_up = read_delivery({**letter.context, "next_at": 0.0})
    await records.read(given_up.subscription, caller)
    again = replace(given_up, attempts=0, error="")
    owner = Caller(caller.author, Role.RUNTIME)
    await records.create(NewRecord(DELIVERY, context=again.as_json(), visibility=Visibility.PRIVATE), owner)
    with suppress(NotFound):  # it was asked for twice
        await records.delete(letter.id, owner)
