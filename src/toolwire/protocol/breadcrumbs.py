"""A record: what agents and people keep and share in a project. The seeds call it a breadcrumb."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

LONGEST_RECORD_NAME = 200
"""In characters: of an id, a schema or an author. Every store can look for it."""
LONGEST_TITLE = 500
MOST_TAGS = 64
LONGEST_TAG = 200
MOST_CONTEXT_BYTES = 1 << 20
"""Of a record as it is kept, nearly all of which is its context."""
MOST_LEVELS = 64
"""How deep a record is nested at most."""


class Visibility(StrEnum):
    """Who may read a record: its author, every caller of its project, or also those with read-only access."""

    PRIVATE = "private"
    PROJECT = "project"
    PUBLIC = "public"


class Sensitivity(StrEnum):
    """What may be done with a record's content.

    Personal data (`pii`) is never shown to models, sent to webhooks or indexed. The context of a secret is encrypted
    where it is kept and is in no view at all; only the executor of a tool that is bound to it reads it.
    """

    NORMAL = "normal"
    PII = "pii"
    SECRET = "secret"


class ChangeKind(StrEnum):
    """What happened to a record. Each change is one of them, once."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    EXPIRED = "expired"


class Record(Struct, frozen=True):
    """One version of a record. `(project, id)` is its identity; every change makes the next `version` of it.

    `ttl` is the lifetime as it was asked for. From it follow `expires_at`, and for one that ends with its use the
    `uses_left`: both None where it lasts. `turn_id` and `call_id` name the call that wrote it, where one did.
    `origins` name the untrusted content that turns had read before they wrote to it: a call that reads the record is
    untrusted by them. A later version keeps those of the earlier ones.
    """

    id: str
    project: str
    schema_name: str
    title: str = ""
    tags: tuple[str, ...] = ()
    context: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    llm_hints: Mapping[str, Any] | None = None
    visibility: Visibility = Visibility.PROJECT
    sensitivity: Sensitivity = Sensitivity.NORMAL
    ttl: Mapping[str, Any] | None = None
    expires_at: float | None = None
    uses_left: int | None = None
    created_by: str = ""
    created_at: float = 0.0
    updated_by: str = ""
    updated_at: float = 0.0
    turn_id: str = ""
    call_id: str = ""
    origins: tuple[str, ...] = ()


class RecordQuery(Struct, frozen=True):
    """Which records are wanted. Everything that is given must hold; `reader` is the caller who asks.

    `text` are words that all stand in title, tags or context. Without a reader, private records of all authors are
    found: only for the runtime itself. Readers with read-only access see `public_only`, and models see records
    `without_sensitive` ones: neither personal data nor secrets. Records were created at `since` or later, and before
    `until`; none is of a type in `without_schemas`.
    """

    schema_name: str = ""
    any_tags: tuple[str, ...] = ()
    all_tags: tuple[str, ...] = ()
    text: str = ""
    created_by: str = ""
    since: float | None = None
    until: float | None = None
    reader: str | None = None
    public_only: bool = False
    without_sensitive: bool = False
    without_schemas: tuple[str, ...] = ()


class RecordChange(Struct, frozen=True):
    """One change of a record: what happened, when, and the version that was made by it or was there last.

    Of a record that was deleted, `updated_by` and `updated_at` say who did that and when, and the context of one that
    was sensitive is left out, in its earlier changes, too.
    """

    kind: ChangeKind
    at: float
    record: Record
