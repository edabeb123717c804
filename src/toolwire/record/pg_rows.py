"""What a transaction takes for true and will write, until it goes to a PostgreSQL server in one statement."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import orjson

from toolwire.record.pg_functions import LINK_AUDIT, TOGETHER, facts_json
from toolwire.record.rows import Row
from toolwire.record.transaction import Facts

# PostgreSQL cannot keep the character 0, nor read JSON that spells it. A character for private use takes its place.
_ESCAPES = (("\x00", "\ue000"), (r"\u0000", r"\ue000"))


class RowsToWrite:
    """Facts, and rows with the numbers of their statements. `chains` are audit chains that are known to have a row."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.chains: set[tuple[str, str]] = set()
        self._rows: list[tuple[int, list[list[Any]], *tuple[list[list[Any]], ...]]] = []

    @property
    def any(self) -> bool:
        return bool(self._rows or self.facts.any)

    def add(self, number: int, rows: Iterable[Sequence[Any]]) -> None:
        """More rows, with those of the same statement where nothing comes between but what other turns write."""
        given = [as_values(row) for row in rows]
        for before in reversed(self._rows):
            if before[0] == number:
                before[1].extend(given)
                return
            if number not in TOGETHER or TOGETHER.get(before[0]) != TOGETHER[number]:
                break
        self._rows.append((number, given))

    def link_audit(self, rows: Sequence[Row], writer: str) -> bool:
        """Let the server link audit rows; False where it may not be able to: a chain that is new here may be empty."""
        if not writer or self.learn_chains(rows, writer):
            return False
        chains = {(writer, row[2]) for row in rows}
        numbers = {chain: number for number, chain in enumerate(chains, 1)}
        linked = []
        for row in rows:
            digested = orjson.dumps((*row, writer)).decode()[:-1]
            if as_value(digested) != digested:
                return False
            linked.append([*as_values(row), digested, numbers[writer, row[2]]])
        self._rows.append((LINK_AUDIT, linked, [as_values(chain) for chain in numbers]))
        return True

    def learn_chains(self, rows: Sequence[Row], writer: str) -> bool:
        """The chains of these audit rows have a row from now on; whether that was not known of one."""
        chains = {(writer, row[2]) for row in rows}
        is_new = not chains <= self.chains
        self.chains |= chains
        return is_new

    def take(self) -> tuple[str, str]:
        """The facts and the rows as JSON, once."""
        rows, self._rows = self._rows, []
        facts, texts = orjson.dumps(facts_json(self.facts.taken())).decode(), orjson.dumps(rows).decode()
        return as_value(facts), texts

    def clear(self) -> None:
        self._rows, self.facts = [], Facts()


def as_values(row: Sequence[Any]) -> list[Any]:
    """SQLite takes truth for a number, and keeps any character; PostgreSQL does neither."""
    return [as_value(value) for value in row]


def as_value(value: Any) -> Any:
    if isinstance(value, str):
        for zero, escape in _ESCAPES:
            if zero in value or escape in value:
                value = value.replace(escape, escape + "1").replace(zero, escape + "0")
        return value
    return int(value) if isinstance(value, bool) else value


def read_values(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(_read_value, row))


def _read_value(value: Any) -> Any:
    if isinstance(value, str):
        for zero, escape in _ESCAPES:
            if escape in value:
                value = value.replace(escape + "0", zero).replace(escape + "1", escape)
        return value
    return int(value) if isinstance(value, Decimal) else value  # the sum of whole numbers
