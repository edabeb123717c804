"""The rules for records, the same in every store.

Every version of a record is kept as JSON that gives back what was put in, in memory, too: so no store can answer with
more than another one. What a store looks for is taken out of that: names, dates and tags, which are bounded.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from msgspec.structs import replace

from toolwire.breadcrumbs.rules.words import WordMatch, query_words
from toolwire.errors import Conflict, KeySpent, NotFound, StoreError
from toolwire.lazy import lazy_pattern
from toolwire.protocol.breadcrumbs import (
    LONGEST_RECORD_NAME,
    LONGEST_TAG,
    LONGEST_TITLE,
    MOST_CONTEXT_BYTES,
    MOST_LEVELS,
    MOST_TAGS,
    ChangeKind,
    Record,
    RecordQuery,
    Sensitivity,
    Visibility,
)
from toolwire.wire.codecs.faithful import dump, load

MOST_VERSIONS = 1_000
"""Earlier versions of a record that are kept, and the first one."""
MOST_CHANGES = 100_000
"""Changes of a project that are kept for those who follow them."""
CHANGES_S = 7 * 86_400.0
MOST_USES = 1_000_000_000
KEYS_S = 30 * 86_400.0
"""How long a key is known for which a record was created that is gone by now."""
_UNPRINTED = lazy_pattern("[\x00-\x1f\x7f\ud800-\udfff]")
_MICROSECONDS = 1_000_000
_OPENNESS = (Visibility.PRIVATE, Visibility.PROJECT, Visibility.PUBLIC)
_CLOSE_BY = 1 << 10
NUMBERS_AT_ONCE = 1 << 20
"""So far from its date, in microseconds, may the number of a record be that was created together with others."""
LAST_DATE = 2.0**33


class UsedKey(NamedTuple):
    """What a key was used for: which record, with what content."""

    record_id: str
    digest: str
    is_gone: bool = False


def written(record: Record) -> str:
    """All of a version but its project and its id, as JSON."""
    said: dict[str, Any] = {
        "schema": record.schema_name, "title": record.title, "tags": record.tags, "context": record.context,
        "version": record.version, "by": record.created_by, "at": record.created_at,
        "updated_by": record.updated_by, "updated_at": record.updated_at,
    }  # fmt: skip
    for name in ("llm_hints", "ttl", "expires_at", "uses_left"):
        if (value := getattr(record, name)) is not None:
            said[name] = value
    for name in ("turn_id", "call_id", "origins"):
        if value := getattr(record, name):
            said[name] = value
    if record.visibility is not Visibility.PROJECT:
        said["visibility"] = record.visibility.value
    if record.sensitivity is not Sensitivity.NORMAL:
        said["sensitivity"] = record.sensitivity.value
    return dump(said)


def read(project: str, record_id: str, body: str, uses_left: int | None = None) -> Record:
    """What `written` wrote; with the uses that are left by now, where they count."""
    said = load(body)
    return Record(
        record_id, project, said["schema"], said["title"], tuple(said["tags"]), said["context"], said["version"],
        said.get("llm_hints"), Visibility(said.get("visibility", "project")),
        Sensitivity(said.get("sensitivity", "normal")), said.get("ttl"), said.get("expires_at"),
        said.get("uses_left") if uses_left is None else uses_left, said["by"], said["at"], said["updated_by"],
        said["updated_at"], said.get("turn_id", ""), said.get("call_id", ""), tuple(said.get("origins", ())),
    )  # fmt: skip


def checked(record: Record, body: str) -> Conflict | None:
    """Why a version cannot be kept, if it cannot."""
    tags = record.tags
    for name, value, most in (
        ("id", record.id, LONGEST_RECORD_NAME),
        ("schema_name", record.schema_name, LONGEST_RECORD_NAME),
        ("created_by", record.created_by, LONGEST_RECORD_NAME),
        ("title", record.title, LONGEST_TITLE),
    ):
        if len(value) > most:
            return Conflict(f"the {name} of a record has at most {most} characters, not {len(value):,}; shorten it")
    if not (record.id and record.schema_name):
        return Conflict("a record needs an id and a schema_name; give it both")
    if len(tags) > MOST_TAGS or any(not 0 < len(tag) <= LONGEST_TAG for tag in tags):
        return Conflict(
            f"a record has at most {MOST_TAGS} tags, each of 1 to {LONGEST_TAG} characters; drop the others"
        )
    if not all(map(is_name, (record.id, record.schema_name, *tags))):
        return Conflict("ids, schemas and tags of records are text without control characters; remove those")
    if len(body) > MOST_CONTEXT_BYTES or len(body.encode()) > MOST_CONTEXT_BYTES:
        return Conflict(
            f"a record has at most {MOST_CONTEXT_BYTES:,} bytes; keep the rest as a body, and its handle here"
        )
    if body.count("{") + body.count("[") > MOST_LEVELS and _levels(record) > MOST_LEVELS:
        return Conflict(f"a record is nested at most {MOST_LEVELS} levels deep; flatten its context")
    if not all(map(_is_date, (record.created_at, record.updated_at, record.expires_at))):
        return Conflict("the dates of a record are seconds since 1970, before the year 2242; give such ones")
    if record.uses_left is not None and not 0 <= record.uses_left <= MOST_USES:
        return Conflict(f"a record can be used at most {MOST_USES:,} times; leave the limit out for more")
    return None


def is_name(text: str) -> bool:
    """Whether something can be looked for under this name in every store."""
    return text.isprintable() or not _UNPRINTED.search(text)


def _is_date(at: float | None) -> bool:
    return at is None or (math.isfinite(at) and 0 <= at < LAST_DATE)


def _levels(record: Record) -> int:
    """How deep the parts of a record that come from outside are nested; one level more than can be kept is enough."""
    level = 0
    here: list[Any] = [record.context, record.llm_hints, record.ttl]
    while here and level <= MOST_LEVELS:
        level += 1
        here = [inner for value in here for inner in _inside(value) if isinstance(inner, Mapping | list | tuple)]
    return level


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value or ()


def is_over(record: Record, now: float) -> bool:
    """Whether a record has expired: by its date, or by its last use."""
    return (record.expires_at is not None and record.expires_at <= now) or record.uses_left == 0


def ends_at(record: Record, now: float) -> float | None:
    """From when on a record is not found: its date, or now where its uses are over."""
    if record.uses_left is None or record.uses_left > 0:
        return record.expires_at
    return now if record.expires_at is None else min(record.expires_at, now)


def used(record: Record) -> Record:
    """A record that is used once more; itself, where uses are not counted."""
    return record if record.uses_left is None else replace(record, uses_left=record.uses_left - 1)


def first_version(record: Record, now: float) -> Record:
    at = record.created_at or now
    updated_by, updated_at = record.updated_by or record.created_by, record.updated_at or at
    return replace(record, version=1, created_at=at, updated_by=updated_by, updated_at=updated_at)


class NextVersion(NamedTuple):
    """What takes the place of the current version, and how it is kept."""

    record: Record
    body: str


def next_version(kept: Record | None, record: Record, expected: int, now: float) -> NextVersion | StoreError:
    """The version that takes the place of the kept one. Who created it, and when, stays as it is.

    So do the uses that are left, which others may have counted meanwhile, unless the lifetime is another one now.
    """
    if kept is None:
        return no_record(record.id)
    if kept.version != expected:
        return other_version(kept, expected)
    uses_left = kept.uses_left if record.ttl == kept.ttl else record.uses_left
    new = replace(
        record, version=kept.version + 1, created_by=kept.created_by, created_at=kept.created_at, uses_left=uses_left,
        updated_at=record.updated_at or now,
    )  # fmt: skip
    body = written(new)
    return checked(new, body) or NextVersion(read(new.project, new.id, body), body)


def replayed(used: UsedKey, digest: str) -> Conflict | None:
    """Why the first record under a key cannot be given back, if it cannot."""
    if used.digest != digest:
        return Conflict("this idempotency key was used for other content; use a new key for another record")
    if used.is_gone:
        return KeySpent("the record that was created under this idempotency key is gone; use a new key for another one")
    return None


def no_record(record_id: str) -> NotFound:
    return NotFound(f"there is no record {record_id[:200]!r}")


def taken(record_id: str) -> Conflict:
    return Conflict(f"there is a record {record_id[:200]!r} already; create it under another id, or update it")


def other_version(kept: Record, expected: int) -> Conflict:
    return Conflict(
        f"record {kept.id[:200]!r} is at version {kept.version}, not {expected}; read it, and make the change again"
    )


def key_digest(author: str, key: str) -> str:
    """Under what a key is looked for: each author has keys of its own, of any length."""
    return sha256(repr((author, key)).encode()).hexdigest()


def content_digest(record: Record) -> str:
    """What must be the same under one key: all that was asked for, and nothing that follows from that or the time."""
    said = [
        record.schema_name, record.title, record.tags, record.context, record.llm_hints, record.visibility.value,
        record.sensitivity.value, record.ttl,
    ]  # fmt: skip
    return sha256(orjson.dumps(orjson.loads(dump(said)), option=orjson.OPT_SORT_KEYS)).hexdigest()


def number_of(at: float) -> int:
    """The first number that a record of this date can have. Numbers rise with dates."""
    return int(at * _MICROSECONDS)


def free_number(taken: int, newest: Callable[[int, int], int]) -> int:
    """A number for one of several records of the same moment: behind those that are close to the one that is taken.

    `newest` gives the highest number from the first one on and below the other.
    """
    for far in (_CLOSE_BY, NUMBERS_AT_ONCE, 1 << 62):
        free = newest(taken, taken + far) + 1
        if free < taken + far:
            break
    return free


def last_seen(record: Record, kind: ChangeKind, by: str, now: float) -> Record:
    """What the change says of a record that goes."""
    return replace(record, updated_by=by, updated_at=now) if kind is ChangeKind.DELETED else record


def left_behind(record: Record, last: Record) -> Record:
    """What the changes of a deleted record go on saying of a version: not what it was to be deleted for.

    Who may not see the last version is not shown an earlier one either, though all could see it then.
    """
    if record.sensitivity is not Sensitivity.NORMAL:
        record = replace(record, context={}, llm_hints=None)
    elif last.sensitivity is not Sensitivity.NORMAL:
        record = replace(record, sensitivity=last.sensitivity)
    if _OPENNESS.index(last.visibility) < _OPENNESS.index(record.visibility):
        record = replace(record, visibility=last.visibility)
    return record


def fits(record: Record, query: RecordQuery, words: Collection[str]) -> bool:
    """Whether a record is wanted; `words` are those under which it is found."""
    tags = set(record.tags)
    return (
        query.schema_name in ("", record.schema_name)
        and record.schema_name not in query.without_schemas
        and query.created_by in ("", record.created_by)
        and (not query.any_tags or not tags.isdisjoint(query.any_tags))
        and tags.issuperset(query.all_tags)
        and (query.since is None or record.created_at >= query.since)
        and (query.until is None or record.created_at < query.until)
        and may_be_shown(record, query)
        and has_text(words, query.text)
    )


def has_text(words: Collection[str], text: str) -> bool:
    """Whether all words of a text are among those of a record."""
    if not text.strip():
        return True
    wanted = _asked(text)
    return bool(wanted) and all(word in words for word in wanted)


def own_matches(matches: Sequence[WordMatch], project: str) -> Sequence[WordMatch]:
    """The matches, which are all of this project. Raises StoreError."""
    if any(match.project != project for match in matches):
        raise StoreError("a match is asked in the project that it was made for")
    return matches


_asked = lru_cache(maxsize=64)(query_words)  # the same text is compared with record after record


def may_be_shown(record: Record, query: RecordQuery) -> bool:
    """Whether the caller who asks may see the record at all."""
    if record.visibility is Visibility.PRIVATE and query.reader not in (None, record.created_by):
        return False
    if query.public_only and record.visibility is not Visibility.PUBLIC:
        return False
    return not (query.without_sensitive and record.sensitivity is not Sensitivity.NORMAL)
