"""Records in the memory store. They stay until they are deleted or expire; history, changes and keys are bounded."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from toolwire.breadcrumbs.rules.words import WordMatch
from toolwire.errors import StoreError
from toolwire.protocol.breadcrumbs import ChangeKind, Record, RecordChange, RecordQuery
from toolwire.protocol.records import AuditRow
from toolwire.record import record_rules
from toolwire.record.contract import NewVector, Numbered, VectorRow
from toolwire.record.memory_limits import AuditTail
from toolwire.record.memory_record_index import MemoryRecordIndex
from toolwire.record.record_rules import UsedKey, own_matches

T = TypeVar("T")
_Key = tuple[str, str]
"""The project and the id of a record, or the project and the digest of a key."""


class _MemoryRecord(Struct):
    """A record: its current version as that was made, how many uses of it are left, and earlier versions."""

    number: int
    made: Record
    earlier: list[Record]
    uses_left: int | None
    key: str = ""

    @property
    def record(self) -> Record:
        return self.made if self.uses_left == self.made.uses_left else replace(self.made, uses_left=self.uses_left)


class MemoryRecords:
    """The records of all projects. Changes give back what came of them, or why they are refused."""

    def __init__(self) -> None:
        self._kept: dict[_Key, _MemoryRecord] = {}
        self._numbers: dict[str, list[int]] = {}
        self._by_number: dict[int, _Key] = {}
        self._keys: dict[_Key, UsedKey] = {}
        self._gone_keys: deque[tuple[float, _Key]] = deque()
        self._ending: dict[str, dict[int, float]] = {}
        self._all: list[int] = []
        self._changes: dict[str, deque[Numbered[RecordChange]]] = {}
        self._last = 0
        self.index = MemoryRecordIndex()

    def create(self, record: Record, key: str, now: float) -> tuple[Record | StoreError, bool]:
        """Gives back the record, and whether it is new."""
        record = record_rules.first_version(record, now)
        body = record_rules.written(record)
        if (refusal := record_rules.checked(record, body)) is not None:
            return refusal, False
        place = (record.project, record_rules.key_digest(record.created_by, key) if key else "")
        self._forget_keys(now)
        if key and (first := self.replayed(record, key, now)) is not None:
            return first, False
        where = (record.project, record.id)
        if (before := self._kept.get(where)) is not None:
            if not record_rules.is_over(before.record, now):
                return record_rules.taken(record.id), False
            self._drop(before, ChangeKind.EXPIRED, now)
        record = record_rules.read(record.project, record.id, body)
        number = record_rules.number_of(record.created_at)
        if number in self._by_number:
            number = record_rules.free_number(number, self._newest)
        self._kept[where] = new = _MemoryRecord(number, record, [], record.uses_left, place[1])
        self._ends(new, now)
        self._by_number[number] = where
        for numbers in (self._all, self._numbers.setdefault(record.project, [])):
            insort(numbers, number)
        if key:
            self._keys[place] = UsedKey(record.id, record_rules.content_digest(record))
        self._changed(ChangeKind.CREATED, record, now)
        self.index.put(number, record, self._last)
        return record, True

    def replayed(self, record: Record, key: str, now: float) -> Record | StoreError | None:
        """The first record under a key, as it was created; None for a key that was not used."""
        place = (record.project, record_rules.key_digest(record.created_by, key))
        used = self._keys.get(place)
        return None if used is None else self._replayed(place, used, record, now)

    def update(self, record: Record, expected: int, now: float) -> Record | StoreError:
        kept = self._alive(record.project, record.id, now)
        new = record_rules.next_version(None if kept is None else kept.record, record, expected, now)
        if kept is None or isinstance(new, StoreError):
            return cast("StoreError", new)
        kept.earlier.append(kept.made)
        del kept.earlier[1 : len(kept.earlier) - record_rules.MOST_VERSIONS]
        kept.made, kept.uses_left = new.record, new.record.uses_left
        self._ends(kept, now)
        self._changed(ChangeKind.UPDATED, kept.made, now)
        self.index.put(kept.number, kept.made, self._last)
        return kept.made

    def delete(self, project: str, record_id: str, by: str, expected: int | None, now: float) -> Record | StoreError:
        kept = self._alive(project, record_id, now)
        if kept is None:
            return record_rules.no_record(record_id)
        if expected is not None and expected != kept.made.version:
            return record_rules.other_version(kept.made, expected)
        self._drop(kept, ChangeKind.DELETED, now, by)
        return kept.record

    def get(self, project: str, record_id: str, now: float) -> Record | StoreError:
        kept = self._alive(project, record_id, now)
        return record_rules.no_record(record_id) if kept is None else kept.record

    def use(self, project: str, record_id: str, now: float) -> Record | StoreError:
        kept = self._alive(project, record_id, now)
        if kept is None:
            return record_rules.no_record(record_id)
        kept.uses_left = record_rules.used(kept.record).uses_left
        self._ends(kept, now)
        return kept.record

    def fitting(self, project: str, query: RecordQuery, before: int | None, now: float) -> Iterator[Numbered[Record]]:
        numbers = self._numbers.get(project, [])
        upto = len(numbers) if before is None else bisect_left(numbers, before)
        newest = (numbers[place] for place in range(upto - 1, -1, -1))
        return self.fitting_of(newest, project, query, now)

    def fitting_of(
        self, numbers: Iterable[int], project: str, query: RecordQuery, now: float
    ) -> Iterator[Numbered[Record]]:
        """Those of the numbers that are of records which fit."""
        for number in numbers:
            where = self._by_number.get(number)
            if where is None or where[0] != project:
                continue
            record = self._kept[where].record
            if not record_rules.is_over(record, now) and record_rules.fits(record, query, self.index.words_of(number)):
                yield Numbered(number, record)

    def history(self, project: str, record_id: str, before: int | None, now: float) -> list[Record] | StoreError:
        kept = self._alive(project, record_id, now)
        if kept is None:
            return record_rules.no_record(record_id)
        versions = [kept.record, *reversed(kept.earlier)]
        return [one for one in versions if before is None or one.version < before]

    def changes(self, project: str, cursor: int) -> Iterator[Numbered[RecordChange]]:
        return (one for one in self._changes.get(project, ()) if one.cursor > cursor)

    def last_change(self, project: str) -> int:
        changes = self._changes.get(project)
        return changes[-1].cursor if changes else 0

    def expire(self, project: str, limit: int, now: float) -> list[Record]:
        ending = self._ending.get(project, {})
        numbers = sorted((at, number) for number, at in ending.items() if at <= now)[: max(limit, 0)]
        over = [self._kept[self._by_number[number]] for _, number in numbers]
        for kept in over:
            self._drop(kept, ChangeKind.EXPIRED, now)
        return [kept.record for kept in over]

    def _ends(self, kept: _MemoryRecord, now: float) -> None:
        """Note when a record is over, if it ever is."""
        ending, at = self._ending.setdefault(kept.made.project, {}), record_rules.ends_at(kept.record, now)
        if at is None:
            ending.pop(kept.number, None)
        else:
            ending[kept.number] = at

    def _alive(self, project: str, record_id: str, now: float) -> _MemoryRecord | None:
        kept = self._kept.get((project, record_id))
        return None if kept is None or record_rules.is_over(kept.record, now) else kept

    def _replayed(self, place: _Key, used: UsedKey, record: Record, now: float) -> Record | StoreError:
        kept = self._alive(record.project, used.record_id, now)
        used = used._replace(is_gone=kept is None or kept.key != place[1])
        refusal = record_rules.replayed(used, record_rules.content_digest(record))
        if refusal is not None or kept is None:
            return refusal or record_rules.no_record(used.record_id)
        return kept.earlier[0] if kept.earlier else kept.made

    def _newest(self, _first: int, below: int) -> int:
        return self._all[bisect_left(self._all, below) - 1]

    def _changed(self, kind: ChangeKind, record: Record, now: float) -> None:
        self._last += 1
        changes = self._changes.setdefault(record.project, deque(maxlen=record_rules.MOST_CHANGES))
        changes.append(Numbered(self._last, RecordChange(kind, now, record)))
        while changes[0].value.at < now - record_rules.CHANGES_S:
            changes.popleft()

    def _drop(self, kept: _MemoryRecord, kind: ChangeKind, now: float, by: str = "") -> None:
        record = kept.record
        del self._kept[record.project, record.id], self._by_number[kept.number]
        self._ending[record.project].pop(kept.number, None)
        for numbers in (self._all, self._numbers[record.project]):
            del numbers[bisect_left(numbers, kept.number)]
        if kept.key:
            self._gone_keys.append((now, (record.project, kept.key)))
        self._changed(kind, record_rules.last_seen(record, kind, by, now), now)
        self.index.drop(kept.number, record.project, self._last)
        changes = self._changes[record.project]
        if any(record_rules.left_behind(one, record) is not one for one in (record, *kept.earlier)):
            for place, (cursor, change) in enumerate(changes):
                if change.record.id == record.id:
                    left = record_rules.left_behind(change.record, record)
                    changes[place] = Numbered(cursor, RecordChange(change.kind, change.at, left))

    def _forget_keys(self, now: float) -> None:
        while self._gone_keys and self._gone_keys[0][0] < now - record_rules.KEYS_S:
            self._keys.pop(self._gone_keys.popleft()[1], None)


class MemoryRecordStore:
    """The part of the memory store that keeps records."""

    _clock: Callable[[], float]
    _audit: AuditTail
    _records: MemoryRecords

    async def create_record(self, record: Record, *, key: str = "", audit: Sequence[AuditRow] = ()) -> Record:
        kept, is_new = self._records.create(record, key, self._clock())
        return self._noted(kept, audit if is_new else ())

    async def replayed_record(self, record: Record, key: str) -> Record | None:
        first = self._records.replayed(record, key, self._clock())
        return None if first is None else self._noted(first)

    async def update_record(self, record: Record, expected: int, *, audit: Sequence[AuditRow] = ()) -> Record:
        return self._noted(self._records.update(record, expected, self._clock()), audit)

    async def delete_record(
        self, record_id: str, *, by: str, expected: int | None = None, audit: Sequence[AuditRow] = (),
        project: str = "default",
    ) -> Record:  # fmt: skip
        return self._noted(self._records.delete(project, record_id, by, expected, self._clock()), audit)

    async def record(self, record_id: str, *, project: str = "default") -> Record:
        return self._noted(self._records.get(project, record_id, self._clock()))

    async def use_record(self, record_id: str, *, project: str = "default") -> Record:
        return self._noted(self._records.use(project, record_id, self._clock()))

    async def records(
        self, query: RecordQuery, *, limit: int = 50, before: int | None = None, project: str = "default"
    ) -> list[Numbered[Record]]:
        return list(islice(self._records.fitting(project, query, before, self._clock()), max(limit, 0)))

    async def record_history(
        self, record_id: str, *, limit: int = 50, before: int | None = None, project: str = "default"
    ) -> list[Record]:
        return self._noted(self._records.history(project, record_id, before, self._clock()))[: max(limit, 0)]

    async def record_changes(
        self, cursor: int = 0, *, limit: int = 100, project: str = "default"
    ) -> list[Numbered[RecordChange]]:
        return list(islice(self._records.changes(project, cursor), max(limit, 0)))

    async def last_change(self, *, project: str = "default") -> int:
        return self._records.last_change(project)

    async def expire_records(self, *, limit: int = 1000, project: str = "default") -> list[Record]:
        return self._records.expire(project, limit, self._clock())

    async def matching_records(
        self, match: WordMatch, *, limit: int = 200, since: int | None = None, until: int | None = None,
        project: str = "default",
    ) -> list[int]:  # fmt: skip
        return self._records.index.matching(own_matches([match], project)[0], since, until)[: max(limit, 0)]

    async def count_matching(self, matches: Sequence[WordMatch], *, most: int, project: str = "default") -> list[int]:
        return [min(len(self._records.index.matching(match)), most) for match in own_matches(matches, project)]

    async def words_of_records(self, numbers: Sequence[int], *, project: str = "default") -> Mapping[int, str]:
        return self._records.index.lines_of(numbers, project)

    async def fitting_records(
        self, numbers: Sequence[int], query: RecordQuery, *, project: str = "default"
    ) -> list[int]:
        return [one.cursor for one in await self.records_numbered(numbers, query, project=project)]

    async def records_numbered(
        self, numbers: Sequence[int], query: RecordQuery, *, project: str = "default"
    ) -> list[Numbered[Record]]:
        return list(self._records.fitting_of(numbers, project, query, self._clock()))

    async def record_vectors(
        self, cursor: int = 0, *, model: str, limit: int = 1000, project: str = "default"
    ) -> list[VectorRow]:
        return self._records.index.changed_after(cursor, model, max(limit, 0), project)

    async def vectors_of_records(
        self, numbers: Sequence[int], *, model: str, project: str = "default"
    ) -> Mapping[int, bytes]:
        return self._records.index.vectors_of(numbers, model, project)

    async def put_record_vectors(self, vectors: Sequence[NewVector], *, model: str, project: str = "default") -> None:
        self._records.index.put_vectors(vectors, model, project)

    def _noted(self, outcome: T | StoreError, audit: Sequence[AuditRow] = ()) -> T:
        if isinstance(outcome, StoreError):
            raise outcome
        self._audit.extend(audit)
        return outcome
