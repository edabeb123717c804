"""Loads records from files, so that what a project is made of (types, agents, schedules) can be kept with its code.

A file holds one record, or several in `records`. An entry is known again by its type and its `id`, or without one by
what it defines or is called. What is there with the same content stays as it is, so a run can be repeated, also one
that was cut off halfway.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.breadcrumbs.new_records import NewRecord, fields_of, read_new_record
from toolwire.breadcrumbs.rules.callers import Caller
from toolwire.breadcrumbs.rules.schemas import SCHEMA_DEF, is_reserved
from toolwire.breadcrumbs.service import RecordService
from toolwire.define.service_files import read_tables
from toolwire.errors import Conflict, DefinitionError, InvalidRecord, KeySpent, NotPermitted
from toolwire.lazy import lazy_pattern
from toolwire.protocol.breadcrumbs import LONGEST_TAG, Record, RecordQuery, Sensitivity

MOST_FILES, MOST_RECORDS = 1_000, 10_000
_MOST_TIMES = 100
_TAG = "bootstrap:"
_SCHEMA_NAME = lazy_pattern(r"\bschema_name\b", re.ASCII)


class RecordEntry(Struct, frozen=True):
    """One record of a file, with the line on which its type stands."""

    file: str
    line: int
    new: NewRecord
    identity: str


class LoadedRecord(Struct, frozen=True):
    """What came of an entry: created, updated, unchanged or failed (`error` says why)."""

    entry: RecordEntry
    outcome: str
    record: Record | None = None
    error: str = ""


class BadFiles(InvalidRecord):
    """Files from which nothing was loaded. `faults` has a sentence for each, with its file and line."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


def read_entries(files: Mapping[str, bytes]) -> list[RecordEntry]:
    """The records of these files, in the order in which they are loaded. Raises BadFiles with all that is wrong."""
    entries: list[RecordEntry] = []
    faults: list[str] = []
    for file, content in files.items():
        try:
            entries += _entries_of(file, content, faults)
        except DefinitionError as wrong:
            faults.append(str(wrong))
    places: dict[tuple[str, str], RecordEntry] = {}
    for entry in entries:
        first = places.setdefault((entry.new.schema_name, entry.identity), entry)
        if first is not entry:
            there = f"{first.file}, line {first.line}"
            faults.append(f"{_at(entry)}: the same record stands in {there}; give each an id of its own")
    if len(entries) > MOST_RECORDS:
        faults.append(f"there are more than {MOST_RECORDS} records; load them in several runs")
    if faults:
        raise BadFiles(faults)
    # Others are held to the types that are defined, so these come first.
    return sorted(entries, key=lambda entry: entry.new.schema_name != SCHEMA_DEF)


async def load_records(
    records: RecordService, entries: Sequence[RecordEntry], caller: Caller, *, dry_run: bool = False
) -> list[LoadedRecord]:
    """Create or update the records of these entries; what fails does not stop the others."""
    return [await _load(records, entry, caller, dry_run=dry_run) for entry in entries]


async def _load(records: RecordService, entry: RecordEntry, caller: Caller, *, dry_run: bool) -> LoadedRecord:
    wanted = replace(entry.new, tags=tuple(dict.fromkeys((*entry.new.tags, _tag(entry)))))
    try:
        before = await _find(records, entry, caller)
        if before is None:
            made = None if dry_run else await _create(records, entry, wanted, caller)
            return LoadedRecord(entry, "created", made)
        patch = _difference(before, wanted)
        if not patch:
            return LoadedRecord(entry, "unchanged", before)
        after = before if dry_run else await records.patch(before.id, patch, before.version, caller)
        return LoadedRecord(entry, "updated", after)
    except (InvalidRecord, NotPermitted, Conflict) as wrong:
        return LoadedRecord(entry, "failed", error=f"{_at(entry)}: {wrong}")


async def _create(records: RecordService, entry: RecordEntry, wanted: NewRecord, caller: Caller) -> Record:
    """Create the record of an entry, also where the one of an earlier run was deleted, or has expired."""
    key = _key(entry)
    for time in range(2, _MOST_TIMES + 2):
        try:
            return await records.create(wanted, caller, key=key)
        except KeySpent:
            key = f"{_key(entry)}:{time}"
    return await records.create(wanted, caller)


async def _find(records: RecordService, entry: RecordEntry, caller: Caller) -> Record | None:
    """The record that an earlier run made of an entry.

    Any writer can give a record the same tag. So one of a type that all may write is only taken for it if the caller
    is its author. Raises Conflict.
    """
    query = RecordQuery(schema_name=entry.new.schema_name, all_tags=(_tag(entry),))
    rows = [row.value for row in await records.listed(query, caller, limit=50)]
    own = [one for one in rows if is_reserved(one.schema_name) or one.created_by == caller.author]
    if rows and not own:
        raise Conflict(f"record {rows[0].id} of {rows[0].created_by} has the tag {_tag(entry)}; delete it, or its tag")
    return own[-1] if own else None


def _entries_of(file: str, content: bytes, faults: list[str]) -> Iterator[RecordEntry]:
    tables = read_tables(content, file)
    listed = tables.get("records") if "schema_name" not in tables else [tables]
    if not isinstance(listed, list):
        raise DefinitionError(f"{file}, line 1: a file has a record with its schema_name, or several in records")
    text = content.decode("utf-8-sig")
    lines = [text.count("\n", 0, found.start()) + 1 for found in _SCHEMA_NAME.finditer(text)]
    for number, said in enumerate(listed):
        line = lines[number] if number < len(lines) else 1
        try:
            yield _entry(file, line, said)
        except InvalidRecord as wrong:
            faults.append(f"{file}, line {line}: {wrong}")


def _entry(file: str, line: int, said: Any) -> RecordEntry:
    if not isinstance(said, Mapping):
        raise InvalidRecord('a record is an object such as {"schema_name": "note.v1", "title": "…", "context": {…}}')
    own = said.get("id", "")
    if not isinstance(own, str):
        raise InvalidRecord("id must be text by which the record is known again")
    new = read_new_record({name: _without_nulls(value) for name, value in said.items() if name != "id"})
    context = new.context or {}
    defined = next((context[name] for name in ("defines_schema", "name") if isinstance(context.get(name), str)), "")
    identity = own or (defined if is_reserved(new.schema_name) else "") or new.title
    if not identity:
        raise InvalidRecord("a record needs an id or a title by which it is known again")
    return RecordEntry(file, line, new, identity)


def _without_nulls(value: Any) -> Any:
    """A value without what is null in objects: a merge patch could not write it."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return value


def _difference(before: Record, wanted: NewRecord) -> dict[str, Any]:
    """The merge patch that makes one of the other; empty where nothing has changed.

    The context of a secret is not compared, since it is in no view. Tags of before that are not in the file go, but
    not those by which definitions are found.
    """
    now = fields_of(before)
    kept = [tag for tag in before.tags if tag.startswith("defines:")]
    asked: dict[str, Any] = {
        "title": wanted.title,
        "tags": list(dict.fromkeys((*kept, *wanted.tags))),
        "context": dict(wanted.context or {}),
        "llm_hints": wanted.llm_hints,
        "visibility": wanted.visibility,
        "sensitivity": before.sensitivity if before.sensitivity is Sensitivity.SECRET else wanted.sensitivity,
    }
    if before.sensitivity is Sensitivity.SECRET:
        del asked["context"]
    if wanted.ttl is not None and before.ttl is None:
        asked["ttl"] = wanted.ttl
    patch = {name: _patch(now.get(name), value) for name, value in asked.items()}
    return {name: value for name, value in patch.items() if value is not _SAME}


_SAME: Any = object()


def _patch(before: Any, after: Any) -> Any:
    """The merge patch from one value to another, or `_SAME`."""
    if before == after:
        return _SAME
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return after
    changed = {name: _patch(before.get(name), value) for name, value in after.items()}
    gone = dict.fromkeys(name for name in before if name not in after)
    return {name: value for name, value in changed.items() if value is not _SAME} | gone


def _tag(entry: RecordEntry) -> str:
    """How a record is found again, whatever it is called."""
    tag = f"{_TAG}{' '.join(entry.identity.split())}"
    if len(tag) <= LONGEST_TAG and tag.isprintable():
        return tag
    return f"{_TAG}sha256-{hashlib.sha256(entry.identity.encode(errors='backslashreplace')).hexdigest()}"


def _key(entry: RecordEntry) -> str:
    """The same for the same content: two runs at the same moment create one record."""
    new = entry.new
    said = [
        new.schema_name,
        entry.identity,
        new.title,
        new.tags,
        new.context,
        new.llm_hints,
        new.visibility,
        new.ttl,
        new.sensitivity,
    ]
    return f"{_TAG}{hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()}"


def _at(entry: RecordEntry) -> str:
    return f"{entry.file}, line {entry.line}"
