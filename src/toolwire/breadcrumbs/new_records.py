"""A record as it is asked for: every field checked before anything is kept.

What is refused here can be kept by no store, or would harm those who read it: text with NUL, half a character, JSON of
a thousand levels, a thousand tags.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

import orjson
from msgspec import Struct

from toolwire.breadcrumbs.rules.hints.reading import read_hints
from toolwire.breadcrumbs.rules.schemas import check_schema_name
from toolwire.define.nearest import nearest
from toolwire.define.soundness import as_bytes, is_sound, unsound
from toolwire.errors import InvalidRecord
from toolwire.protocol.breadcrumbs import (
    LONGEST_TAG,
    LONGEST_TITLE,
    MOST_CONTEXT_BYTES,
    MOST_TAGS,
    Record,
    Sensitivity,
    Visibility,
)

Choice = TypeVar("Choice", bound=StrEnum)

LONGEST_HINTS = 64 * 1024
LONGEST_CONTEXT = MOST_CONTEXT_BYTES - 4 * LONGEST_HINTS
"""In bytes, as JSON. The store counts the whole record: hints, title, tags and what it adds itself."""

PATCHABLE = ("title", "tags", "context", "llm_hints", "visibility", "sensitivity", "ttl")
FIELDS = ("schema_name", *PATCHABLE)


class NewRecord(Struct, frozen=True):
    """What a record is created with. `read_new_record` makes one of what a client sent."""

    schema_name: str
    title: str = ""
    tags: tuple[str, ...] = ()
    context: Mapping[str, Any] | None = None
    llm_hints: Mapping[str, Any] | None = None
    visibility: Visibility = Visibility.PROJECT
    sensitivity: Sensitivity = Sensitivity.NORMAL
    ttl: Any = None


def read_new_record(said: Any) -> NewRecord:
    """What a client asks for, as one object. Raises `InvalidRecord`."""
    if not isinstance(said, Mapping):
        raise InvalidRecord('a record is an object such as {"schema_name": "note.v1", "title": "…", "context": {…}}')
    require_known(said, FIELDS)
    if said.get("schema_name") is None:
        raise InvalidRecord("schema_name is missing; name the type of the record, such as note.v1")
    return check_new_record(NewRecord(**{str(name): value for name, value in said.items() if value is not None}))


def check_new_record(new: NewRecord) -> NewRecord:
    """The same with every field as it is kept. Raises `InvalidRecord`."""
    return NewRecord(
        check_schema_name(new.schema_name),
        _title(new.title),
        _tags(new.tags),
        check_object(new.context if new.context is not None else {}, "context", LONGEST_CONTEXT),
        None if new.llm_hints is None else check_hints(new.llm_hints, "llm_hints"),
        _choice(Visibility, new.visibility, "visibility"),
        _choice(Sensitivity, new.sensitivity, "sensitivity"),
        new.ttl,
    )


def fields_of(record: Record) -> dict[str, Any]:
    """What of a record can be patched, as the document that a merge patch is applied to."""
    return {
        "title": record.title,
        "tags": list(record.tags),
        "context": record.context,
        "llm_hints": record.llm_hints,
        "visibility": record.visibility,
        "sensitivity": record.sensitivity,
        "ttl": record.ttl,
    }


def require_known(said: Mapping[str, Any], fields: Iterable[str]) -> None:
    """Raises `InvalidRecord` for a field that is none of these."""
    known = list(fields)
    for name in said:
        if name not in known:
            near = nearest(str(name)[:40], known)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise InvalidRecord(f"there is no field {str(name)[:40]!r}; {advice}")


def check_object(value: Any, what: str, most: int) -> dict[str, Any]:
    """A plain copy of a JSON object that every store can keep. Raises `InvalidRecord`."""
    if not isinstance(value, Mapping):
        raise InvalidRecord(f"{what} must be a JSON object")
    plain = value if type(value) is dict else dict(value)
    data = as_bytes(plain)
    if data is None or not is_sound(plain, data):
        found = next(unsound(plain), "it has a value that JSON cannot carry, or a number of more than 64 bits")
        raise InvalidRecord(f"{what}: {found.removeprefix('arguments: ')}")
    if len(data) > most:
        raise InvalidRecord(f"{what} has {len(data)} bytes as JSON; at most {most} are allowed")
    copy: dict[str, Any] = orjson.loads(data)
    if b"\\u0000" in data and _has_nul(copy):
        raise InvalidRecord(f"{what} has text with the character NUL, which not every store can keep; leave it out")
    return copy


def check_hints(value: Any, what: str) -> dict[str, Any]:
    """Hints for models that can be read; what their engines make of them shows when they are used."""
    hints = check_object(value, what, LONGEST_HINTS)
    read_hints(hints)
    return hints


def _has_nul(value: Any) -> bool:
    waiting: list[Any] = [value]
    for item in waiting:
        if isinstance(item, str):
            if "\0" in item:
                return True
        elif isinstance(item, dict):
            waiting.extend((*item, *item.values()))
        elif isinstance(item, list):
            waiting.extend(item)
    return False


def _title(title: Any) -> str:
    if not isinstance(title, str) or len(title) > LONGEST_TITLE or not _is_plain(title):
        raise InvalidRecord(f"title must be text on one line of at most {LONGEST_TITLE} characters")
    return title


def _tags(tags: Any) -> tuple[str, ...]:
    if not isinstance(tags, (list, tuple)):
        raise InvalidRecord('tags must be a list of text, such as ["session:42", "draft"]')
    if len(tags) > MOST_TAGS:
        raise InvalidRecord(f"a record has at most {MOST_TAGS} tags, not {len(tags)}")
    for tag in tags:
        check_tag(tag)
    return tuple(dict.fromkeys(tags))


def check_tag(tag: Any) -> str:
    """A tag as it is kept. Raises `InvalidRecord`."""
    if not isinstance(tag, str) or not 0 < len(tag) <= LONGEST_TAG or not _is_plain(tag) or tag != tag.strip():
        raise InvalidRecord(f"a tag is text of 1 to {LONGEST_TAG} characters on one line, without space around it")
    return tag


def _is_plain(text: str) -> bool:
    """Whether text has neither control characters nor half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return all(character >= " " and character != "\x7f" for character in text)


def _choice(kind: type[Choice], value: Any, what: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        raise InvalidRecord(f"{what} must be one of {', '.join(kind)}") from None
