"""Who may see a record, and who may change it.

    visibility   seen by
    private      its author
    project      its author, writers, admins, models
    public       readers too

Models see no personal data and no secrets. The runtime sees everything. What a caller may not see is not found, so
that asking for it tells nothing.
"""

from urllib.parse import urlsplit

from msgspec.structs import replace

from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.rules.schemas import type_family
from toolwire.breadcrumbs.rules.subscriptions import SUBSCRIPTION
from toolwire.errors import NotPermitted
from toolwire.protocol.breadcrumbs import Record, RecordQuery, Sensitivity, Visibility

READ_ONLY = frozenset({Role.READER})
_OWNER_FIELDS = ("visibility", "sensitivity")


def may_see(record: Record, caller: Caller) -> bool:
    """Whether a caller is shown a record at all."""
    if caller.role is Role.RUNTIME:
        return True
    if caller.role is Role.MODEL and record.sensitivity is not Sensitivity.NORMAL:
        return False
    if record.visibility is Visibility.PRIVATE:
        return record.created_by == caller.author
    return record.visibility is Visibility.PUBLIC or caller.role is not Role.READER


def shown_to(record: Record, caller: Caller) -> Record:
    """What a caller sees of a record that it may see: no context of a secret, and of the addresses of others the host.

    The path of an address can be a secret of its own: all who have it may send to that place.
    """
    if record.sensitivity is Sensitivity.SECRET:
        return replace(record, context={})
    if caller.author == record.created_by or caller.role in (Role.ADMIN, Role.RUNTIME):
        return record
    url = record.context.get("url")
    if not isinstance(url, str) or type_family(record.schema_name) != type_family(SUBSCRIPTION):
        return record
    return replace(record, context={**record.context, "url": _host_of(url)})


def _host_of(url: str) -> str:
    try:
        place = urlsplit(url)
        return f"{place.scheme}://{place.hostname}/…"
    except ValueError:
        return "…"


def visible_to(query: RecordQuery, caller: Caller) -> RecordQuery:
    """The same query for no more than what the caller may see."""
    if caller.role is Role.RUNTIME:
        return query
    return replace(
        query,
        reader=caller.author,
        public_only=query.public_only or caller.role is Role.READER,
        without_sensitive=query.without_sensitive or caller.role is Role.MODEL,
    )


def require_writer(caller: Caller) -> None:
    """Raises `NotPermitted` for a caller who may only read."""
    if caller.role in READ_ONLY:
        raise NotPermitted(f"{caller.name} may read records only; list it in records.writers to let it write")


def require_may_change(before: Record, after: Record, caller: Caller) -> None:
    """Raises `NotPermitted` where a version may not follow another one, by this caller."""
    if Sensitivity.SECRET in (before.sensitivity, after.sensitivity) and before.sensitivity != after.sensitivity:
        raise NotPermitted("a record is secret from its first version on, or never; create another one")
    if caller.author == before.created_by or caller.role is Role.RUNTIME:
        return
    if type_family(before.schema_name) == type_family(SUBSCRIPTION) and before.context != after.context:
        # It hears what its author may read: with another address, those who changed it would hear that.
        raise NotPermitted("what a subscription says is changed by its author; make one of your own, or delete it")
    if caller.role is Role.ADMIN:
        return
    if caller.role is Role.MODEL and before.llm_hints != after.llm_hints:
        raise NotPermitted("llm_hints say what models are shown: a model changes them for records of its own only")
    if (before.uses_left is not None or caller.role is Role.MODEL) and before.ttl != after.ttl:
        # A model cannot delete what others wrote, and cannot let it expire either.
        raise NotPermitted("how long a record lasts, or how often it is used, is changed by its author or by an admin")
    for name in _OWNER_FIELDS:
        if getattr(before, name) != getattr(after, name):
            raise NotPermitted(f"the {name} of a record is changed by its author or by an admin")
