"""Approving and rejecting records by their tags, and what of that a model may do.

    draft, pending   →  approved, validated        or        rejected

A tag `approval:person` says that a person decides. A model decides about the work of others only, and can write none of
these tags in any other way. Where it changes what was approved, that is pending again.
"""

import unicodedata
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


def reopened_tags(before: Record, after: Record, caller: Caller) -> tuple[str, ...]:
    """The tags of a version: an approval is for what it was given for, not for what a model makes of it later."""
    is_same = (before.title, before.context, before.llm_hints) == (after.title, after.context, after.llm_hints)
    if caller.role is not Role.MODEL or is_same or not set(_APPROVED) & set(before.tags):
        return after.tags
    return tuple(dict.fromkeys((*(tag for tag in after.tags if tag not in _APPROVED), "pending")))


def require_may_decide(record: Record, caller: Caller, authors: Iterable[str]) -> None:
    """Raises `InvalidRecord` where nothing is to be decided, and `NotPermitted` where this caller may not.

    `authors` are those who wrote any version of the record.
    """
    if caller.role is Role.MODEL:
        if BY_PERSON in record.tags:
            raise NotPermitted(f"this record is tagged {BY_PERSON}: a person approves or rejects it, not a model")
        if caller.author in authors:
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
    added = {tag for tag in new - old if _plain(tag) in _NOT_ADDED}
    changed = sorted(added | ((old - new) & _NOT_REMOVED))
    if changed:
        raise NotPermitted(
            f"the tag {changed[0]!r} is part of an approval; use breadcrumb-approve, or leave it to a person"
        )


def _plain(tag: str) -> str:
    """A tag as people read it: `Approved`, or one with a character that is not shown, looks like the tag itself."""
    shown = (char for char in unicodedata.normalize("NFKD", tag) if unicodedata.category(char) not in ("Cf", "Mn"))
    return "".join(shown).casefold().strip()
