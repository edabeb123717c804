"""Registered tools and cards of results in the memory store."""

from collections import Counter
from collections.abc import Sequence

from toolwire.errors import StoreError
from toolwire.protocol.records import AuditRow
from toolwire.protocol.registrations import ResultCard, ToolRegistration
from toolwire.record import registry_rules
from toolwire.record.registry_rules import Registered, Version


class MemoryRegistry:
    """What projects have registered. Changes give back the audit rows that belong to them."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[Version, ToolRegistration]] = {}

    def register(
        self, project: str, rows: Sequence[ToolRegistration], by: str, at: float, *, replace: bool
    ) -> tuple[list[ToolRegistration] | StoreError, list[AuditRow]]:
        done = registry_rules.register(self._rows.get(project, {}), rows, by=by, at=at, replace=replace)
        if not isinstance(done, Registered):
            return done, []
        self._rows.setdefault(project, {}).update({(row.name, row.version): row for row in done.new})
        return done.rows, done.audit

    def unregister(
        self, project: str, name: str, version: str | None, by: str, at: float
    ) -> tuple[list[ToolRegistration] | StoreError, list[AuditRow]]:
        kept = self._rows.get(project, {})
        done = registry_rules.unregister(kept, project, name, version, by=by, at=at)
        if not isinstance(done, Registered):
            return done, []
        for row in done.rows:
            del kept[row.name, row.version]
        return done.rows, done.audit

    def of_project(self, project: str) -> list[ToolRegistration]:
        return [row for _, row in sorted(self._rows.get(project, {}).items())]


class MemoryCards:
    """Cards of results, by project and id. They go with their turns."""

    def __init__(self) -> None:
        self._cards: dict[tuple[str, str], ResultCard] = {}
        self._of_call: Counter[tuple[str, str, str]] = Counter()

    def keep(self, card: ResultCard) -> ResultCard | StoreError:
        key, call = (card.project, card.id), (card.project, card.turn_id, card.call_id)
        kept = registry_rules.add_card(self._cards.get(key), self._of_call[call], card)
        if kept is not None:
            return kept
        self._cards[key] = card
        self._of_call[call] += bool(card.author)
        return card

    def get(self, card_id: str, project: str) -> ResultCard | StoreError:
        return self._cards.get((project, card_id)) or registry_rules.no_card(card_id)

    def drop(self, turn: tuple[str, str]) -> None:
        for key in [key for key, card in self._cards.items() if (card.project, card.turn_id) == turn]:
            card = self._cards.pop(key)
            del self._of_call[card.project, card.turn_id, card.call_id]
