"""The one way to records: for the HTTP API, the breadcrumb tools, schedules, agents and the CLI.

    asked → checked (form, role, reserved type, definition) → sealed, where it is secret → kept, with its audit row

The store keeps whatever it is given. Everything that must hold for records is held here, on the way in and on the way
out: what a caller may not see is not found, and the context of a secret leaves by `open_config` alone. Results and
replies are read here as records too, and cannot be written.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol
from uuid import UUID, uuid5

from msgspec import Struct, field
from msgspec.structs import replace
from uuid_utils import uuid7

from toolwire.breadcrumbs.definition_checks import check_agent_name, check_definition
from toolwire.breadcrumbs.found import FoundRecord, RecordSearch
from toolwire.breadcrumbs.hint_process import HintProcess
from toolwire.breadcrumbs.new_records import (
    PATCHABLE,
    NewRecord,
    check_new_record,
    fields_of,
    read_new_record,
    require_known,
)
from toolwire.breadcrumbs.record_types import RecordType, RecordTypes, read_definition
from toolwire.breadcrumbs.responses import Responses, TurnsAndCalls, asks_by_request, asks_for_responses, is_response
from toolwire.breadcrumbs.rules.access import may_see, require_may_change, require_writer, shown_to, visible_to
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.rules.configs import is_bound, settings_of
from toolwire.breadcrumbs.rules.decisions import (
    decided_tags,
    reopened_tags,
    require_may_decide,
    require_same_decision,
)
from toolwire.breadcrumbs.rules.lifetimes import read_lifetime
from toolwire.breadcrumbs.rules.merge_patch import merge_patch
from toolwire.breadcrumbs.rules.schemas import (
    INTERNAL_TYPES,
    SCHEMA_DEF,
    TOOL_CONFIG,
    check_schema_name,
    defined_by,
    defining_tag,
    is_config,
    is_reserved,
    require_may_write,
    type_family,
)
from toolwire.breadcrumbs.rules.seen_versions import seen_version
from toolwire.breadcrumbs.rules.subscriptions import SUBSCRIPTION
from toolwire.breadcrumbs.sealing import TOO_LARGE
from toolwire.errors import Conflict, InvalidRecord, NotFound, NotPermitted, SettingsError, VersionConflict
from toolwire.protocol.breadcrumbs import Record, RecordChange, RecordQuery, Sensitivity
from toolwire.protocol.context import Context
from toolwire.protocol.records import AuditRow
from toolwire.record.contract import AuditStore, Numbered, RecordIndexStore, RecordStore

_log = logging.getLogger(__name__)
MOST_LISTED, MOST_FOUND = 1_000, 50
LONGEST_ID, LONGEST_KEY, LONGEST_TEXT = 200, 200, 2_000
MOST_ORIGINS = 5
MOST_CALLS = 1_000
"""How many calls of a turn are looked through for the version of a record that it has seen."""

_KEYED = UUID("6c0f6d0e-3c7e-4f0b-9a5e-2f7d1b8f4c11")


class RecordKeeper(RecordStore, RecordIndexStore, AuditStore, TurnsAndCalls, Protocol):
    """What the service needs of a store."""


class SecretSealer(Protocol):
    """Encrypts the context of secrets. `record_id` is bound to what is sealed: it opens for that record alone."""

    def seal(self, context: Mapping[str, Any], record_id: str) -> dict[str, Any]: ...

    def unseal(self, sealed: Mapping[str, Any], record_id: str) -> dict[str, Any]: ...

    def signing_keys(self, record_id: str) -> list[str]: ...


class RecordRules(Struct, frozen=True):
    """What a project sets about its records. With `strict`, a type has to be defined before records of it are kept."""

    strict: bool = False
    sealer: SecretSealer | None = None
    search: RecordSearch | None = None
    new_id: Callable[[], str] = field(default=lambda: str(uuid7()))


class RecordService:
    """Records of one project, for callers with their roles."""

    def __init__(
        self,
        store: RecordKeeper,
        project: str,
        *,
        clock: Callable[[], float] = time.time,
        rules: RecordRules | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules or RecordRules()
        self._types = RecordTypes(store, project)
        self._views = HintProcess()
        self._responses = Responses(store, project)
        self.project = project

    def close(self) -> None:
        """End what renders views and what a search does in the background. The service can be used again."""
        self._views.close()
        if self._rules.search is not None:
            self._rules.search.stop()

    async def create(self, new: NewRecord, caller: Caller, *, key: str = "") -> Record:
        """Keep a new record. With a `key`, the caller's first record under that key comes back, as it was created.

        Raises `InvalidRecord`, `NotPermitted`, and `Conflict` where the key was used for another record.
        """
        _, kept = await self._create(new, caller, key)
        return shown_to(kept, caller)

    async def create_first(self, new: NewRecord, caller: Caller, *, key: str) -> Record | None:
        """Keep a new record under a key; None where one was kept before. Claims work that must be done once."""
        asked, kept = await self._create(new, caller, key)
        # Ids that follow from the key or the type are the same each time.
        is_first = (kept.id, kept.created_at) == (asked.id, asked.created_at)
        return shown_to(kept, caller) if is_first else None

    async def _create(self, new: NewRecord, caller: Caller, key: str) -> tuple[Record, Record]:
        """What was to be kept, and what is kept."""
        new = check_new_record(new)
        _check_key(key)
        async with self._audit_refusal(caller, new.schema_name):
            require_writer(caller)
            require_may_write(new.schema_name, caller)
            require_same_decision((), new.tags, caller)
        asked = self._new(new, caller, key)
        try:
            record = await self._as_kept(asked, is_new=True)
        except (InvalidRecord, Conflict):
            if not key or (first := await self._replayed(asked, key)) is None:
                raise
            return asked, first
        audit = [self._audit_row("record_created", record, caller)]
        return record, await self._store.create_record(record, key=key, audit=audit)

    async def _replayed(self, asked: Record, key: str) -> Record | None:
        """What was created under a key before its type, or the time, came to refuse it; None for a new key."""
        if asked.schema_name == SCHEMA_DEF:
            asked = _tagged(asked, defined_by(asked.context))
        return await self._store.replayed_record(self._sealed(asked), key)

    def _new(self, new: NewRecord, caller: Caller, key: str) -> Record:
        now = self._clock()
        lifetime = read_lifetime(new.ttl, now)
        sensitivity = Sensitivity.SECRET if is_config(new.schema_name) else new.sensitivity
        return Record(
            self._id_for(caller, key if sensitivity is Sensitivity.SECRET else ""), self.project, new.schema_name,
            new.title, new.tags, new.context or {}, 1, new.llm_hints, new.visibility, sensitivity,
            lifetime.ttl, lifetime.expires_at, lifetime.uses_left, caller.author, now, caller.author, now,
            caller.turn_id, caller.call_id, caller.origins[:MOST_ORIGINS],
        )  # fmt: skip

    def _id_for(self, caller: Caller, key: str) -> str:
        """A new id. That of a secret under a key follows from the key: what is sealed for it is the same each time."""
        return str(uuid5(_KEYED, f"{self.project}\0{caller.author}\0{key}")) if key else self._rules.new_id()

    async def patch(self, record_id: str, patch: Mapping[str, Any], expected: int, caller: Caller) -> Record:
        """Apply a JSON merge patch (RFC 7386) to version `expected`, and give back the next version.

        Raises `NotFound`, `InvalidRecord`, `NotPermitted`, and `VersionConflict` where another version is current.
        """
        if not isinstance(patch, Mapping):
            raise InvalidRecord('a patch is an object such as {"context": {"status": "done"}}')
        require_known(patch, PATCHABLE)
        before = await self._visible(record_id, caller)
        async with self._audit_refusal(caller, before.schema_name, record_id):
            require_writer(caller)
            require_may_write(before.schema_name, caller)
        _require_version(before, expected)  # a patch of what was read is no patch of another version
        after = self._patched(before, patch, caller)
        async with self._audit_refusal(caller, before.schema_name, record_id):
            require_may_change(before, after, caller)
            require_same_decision(before.tags, after.tags, caller)
        after = await self._as_kept(replace(after, tags=reopened_tags(before, after, caller)))
        audit = [self._audit_row("record_updated", replace(after, version=expected + 1), caller)]
        with _told_as_version_conflict():
            return _unused(await self._store.update_record(after, expected, audit=audit), caller)

    async def decide(
        self, record_id: str, caller: Caller, *, approve: bool, reason: str = "", expected: int | None = None
    ) -> Record:
        """Approve or reject a record that is a draft or pending: its tags say so from then on, the audit log says why.

        With `expected`, the version that the caller has seen. The same call again gives what it has decided. Raises as
        `patch` does.
        """
        before = await self._visible(record_id, caller)
        if caller.call_id and (before.turn_id, before.call_id) == (caller.turn_id, caller.call_id):
            return _unused(before, caller)
        authors = await self._authors(before) if caller.role is Role.MODEL else ()
        async with self._audit_refusal(caller, before.schema_name, record_id):
            require_writer(caller)
            require_may_write(before.schema_name, caller)
            require_may_decide(before, caller, authors)
        if expected is not None:
            _require_version(before, expected)
        after = replace(self._written(before, caller), tags=decided_tags(before.tags, approve=approve))
        row = self._audit_row("record_approved" if approve else "record_rejected", after, caller)
        row = replace(row, detail={**row.detail, "reason": reason})
        with _told_as_version_conflict():
            return _unused(await self._store.update_record(after, before.version, audit=[row]), caller)

    async def _authors(self, record: Record) -> set[str]:
        """Those who wrote any version of a record."""
        if record.version == 1:
            return {record.created_by, record.updated_by}
        versions = await self._store.record_history(record.id, limit=MOST_LISTED, project=self.project)
        return {record.created_by, *(version.updated_by for version in versions)}

    async def version_seen(self, record_id: str, caller: Caller) -> int | None:
        """The version of a record that earlier steps of the caller's turn have shown; None where they showed none."""
        cards = await self._store.calls(turn_id=caller.turn_id, limit=MOST_CALLS, project=self.project)
        return seen_version(cards, record_id, caller.call_id)

    async def delete(self, record_id: str, caller: Caller, *, expected: int | None = None) -> Record:
        """Delete a record with its history; gives back its last version.

        Raises `NotFound`, `NotPermitted`, and `VersionConflict` where another version is current.
        """
        before = await self._visible(record_id, caller)
        async with self._audit_refusal(caller, before.schema_name, record_id):
            require_writer(caller)
            require_may_write(before.schema_name, caller)
        if expected is not None:
            _require_version(before, expected)
        audit = [self._audit_row("record_deleted", before, caller)]
        with _told_as_version_conflict():
            gone = await self._store.delete_record(
                before.id, by=caller.author, expected=expected, audit=audit, project=self.project
            )
        return _unused(gone, caller)

    async def read(self, record_id: str, caller: Caller, *, counts: bool = True) -> Record:
        """The current version; of a record that ends with its use, a use if it `counts`. Raises `NotFound`."""
        record = await self._visible(record_id, caller)
        if record.uses_left is not None and counts and caller.role is not Role.RUNTIME:
            record = await self._store.use_record(record.id, project=self.project)
        return shown_to(record, caller)

    async def listed(
        self,
        query: RecordQuery,
        caller: Caller,
        *,
        limit: int = 50,
        before: int | None = None,
        internal: bool = False,
    ) -> list[Numbered[Record]]:
        """Records that fit and that the caller may see, the newest first. Raises `InvalidRecord`.

        Where the schema or a tag asks for responses, they are read from the turns and calls that are kept. What
        toolwire keeps for its own work is listed for itself, where its type is named, or with `internal`.
        """
        query, limit = _checked_query(visible_to(query, caller)), max(1, min(limit, MOST_LISTED))
        if not (internal or query.schema_name or caller.role is Role.RUNTIME):
            query = replace(query, without_schemas=(*query.without_schemas, *INTERNAL_TYPES))
        if not asks_for_responses(query):
            rows = await self._store.records(query, limit=limit, before=before, project=self.project)
        elif asks_by_request(query):
            rows = await self._answers(query, caller, limit=limit, before=before)
        else:
            rows = await self._listed_responses(query, caller, limit=limit, before=before)
        return [Numbered(row.cursor, _unused(row.value, caller)) for row in rows if may_see(row.value, caller)]

    async def _answers(
        self, query: RecordQuery, caller: Caller, *, limit: int, before: int | None
    ) -> list[Numbered[Record]]:
        """Results of calls, then other records. Cursors of the first are even, those of the others are odd."""
        rows, place = list[Numbered[Record]](), None if before is None else before // 2
        if before is None or before % 2 == 0:
            found = await self._listed_responses(query, caller, limit=limit, before=place)
            rows, place = [Numbered(row.cursor * 2, row.value) for row in found], None
        if len(rows) < limit:
            others = await self._store.records(query, limit=limit - len(rows), before=place, project=self.project)
            rows += [Numbered(row.cursor * 2 + 1, row.value) for row in others]
        return rows

    async def _listed_responses(
        self, query: RecordQuery, caller: Caller, *, limit: int, before: int | None
    ) -> list[Numbered[Record]]:
        if caller.role is Role.READER:
            return []  # none of them is public: no turn need be read to know that
        return await self._responses.listed(query, limit=limit, before=before, within=_session_of(caller))

    async def history(
        self, record_id: str, caller: Caller, *, limit: int = 50, before: int | None = None
    ) -> list[Record]:
        """The versions of a record, the newest first. Raises `NotFound`.

        A version that was private, or had personal data, is not shown to those who could not see it then.
        """
        record = await self._visible(record_id, caller)
        if is_response(record_id):
            return [record]
        limit, found = max(1, min(limit, MOST_LISTED)), list[Record]()
        while len(found) < limit:  # what is not shown makes no page shorter, which would look like the last one
            wanted = limit - len(found)
            versions = await self._store.record_history(record.id, limit=wanted, before=before, project=self.project)
            found += [_unused(version, caller) for version in versions if may_see(version, caller)]
            if len(versions) < wanted:
                break
            before = versions[-1].version
        return found

    async def changes(
        self, cursor: int, caller: Caller, *, limit: int = 100
    ) -> tuple[list[Numbered[RecordChange]], int]:
        """The next changes after a cursor that the caller may see, and the cursor behind all that was looked at.

        Personal data is in none of them, and neither is what a record said before it was hidden from the caller.
        """
        rows = await self._store.record_changes(cursor, limit=limit, project=self.project)
        seen = [
            Numbered(
                row.cursor, replace(row.value, record=shown_to(await self._as_now(row.value.record, caller), caller))
            )
            for row in rows
            if may_see(row.value.record, caller)
        ]
        return seen, rows[-1].cursor if rows else cursor

    async def _as_now(self, version: Record, caller: Caller) -> Record:
        """A version in a change, with no more than what may be read of the record by now."""
        if caller.role is Role.RUNTIME:
            return version
        try:
            current = await self._store.record(version.id, project=self.project)
        except NotFound:  # of what is gone, changes say what they may
            current = version
        if not may_see(current, caller):
            return replace(version, title="", tags=(), context={}, llm_hints=None)
        if Sensitivity.PII in (version.sensitivity, current.sensitivity):
            return replace(version, context={}, llm_hints=None)
        return version

    async def last_change(self) -> int:
        """The cursor behind the newest change, no matter who may see it."""
        return await self._store.last_change(project=self.project)

    async def search(
        self, text: str, caller: Caller, *, nn: int = 5, query: RecordQuery | None = None
    ) -> list[FoundRecord]:
        """The records that are nearest to what a text says, the best first. Raises `InvalidRecord`."""
        text = text.replace("\0", " ")  # no store takes it
        if not text.strip() or len(text) > LONGEST_TEXT:
            raise InvalidRecord(f"say in 1 to {LONGEST_TEXT} characters what the records are about")
        nn = max(1, min(nn, MOST_FOUND))
        allowed = _checked_query(visible_to(query or RecordQuery(), caller))
        if asks_for_responses(allowed):
            listed = await self.listed(replace(allowed, text=text), caller, limit=nn)
            return [FoundRecord(row.value, 1.0, "text") for row in listed]
        if self._rules.search is not None:
            found = await self._rules.search.find(text, allowed, nn=nn, project=self.project)
        else:
            rows = await self._store.records(replace(allowed, text=text), limit=nn, project=self.project)
            found = [FoundRecord(row.value, 1.0, "text") for row in rows]
        return [replace(each, record=_unused(each.record, caller)) for each in found if may_see(each.record, caller)]

    async def llm_view(self, record: Record, caller: Caller) -> Mapping[str, Any]:
        """A record as models are shown it: by its own hints, else by those of its type. Raises `NotPermitted`.

        Hints that cannot be applied leave the context as it is; a `note` then says why.
        """
        if not may_see(record, caller):
            raise _not_found(record.id)
        if record.sensitivity is not Sensitivity.NORMAL:
            raise NotPermitted(f"this record is {record.sensitivity}, which models are not shown; ask for view=raw")
        defined = None if record.llm_hints is not None else await self._types.named(record.schema_name)
        context = shown_to(record, caller).context
        view = await self._views.view(context, defined.llm_hints if defined else record.llm_hints)
        return {
            "id": record.id,
            "schema_name": record.schema_name,
            "title": record.title,
            "tags": list(record.tags),
            "version": record.version,
            "updated_at": record.updated_at,
            "context": view.context,
            **({"note": view.note} if view.note else {}),
        }

    async def type_of(self, schema_name: str) -> RecordType | None:
        """What a definition says about a type; None for one that is not defined."""
        return await self._types.named(check_schema_name(schema_name))

    async def open_config(self, config_id: str, tool: str, context: Context) -> Mapping[str, Any]:
        """What a configuration gives to a call of a tool, which must be bound to the tool and to the agent that calls.

        Raises `NotFound`, with one sentence for what does not exist, what is not bound, and what cannot be opened.
        """
        caller = replace(RUNTIME, turn_id=context.turn_id, call_id=context.call_id)
        try:
            record = await self._visible(config_id, RUNTIME)
            opened = self._sealer().unseal(record.context, record.id) if is_config(record.schema_name) else {}
        except (NotFound, InvalidRecord, SettingsError) as reason:
            _log.warning("configuration %s was not opened for %s: %s", config_id, tool, reason)
            record, opened = Record(config_id, self.project, TOOL_CONFIG), {}
        event = "record_secret_used" if is_bound(opened, tool, context.agent) else "record_refused"
        row = replace(self._audit_row(event, record, caller), tool=tool, agent=context.agent)
        await self._store.audit([row if event == "record_secret_used" else replace(row, status="denied")])
        if event == "record_refused":
            raise NotFound(f"the configuration {config_id[:LONGEST_ID]!r} does not exist, or this call may not use it")
        return settings_of(opened)

    async def signing_keys(self, subscription_id: str, caller: Caller) -> list[str]:
        """What deliveries of a subscription are signed with, the newest key first: for its author and the runtime.

        Raises `NotFound`, and `NotPermitted` for any other caller.
        """
        record = await self._visible(subscription_id, caller)
        if type_family(record.schema_name) != type_family(SUBSCRIPTION):
            raise NotFound(f"there is no subscription {subscription_id[:LONGEST_ID]!r}")
        async with self._audit_refusal(caller, record.schema_name, record.id):
            if caller.author != record.created_by and caller.role is not Role.RUNTIME:
                raise NotPermitted("the keys of a subscription are shown to its author")
        return self._sealer().signing_keys(record.id)

    def _patched(self, before: Record, patch: Mapping[str, Any], caller: Caller) -> Record:
        """The next version of a record, in the clear."""
        if before.sensitivity is Sensitivity.SECRET:
            # What is wrong with the patch itself is told; what it meets in the secret is not.
            _patched_fields(replace(before, context={}), patch)
            before = replace(before, context=self._sealer().unseal(before.context, before.id))
            try:
                asked = _patched_fields(before, patch)
            except InvalidRecord:
                raise InvalidRecord(TOO_LARGE) from None
        else:
            asked = _patched_fields(before, patch)
        changes: dict[str, Any] = {}
        if "ttl" in patch:
            lifetime = read_lifetime(asked.ttl, self._clock())
            changes = {"ttl": lifetime.ttl, "expires_at": lifetime.expires_at, "uses_left": lifetime.uses_left}
        return replace(
            self._written(before, caller), title=asked.title, tags=asked.tags, context=asked.context or {},
            llm_hints=asked.llm_hints, visibility=asked.visibility, sensitivity=asked.sensitivity, **changes,
        )  # fmt: skip

    def _written(self, before: Record, caller: Caller) -> Record:
        """The record with the marks of the caller who writes its next version."""
        origins = tuple(dict.fromkeys((*before.origins, *caller.origins)))[:MOST_ORIGINS]
        return replace(
            before, updated_by=caller.author, updated_at=self._clock(), turn_id=caller.turn_id, call_id=caller.call_id,
            origins=origins,
        )  # fmt: skip

    async def _as_kept(self, record: Record, *, is_new: bool = False) -> Record:
        """The record as it goes into the store: held to its type, and sealed where it is secret."""
        await self._check_type(record)
        check_definition(record, self._clock())
        await check_agent_name(record, self._store)
        if type_family(record.schema_name) == type_family(SCHEMA_DEF):
            record = await self._checked_definition(record, is_new=is_new)
        return self._sealed(record)

    def _sealed(self, record: Record) -> Record:
        if record.sensitivity is not Sensitivity.SECRET:
            return record
        return replace(record, context=self._sealer().seal(record.context, record.id))

    async def _check_type(self, record: Record) -> None:
        defined = await self._types.named(record.schema_name)
        if defined is not None:
            defined.check(dict(record.context), quotes=record.sensitivity is not Sensitivity.SECRET)
        elif self._rules.strict and not is_reserved(record.schema_name):
            raise InvalidRecord(
                f"no {SCHEMA_DEF} record defines {record.schema_name}; define it first, or set records.strict = false"
            )

    async def _checked_definition(self, record: Record, *, is_new: bool) -> Record:
        """A definition that can be used, and is the only one of its type.

        The id of a new one follows from the type: of two that are written at the same moment, one is refused.
        """
        if record.schema_name != SCHEMA_DEF:
            raise InvalidRecord(f"types are defined by {SCHEMA_DEF} records, not by {record.schema_name}")
        if record.sensitivity is not Sensitivity.NORMAL:
            raise InvalidRecord(f"a {SCHEMA_DEF} record cannot be {record.sensitivity}: every writer is held to it")
        defined = read_definition(record.id, record.version, record.context, record.llm_hints)
        if other := await self._types.other_definition(defined.name, record.id):
            raise Conflict(f"{defined.name} is defined by record {other} already; patch that one")
        if is_new:
            record = replace(record, id=await self._definition_id(defined.name) or record.id)
        return _tagged(record, defined.name)

    async def _definition_id(self, name: str) -> str:
        """The id for the definition of a type; empty where the one that has it defines another type by now."""
        found = str(uuid5(_KEYED, f"{self.project}\0{defining_tag(name)}"))
        with suppress(NotFound):
            holder = await self._store.record(found, project=self.project)
            return found if defining_tag(name) in holder.tags else ""
        return found

    async def _visible(self, record_id: str, caller: Caller) -> Record:
        if is_response(record_id):
            record = await self._responses.read(record_id, within=_session_of(caller))
        elif not 0 < len(record_id) <= LONGEST_ID or "\0" in record_id:
            raise _not_found(record_id)
        else:
            record = await self._store.record(record_id, project=self.project)
        if not may_see(record, caller):
            raise _not_found(record_id)
        return record

    def _sealer(self) -> SecretSealer:
        if self._rules.sealer is None:
            raise InvalidRecord("secrets cannot be kept or read here: this process has no key for them")
        return self._rules.sealer

    @asynccontextmanager
    async def _audit_refusal(self, caller: Caller, schema_name: str, record_id: str = "") -> AsyncIterator[None]:
        """What is not permitted is on record too."""
        try:
            yield
        except NotPermitted:
            detail = {"record": record_id[:LONGEST_ID], "schema_name": schema_name, "role": caller.role.value}
            row = AuditRow(
                self._clock(), "record_refused", self.project, caller.author, caller.turn_id, caller.call_id,
                status="denied", detail=detail,
            )  # fmt: skip
            await self._store.audit([row])
            raise

    def _audit_row(self, event: str, record: Record, caller: Caller) -> AuditRow:
        detail = {
            "record": record.id,
            "schema_name": record.schema_name,
            "version": record.version,
            "role": caller.role.value,
        }
        return AuditRow(
            self._clock(), event, self.project, caller.author, caller.turn_id, caller.call_id, detail=detail
        )  # fmt: skip


def _tagged(record: Record, defines: str) -> Record:
    """A definition with the tag by which it is found."""
    tags = (tag for tag in record.tags if not tag.startswith("defines:"))
    return replace(record, tags=(defining_tag(defines), *tags))


def _patched_fields(before: Record, patch: Mapping[str, Any]) -> NewRecord:
    """The fields of a record after a merge patch, checked."""
    return read_new_record({"schema_name": before.schema_name, **merge_patch(fields_of(before), patch)})


def _unused(record: Record, caller: Caller) -> Record:
    """A record as it leaves without being used: of one whose uses are counted, only its author sees what it says."""
    if record.uses_left is None or caller.role is Role.RUNTIME or caller.author == record.created_by:
        return shown_to(record, caller)
    return replace(record, context={}, llm_hints=None)


def _session_of(caller: Caller) -> str | None:
    """The turn whose session bounds what a caller reads of results and replies: a model sees its own session only."""
    return caller.turn_id if caller.role is Role.MODEL else None


def _require_version(record: Record, expected: int) -> None:
    if record.version != expected:
        raise VersionConflict(
            f"record {record.id!r} is at version {record.version}, not {expected}; read it, and make the change again"
        )


@contextmanager
def _told_as_version_conflict() -> Iterator[None]:
    """A change of a record that was read before is refused by the store only where another one was faster."""
    try:
        yield
    except Conflict as other:
        raise VersionConflict(str(other)) from None


def _not_found(record_id: str) -> NotFound:
    return NotFound(f"there is no record {record_id[:LONGEST_ID]!r}")


def _check_key(key: str) -> None:
    if len(key) > LONGEST_KEY or not key.isprintable():
        raise InvalidRecord(f"an idempotency key is printable text of at most {LONGEST_KEY} characters")


def _checked_query(query: RecordQuery) -> RecordQuery:
    if query.schema_name:
        check_schema_name(query.schema_name)
    if len(query.text) > LONGEST_TEXT or "\0" in query.text:
        raise InvalidRecord(f"text is at most {LONGEST_TEXT} characters, without NUL")
    return query
