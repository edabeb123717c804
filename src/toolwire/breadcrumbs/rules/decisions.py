"""Approving and rejecting records by their tags, and what of that a model may do.

    draft, pending   →  approved, validated        or        rejected

A tag `approval:person` says that a person decides. A model decides about the work of others only, and can write none of
these tags in any other way.
"""

from collections.abc import Iterable

from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.errors import InvalidRecord, NotPermitted
from toolwire.protocol.breadcrumbs import Record

BY_PERSON = "approval:person"
_OPEN = ("draft", "pending")
_APPROVED, _REJECTED = ("approved", "validated"), ("rejected",)
_NOT_ADDED = frozenset((*_APPROVED, *_REJECTED))
_NOT_REMOVED = frozenset((*_NOT_ADDED, "pending", BY_PERSON))


def decided_tags(tags: Iterable[str], *, approve: bool) -> tuple[str, ...]:
    """The tags of a record after a decision about it."""
    added = _APPROVED if approve else _REJECTED
    gone = {*_OPEN, *_APPROVED, *_REJECTED}
    return (*(tag for tag in tags if tag not in gone), *added)


def require_may_decide(record: Record, caller: Caller) -> None:
    """Raises `InvalidRecord` where nothing is to be decided, and `NotPermitted` where this caller may not."""
    if caller.role is Role.MODEL:
        if BY_PERSON in record.tags:
            raise NotPermitted(f"this record is tagged {BY_PERSON}: a person approves or rejects it, not a model")
        if caller.author in (record.created_by, record.updated_by):
            raise NotPermitted(
                "an agent does not approve or reject what it wrote itself; another agent or a person does"
            )
    if not set(_OPEN) & set(record.tags):
        raise InvalidRecord("there is nothing to decide: only records tagged draft or pending are approved or rejected")


def require_same_decision(before: Iterable[str], after: Iterable[str], caller: Caller) -> None:
    """Raises `NotPermitted` where a model would decide about a record by writing tags."""
    if caller.role is not Role.MODEL:
        return
    old, new = set(before), set(after)
    changed = sorted(((new - old) & _NOT_ADDED) | ((old - new) & _NOT_REMOVED))
    if changed:
        raise NotPermitted(
            f"the tag {changed[0]!r} is part of an approval; use breadcrumb-approve, or leave it to a person"
        )
