"""Search for records by words and by meaning, in every store, through the service."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.models.provider import Provider, provider_on_loopback, says
from tests.record.conftest import NOW
from toolwire.breadcrumbs import project_vectors
from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.rules.words import match_of
from toolwire.breadcrumbs.search import HybridSearch, open_embedding
from toolwire.breadcrumbs.service import RecordRules, RecordService
from toolwire.breadcrumbs.vectors import StaticEmbedding
from toolwire.errors import ModelUnavailable, SettingsError, StoreError
from toolwire.models.embeddings import open_embeddings
from toolwire.protocol.breadcrumbs import Record, RecordQuery, Sensitivity, Visibility
from toolwire.record.contract import Store
from toolwire.record.memory import MemoryStore
from toolwire.record.projects import of_project

ANN, BOB = Caller("ann", Role.WRITER), Caller("bob", Role.WRITER)
NOTES = {
    "password": "Reset a forgotten password by the link in the mail",
    "lentils": "Lentil soup with ginger and coconut milk",
    "backup": "Nightly backup of the database",
    "bikes": "Locked room for bicycles next to the ramp",
}
DATA = Path(__file__).parent.parent / "data"


def a_note(record_id: str, text: str, **more: Any) -> Record:
    fields: dict[str, Any] = {"created_by": "ann", "created_at": NOW, "project": "default"}
    return Record(record_id, schema_name="note.v1", **fields | {"title": text} | more)


async def keep_notes(store: Store) -> None:
    for record_id, text in NOTES.items():
        await store.create_record(a_note(record_id, text))


def service_of(store: Store, search: HybridSearch, project: str = "default") -> RecordService:
    return RecordService(store, project, clock=lambda: NOW, rules=RecordRules(search=search))


@pytest.fixture
async def search(store: Store) -> AsyncIterator[HybridSearch]:
    made = HybridSearch(store)
    yield made
    await made.close()


async def found(service: RecordService, text: str, caller: Caller = BOB, **more: Any) -> list[str]:
    return [one.record.id for one in await service.search(text, caller, **more)]


@pytest.mark.feature("F193")
async def test_a_record_is_found_by_what_it_means(store: Store, search: HybridSearch) -> None:
    await keep_notes(store)
    service = service_of(store, search)
    first, *_ = await service.search("recover my account credentials", BOB)
    assert (first.record.id, first.method) == ("password", "vector")
    first, *_ = await service.search("bicycles", BOB)
    assert (first.record.id, first.method) == ("bikes", "hybrid")
    assert first.score > 0.9
    assert len(await found(service, "the backup of the soup", nn=1)) == 1
    for nn in (0, -1, 10**9):
        assert len(await found(service, "database", nn=nn)) <= len(NOTES)


async def test_what_changes_is_found_as_it_is_now(store: Store, search: HybridSearch) -> None:
    await keep_notes(store)
    service = service_of(store, search)
    assert (await found(service, "lentil soup"))[0] == "lentils"
    await store.update_record(a_note("lentils", "Parking places on the roof"), 1)
    await store.delete_record("backup", by="ann")
    assert "lentils" not in await found(service, "ginger coconut")
    assert (await found(service, "parking roof"))[0] == "lentils"
    assert "backup" not in await found(service, "nightly backup of the database")


async def test_another_process_finds_the_same(store: Store, search: HybridSearch) -> None:
    await keep_notes(store)
    service, other = service_of(store, search), HybridSearch(store)
    mine = await service.search("vegetarian dinner", BOB)
    assert mine == await service_of(store, other).search("vegetarian dinner", BOB)
    await store.create_record(a_note("late", "Pumpkin pie for dessert", created_at=NOW + 1))
    for each in (service, service_of(store, other)):
        assert (await found(each, "pumpkin pie"))[0] == "late"
    await other.close()


async def test_filters_hold_for_a_search(store: Store, search: HybridSearch) -> None:
    for number in range(6):
        tags = (f"t{number}", "even" if number % 2 == 0 else "odd")
        await store.create_record(
            a_note(f"n{number}", "Backup of the database", tags=tags, created_at=NOW + number, created_by=f"a{number}")
        )
    await store.create_record(replace(a_note("other", "Backup of the database"), schema_name="log.v1"))
    service = service_of(store, search)
    for query, wanted in (
        (RecordQuery(schema_name="log.v1"), {"other"}),
        (RecordQuery(all_tags=("even", "t2")), {"n2"}),
        (RecordQuery(any_tags=("t1", "t2")), {"n1", "n2"}),
        (RecordQuery(created_by="a5"), {"n5"}),
        (RecordQuery(since=NOW + 4), {"n4", "n5"}),
        (RecordQuery(until=NOW + 1), {"n0", "other"}),
        (RecordQuery(text="nothing"), set()),
        (RecordQuery(schema_name="none.v1"), set()),
    ):
        for text in ("database backup", "copies of stored data"):
            assert set(await found(service, text, query=query, nn=50)) == wanted, query


async def hidden_notes(store: Store) -> None:
    text = "Nightly database backup, Initech"  # nearer to the queries than what may be seen
    await store.create_record(a_note("private", text, visibility=Visibility.PRIVATE))
    await store.create_record(a_note("pii", text, sensitivity=Sensitivity.PII))
    await store.create_record(a_note("secret", text, sensitivity=Sensitivity.SECRET))
    await store.create_record(a_note("expired", text, expires_at=NOW - 1))
    await store.create_record(a_note("foreign", text, project="other"))


async def test_T251_records_that_a_caller_may_not_see_are_not_found_by_content(
    store: Store, search: HybridSearch
) -> None:
    """Nor do they show in the scores of what is found, which are the same as without them."""
    await keep_notes(store)
    service = service_of(store, search)
    asked = ("Initech", "merging Initech", "nightly database backup", "nightly database backup, Initech")
    before = [await service.search(text, BOB, nn=50) for text in asked]
    await hidden_notes(store)
    assert [await service.search(text, BOB, nn=50) for text in asked] == before
    assert before[-1]


async def test_T308_the_order_of_what_is_found_does_not_tell_which_words_hidden_records_have(store: Store) -> None:
    """A word that is rare counts for more: it is as rare as in the records that the caller may see."""
    service = service_of(store, HybridSearch(store, lambda: None))
    notes = ["merger", "weather", *(["weather report"] * 3), *(f"note {number}" for number in range(9))]
    for number, text in enumerate(notes):
        await store.create_record(a_note(f"n{number}", text, created_at=NOW + number, visibility=Visibility.PUBLIC))
    reader = Caller("eve", Role.READER)
    before = await service.search("merger weather", reader)
    for number, hidden in enumerate((Visibility.PRIVATE, Visibility.PRIVATE, Visibility.PROJECT) * 3):
        is_shared = hidden is Visibility.PROJECT
        text = "weather merger" if is_shared else "merger"
        await store.create_record(a_note(f"h{number}", text, created_at=NOW - 1 - number, visibility=hidden))
    after = await service.search("merger weather", reader)
    assert after[0].record.id == "n0"
    assert after == before


async def test_T308_control_the_words_of_ones_own_records_count(store: Store) -> None:
    service = service_of(store, HybridSearch(store, lambda: None))
    for number, text in enumerate(["merger", "weather", *(["weather report"] * 3), *(["note"] * 9)]):
        await store.create_record(a_note(f"n{number}", text, created_at=NOW + number))
    for number in range(9):
        hidden = a_note(f"h{number}", "merger of companies", created_at=NOW - 1 - number)
        await store.create_record(replace(hidden, visibility=Visibility.PRIVATE))
    assert (await found(service, "merger weather", BOB))[0] == "n0"
    assert (await found(service, "merger weather", ANN))[0] == "n1"


async def test_T251_control_the_author_finds_a_private_record_and_the_project_its_own(
    store: Store, search: HybridSearch
) -> None:
    await hidden_notes(store)
    assert await found(service_of(store, search), "merging Initech", ANN) == ["private"]
    assert await found(service_of(store, search, "other"), "merging Initech", BOB) == ["foreign"]


HOSTILE = ('"', "a* OR (b", "NEAR(x y, 3)", "words : x", "-- ' ; DROP", "\x00\ud800x", "' & | !", "of and", "x" * 2_000)


async def test_any_text_can_be_searched_for(store: Store, search: HybridSearch) -> None:
    await keep_notes(store)
    service = service_of(store, search)
    for text in HOSTILE:
        assert len(await service.search(text, BOB)) <= 5
        assert len(await store.records(RecordQuery(text=text))) <= len(NOTES)


async def test_a_text_without_words_finds_nothing_and_a_symbol_is_a_word() -> None:
    store = MemoryStore()
    await store.create_record(a_note("fire", "Drill 🔥 on Thursday"))
    search = HybridSearch(store)
    for text in ("", " ", "…!?", "\u200b"):
        assert await search.find(text, RecordQuery(), nn=5, project="default") == []
    [first] = await search.find("🔥", RecordQuery(), nn=5, project="default")
    assert first.record.id == "fire"
    assert await search.find("fire" * 250_000, RecordQuery(), nn=5, project="default") == []


class Failing:
    name, floor = "failing", 0.0

    async def vectors(self, texts: Sequence[str]) -> Any:
        raise ModelUnavailable("no connection; check the address")

    async def close(self) -> None:
        pass


def missing_extra() -> None:
    raise ImportError("numpy")


def wrong_setting() -> None:
    raise SettingsError("no provider is called 'x'")


@pytest.mark.parametrize(
    ("opened", "problem"),
    [
        (missing_extra, "pip install 'toolwire[records]'"),
        (wrong_setting, "no provider is called"),
        (Failing, "no connection"),
        (lambda: None, ""),
    ],
)
async def test_without_vectors_words_are_enough_and_results_say_so(opened: Any, problem: str) -> None:
    store = MemoryStore(clock=lambda: NOW)
    await keep_notes(store)
    search = HybridSearch(store, opened)
    for _ in range(2):
        [one] = await service_of(store, search).search("bicycles", BOB)
        assert (one.record.id, one.method, one.score) == ("bikes", "text", 1.0)
        assert problem in search.problem


async def test_many_new_records_are_embedded_beside_the_search() -> None:
    """A search waits for some of them. Also a process that ends then has got on, and the next one has less to do."""
    store = MemoryStore(clock=lambda: NOW)
    for number in range(project_vectors.EMBEDDED_AT_ONCE * 2):
        await store.create_record(a_note(f"n{number}", f"Backup number {number}", created_at=NOW + number))

    async def missing() -> int:
        rows = await store.record_vectors(model=StaticEmbedding.name)
        return sum(row.bits is None for row in rows)

    ends_early = HybridSearch(store)
    assert len(await ends_early.find("backup", RecordQuery(), nn=5, project="default")) == 5
    await ends_early.close()
    assert await missing() == project_vectors.EMBEDDED_AT_ONCE
    search = HybridSearch(store)
    await search.find("backup", RecordQuery(), nn=5, project="default")
    await search.finish("default")
    assert await missing() == 0
    assert "hybrid" in {one.method for one in await search.find("backup", RecordQuery(), nn=5, project="default")}
    await search.close()


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with provider_on_loopback() as made:
        yield made


def embedded(*rows: Sequence[float]) -> dict[str, Any]:
    return {"data": [{"index": place, "embedding": list(row)} for place, row in enumerate(rows)][::-1]}


async def test_vectors_come_from_a_server_that_the_settings_name(provider: Provider) -> None:
    provider.will(says(embedded([1.0, 0.1])), says(embedded([1.0, 0.2], [-1.0, 0.3])), says(embedded([-1.0, 0.3])))
    store = MemoryStore(clock=lambda: NOW)
    await store.create_record(a_note("one", "alpha"))
    await store.create_record(a_note("two", "beta", created_at=NOW + 1))
    search = HybridSearch(store, lambda: open_embedding("openai-compatible:small", provider.url + "/v1"))
    [first, *_] = await search.find("gamma", RecordQuery(), nn=5, project="default")
    assert (first.record.id, first.method) == ("one", "vector")
    assert [asked.path for asked in provider.asked] == ["/v1/embeddings"] * 2
    assert provider.bodies[0]["input"] == ["gamma"]
    await search.close()


@pytest.mark.parametrize(
    "said",
    [{}, {"data": []}, {"data": [{"index": 1, "embedding": [1.0]}]}, {"data": [{"index": 0, "embedding": ["x"]}]},
     {"data": [{"index": [], "embedding": [1.0]}]}, {"data": [{"index": 0, "embedding": []}]}, [], "x"],
)  # fmt: skip
async def test_an_answer_without_vectors_is_an_error_that_says_so(provider: Provider, said: Any) -> None:
    provider.will(says(said))
    server = open_embeddings("openai-compatible:small", base_url=provider.url + "/v1", environ={})
    with pytest.raises(ModelUnavailable, match="sent no vectors"):
        await server.vectors(["x"])
    await server.close()


@pytest.mark.parametrize("name", ["static2", "anthropic:x", "openai-compatible:x", "http://host"])
def test_an_embedding_that_cannot_be_had_is_refused(name: str) -> None:
    with pytest.raises(SettingsError):
        open_embedding(name)


@pytest.mark.parametrize(("file", "first", "five"), [("tuning", 0.65, 0.85), ("unseen", 0.45, 0.75)])
async def test_the_search_is_about_as_good_as_was_measured(file: str, first: float, five: float) -> None:
    """Notices a search that got worse. The figures themselves are in the benchmark; the bounds are somewhat lower."""
    lines = [json.loads(line) for line in (DATA / f"record_search_{file}.jsonl").read_text().splitlines()]
    store = MemoryStore(clock=lambda: NOW)
    for place, line in enumerate(line for line in lines if "id" in line):
        await store.create_record(
            a_note(line["id"], line["title"], context={"text": line["text"]}, created_at=NOW + place)
        )
    search, asked = HybridSearch(store), [line for line in lines if "query" in line]
    answers = [await search.find(line["query"], RecordQuery(), nn=5, project="default") for line in asked]
    ids = [[one.record.id for one in answer] for answer in answers]
    assert sum(some[:1] == line["expect"][:1] for some, line in zip(ids, asked, strict=True)) / len(asked) >= first
    assert sum(line["expect"][0] in some for some, line in zip(ids, asked, strict=True)) / len(asked) >= five
    await search.close()


async def test_the_index_of_a_project_gives_nothing_of_another_one(store: Store) -> None:
    await store.create_record(a_note("mine", "Backup"))
    await store.create_record(a_note("theirs", "Backup", project="other", created_at=NOW + 1))
    [theirs] = await store.records(RecordQuery(), project="other")
    search = HybridSearch(store)
    await search.finish("other")
    await search.close()
    view = of_project(store, "default")
    assert await view.words_of_records([theirs.cursor]) == {}
    assert await view.vectors_of_records([theirs.cursor], model=StaticEmbedding.name) == {}
    assert await view.fitting_records([theirs.cursor], RecordQuery()) == []
    assert await view.records_numbered([theirs.cursor], RecordQuery()) == []
    assert theirs.cursor not in [row.number for row in await view.record_vectors(model="m")]
    with pytest.raises(StoreError, match="in the project that it was made for"):
        await view.matching_records(match_of(RecordQuery(), "other"))
    with pytest.raises(StoreError, match="in the project that it was made for"):
        await view.count_matching([match_of(RecordQuery(), "other")], most=5)


async def test_many_hidden_records_do_not_crowd_out_those_that_may_be_seen() -> None:
    store = MemoryStore(clock=lambda: NOW)
    await store.create_record(a_note("seen", "Backups of databases are made at night"))
    for number in range(1_700):
        hidden = a_note(f"h{number}", "Database backup at night", visibility=Visibility.PRIVATE)
        await store.create_record(replace(hidden, created_at=NOW + 1 + number))
    search = HybridSearch(store)
    await search.finish("default")
    [one] = await service_of(store, search).search("database backup at night", BOB)
    assert (one.record.id, one.method) == ("seen", "hybrid")
    await search.close()
