"""The tools that create, change, approve and reject records."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from toolwire.breadcrumbs.new_records import read_new_record
from toolwire.breadcrumbs.rules.callers import Caller
from toolwire.breadcrumbs.rules.responses import SESSION, with_session
from toolwire.breadcrumbs.service import RecordService
from toolwire.define.fields import Field
from toolwire.errors import Conflict, NotFound, NotPermitted, ToolFailure
from toolwire.protocol.breadcrumbs import Record
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool
from toolwire.toolbox.records.access import (
    RecordId,
    Tags,
    as_shown,
    caller_of,
    creation_key,
    failures,
    required,
    tell_read,
    writing,
)

_ATTEMPTS = 5
_SUCCESS = Field(description="True; a failure is an error of the call.")
_BREADCRUMB = Field(description="The record as it is now, with its version.")
_ERROR = Field(description="Null; a failure is an error of the call.")
_ID = Field(description="The id of the record.")
_Reason = Annotated[str, Field(max_length=2_000)]
_Version = Annotated[int, Field(ge=1)]


class CreateOutput(TypedDict):
    id: Annotated[str, _ID]
    success: Annotated[bool, _SUCCESS]
    breadcrumb: Annotated[dict[str, Any], _BREADCRUMB]
    error: Annotated[str | None, _ERROR]


class UpdateOutput(TypedDict):
    success: Annotated[bool, _SUCCESS]
    id: Annotated[str, _ID]
    new_version: Annotated[int, Field(description="The version after the update.")]
    breadcrumb: Annotated[dict[str, Any], _BREADCRUMB]
    error: Annotated[str | None, _ERROR]


class MergeOutput(TypedDict):
    success: Annotated[bool, _SUCCESS]
    id: Annotated[str, _ID]
    operation: Annotated[str, Field(description="What was done: context-merge.")]
    new_version: Annotated[int, Field(description="The version after the merge.")]


class ApproveOutput(TypedDict):
    success: Annotated[bool, _SUCCESS]
    id: Annotated[str, _ID]
    action: Annotated[str, Field(description="What was decided: approve or reject.")]
    reason: Annotated[str, Field(description="Why, as it is in the audit log.")]


def create_record_tool(records: RecordService | None) -> Tool:
    """The tool `breadcrumb-create`."""

    @writing(
        name="breadcrumb-create",
        examples=({"schema_name": "note.v1", "title": "Meeting Notes", "tags": ["note"], "context": {"content": "…"}},),
    )
    async def create(
        context_: Context,
        schema_name: Annotated[str, Field(min_length=1, max_length=128)],
        title: Annotated[str, Field(min_length=1, max_length=500)],
        tags: Tags = [],  # noqa: B006 - never changed, and [] is what models read
        context: dict[str, Any] = {},  # noqa: B006 - the same
        visibility: Literal["project", "private", "public"] = "project",
        ttl: str | dict[str, Any] | None = None,
    ) -> CreateOutput:
        """Create a record (breadcrumb) that agents and people of this project share.

        Args:
            schema_name: Its type, such as note.v1.
            title: What it is, in one line.
            tags: Words to find it by. The tag of this session is added.
            context: What it holds.
            visibility: Who may read it: this project, its author alone, or also those with read-only access.
            ttl: How long it lasts, such as 2h or 30d; without it, until it is deleted.
        """
        said = {
            "schema_name": schema_name, "title": title, "context": context, "visibility": visibility, "ttl": ttl,
            "tags": with_session(tags, context_.thread),
        }  # fmt: skip
        with failures():
            record = await required(records).create(
                read_new_record(said), caller_of(context_), key=creation_key(context_)
            )
        return {"id": record.id, "success": True, "breadcrumb": as_shown(record), "error": None}

    return create


def update_record_tool(records: RecordService | None) -> Tool:
    """The tool `breadcrumb-update`."""

    @writing(
        name="breadcrumb-update",
        examples=({"breadcrumb_id": "0198…", "updates": {"tags": ["note", "important"]}, "version": 1},),
    )
    async def update(
        context: Context,
        breadcrumb_id: RecordId,
        updates: Annotated[dict[str, Any], Field(min_length=1)],
        version: _Version | None = None,
    ) -> UpdateOutput:
        """Change a record (breadcrumb). Fields that are not named stay; null removes a field of the context.

        Args:
            breadcrumb_id: The id of the record.
            updates: What changes, such as title, tags or context.
            version: The version that you have read; without it, the one that you were shown last in this turn.
        """
        service, caller = required(records), caller_of(context)
        with failures():
            record = await _repeated(service, breadcrumb_id, context)
            if record is None:
                expected = version or await service.version_seen(breadcrumb_id, caller)
                if expected is None:
                    raise ToolFailure(_UNREAD, code=Code.INVALID_PARAMS)
                before = await service.read(breadcrumb_id, caller)
                record = await service.patch(breadcrumb_id, _in_session(updates, before), expected, caller)
            shown = await _as_seen(service, record, caller)
        tell_read(context, record)
        return {"success": True, "id": record.id, "new_version": record.version, "breadcrumb": shown, "error": None}

    return update


_UNREAD = (
    "say which version of the record you have read: read it with breadcrumb-search (breadcrumb_id), then update it, "
    "or give its version"
)


def merge_context_tool(records: RecordService | None) -> Tool:
    """The tool `breadcrumb-context-merge`."""

    @writing(
        name="breadcrumb-context-merge",
        examples=({"breadcrumb_id": "0198…", "context": {"limits": {"timeout_ms": 180_000}}},),
    )
    async def merge(
        context_: Context, breadcrumb_id: RecordId, context: Annotated[dict[str, Any], Field(min_length=1)]
    ) -> MergeOutput:
        """Merge fields into the context of a record (breadcrumb), at any depth; all other fields stay as they are.

        Args:
            breadcrumb_id: The id of the record.
            context: The fields to set; null removes one.
        """
        service = required(records)
        with failures():
            record = await _repeated(service, breadcrumb_id, context_)
            if record is None:
                record = await _merge(service, breadcrumb_id, context, caller_of(context_))
        return {"success": True, "id": record.id, "operation": "context-merge", "new_version": record.version}

    return merge


def approve_record_tool(records: RecordService | None) -> Tool:
    """The tool `breadcrumb-approve`."""

    @writing(
        name="breadcrumb-approve",
        examples=(
            {"breadcrumb_id": "0198…", "reason": "Passes all checks."},
            {"breadcrumb_id": "0198…", "action": "reject", "reason": "The schema is missing."},
        ),
    )
    async def approve(
        context: Context,
        breadcrumb_id: RecordId,
        action: Literal["approve", "reject"] = "approve",
        reason: _Reason = "",
    ) -> ApproveOutput:
        """Approve or reject a record (breadcrumb) of another agent that is tagged draft or pending.

        Args:
            breadcrumb_id: The id of the record.
            action: What you decide.
            reason: Why.
        """
        service, caller = required(records), caller_of(context)
        with failures():
            seen = await service.version_seen(breadcrumb_id, caller)
            record = await service.decide(
                breadcrumb_id, caller, approve=action == "approve", reason=reason, expected=seen
            )
        return {"success": True, "id": record.id, "action": action, "reason": reason}

    return approve


async def _as_seen(service: RecordService, record: Record, caller: Caller) -> dict[str, Any]:
    """A record that a model has changed, as its hints show it to models: others may have written most of it."""
    try:
        view = await service.llm_view(record, caller)
    except (NotFound, NotPermitted):  # it is personal data from now on
        return {**as_shown(record), "context": {}}
    return {**as_shown(record), "context": view["context"]}


def _in_session(updates: Mapping[str, Any], before: Record) -> dict[str, Any]:
    """The updates of a model, which leave the record in the session in which it is."""
    if not isinstance(updates.get("tags"), list):
        return dict(updates)
    own = [tag for tag in before.tags if tag.startswith(SESSION)]
    tags = [tag for tag in updates["tags"] if not (isinstance(tag, str) and tag.startswith(SESSION))]
    return {**updates, "tags": [*tags, *own]}


async def _repeated(service: RecordService, record_id: str, context: Context) -> Record | None:
    """The version that an earlier attempt of this call has written; None where there is none."""
    if context.attempt <= 1:
        return None
    versions = await service.history(record_id, caller_of(context))
    mine = (context.turn_id, context.call_id)
    return next((one for one in versions if (one.turn_id, one.call_id) == mine), None)


async def _merge(service: RecordService, record_id: str, fields: Mapping[str, Any], caller: Caller) -> Record:
    """Merge into whatever the context is by now: only the named fields are changed, so nothing else can get lost."""
    for attempt in range(1, _ATTEMPTS + 1):
        before = await service.read(record_id, caller)
        try:
            return await service.patch(record_id, {"context": dict(fields)}, before.version, caller)
        except Conflict:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")
