"""The rules for registered tools and for cards of results, the same in every store.

What is registered as a version stays what it is: who calls `search@1.2` today gets what was approved yesterday. Other
content under the same version is refused, unless its writer says that it replaces what is there.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace as with_fields

from toolwire.errors import Conflict, NotFound, StoreError
from toolwire.protocol.records import AuditRow
from toolwire.protocol.registrations import ResultCard, ToolRegistration

MOST_REGISTERED = 2_000
"""Versions of tools in one project."""
MOST_CARDS = 16
"""Cards of results for one call. What the runtime itself keeps about it, under no author, does not count."""

Version = tuple[str, str]
"""The name of a tool, and its version."""
Kept = Mapping[Version, ToolRegistration]


class Registered(NamedTuple):
    """What a change of a project's registry comes to: all rows that were named, those to write, and audit rows."""

    rows: list[ToolRegistration]
    new: list[ToolRegistration]
    audit: list[AuditRow]


def register(
    kept: Kept, rows: Sequence[ToolRegistration], *, by: str, at: float, replace: bool
) -> Registered | StoreError:
    """Add versions of tools to those that a project has: all of them, or none."""
    known, new, audit = dict(kept), list[ToolRegistration](), list[AuditRow]()
    for row in rows:
        before = known.get((row.name, row.version))
        if before is not None and before.digest == row.digest:
            continue
        if before is not None and not replace:
            return Conflict(
                f"{row.name}@{row.version} is registered for project {row.project!r} with other content; "
                "register it under a new version, or replace it"
            )
        after = with_fields(row, created_at=before.created_at if before else at, updated_at=at)
        known[row.name, row.version] = after
        new.append(after)
        audit.append(_audit_row(after, "tool_replaced" if before else "tool_registered", by, at))
    if len(known) > max(MOST_REGISTERED, len(kept)):
        return Conflict(f"a project can have {MOST_REGISTERED:,} versions of tools; remove old ones first")
    return Registered([known[row.name, row.version] for row in rows], new, audit)


def unregister(
    kept: Kept, project: str, name: str, version: str | None, *, by: str, at: float
) -> Registered | StoreError:
    """The rows of a tool that go: one version, or all of them."""
    gone = [row for row in kept.values() if row.name == name and version in (None, row.version)]
    if not gone:
        return not_registered(project, name, version)
    return Registered(gone, [], [_audit_row(row, "tool_unregistered", by, at) for row in gone])


def only_project(rows: Sequence[ToolRegistration]) -> str:
    """The project whose tools all of these are; "" where there are none. Raises `StoreError`."""
    named = {row.project for row in rows}
    if len(named) > 1:
        raise StoreError(f"tools of {len(named)} projects cannot be registered at once; register those of each alone")
    return next(iter(named), "")


def not_registered(project: str, name: str, version: str | None = None) -> NotFound:
    which = name if version is None else f"{name}@{version}"
    return NotFound(f"{which[:200]} is not registered for project {project!r}")


def add_card(before: ResultCard | None, of_call: int, card: ResultCard) -> ResultCard | StoreError | None:
    """What is kept of a card already, or why it cannot be kept; None where it is new."""
    if before is not None:
        return before if before.digest == card.digest else Conflict(f"card {card.id!r} is kept with other content")
    if card.author and of_call >= MOST_CARDS:
        return Conflict(f"call {card.call_id!r} has {MOST_CARDS} cards of results already")
    return None


def no_card(card_id: str) -> NotFound:
    return NotFound(f"there is no card {card_id[:200]!r}")


def _audit_row(row: ToolRegistration, event: str, by: str, at: float) -> AuditRow:
    detail = {"version": row.version, "digest": row.digest, "subject": row.target_subject}
    return AuditRow(at, event, row.project, by, tool=row.name, detail=detail)
