"""What the tools for records have in common: who asks, what they show, and what their failures are called."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.service import LONGEST_KEY, RecordService
from toolwire.define.fields import Field
from toolwire.errors import Conflict, InvalidRecord, NotFound, NotPermitted, ToolFailure
from toolwire.protocol.breadcrumbs import Record
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier
from toolwire.toolbox.kinds import kind_of

RECORDS = "records"
"""The permission that these tools need, and their category."""

RecordId = Annotated[str, Field(min_length=1, max_length=1_000)]
Tags = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=100)]

finding = kind_of(
    tier=Tier.CRAWL, effect=Effect.PURE, category=RECORDS, needs={RECORDS}, timeout_s=10.0, polling=True
)  # fmt: skip
"""Looks for records."""

writing = kind_of(tier=Tier.WALK, effect=Effect.IDEMPOTENT, category=RECORDS, needs={RECORDS}, timeout_s=10.0)
"""Writes records. The same call again changes nothing more."""


def caller_of(context: Context) -> Caller:
    """A model is the caller, with what its turn has read that is untrusted."""
    return Caller(context.agent, Role.MODEL, context.turn_id, context.call_id, context.tainted_by)


def creation_key(context: Context) -> str:
    """The same for each attempt of a call, so that it creates one record; empty outside of any turn."""
    if not context.turn_id or not context.call_id:
        return ""
    key = f"call:{context.idempotency_key}"
    if len(key) <= LONGEST_KEY and key.isprintable():
        return key
    return f"call:sha256:{hashlib.sha256(key.encode(errors='backslashreplace')).hexdigest()}"


def required(records: RecordService | None) -> RecordService:
    """The service, where there is one."""
    if records is None:
        raise ToolFailure("no store of records can be reached here", code=Code.UNAVAILABLE)
    return records


@contextmanager
def failures() -> Iterator[None]:
    """What goes wrong with records, as failures of a tool."""
    try:
        yield
    except InvalidRecord as wrong:
        raise ToolFailure(str(wrong), code=Code.INVALID_PARAMS) from None
    except NotPermitted as refused:
        raise ToolFailure(str(refused), code=Code.PERMISSION_DENIED) from None
    except NotFound as missing:
        raise ToolFailure(str(missing), code=Code.NOT_FOUND) from None
    except Conflict as other:
        raise ToolFailure(f"{other}; read the record again before you change it") from None


def tell_read(context: Context, record: Record) -> None:
    """Say what was read: a record that was written after reading untrusted content makes the result untrusted."""
    if record.origins:
        context.read_from(f"record:{record.id}")
        for origin in record.origins:
            context.read_from(origin)


def as_shown(record: Record) -> dict[str, Any]:
    """A record that a model has just written."""
    shown: dict[str, Any] = {
        "id": record.id,
        "schema_name": record.schema_name,
        "title": record.title,
        "tags": list(record.tags),
        "version": record.version,
        "context": _plain(record.context),
        "created_by": record.created_by,
        "updated_by": record.updated_by,
        "updated_at": record.updated_at,
    }
    if record.expires_at is not None:
        shown["expires_at"] = record.expires_at
    return shown


def _plain(context: Mapping[str, Any]) -> dict[str, Any]:
    return dict(context)
