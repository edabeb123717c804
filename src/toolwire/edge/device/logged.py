"""What a device has done lately, for its operators: calls without their arguments and results, and refused messages."""

from typing import Any

import orjson

from toolwire.edge.device.journal import CallJournal, JournalEvent, JournalRow

MOST_LOGGED = 500


async def logged_rows(journal: CallJournal, most: int) -> list[dict[str, Any]]:
    """The newest rows, oldest first."""
    rows = [_call(row) for row in await journal.newest(most)]
    rows += [_event(event) for event in await journal.events(most)]
    return sorted(rows, key=lambda row: float(row["at"]))[-most:]


def _call(row: JournalRow) -> dict[str, Any]:
    command = orjson.loads(row.command)
    body = orjson.loads(row.body) if row.body else {}
    payload = command.get("payload") or {}
    return {
        "at": command.get("sent_at") or 0.0,
        "kind": str(command.get("command", "")),
        "tool": str(payload.get("tool", "")),
        "state": row.state.value,
        "status": str(body.get("status", "")),
        "error": str(body.get("error", "")),
        "elapsed_ms": body.get("elapsed_ms"),
    }


def _event(event: JournalEvent) -> dict[str, Any]:
    return {
        "at": event.at, "kind": "refused", "tool": "", "state": event.kind, "status": "error",
        "error": str(event.detail.get("message", "")), "elapsed_ms": None,
    }  # fmt: skip
