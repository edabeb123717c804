"""A record as JSON, for the HTTP API, its events and the command line."""

from typing import Any

from toolwire.protocol.breadcrumbs import Record, Sensitivity


def record_object(record: Record, *, context: bool = True) -> dict[str, Any]:
    """All of a record that came out of the service; without its context and hints where those are not wanted."""
    shown: dict[str, Any] = {
        "id": record.id,
        "version": record.version,
        "schema_name": record.schema_name,
        "title": record.title,
        "tags": list(record.tags),
        "visibility": record.visibility.value,
        "sensitivity": record.sensitivity.value,
        "is_sealed": record.sensitivity is Sensitivity.SECRET,
        "ttl": record.ttl,
        "expires_at": record.expires_at,
        "uses_left": record.uses_left,
        "created_by": record.created_by,
        "created_at": record.created_at,
        "updated_by": record.updated_by,
        "updated_at": record.updated_at,
        "turn_id": record.turn_id or None,
        "call_id": record.call_id or None,
        "origins": list(record.origins),
    }
    return {**shown, "context": record.context, "llm_hints": record.llm_hints} if context else shown
