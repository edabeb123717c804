"""Records in every store: versions, keys, uses, expiry, lists and the change feed."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.postgres_server import PostgresServer, new_schema
from toolwire.errors import Conflict, NotFound, StoreError
from toolwire.protocol import breadcrumbs
from toolwire.protocol.breadcrumbs import ChangeKind, Record, RecordQuery, Sensitivity, Visibility
from toolwire.protocol.records import AuditRow
from toolwire.record import record_lists, record_rules
from toolwire.record.contract import RecordStore, Store
from toolwire.record.postgres import PostgresStore
from toolwire.record.projects import of_project
from toolwire.record.retention import KeepLimits, Retention
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW, database_server

HOSTILE = "half \ud83d of a pair, \x00, \" ' ; DROP TABLE shared_records"
NOTED = [AuditRow(NOW, "record_written")]


def a_record(record_id: str = "r1", *, schema: str = "note.v1", **more: Any) -> Record:
    fields: dict[str, Any] = {"created_by": "ann", "created_at": NOW, "project": "default", "title": "A note"}
    return Record(record_id, schema_name=schema, **fields | more)


async def listed(store: RecordStore, **query: Any) -> list[str]:
    return [one.value.id for one in await store.records(RecordQuery(**query))]


async def changes(store: RecordStore, cursor: int = 0) -> list[tuple[str, str, int]]:
    found = await store.record_changes(cursor)
    return [(change.kind.value, change.record.id, change.record.version) for _, change in found]


async def test_a_new_record_is_version_1_with_one_change(store: Store) -> None:
    context = {"text": HOSTILE, "$ref": [None, 1.5, 2**70, float("inf"), {"ü": ()}], "a": {"b": [{}]}}
    more: dict[str, Any] = {
        "title": HOSTILE, "tags": ("' OR 1=1 --", "ü"), "context": context, "ttl": {"uses": 3}, "llm_hints": {"m": 1},
        "visibility": Visibility.PRIVATE, "sensitivity": Sensitivity.PII, "expires_at": NOW + 60, "uses_left": 3,
        "created_by": "änn", "updated_by": "bob", "updated_at": NOW + 1, "turn_id": "t", "call_id": "c",
        "origins": ("web",),
    }  # fmt: skip
    record = a_record(**more)
    kept = await store.create_record(record, audit=NOTED)

    assert kept == replace(record, context=kept.context)
    assert kept.context == {**context, "$ref": [None, 1.5, 2**70, float("inf"), {"ü": []}]}
    assert await store.record("r1") == kept
    assert await store.record_history("r1") == [kept]
    [(cursor, change)] = await store.record_changes()
    assert (change.kind, change.at, change.record) == (ChangeKind.CREATED, NOW, kept)
    assert cursor == await store.last_change()
    assert await store.record_changes(cursor) == []
    assert [row.event for row in await store.audit_log()] == ["record_written"]
    with pytest.raises(Conflict, match="there is a record 'r1' already"):
        await store.create_record(a_record(), audit=NOTED)
    assert len(await store.audit_log()) == 1


async def test_what_was_left_out_is_filled_in_by_the_store(store: Store) -> None:
    kept = await store.create_record(a_record(created_at=0.0, version=7))
    assert (kept.version, kept.created_at, kept.updated_at, kept.updated_by) == (1, NOW, NOW, "ann")


async def test_the_same_key_gives_the_first_answer_back_even_after_an_update(store: Store) -> None:
    first = await store.create_record(a_record(context={"a": 1, "b": 2}, uses_left=5), key="k")
    again = a_record("r2", context={"b": 2, "a": 1}, created_at=NOW + 5, expires_at=NOW + 50, turn_id="other")
    assert await store.create_record(again, key="k", audit=NOTED) == first
    await store.use_record("r1")
    assert await store.create_record(again, key="k") == first
    second = await store.update_record(replace(first, title="Another"), 1)
    assert await store.create_record(again, key="k", audit=NOTED) == first != second
    assert await store.replayed_record(again, "k") == first
    assert await store.replayed_record(again, "another") is None
    with pytest.raises(Conflict, match="key was used for other content; use a new key"):
        await store.replayed_record(a_record("r3", context={}), "k")
    with pytest.raises(Conflict, match="key was used for other content; use a new key"):
        await store.create_record(a_record("r3", context={}), key="k")
    other = replace(again, created_by="bob")
    assert (await store.create_record(other, key="k")).created_by == "bob", "each author has keys of its own"
    assert (await store.create_record(a_record("r4", title="Long"), key="x" * 5_000)).id == "r4"
    assert [kind for kind, _, _ in await changes(store)] == ["created", "updated", "created", "created"]
    assert await store.audit_log() == []


@pytest.mark.parametrize("kind", ["sqlite", "libsql", "postgres"])
async def test_after_a_restore_no_change_has_a_number_that_a_follower_has_seen(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with AsyncExitStack() as stack:
        on = SqliteStore.at if kind == "sqlite" else stack.enter_context(database_server(kind, tmp_path, request))
        store = await stack.enter_async_context(await on(tmp_path / "home", clock=lambda: NOW))
        await store.create_record(a_record())
        seen = await store.last_change() + 5  # the store went on after the backup
        assert await store.fence_restored() == 0
        await store.create_record(a_record("r2"))
        assert await changes(store) == [("created", "r1", 1), ("created", "r2", 1)]
        assert await changes(store, seen) == [("created", "r2", 1)]
        await store.prune(Retention())


async def test_a_key_is_not_free_again_when_its_record_is_gone(store: Store) -> None:
    """Else what must happen once could happen again."""
    await store.create_record(a_record(), key="k")
    await store.create_record(a_record("over", expires_at=NOW - 1), key="l")
    await store.delete_record("r1", by="ann")
    for key in ("k", "l"):
        again = a_record("r2", expires_at=None if key == "k" else NOW - 1)
        with pytest.raises(Conflict, match="under this idempotency key is gone; use a new key"):
            await store.create_record(again, key=key)
    await store.expire_records()
    with pytest.raises(Conflict, match="under this idempotency key is gone; use a new key"):
        await store.create_record(a_record("r2"), key="l")
    await store.create_record(a_record())
    with pytest.raises(Conflict, match="is gone"):
        await store.create_record(a_record("r2"), key="k")


async def test_an_update_takes_the_place_of_the_version_that_was_read(store: Store) -> None:
    first = await store.create_record(a_record(tags=("a", "b"), uses_left=3, ttl={"uses": 3}))
    await store.use_record("r1")
    given = replace(
        first, tags=("b", "c"), context={"n": 2}, updated_by="bob", updated_at=NOW + 9, created_by="eve",
        created_at=1.0, version=40, uses_left=3,
    )  # fmt: skip
    second = await store.update_record(given, 1, audit=NOTED)

    assert second == replace(given, version=2, created_by="ann", created_at=NOW, uses_left=2)
    assert await store.record("r1") == second
    assert await store.record_history("r1") == [second, first]
    assert [await listed(store, all_tags=(tag,)) for tag in "abc"] == [[], ["r1"], ["r1"]]
    with pytest.raises(Conflict, match="record 'r1' is at version 2, not 1; read it, and make the change again"):
        await store.update_record(given, 1, audit=NOTED)
    with pytest.raises(NotFound, match="there is no record 'r9'"):
        await store.update_record(a_record("r9"), 1, audit=NOTED)
    renewed = await store.update_record(replace(second, ttl={"uses": 9}, uses_left=9), 2)
    assert (renewed.version, renewed.uses_left) == (3, 9)
    assert [one.version for one in await store.record_history("r1", limit=1, before=3)] == [2]
    assert await store.record_history("r1", before=1) == []
    told = [(change.kind, change.record) for _, change in await store.record_changes()]
    kinds = (ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.UPDATED)
    assert told == list(zip(kinds, (first, second, renewed), strict=True))
    assert len(await store.audit_log()) == 1


async def test_a_deleted_record_takes_its_history_along_and_leaves_a_change(store: Store) -> None:
    first = await store.create_record(a_record(context={"n": 1}, tags=("a",)))
    second = await store.update_record(replace(first, context={"n": 2}), 1)
    with pytest.raises(Conflict, match="is at version 2, not 1"):
        await store.delete_record("r1", by="bob", expected=1, audit=NOTED)
    assert await store.delete_record("r1", by="bob", expected=2, audit=NOTED) == second

    for read in (store.record, store.record_history, store.use_record):
        with pytest.raises(NotFound, match="there is no record 'r1'"):
            await read("r1")
    with pytest.raises(NotFound):
        await store.delete_record("r1", by="bob", audit=NOTED)
    assert await listed(store) == await listed(store, any_tags=("a",)) == []
    again = await store.create_record(a_record(context={"n": 3}))
    assert await store.record_history("r1") == [again]
    told = [change.record for _, change in await store.record_changes()]
    assert told == [first, second, replace(second, updated_by="bob", updated_at=NOW), again]
    assert [kind for kind, _, _ in await changes(store)] == ["created", "updated", "deleted", "created"]
    assert len(await store.audit_log()) == 1


async def test_changes_of_a_deleted_record_keep_nothing_that_was_sensitive(store: Store) -> None:
    first = await store.create_record(a_record(context={"name": "Ann Doe"}))
    await store.update_record(replace(first, sensitivity=Sensitivity.PII, context={"born": "1970"}), 1)
    await store.create_record(a_record("r2", context={"n": 1}))
    await store.delete_record("r1", by="ann")
    told = [(change.record.id, change.record.context) for _, change in await store.record_changes()]
    assert told == [("r1", {"name": "Ann Doe"}), ("r1", {}), ("r2", {"n": 1}), ("r1", {})]


async def test_T292_changes_of_a_deleted_record_are_for_no_more_callers_than_its_last_version(store: Store) -> None:
    """What was for all and became private or personal before it was deleted is so in its earlier changes, too."""
    for name, later in (
        ("private", {"visibility": Visibility.PRIVATE}),
        ("personal", {"sensitivity": Sensitivity.PII}),
        ("project", {"visibility": Visibility.PROJECT}),
        ("public", {}),
    ):
        first = await store.create_record(a_record(name, visibility=Visibility.PUBLIC, context={"n": 1}))
        second = await store.update_record(replace(first, context={"n": 2}), 1)
        await store.update_record(replace(second, **later), 2)
        await store.delete_record(name, by="ann")
    told: dict[str, set[tuple[str, str]]] = {}
    for _, change in await store.record_changes():
        told.setdefault(change.record.id, set()).add((change.record.visibility.value, change.record.sensitivity.value))
    assert told == {
        "private": {("private", "normal")},
        "personal": {("public", "pii")},
        "project": {("project", "normal")},
        "public": {("public", "normal")},
    }


@pytest.mark.parametrize("dropped", [False, True])
async def test_what_has_expired_is_not_found_whether_or_not_it_was_dropped(store: Store, dropped: bool) -> None:
    over = a_record("over", expires_at=NOW, tags=("a",))
    last = a_record("last", uses_left=1)
    for record in (over, last, a_record("stays", expires_at=NOW + 1, uses_left=1)):
        await store.create_record(record)
    assert (await store.use_record("last")).uses_left == 0
    if dropped:
        assert sorted(one.id for one in await store.expire_records()) == ["last", "over"]
        assert await store.expire_records() == []

    assert await listed(store) == ["stays"]
    assert await listed(store, any_tags=("a",)) == []
    for name in ("over", "last"):
        for read in (store.record, store.record_history, store.use_record):
            with pytest.raises(NotFound, match=f"there is no record '{name}'"):
                await read(name)
        with pytest.raises(NotFound):
            await store.update_record(a_record(name), 1)
        with pytest.raises(NotFound):
            await store.delete_record(name, by="ann")
    assert (await store.create_record(a_record("over"))).version == 1, "its id is free"
    told = await changes(store)
    assert told.count(("expired", "over", 1)) == 1
    assert told[-1] == ("created", "over", 1)


async def test_only_so_many_are_dropped_at_once(store: Store) -> None:
    for number in range(3):
        await store.create_record(a_record(f"r{number}", expires_at=NOW - 1))
    assert [len(await store.expire_records(limit=2)) for _ in range(3)] == [2, 1, 0]


async def test_uses_are_counted_down_each_once(store: Store) -> None:
    await store.create_record(a_record(uses_left=3))
    await store.create_record(a_record("any"))
    used = await asyncio.gather(*(store.use_record("r1") for _ in range(5)), return_exceptions=True)

    assert sorted(one.uses_left or 0 for one in used if isinstance(one, Record)) == [0, 1, 2]
    assert sum(isinstance(one, NotFound) for one in used) == 2
    assert (await store.use_record("any")).uses_left is None
    assert len(await changes(store)) == 2, "a use is no change"


async def test_of_writers_at_the_same_moment_one_wins(store: Store) -> None:
    """Each version and each key is given once."""
    made = await asyncio.gather(*(store.create_record(a_record(f"r{n}"), key="tick") for n in range(4)))
    [name] = {one.id for one in made}
    writes = (store.update_record(replace(made[0], title=str(n)), 1) for n in range(4))
    done = await asyncio.gather(*writes, return_exceptions=True)
    assert sorted(type(one).__name__ for one in done) == ["Conflict"] * 3 + ["Record"]
    assert await changes(store) == [("created", name, 1), ("updated", name, 2)]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_of_processes_that_write_at_the_same_moment_one_wins(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with AsyncExitStack() as stack:
        if kind == "sqlite":
            opened = [await SqliteStore.at(tmp_path) for _ in range(2)]
        else:
            on = stack.enter_context(database_server(kind, tmp_path, request))
            opened = [await on(tmp_path / str(number)) for number in range(2)]
        stores = [await stack.enter_async_context(store) for store in opened]
        made = await asyncio.gather(*(stores[n % 2].create_record(a_record(f"r{n}"), key="tick") for n in range(6)))
        [name] = {one.id for one in made}
        writes = (stores[n % 2].update_record(replace(made[0], title=str(n)), 1) for n in range(6))
        done = await asyncio.gather(*writes, return_exceptions=True)
        assert sorted(type(one).__name__ for one in done) == ["Conflict"] * 5 + ["Record"]
        assert await changes(stores[0]) == await changes(stores[1]) == [("created", name, 1), ("updated", name, 2)]


RECORDS: Sequence[Record] = (
    a_record("a", created_at=NOW + 1, tags=("x", "y"), title="Blue Whale"),
    a_record("b", created_at=NOW + 2, tags=("x",), schema="task.v1", context={"text": "a WHALE song"}),
    a_record("c", created_at=NOW + 3, tags=("y", "z"), created_by="bob", visibility=Visibility.PRIVATE),
    a_record("d", created_at=NOW + 3, tags=("z",), created_by="bob", visibility=Visibility.PUBLIC),
    a_record("e", created_at=NOW - 5, sensitivity=Sensitivity.PII, title="whale", tags=("%",)),
)
LISTS: Sequence[tuple[dict[str, Any], str]] = (
    ({}, "dcbae"),
    ({"schema_name": "task.v1"}, "b"),
    ({"any_tags": ("x", "z")}, "dcba"),
    ({"any_tags": ("z", "nowhere")}, "dc"),
    ({"all_tags": ("x", "y")}, "a"),
    ({"all_tags": ("y",), "any_tags": ("x", "z")}, "ca"),
    ({"all_tags": ("x", "z")}, ""),
    ({"schema_name": "note.v1", "all_tags": ("x",)}, "a"),
    ({"any_tags": ("x", "y"), "schema_name": "task.v1"}, "b"),
    ({"all_tags": ("_",)}, ""),
    ({"text": "whale"}, "ba"),
    ({"text": "whale BLUE"}, "a"),
    ({"text": "whal"}, ""),
    ({"text": "w%"}, ""),
    ({"text": "whale", "schema_name": "task.v1", "all_tags": ("x",)}, "b"),
    ({"created_by": "bob"}, "dc"),
    ({"created_by": "bob", "reader": "ann"}, "d"),
    ({"reader": "ann"}, "dbae"),
    ({"reader": "bob", "all_tags": ("y",)}, "ca"),
    ({"public_only": True}, "d"),
    ({"without_sensitive": True}, "dcba"),
    ({"without_schemas": ("task.v1",)}, "dcae"),
    ({"without_schemas": ("task.v1", "note.v1")}, ""),
    ({"without_schemas": ("note.v1", HOSTILE), "all_tags": ("x",), "reader": "ann"}, "b"),
    ({"without_schemas": ("task.v1",), "text": "whale"}, "a"),
    ({"since": NOW + 2}, "dcb"),
    ({"until": NOW + 2}, "ae"),
    ({"since": NOW + 1, "until": NOW + 3, "all_tags": ("x",)}, "ba"),
    ({"since": NOW + 9}, ""),
    ({"since": float("-inf"), "until": float("inf")}, "dcbae"),
    ({"since": float("nan")}, ""),
    ({"any_tags": ("x\x00", "z")}, "dc"),
    ({"any_tags": ("x\x00",)}, ""),
    ({"all_tags": ("x", "x\x00")}, ""),
    ({"schema_name": HOSTILE, "any_tags": (HOSTILE,), "text": HOSTILE, "created_by": HOSTILE}, ""),
)


async def test_T305_control_lists_for_models_have_neither_secrets_nor_personal_data(store: Store) -> None:
    for name, sensitivity in zip("abc", Sensitivity, strict=True):
        await store.create_record(a_record(name, sensitivity=sensitivity, tags=("x",)))
    assert await listed(store, without_sensitive=True) == ["a"]
    assert await listed(store, without_sensitive=True, all_tags=("x",)) == ["a"]


@pytest.mark.parametrize("tried", [record_lists.MOST_TRIED, 1])
async def test_lists_are_filtered_and_come_newest_first(
    store: Store, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_lists, "MOST_TRIED", tried)
    for record in RECORDS:
        await store.create_record(record)
        await store.create_record(replace(record, project="other"))
    for query, wanted in LISTS:
        assert "".join(await listed(store, **query)) == wanted, query
    for query in ({}, {"any_tags": ("x", "z")}, {"all_tags": ("x",)}, {"text": "whale"}):
        whole, paged = await store.records(RecordQuery(**query)), list[Any]()
        before: int | None = None
        while page := await store.records(RecordQuery(**query), limit=1, before=before):
            paged += page
            before = page[-1].cursor
        assert paged == whole
    assert await store.records(RecordQuery(), limit=0) == await store.records(RecordQuery(), before=0) == []
    assert await store.records(RecordQuery(), before=-(2**70)) == []
    assert len(await store.records(RecordQuery(), before=2**70)) == 5
    assert await store.records(RecordQuery(), limit=-1) == []


async def test_a_follower_misses_no_change_and_sees_each_as_it_was(store: Store) -> None:
    first = await store.create_record(a_record(title="1"))
    await store.create_record(a_record("elsewhere", project="other"))
    for version in (1, 2):
        await store.update_record(replace(first, title=str(version + 1)), version)
    cursor, seen = 0, list[str]()
    while page := await store.record_changes(cursor, limit=1):
        cursor = page[0].cursor
        seen.append(page[0].value.record.title)
        if len(seen) == 2:
            await store.delete_record("r1", by="ann")
    assert seen == ["1", "2", "3", "3"]
    assert cursor == await store.last_change() > await store.last_change(project="other") > 0
    assert await store.last_change(project="nothing") == 0


async def test_history_and_changes_are_bounded_and_the_first_version_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_rules, "MOST_VERSIONS", 3)
    record = await store.create_record(a_record(title="1"), key="k")
    for version in range(1, 8):
        await store.update_record(replace(record, title=str(version + 1)), version)
    assert [one.title for one in await store.record_history("r1")] == ["8", "7", "6", "5", "1"]
    assert (await store.create_record(a_record("r2", title="1"), key="k")).title == "1"
    assert [change.record.title for _, change in await store.record_changes()] == list("12345678")


async def test_each_change_of_a_record_is_one_commit_and_those_of_a_moment_share_one(tmp_path: Path) -> None:
    commits: list[int] = []
    async with await SqliteStore.at(tmp_path) as store:
        store.watch_commits(lambda changed, _: commits.append(changed))
        record = await store.create_record(a_record(tags=("a", "b")), key="k", audit=NOTED)
        await store.update_record(replace(record, tags=("c",)), 1, audit=NOTED)
        await store.delete_record("r1", by="ann", audit=NOTED)
        assert await store.expire_records() == []
        assert commits == [1, 1, 1], "and where nothing has expired there is none"
        await asyncio.gather(*(store.create_record(a_record(f"r{number}")) for number in range(20)))
        assert sum(commits) == 23
        assert len(commits) <= 6


async def test_records_survive_their_process_and_come_along_in_a_backup(tmp_path: Path) -> None:
    async with await SqliteStore.at(tmp_path / "home") as store:
        record = await store.create_record(a_record(title="Blue whale"), key="k")
        record = await store.update_record(replace(record, tags=("a",)), 1)
        await store.backup(tmp_path / "copy")
    for home in ("home", "copy"):
        async with await SqliteStore.at(tmp_path / home) as store:
            assert [one.value for one in await store.records(RecordQuery(text="whale", all_tags=("a",)))] == [record]
            assert (await store.create_record(a_record("r2", title="Blue whale"), key="k")).version == 1
            assert [kind for kind, _, _ in await changes(store)] == ["created", "updated"]


async def test_a_backup_of_a_server_has_its_records(postgres: PostgresServer, tmp_path: Path) -> None:
    async with await PostgresStore.on(postgres.url, tmp_path / "home", schema=new_schema()) as server:
        record = await server.create_record(a_record(title="Blue \x00 whale", uses_left=2))
        await server.backup(tmp_path / "copy")
    async with await SqliteStore.at(tmp_path / "copy") as store:
        assert [one.value for one in await store.records(RecordQuery(text="whale"))] == [record]
        assert (await store.use_record("r1")).uses_left == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_pruning_drops_old_changes_and_keys_and_never_records_or_what_they_name(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, day_s = NOW, 86_400.0
    async with AsyncExitStack() as stack:
        if kind == "sqlite":
            opened = await SqliteStore.at(tmp_path, clock=lambda: now, bodies="database")
        else:
            opened = await stack.enter_context(database_server(kind, tmp_path, request))(tmp_path, clock=lambda: now)
        store = await stack.enter_async_context(opened)
        handles = [await store.keep(text) for text in (b"named by a record", b"by an earlier version", b"by none")]
        first = await store.create_record(a_record(context={"body": handles[1]}), key="k")
        await store.update_record(replace(first, context={"body": handles[0]}), 1)
        await store.create_record(a_record("gone"), key="gone")
        await store.delete_record("gone", by="ann")
        last = await store.last_change()
        now += 40 * day_s
        assert (await store.prune(Retention(), dry_run=True)).record_changes == 3
        assert len(await store.record_changes()) == 4
        assert (await store.prune(Retention(bodies=KeepLimits(days=30)))).record_changes == 3

        assert [number for number, _ in await store.record_changes()] == [last], "its number is not given again"
        assert [one.version for one in await store.record_history("r1")] == [2, 1]
        assert await store.create_record(a_record("r2", context={"body": handles[1]}), key="k") == first
        assert (await store.create_record(a_record("gone"), key="gone")).id == "gone", "after a month a key is free"
        assert [await store.fetch(handle) for handle in handles[:2]] == [b"named by a record", b"by an earlier version"]
        with pytest.raises(NotFound):
            await store.fetch(handles[2])
        monkeypatch.setattr(record_rules, "MOST_CHANGES", 3)
        for number in range(6):
            await store.create_record(a_record(f"n{number}"))
        assert (await store.prune(Retention())).record_changes == 5
        assert [name for _, name, _ in await changes(store)] == ["n3", "n4", "n5"]
        assert await store.last_change() == last + 7


UNFIT: Sequence[tuple[dict[str, Any], str]] = (
    ({"record_id": "r" * 201}, "the id of a record has at most 200 characters"),
    ({"record_id": ""}, "a record needs an id"),
    ({"schema": ""}, "a record needs an id"),
    ({"schema": "s" * 201}, "the schema_name of a record has at most 200"),
    ({"created_by": "ü" * 201}, "the created_by of a record has at most 200"),
    ({"title": "t" * 501}, "the title of a record has at most 500"),
    ({"tags": ("t" * 201,)}, "at most 64 tags, each of 1 to 200"),
    ({"tags": ("",)}, "at most 64 tags, each of 1 to 200"),
    ({"tags": tuple(map(str, range(65)))}, "at most 64 tags"),
    ({"context": {"a": "ü" * (breadcrumbs.MOST_CONTEXT_BYTES // 2)}}, "at most 1,048,576 bytes"),
    ({"tags": ("a\x00b",)}, "text without control characters"),
    ({"record_id": "\ud83d"}, "text without control characters"),
    ({"schema": "a\nb"}, "text without control characters"),
    ({"uses_left": -1}, "can be used at most 1,000,000,000 times"),
    ({"uses_left": 2**70}, "can be used at most 1,000,000,000 times"),
    ({"created_at": float("nan")}, "the dates of a record"),
    ({"created_at": -1.0}, "the dates of a record"),
    ({"expires_at": float("inf")}, "the dates of a record"),
)


def nested(levels: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels - 1):
        value = [value]
    return {"a": value}


async def test_what_is_too_large_is_refused_and_the_largest_is_kept(store: Store) -> None:
    for more, words in (*UNFIT, ({"context": nested(65)}, "nested at most 64"), ({"context": nested(900)}, "nested")):
        with pytest.raises(Conflict, match=words):
            await store.create_record(a_record(**more))
    largest = a_record(
        "\U0001f40b" * 200, schema="\U0001f40b" * 200, created_by="\U0001f40b" * 200, title="\U0001f40b" * 500,
        tags=tuple(f"{n:\U0001f40b>200}" for n in range(64)), context=nested(64), project="\U0001f40b" * 100,
    )  # fmt: skip
    kept = await store.create_record(largest)
    assert await store.record(kept.id, project=kept.project) == kept == replace(largest, **stamped())
    with pytest.raises(Conflict, match="title"):
        await store.update_record(replace(kept, title="t" * 501), 1)
    assert await changes(store) == []


def stamped() -> dict[str, Any]:
    return {"updated_by": "\U0001f40b" * 200, "updated_at": NOW}


async def test_many_records_of_one_moment_have_an_order(store: Store) -> None:
    for number in range(5):
        await store.create_record(a_record(f"r{number}"))
    await store.create_record(a_record("earlier", created_at=NOW - 0.000_01))
    assert await listed(store) == ["r4", "r3", "r2", "r1", "r0", "earlier"]
    assert await listed(store, until=NOW) == ["earlier"]
    assert await listed(store, since=NOW, until=NOW + 0.000_001) == ["r4", "r3", "r2", "r1", "r0"]


async def test_T250_records_are_a_projects_own(store: Store) -> None:
    mine, other = of_project(store, "tenant-a"), of_project(store, "tenant-b")
    for view in (mine, other):
        await view.create_record(a_record(project=view.project, title=view.project, uses_left=2), key="k")
    for read in (mine.record, mine.use_record):
        assert (await read("r1", project="tenant-b")).title == "tenant-a"
    assert [one.value.title for one in await mine.records(RecordQuery(), project="tenant-b")] == ["tenant-a"]
    assert [one.title for one in await mine.record_history("r1", project="tenant-b")] == ["tenant-a"]
    assert [change.record.title for _, change in await mine.record_changes(project="tenant-b")] == ["tenant-a"]
    await mine.delete_record("r1", by="ann", project="tenant-b")
    assert await mine.expire_records(project="tenant-b") == []
    assert (await other.record("r1")).uses_left == 2
    assert await mine.last_change(project="tenant-b") != await other.last_change()
    other_record = a_record(project="tenant-b")
    for write in (mine.create_record, lambda record: mine.update_record(record, 1)):
        with pytest.raises(StoreError, match="is not the one whose record is open"):
            await write(other_record)


async def test_T250_control_a_project_changes_its_own_record(store: Store) -> None:
    view = of_project(store, "tenant-a")
    record = await view.create_record(a_record(project="tenant-a"))
    assert (await view.update_record(replace(record, title="New"), 1)).title == "New"
