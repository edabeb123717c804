"""A subscription: which changes of records its author wants to hear of, and where to, as a `subscription.v1` record.

    {"selector": {"any_tags": ["urgent"]}, "kinds": ["created", "updated"], "url": "https://example.org/hook"}

Without a `url` it is followed over HTTP, as server-sent events. Its follower hears of no record that it may not read
itself.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from toolwire.breadcrumbs.rules.selectors import Selector, read_selector
from toolwire.errors import InvalidRecord
from toolwire.protocol.breadcrumbs import ChangeKind

SUBSCRIPTION = "subscription.v1"
LONGEST_URL = 2_000
_FIELDS = ("selector", "kinds", "url", "is_active", "comment")
ALL_KINDS = frozenset(ChangeKind)


class RecordSubscription(Struct, frozen=True):
    """A subscription that was read and checked."""

    selector: Selector
    kinds: frozenset[ChangeKind] = ALL_KINDS
    url: str = ""
    is_active: bool = True


def read_subscription(context: Mapping[str, Any]) -> RecordSubscription:
    """The subscription that the context of a record says. Raises InvalidRecord."""
    for name in context:
        if name not in _FIELDS:
            near = get_close_matches(str(name)[:40], _FIELDS, 1)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(_FIELDS)}"
            raise InvalidRecord(f"a subscription has no field {str(name)[:40]!r}; {advice}")
    if "selector" not in context:
        raise InvalidRecord('a subscription has a selector, such as {"any_tags": ["urgent"]}')
    url, is_active = context.get("url", ""), context.get("is_active", True)
    if not isinstance(url, str) or len(url) > LONGEST_URL or ("url" in context and not url):
        raise InvalidRecord(f"the url of a subscription is an http(s) address of at most {LONGEST_URL} characters")
    if not isinstance(is_active, bool):
        raise InvalidRecord("is_active of a subscription is true or false")
    kinds = read_kinds(context.get("kinds"))
    return RecordSubscription(read_selector(context["selector"]), kinds, url, is_active)


def read_kinds(asked: Any) -> frozenset[ChangeKind]:
    """The kinds of changes that are wanted; all of them where none are named. Raises InvalidRecord."""
    if asked is None:
        return ALL_KINDS
    known = [kind.value for kind in ChangeKind]
    if not isinstance(asked, (list, tuple)) or not asked or not all(kind in known for kind in asked):
        raise InvalidRecord(f"kinds is a list of {', '.join(known)}; leave it out for all of them")
    return frozenset(map(ChangeKind, asked))
