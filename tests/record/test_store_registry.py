"""Registered tools and cards of results in every store: versions side by side, each project's own, written once."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolwire.errors import Conflict, NotFound, StoreError
from toolwire.protocol.registrations import ResultCard, ToolRegistration
from toolwire.protocol.turns import Ending, EndReason
from toolwire.record import registry_rules
from toolwire.record.contract import Store, TurnStats
from toolwire.record.projects import of_project
from toolwire.record.retention import KeepLimits, Retention
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW, database_server
from .samples import a_turn

HOSTILE = "half \ud83d of a pair, \x00, \" ' ; DROP TABLE registered_tools"


def a_row(
    version: str = "1.2", *, name: str = "search", project: str = "default", says: str = "Finds."
) -> ToolRegistration:
    parameters = {"type": "object", "properties": {"$ref": {"const": says}, "n": {"enum": [None, 1.5, 2**60]}}}
    subject = "cg.v1r4.{project_id}.public.cmd.tool.search"
    return ToolRegistration(
        project, name, version, says, parameters, subject, "suspend", {"envs": {"$key": "KEY"}}, f"digest of {says!r}"
    )


def a_result_card(
    card_id: str = "card-1", *, says: str = "{}", project: str = "default", call: str = "call-1"
) -> ResultCard:
    return ResultCard(project, card_id, "turn-1", call, f"digest of {says}", says.encode(), "search-service", NOW)


async def test_versions_are_kept_side_by_side_and_come_back_as_they_were(store: Store) -> None:
    rows = [a_row("1.10"), a_row("1.9"), a_row("2", name="mail", says=HOSTILE)]
    dated = [replace(row, created_at=NOW, updated_at=NOW) for row in rows]

    assert await store.register_tools(rows, by="ann") == dated
    assert await store.registered_tools() == sorted(dated, key=lambda row: (row.name, row.version))
    assert await store.registered_tools(project="other") == await store.register_tools([]) == []
    audited = [(row.event, row.tool, row.agent, row.detail["version"]) for row in await store.audit_log()]
    assert audited == [("tool_registered", row.name, "ann", row.version) for row in rows]


async def test_the_same_version_with_other_content_is_refused_and_with_the_same_left_alone(store: Store) -> None:
    await store.register_tools([a_row()])
    await store.register_tools([a_row()])
    with pytest.raises(Conflict, match=r"search@1\.2 is registered .* with other content; register it under a new"):
        await store.register_tools([a_row("1.3"), a_row(says="Finds more.")])

    assert [(row.version, row.description) for row in await store.registered_tools()] == [("1.2", "Finds.")]
    assert [row.event for row in await store.audit_log()] == ["tool_registered"]


async def test_a_version_is_replaced_where_its_writer_says_so(store: Store) -> None:
    await store.register_tools([a_row(), a_row("1.3")])
    [after] = await store.register_tools([a_row(says="Finds more.")], replace=True)

    assert after.description == "Finds more."
    assert [row.description for row in await store.registered_tools()] == ["Finds more.", "Finds."]
    assert (await store.audit_log())[-1].event == "tool_replaced"


async def test_one_version_or_all_of_a_tool_are_removed(store: Store) -> None:
    await store.register_tools([a_row("1"), a_row("2"), a_row("3"), a_row("1", name="mail")])

    assert [row.version for row in await store.unregister_tool("search", "2", by="ann")] == ["2"]
    assert [row.version for row in await store.unregister_tool("search")] == ["1", "3"]
    assert [row.name for row in await store.registered_tools()] == ["mail"]
    for name, version in (("search", None), ("mail", "2"), ("mail", ""), (HOSTILE, None)):
        with pytest.raises(NotFound, match="is not registered for project 'default'"):
            await store.unregister_tool(name, version)
    assert [row.event for row in await store.audit_log()][4:] == ["tool_unregistered"] * 3
    [again] = await store.register_tools([a_row("2", says="Another.")])
    assert again.description == "Another."


async def test_T173_registered_tools_and_cards_are_a_projects_own(store: Store) -> None:
    mine, other = of_project(store, "tenant-a"), of_project(store, "tenant-b")
    for view in (mine, other):
        await view.register_tools([a_row(project=view.project, says=view.project)])
        await view.keep_card(a_result_card(project=view.project, says=f'"{view.project}"'))

    assert [row.description for row in await mine.registered_tools(project="tenant-b")] == ["tenant-a"]
    assert (await mine.result_card("card-1", project="tenant-b")).body == b'"tenant-a"'
    await mine.unregister_tool("search", project="tenant-b")
    assert await mine.registered_tools() == []
    assert [row.description for row in await other.registered_tools()] == ["tenant-b"]
    with pytest.raises(StoreError, match="is not the one whose record is open"):
        await mine.register_tools([a_row(project="tenant-b")])
    with pytest.raises(StoreError, match="is not the one whose record is open"):
        await mine.keep_card(a_result_card("card-2", project="tenant-b"))
    with pytest.raises(StoreError, match="tools of 2 projects cannot be registered at once"):
        await store.register_tools([a_row(), a_row(project="tenant-b")])


async def test_T173_control_a_project_reads_its_own_card(store: Store) -> None:
    view = of_project(store, "tenant-a")
    card = await view.keep_card(a_result_card(project="tenant-a"))
    assert await view.result_card("card-1") == card


async def test_a_project_can_have_only_so_many_versions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_rules, "MOST_REGISTERED", 3)
    await store.register_tools([a_row(str(number)) for number in range(3)])
    with pytest.raises(Conflict, match="a project can have 3 versions of tools; remove old ones first"):
        await store.register_tools([a_row("9")])
    await store.register_tools([a_row("1")])
    await store.unregister_tool("search", "0")
    await store.register_tools([a_row("9")])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_of_writers_at_the_same_moment_one_decides_what_a_version_is(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async def compete(*stores: SqliteStore) -> None:
        rows = [[a_row("1", says=f"By {number}."), a_row(f"2.{number}")] for number in range(2)]
        writes = (store.register_tools(given) for store, given in zip(stores, rows, strict=True))
        done = await asyncio.gather(*writes, return_exceptions=True)
        assert {type(one) for one in done} == {list, Conflict}
        winner = [type(one) for one in done].index(list)
        kept = [(row.version, row.description) for row in await stores[0].registered_tools()]
        assert kept == [("1", f"By {winner}."), (f"2.{winner}", "Finds.")]

    if kind == "sqlite":
        async with await SqliteStore.at(tmp_path) as one, await SqliteStore.at(tmp_path) as two:
            await compete(one, two)
    else:
        with database_server(kind, tmp_path, request) as on:
            async with await on(tmp_path / "1") as one, await on(tmp_path / "2") as two:
                await compete(one, two)


async def test_a_card_is_kept_once_byte_for_byte(store: Store) -> None:
    card = a_result_card(says='{"a":\u00201, "b": "ä\\u0000"}')
    assert await store.keep_card(card) == card
    assert await store.keep_card(replace(card, created_at=NOW + 5)) == card
    with pytest.raises(Conflict, match="card 'card-1' is kept with other content"):
        await store.keep_card(a_result_card(says="[]"))
    assert await store.result_card("card-1") == card
    with pytest.raises(NotFound, match="there is no card 'card-2'"):
        await store.result_card("card-2")


async def test_a_call_has_only_so_many_cards(store: Store) -> None:
    for number in range(registry_rules.MOST_CARDS):
        await store.keep_card(a_result_card(f"card-{number}"))
    with pytest.raises(Conflict, match="has 16 cards of results already"):
        await store.keep_card(a_result_card("one more"))
    await store.keep_card(a_result_card("card-0"))
    await store.keep_card(a_result_card("another call's", call="call-2"))


async def test_what_is_kept_about_claims_of_a_call_leaves_room_for_its_results(store: Store) -> None:
    for number in range(2 * registry_rules.MOST_CARDS):
        await store.keep_card(replace(a_result_card(f"claim:{number}"), author=""))
    assert await store.keep_card(a_result_card()) == a_result_card()


async def test_cards_go_with_their_turn_and_registered_tools_stay(tmp_path: Path) -> None:
    now = NOW
    async with await SqliteStore.at(tmp_path, clock=lambda: now) as store:
        turn = a_turn("turn-1")
        await store.begin(turn)
        await store.keep_card(a_result_card())
        await store.register_tools([a_row()])
        await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "Done.")), TurnStats())
        now += 10 * 86_400
        await store.prune(Retention(turns=KeepLimits(1)))

        with pytest.raises(NotFound):
            await store.result_card("card-1")
        assert len(await store.registered_tools()) == 1
