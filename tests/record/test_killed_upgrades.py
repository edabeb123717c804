"""Stores of earlier versions, whose upgrade is killed at any point: opened again, they are whole."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolwire.protocol.approvals import Approval
from toolwire.protocol.records import AuditRow
from toolwire.protocol.turns import Ending, EndReason
from toolwire.record.checkpoints import faults, sign
from toolwire.record.contract import TurnStats
from toolwire.record.projects import of_project
from toolwire.record.retention import KeepLimits, Retention
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW
from .dying_migrations import NEVER, make, migrate
from .samples import a_call, a_card, success

OLD = Path(__file__).parent / "old"


def dumped(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [*connection.iterdump(), str(connection.execute("PRAGMA user_version").fetchone())]
    finally:
        connection.close()


@pytest.mark.parametrize(("version", "every"), [(1, 9), (15, 3), (21, 1)])
async def test_an_upgrade_that_is_killed_anywhere_is_finished_when_the_store_is_opened(
    tmp_path: Path, version: int, every: int
) -> None:
    fixture = OLD / f"version-{version}.sql"
    whole = tmp_path / "whole" / "store.db"
    make(whole, fixture.read_text(encoding="utf-8"))
    migrate(whole, NEVER)
    dying = [sys.executable, "-m", "tests.record.dying_migrations", str(fixture), str(tmp_path), str(every)]
    ran = await asyncio.to_thread(subprocess.run, dying, capture_output=True, text=True, check=True)

    kills, expected = int(ran.stdout), dumped(whole)
    assert kills * every > 40
    for number in range(kills):
        path = tmp_path / str(number) / "store.db"
        migrate(path, NEVER)
        assert dumped(path) == expected, f"killed before statement {number * every}"
    async with await SqliteStore.at(tmp_path / str(kills // 2), clock=lambda: NOW) as store:
        assert (await store.audit_chain()).broken_at is None


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make(tmp_path / "home" / "store.db", (OLD / "version-21.sql").read_text(encoding="utf-8"))
    return tmp_path / "home"


@pytest.mark.parametrize("project", ["default", "acme"])
async def test_each_project_of_a_store_of_version_21_goes_on_with_what_is_its_own(home: Path, project: str) -> None:
    async with await SqliteStore.at(home, clock=lambda: NOW) as store:
        view = of_project(store, project)
        ended = await view.turn(f"{project}-ended")
        assert (ended.ending, len(await view.thread("main"))) == (Ending(EndReason.ANSWERED, "21."), 4)
        assert (
            [one.model for one in await view.formats()],
            (await view.reserved_shares(f"{project}-waiting")).calls,
        ) == (
            ["m"],
            4,
        )
        [pending] = await view.approvals(only_open=True)
        [pattern] = await view.active_patterns()
        assert (pending.id, pattern.id) == (f"{project}-ask", f"{project}-pattern")
        await view.answer(pending.id, Approval(True, "ann"))

        taken = await view.resume(f"{project}-waiting")
        git = a_card(a_call("call-1", "git", command="commit"), taken.opening, project=project)
        mine = await view.claim(await view.open(git, []), [])
        await view.close(mine, success(mine.call), [])
        killed = await view.resume(f"{project}-killed")

        cards = await view.calls(turn_id=f"{project}-killed")
        assert [(card.call.id, card.attempt) for card in cards] == [("call-1", 1), ("call-2", 0)]
        assert (await view.spent("agent", NOW)).calls == 4
        for turn in (taken.opening, killed.opening):
            await view.end(replace(turn, ending=Ending(EndReason.ANSWERED, "")), TurnStats())
        # Ids that the other project has are free.
        other = "acme" if project == "default" else "default"
        await view.begin(replace(taken.opening, id=f"{other}-waiting", epoch=1, waits=()))
        assert len(await of_project(store, other).calls(turn_id=f"{other}-waiting")) == 1


async def test_T68_the_chains_of_projects_go_on_from_the_one_that_they_shared(home: Path) -> None:
    async with await SqliteStore.at(home, clock=lambda: NOW) as store:
        views = [of_project(store, project) for project in ("default", "acme", "new")]
        before = [await view.audit_chain() for view in views]
        assert len({(chain.rows, chain.last, chain.head, chain.broken_at) for chain in before}) == 1
        shared = sign(home, before[0], NOW)
        for number in range(6):
            await store.audit([AuditRow(NOW, "later", views[number % 3].project)])

        after = [await view.audit_chain([shared.seq]) for view in views]
        assert [chain.rows - before[0].rows for chain in after] == [2, 2, 2]
        assert [(chain.broken_at, faults([shared], chain)) for chain in after] == [(None, [])] * 3
        assert len({chain.head for chain in after}) == 3
        whole = await store.audit_chain()
        assert (whole.rows, whole.broken_at) == (before[0].rows + 6, None)


async def test_T68_chains_that_were_pruned_within_and_behind_the_shared_part_go_on(home: Path) -> None:
    now = NOW
    async with await SqliteStore.at(home, clock=lambda: now) as store:
        for turn in await store.turns(limit=9, state="interrupted"):
            taken = (await of_project(store, turn.project).resume(turn.id)).opening
            await store.end(replace(taken, ending=Ending(EndReason.ANSWERED, "")), TurnStats())
        for _ in range(3):
            now += 2 * 86_400.0
            for project in ("default", "acme"):
                await store.audit([AuditRow(now, "later", project)])
            assert (await store.prune(Retention(audit=KeepLimits(days=1)))).audit_rows
            await store.audit([AuditRow(now, "from a project without rows by then", "new")])
            for project in ("default", "acme", "new"):
                chain = await of_project(store, project).audit_chain()
                assert (chain.broken_at, chain.cut_is_signed) == (None, True)
            assert (await store.audit_chain()).broken_at is None


async def test_T62_a_note_of_an_earlier_version_about_a_begun_call_still_counts(home: Path) -> None:
    """It was not kept for a project: the call that it is about has begun, and does not run a second time."""
    async with await SqliteStore.at(home, clock=lambda: NOW) as killed:
        taken = await of_project(killed, "acme").resume("acme-killed")
        card = a_card(a_call("call-2"), taken.opening, project="acme")
        await killed.claim(await killed.open(card, []), [], begins=False)
        killed.begins("acme-killed", "call-2")  # as it was written before: without the project
        await killed.release(taken.opening)

        [_, card] = await of_project(killed, "acme").calls(turn_id="acme-killed")
        assert card.attempt == 1
