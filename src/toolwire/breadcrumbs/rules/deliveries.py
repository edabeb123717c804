"""Deliveries of changes to webhooks: what one is, when it is tried again, and what a receiver is told.

A change goes to each subscription once, under an id that stays the same however often it is tried; receivers know a
repeated one by that. Content that is personal or secret never leaves: of such a record only is told which one changed.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.errors import InvalidRecord
from toolwire.protocol.breadcrumbs import Record, RecordChange, Sensitivity

DELIVERY, DEAD_LETTER, CURSOR = "webhook.delivery.v1", "webhook.dead_letter.v1", "webhook.cursor.v1"
OWN_TYPES = "webhook."
"""Types that deliveries themselves write: telling of those would never end."""

PAUSES_S = (10.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0, 21_600.0)
"""After each failed attempt; after the last one there is no further attempt."""
COOL_DOWN_S = 60.0
"""For so long after a failure, further changes wait for their receiver instead of being tried."""
_JITTER = 0.4


class WebhookDelivery(Struct, frozen=True):
    """A change that waits to be delivered: which one, to which subscription, and how often it was tried."""

    subscription: str
    cursor: int
    attempts: int = 0
    next_at: float = 0.0
    error: str = ""

    @property
    def id(self) -> str:
        return f"{self.subscription}.{self.cursor}"

    def failed(self, now: float, error: str, chance: float) -> "WebhookDelivery | None":
        """The same after one more failure, to be tried again later; None after the last attempt.

        `chance` is a number from 0 to 1: receivers that failed together are not all tried at the same moment again.
        """
        if self.attempts >= len(PAUSES_S):
            return None
        pause_s = PAUSES_S[self.attempts] * (1 - _JITTER / 2 + _JITTER * chance)
        return replace(self, attempts=self.attempts + 1, next_at=now + pause_s, error=error)

    def as_json(self) -> dict[str, Any]:
        return {
            "subscription": self.subscription,
            "change": self.cursor,
            "attempts": self.attempts,
            "next_at": self.next_at,
            "error": self.error,
        }


def read_delivery(context: Mapping[str, Any]) -> WebhookDelivery:
    """What `as_json` wrote. Raises InvalidRecord."""
    try:
        return WebhookDelivery(
            str(context["subscription"]), int(context["change"]), int(context["attempts"]), float(context["next_at"]),
            str(context["error"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        raise InvalidRecord("this is not a delivery") from None


def is_open(record: Record) -> bool:
    """Whether the content of a record may leave for a webhook."""
    return record.sensitivity is Sensitivity.NORMAL and record.uses_left is None


def for_matching(record: Record) -> Record:
    """What a selector may look at: conditions on hidden values would tell about those."""
    return record if is_open(record) else replace(record, context={}, title="")


def hidden_record(record: Record) -> dict[str, Any]:
    """What is told of a record whose content stays here."""
    return {
        "id": record.id,
        "schema_name": record.schema_name,
        "version": record.version,
        "sensitivity": record.sensitivity.value,
    }


def is_about_deliveries(change: RecordChange) -> bool:
    return change.record.schema_name.startswith(OWN_TYPES)
