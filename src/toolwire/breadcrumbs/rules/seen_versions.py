"""Which version of a record a turn has seen: an update is for the version that its author knew."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolwire.protocol.records import CallCard

_TOOLS = "breadcrumb-"


def seen_version(cards: Iterable[CallCard], record_id: str, call_id: str) -> int | None:
    """The newest version that earlier steps of a turn showed to the model that makes this call; None without any."""
    kept = list(cards)
    step = next((card.step for card in kept if card.call.id == call_id), 0)
    seen = [
        version
        for card in kept
        if card.call.name.startswith(_TOOLS) and card.result is not None and card.result.ok and card.step < step
        for shown, version in _shown(card.result.structured)
        if shown == record_id
    ]
    return max(seen, default=None)


def _shown(output: Any) -> Iterator[tuple[str, int]]:
    """The ids and versions in an output of one of the tools for records."""
    if not isinstance(output, Mapping):
        return
    several = output.get("breadcrumbs")
    for record in (output.get("breadcrumb"), *(several if isinstance(several, list) else ())):
        match record:
            case {"id": str(name), "version": int(version)}:
                yield name, version
