"""The part of the SQLite store that keeps records, and of those in database servers."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from toolwire.breadcrumbs.rules.words import WordMatch
from toolwire.protocol.breadcrumbs import Record, RecordChange, RecordQuery
from toolwire.protocol.records import AuditRow
from toolwire.record import record_index, record_lists, record_rows, record_rules
from toolwire.record.contract import NewVector, Numbered, VectorRow
from toolwire.record.reader import Reader
from toolwire.record.record_rules import own_matches
from toolwire.record.rows import DEFAULT, audit_rows
from toolwire.record.writer import Writer


class SqliteRecordStore:
    """Keeps records by the writer and the reader that the store has for everything."""

    _writer: Writer
    _reader: Reader
    _clock: Callable[[], float]

    async def create_record(self, record: Record, *, key: str = "", audit: Sequence[AuditRow] = ()) -> Record:
        now = self._clock()
        record = record_rules.first_version(record, now)
        body = record_rules.written(record)
        if (refusal := record_rules.checked(record, body)) is not None:
            raise refusal
        create = partial(record_rows.create, record=record, body=body, key=key, audit=audit_rows(audit), now=now)
        return await self._writer.write(create, _whose(record))

    async def replayed_record(self, record: Record, key: str) -> Record | None:
        return await self._reader.read(record_rows.replayed, record, key, self._clock())

    async def update_record(self, record: Record, expected: int, *, audit: Sequence[AuditRow] = ()) -> Record:
        update = partial(
            record_rows.update, record=record, expected=expected, audit=audit_rows(audit), now=self._clock()
        )  # fmt: skip
        return await self._writer.write(update, _whose(record))

    async def delete_record(
        self, record_id: str, *, by: str, expected: int | None = None, audit: Sequence[AuditRow] = (),
        project: str = DEFAULT,
    ) -> Record:  # fmt: skip
        delete = partial(record_rows.delete, project=project, record_id=record_id, by=by, expected=expected)
        return await self._writer.write(partial(delete, audit=audit_rows(audit), now=self._clock()))

    async def record(self, record_id: str, *, project: str = DEFAULT) -> Record:
        return await self._reader.read(record_rows.record, project, record_id, self._clock())

    async def use_record(self, record_id: str, *, project: str = DEFAULT) -> Record:
        use = partial(record_rows.use, project=project, record_id=record_id, now=self._clock())
        return await self._writer.write(use)

    async def records(
        self, query: RecordQuery, *, limit: int = 50, before: int | None = None, project: str = DEFAULT
    ) -> list[Numbered[Record]]:
        return await self._reader.read(record_lists.listed, query, limit, before, project, self._clock())

    async def record_history(
        self, record_id: str, *, limit: int = 50, before: int | None = None, project: str = DEFAULT
    ) -> list[Record]:
        return await self._reader.read(record_rows.history, project, record_id, limit, before, self._clock())

    async def record_changes(
        self, cursor: int = 0, *, limit: int = 100, project: str = DEFAULT
    ) -> list[Numbered[RecordChange]]:
        return await self._reader.read(record_rows.changes_after, cursor, limit, project)

    async def last_change(self, *, project: str = DEFAULT) -> int:
        return await self._reader.read(record_rows.last_change, project)

    async def expire_records(self, *, limit: int = 1000, project: str = DEFAULT) -> list[Record]:
        now = self._clock()
        if limit < 1 or not await self._reader.read(record_rows.any_over, project, now):
            return []
        return await self._writer.write(partial(record_rows.expire, project=project, limit=limit, now=now))

    async def matching_records(
        self, match: WordMatch, *, limit: int = 200, since: int | None = None, until: int | None = None,
        project: str = DEFAULT,
    ) -> list[int]:  # fmt: skip
        [match] = own_matches([match], project)
        return await self._reader.read(record_index.matching, match, limit, since, until)

    async def count_matching(self, matches: Sequence[WordMatch], *, most: int, project: str = DEFAULT) -> list[int]:
        return await self._reader.read(record_index.count_matching, own_matches(matches, project), most)

    async def words_of_records(self, numbers: Sequence[int], *, project: str = DEFAULT) -> Mapping[int, str]:
        return await self._reader.read(record_index.words_of, numbers, project)

    async def fitting_records(self, numbers: Sequence[int], query: RecordQuery, *, project: str = DEFAULT) -> list[int]:
        return await self._reader.read(record_lists.fitting, numbers, query, project, self._clock())

    async def records_numbered(
        self, numbers: Sequence[int], query: RecordQuery, *, project: str = DEFAULT
    ) -> list[Numbered[Record]]:
        return await self._reader.read(
            record_lists.numbered, numbers, query, project, self._clock(), len(numbers)
        )  # fmt: skip

    async def record_vectors(
        self, cursor: int = 0, *, model: str, limit: int = 1000, project: str = DEFAULT
    ) -> list[VectorRow]:
        return await self._reader.read(record_index.changed_after, cursor, model, limit, project)

    async def vectors_of_records(
        self, numbers: Sequence[int], *, model: str, project: str = DEFAULT
    ) -> Mapping[int, bytes]:
        return await self._reader.read(record_index.vectors_of, numbers, model, project)

    async def put_record_vectors(self, vectors: Sequence[NewVector], *, model: str, project: str = DEFAULT) -> None:
        await self._writer.write(partial(record_index.put_vectors, vectors=vectors, model=model, project=project))


def _whose(record: Record) -> tuple[str, str]:
    return record.project, record.created_by
