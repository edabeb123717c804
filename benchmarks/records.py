"""Records at scale: filtered lists, and search by words, by vectors and by both; and how good the search is.

    python -m benchmarks.records [--records N] [--home FOLDER] [--queries N]
    python -m benchmarks.records --quality

A home that is given is kept and grown to N records, so the making is measured once and the searching as often as
wanted. Times are of one caller, one question after the other, as that caller sees them (wall) and of the processor
(CPU, all threads). `--quality` needs no store: it asks the queries in tests/data.

The tuning set is not evidence of quality: five variants of the ranking were tried on it, and this one was chosen. The
unseen set was written after that and asked once before anything was reported. Both were written by the author of the
ranking.
"""

import argparse
import asyncio
import itertools
import json
import random
import re
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from toolwire.breadcrumbs.rules.words import search_words
from toolwire.breadcrumbs.search import HybridSearch
from toolwire.protocol.breadcrumbs import Record, RecordQuery, Visibility
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore

ROOT = Path(__file__).parent.parent
SETS = {"tuning (chosen on, 5 variants)": "record_search_tuning", "unseen": "record_search_unseen"}
AT_ONCE = 500
AUTHORS, TAGS = 200, 500
START = 1_700_000_000.0


def vocabulary() -> tuple[list[str], list[float]]:
    """Words of our own documents by how often they occur there; their frequencies fall as those of a language do."""
    text = " ".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    words = list(dict.fromkeys(re.findall(r"[a-z]{3,}", text.lower())))
    return words, list(itertools.accumulate(1 / (place + 1) for place in range(len(words))))


class Made:
    """Records and queries from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._words, self._weights = vocabulary()

    def words(self, count: int) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=count))

    def record(self, number: int) -> Record:
        pick = self._random.randrange
        schema = f"kind{min(int(self._random.paretovariate(0.7)), 40)}.v1"
        tags = (f"tag{pick(TAGS)}", f"area{pick(8)}", f"session:{number // 50}")
        private = Visibility.PRIVATE if pick(10) == 0 else Visibility.PROJECT
        return Record(
            f"r{number}", "default", schema, self.words(5), tags, {"text": self.words(25), "n": number},
            visibility=private, created_by=f"author{pick(AUTHORS)}", created_at=START + number / 10,
        )  # fmt: skip

    def query(self) -> tuple[str, RecordQuery]:
        """Words that occur, common and rare ones; a third with a filter, which may be narrow."""
        pick = self._random.randrange
        filters = (
            RecordQuery(), RecordQuery(), RecordQuery(), RecordQuery(),
            RecordQuery(schema_name=f"kind{pick(12) + 1}.v1"),
            RecordQuery(all_tags=(f"area{pick(8)}", f"tag{pick(TAGS)}")),
        )  # fmt: skip
        chosen = filters[pick(len(filters))]
        return self.words(pick(4) + 1), RecordQuery(chosen.schema_name, (), chosen.all_tags, reader=f"author{pick(9)}")


async def fill(store: SqliteStore, wanted: int) -> None:
    newest = await store.records(RecordQuery(), limit=1)
    first = int(newest[0].value.context["n"]) + 1 if newest else 0
    made, began, used = Made(first), time.perf_counter(), time.process_time()
    for at in range(first, wanted, AT_ONCE):
        numbers = range(at, min(at + AT_ONCE, wanted))
        await asyncio.gather(*(store.create_record(made.record(number)) for number in numbers))
    if wanted > first:
        count, wall, cpu = wanted - first, time.perf_counter() - began, time.process_time() - used
        print(f"created {count:,} ({AT_ONCE} at once): {count / wall:,.0f}/s, {cpu / count * 1e6:.0f} µs CPU each")


async def measure(
    name: str, ask: Callable[[str, RecordQuery], Awaitable[object]], asked: Sequence[tuple[str, RecordQuery]]
) -> None:
    wall, cpu = [], []
    for text, query in asked:
        began, used = time.perf_counter(), time.process_time()
        await ask(text, query)
        wall.append((time.perf_counter() - began) * 1e3)
        cpu.append((time.process_time() - used) * 1e3)
    print(f"{name:24}" + "".join(f"  {kind} p50 {at(of, 0.5):6.1f} p99 {at(of, 0.99):6.1f} max {max(of):6.1f} ms"
                                 for kind, of in (("wall", wall), ("CPU", cpu))))  # fmt: skip


def at(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def scale(home: Path, records: int, queries: int) -> None:
    async with await SqliteStore.at(home) as store:
        await fill(store, records)
        before = memory_mb()
        search = HybridSearch(store)
        began, used = time.perf_counter(), time.process_time()
        await search.finish("default")
        print(f"vectors current after {time.perf_counter() - began:.1f} s, {time.process_time() - used:.1f} s CPU")
        made = Made(-1)
        asked = [made.query() for _ in range(queries)]

        async def hybrid(text: str, query: RecordQuery) -> object:
            return await search.find(text, query, nn=10, project="default")

        kinds: dict[str, Callable[[str, RecordQuery], Awaitable[object]]] = {
            "list, filtered": lambda _, query: store.records(query, limit=50),
            "list, filter and text": lambda text, query: store.records(_with_text(query, text), limit=50),
            "search by words": lambda text, query: search.find_by_words(search_words(text), query, "default"),
            "search by vectors": lambda text, query: search.find_by_vector(text, query, "default"),
            "search, hybrid": hybrid,
        }
        for name, ask in kinds.items():
            await measure(name, ask, asked)
        print(f"memory: {memory_mb():,.0f} MB at most, {memory_mb() - before:,.0f} MB more than before searching")
        await search.close()
    print(f"file: {(home / 'store.db').stat().st_size / 1e6:,.0f} MB")


def _with_text(query: RecordQuery, text: str) -> RecordQuery:
    return RecordQuery(query.schema_name, (), query.all_tags, text, reader=query.reader)


async def quality() -> None:
    for label, file in SETS.items():
        lines = [json.loads(line) for line in (ROOT / "tests" / "data" / f"{file}.jsonl").read_text().splitlines()]
        store = MemoryStore()
        for place, line in enumerate(line for line in lines if "id" in line):
            context = {"text": line["text"]}
            await store.create_record(
                Record(line["id"], "default", "note.v1", line["title"], (), context, created_at=START + place)
            )
        asked = [line for line in lines if "query" in line]
        for name, search in {"hybrid": HybridSearch(store), "words": HybridSearch(store, lambda: None)}.items():
            print(f"{label}, {name}: {await score(search, asked)}")


async def score(search: HybridSearch, asked: Sequence[dict[str, list[str]]]) -> str:
    first = five = wrong = 0
    for line in asked:
        found = await search.find(str(line["query"]), RecordQuery(), nn=5, project="default")
        ids = [one.record.id for one in found]
        first += ids[:1] == line["expect"][:1]
        five += bool(set(ids) & set(line["expect"]))
        wrong += bool(set(ids[:1]) & set(line["not_top"]))
    await search.close()
    count = len(asked)
    return (
        f"recall@1 {first / count:.0%}, recall@5 {five / count:.0%}, "
        f"what must not be first is first: {wrong} of {count} queries"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--quality", action="store_true", help="ask the queries in tests/data instead")
    options = parser.parse_args()
    if options.quality:
        asyncio.run(quality())
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scale(options.home or Path(folder), options.records, options.queries))


if __name__ == "__main__":
    main()
