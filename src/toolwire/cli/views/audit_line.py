"""One line of the audit log, for people."""

import time
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from toolwire.cli.terminal.text import duration, on_one_line, one_line, quantity
from toolwire.protocol.records import AuditRow

_SHOWN_HOSTS = 3
_STYLES = {"allowed": "green", "approved": "green", "denied": "red", "rejected": "red", "awaiting_approval": "yellow"}
_STATUS_STYLES = {"success": "green", "failed": "red", "timeout": "red", "canceled": "yellow", "partial": "yellow"}


def row_line(row: AuditRow) -> Text:
    """`01-31 12:00:00  finished  bash  success 0.4 ms in bubblewrap  call_…`."""
    at = time.strftime("%m-%d %H:%M:%S", time.localtime(row.at))
    style = _STATUS_STYLES.get(row.status) or _STYLES.get(row.event, "")
    said = (row.status, row.code, row.rule and f"by {row.rule}")
    how = " ".join(dict.fromkeys(part for part in said if part))
    took = f" {duration(row.elapsed_ms)}" if row.elapsed_ms else ""
    engine = on_one_line(str(row.detail.get("engine", "")))
    box = (f" in {engine}" if engine else "", "bold red" if engine == "none" else "")
    person = f", {one_line(str(row.detail['by']), 60)} said so" if row.detail.get("by") else ""
    if row.event == "network":
        how = _network(row.detail)
    elif row.event.startswith("record_"):
        how = _record(row)
    read = (f" from {on_one_line(str(row.detail['origins'][0]))}" if row.detail.get("origins") else "", "yellow")
    about = on_one_line(row.call_id or row.turn_id)
    return Text.assemble(
        (at, "dim"), "  ", (f"{on_one_line(row.event):<8}", style), "  ", (f"{one_line(row.tool, 60):<10}", "bold"),
        "  ", on_one_line(how), person, took, box, read, "  " if how else "", (about, "dim"),
    )  # fmt: skip


def _record(row: AuditRow) -> str:
    """`note.v1 0199… version 2 by ann (admin)`."""
    detail = row.detail
    said = (row.status, str(detail.get("schema_name", "")), str(detail.get("record", "")))
    version = f"version {detail['version']}" if "version" in detail else ""
    by = f"by {row.agent} ({detail['role']})" if "role" in detail else f"by {row.agent}"
    return " ".join(filter(None, (*said, version, by)))


def _network(detail: Mapping[str, Any]) -> str:
    """`reached good.test:443 (2 connections, 310 B out, 5120 B in); refused evil.test:443 (3 times: …) and 40 more`."""
    reached = [
        f"{one['host']} ({quantity(one['connections'], 'connection')}, {one['up']} B out, {one['down']} B in)"
        for one in detail.get("reached", ())
    ]
    refused = [
        f"{one['host']} ({quantity(one['count'], 'time')}: {one['reason']})" for one in detail.get("refused", ())
    ]
    parts = (
        _hosts_text("reached", reached, detail.get("more_reached", 0), "more connections"),
        _hosts_text("refused", refused, detail.get("more_refused", 0), "more requests"),
    )
    return "; ".join(filter(None, parts))


def _hosts_text(what: str, hosts: list[str], more: int, unit: str) -> str:
    if not hosts:
        return ""
    hidden = len(hosts) - _SHOWN_HOSTS
    others = f" and {hidden} more hosts" if hidden > 0 else ""
    return f"{what} {', '.join(hosts[:_SHOWN_HOSTS])}{others}" + (f" and {more} {unit} to others" if more else "")
