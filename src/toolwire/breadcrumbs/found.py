"""What a search for records gives, and what searches."""

from typing import Protocol

from msgspec import Struct

from toolwire.protocol.breadcrumbs import Record, RecordQuery


class FoundRecord(Struct, frozen=True):
    """A record that a search found: how well it fits, the best near 1, and the method that found it."""

    record: Record
    score: float
    method: str


class RecordSearch(Protocol):
    """Finds records by what they are about. The query says which may be found at all."""

    async def find(self, text: str, query: RecordQuery, *, nn: int, project: str) -> list[FoundRecord]:
        """The `nn` records that fit best, the best first."""
        ...

    def stop(self) -> None:
        """Stop what is done in the background. It can be used again."""
        ...
