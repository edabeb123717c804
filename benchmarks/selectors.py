"""Milliseconds of CPU to find which of 100,000 selectors fit a record, beside looking at each of them.

Run: python -m benchmarks.selectors [NUMBER]
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from toolwire.breadcrumbs.rules.selector_index import SelectorIndex
from toolwire.breadcrumbs.rules.selectors import Selector, fits, read_selector
from toolwire.protocol.breadcrumbs import Record

NUMBER = 100_000
_ROUNDS = 20

RECORDS = [
    Record(
        "order", "p", "order.v1", tags=("x", "team:7", "error"),
        context={"customer": "c77", "n": 50, "text": "hello id-77", "host": "web-17", "a": {"b9": [{"c": 9}]}},
    ),
    Record("response", "p", "tool.response.v1", tags=("workspace:tools", "request:50"), context={"value": 3}),
    Record("metric", "p", "metric.6.v1", tags=("team:5", "user:5"), context={"value": 90_000}),
]  # fmt: skip


def mixed(i: int) -> Any:
    """What subscribers of many kinds ask for."""
    match i % 10:
        case 0 | 1 | 2:
            return {"schema_name": "tool.response.v1", "all_tags": ["workspace:tools", f"request:{i}"]}
        case 3 | 4:
            return {"schema_name": f"order.{i % 200}.v1", "context_match": [condition("customer.id", "eq", i)]}
        case 5:
            return {"any_tags": [f"team:{i % 1000}", f"user:{i}"]}
        case 6:
            return {"schema_name": f"metric.{i % 300}.*", "context_match": [condition("value", "gt", i)]}
        case 7:
            return {"all_tags": ["error"], "context_match": [condition("host", "starts_with", f"web-{i}")]}
        case 8:
            asked = [condition("labels", "contains", f"l{i}"), condition("text", "matches", "urgent|now")]
            return {"schema_name": "note.v1", "context_match": asked}
        case _:
            return {"context_match": [condition(f"a.b{i % 50}[0].c", "in", [i, i + 1])]}


def condition(path: str, op: str, value: Any) -> dict[str, Any]:
    return {"path": path, "op": op, "value": value}


def of_order(op: str, value: Callable[[int], Any], path: str) -> Callable[[int], Any]:
    return lambda i: {"schema_name": "order.v1", "context_match": [condition(path, op, value(i))]}


KINDS: dict[str, Callable[[int], Any]] = {
    "mixed": mixed,
    "one schema, another value each": of_order("eq", lambda i: f"c{i}", "customer"),
    "one schema, another bound each": of_order("lt", lambda i: -i, "n"),
    "one schema, another part of a text each": of_order("contains", lambda i: f"id-{i}", "text"),
    "all the same": lambda _: {"schema_name": "order.v1"},
    "one schema, another regular expression each": of_order("matches", lambda i: f"id-{i}$", "text"),
}


def measured(number: int) -> Iterator[tuple[str, str, float, float, int]]:
    """The kind, the record, milliseconds with the index and without it, and how many selectors fit."""
    for kind, make in KINDS.items():
        selectors = [(str(i), read_selector(make(i))) for i in range(number)]
        index = SelectorIndex(selectors)
        for record in RECORDS:
            indexed = [_timed(index.match, record) for _ in range(_ROUNDS)]
            plain = _timed(partial(_each, selectors), record)
            assert sorted(indexed[0][1]) == sorted(plain[1])
            yield kind, record.id, statistics.median(ms for ms, _ in indexed), plain[0], len(plain[1])


def _each(selectors: list[tuple[str, Selector]], record: Record) -> list[str]:
    return [name for name, one in selectors if fits(one, record)]


def _timed(match: Callable[[Record], list[str]], record: Record) -> tuple[float, list[str]]:
    begun = time.process_time()
    found = match(record)
    return (time.process_time() - begun) * 1000, found


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else NUMBER
    print(f"{'selectors':44}{'record':10}{'index ms':>10}{'each ms':>10}{'fit':>8}")
    for kind, record, indexed, plain, found in measured(number):
        print(f"{kind:44}{record:10}{indexed:10.3f}{plain:10.1f}{found:8}")


if __name__ == "__main__":
    main()
