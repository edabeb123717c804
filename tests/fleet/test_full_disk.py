"""C28: a large output for which its worker has no room. The file system is really full."""

from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.fleet.conftest import Fleet
from tests.full_disk import full_disk
from toolwire import Agent, Grant, tool
from toolwire.errors import StoreUnavailable, ToolFailure
from toolwire.hub import results
from toolwire.hub.services import Services
from toolwire.protocol.calls import Text, ToolOutput, ToolResult
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.records import AuditRow
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.record.artifacts import Artifacts
from toolwire.record.bodies import FolderBodies
from toolwire.record.contract import Store
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import ScriptedModel, call

LINES = [f"line {number} of a long output" for number in range(4_000)]
SHORT = ["all in order"]
LOST = "the whole could not be kept"


def running(effect: Effect) -> Tool:
    """A tool that runs a program: how a call ends is said by the exit code, not by what becomes of its output.

    What a failure says is short by then, so that nothing of it has to be kept.
    """

    @tool(effect=effect, tier=Tier.WALK)
    async def build(exit_code: int, short: bool = False) -> ToolOutput:
        """Build it."""
        said = "\n".join(SHORT if short else LINES)
        if exit_code:
            raise ToolFailure(said, exit_code=exit_code)
        return ToolOutput((Text(said),), exit_code=exit_code)

    return build


async def finished(store: Store, turn_id: str, project: str) -> AuditRow:
    rows = await store.audit_log(turn_id=turn_id, project=project)
    [row] = [row for row in rows if row.event == "finished"]
    return row


@pytest.mark.parametrize("effect", [Effect.UNSAFE, Effect.PURE])
async def test_a_worker_without_room_for_an_output_tells_how_the_call_ended_and_that_it_is_lost(
    fleet: Fleet, effect: Effect
) -> None:
    store, working, build = await fleet.store(), await fleet.store(), running(effect)
    with full_disk() as disk:
        working.bodies = FolderBodies(Artifacts(disk.folder / "bodies"))
        await fleet.worker([build], store=working)
        await fleet.relay()
        told: list[tuple[ToolResult, AuditRow]] = []
        for asked in ({"exit_code": 0}, {"exit_code": 3}, {"exit_code": 0, "short": True}, {"exit_code": 0}):
            if len(told) == 3:
                disk.make_room()
            turn_id = await fleet.sent(fleet.agent(store, [fleet.far(build)], call("build", **asked)))
            result = (await fleet.result(store, turn_id)).result
            assert result is not None
            told.append((result, await finished(store, turn_id, fleet.project)))

    assert [(result.status, result.exit_code) for result, _ in told] == [
        (Status.SUCCESS, 0), (Status.FAILED, 3), (Status.SUCCESS, 0), (Status.SUCCESS, 0),
    ]  # fmt: skip
    assert [(LOST in result.text, result.handle is None) for result, _ in told] == [
        (True, True), (False, True), (False, True), (False, False),
    ]  # fmt: skip
    assert [row.detail.get("output_lost", False) for _, row in told] == [True, False, False, False]
    assert [LINES[0] in told[place][0].text for place in (0, 1, 3)] == [True] * 3


async def test_an_agent_without_room_for_an_output_reads_how_the_call_ended_and_goes_on(tmp_path: Path) -> None:
    build = running(Effect.UNSAFE)
    async with await SqliteStore.at(tmp_path) as store:
        with full_disk() as disk:
            store.bodies = FolderBodies(Artifacts(disk.folder / "bodies"))
            model = ScriptedModel(call("build", exit_code=3), call("build", exit_code=0), "Lost, but built.")
            answer = await Agent(model, [build], store=store, grant=Grant(tier=Tier.RUN)).ask("Build it")
        rows = [row for row in await store.audit_log(turn_id=answer.turn_id) if row.event == "finished"]
        cards = await store.calls(turn_id=answer.turn_id)

    told = [card.result for card in cards if card.result is not None]
    assert answer.text == "Lost, but built."
    assert [(result.status, result.exit_code) for result in told] == [(Status.FAILED, 3), (Status.SUCCESS, 0)]
    assert [(LOST in result.text, result.handle) for result in told] == [(False, None), (True, None)]
    assert sorted(row.detail.get("output_lost", False) for row in rows) == [False, True]


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_control_a_worker_that_fails_with_its_disk_no_longer_knows_how_the_call_ended(fleet: Fleet) -> None:
    store, working, build = await fleet.store(), await fleet.store(), running(Effect.UNSAFE)

    async def keep(services: Services, raw: bytes) -> str:
        return await services.store.keep(raw)

    with full_disk() as disk, patch.object(results, "_kept", keep):
        working.bodies = FolderBodies(Artifacts(disk.folder / "bodies"))
        await fleet.worker([build], store=working)
        await fleet.relay()
        turn_id = await fleet.sent(fleet.agent(store, [fleet.far(build)], call("build", exit_code=0)))
        result = (await fleet.result(store, turn_id)).result

    assert result is not None
    assert result.error is not None
    assert result.error.code is Code.OUTCOME_UNKNOWN


async def test_a_body_that_comes_in_pieces_leaves_nothing_on_a_full_disk() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield bytes(100)

    with full_disk() as disk:
        bodies = FolderBodies(Artifacts(disk.folder / "bodies"))
        with pytest.raises(StoreUnavailable, match="No space left"):
            await bodies.keep_pieces(pieces())
        left = list((disk.folder / "bodies").iterdir())
        disk.make_room()
        handle = await bodies.keep_pieces(pieces())
        assert await bodies.fetch(handle) == bytes(400)

    assert left == []
