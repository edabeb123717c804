"""What is not over yet, counted alike by every store."""

from msgspec.structs import replace

from toolwire.protocol.approvals import ApprovalCard
from toolwire.protocol.records import Dispatch
from toolwire.protocol.turns import Ending, EndReason
from toolwire.protocol.waits import Until
from toolwire.record.contract import Store, TurnStats, Workload
from toolwire.record.projects import of_project

from .conftest import NOW
from .samples import a_call, a_card, a_turn


async def test_what_is_not_over_is_counted_for_each_project(store: Store) -> None:
    for number, waits in enumerate([None, None, (), (Until(NOW + 60),), (Until(NOW + 90),), "ended"]):
        turn = replace(a_turn(), id=f"turn-{number}")
        await store.begin(turn)
        if waits == "ended":
            await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "done")), TurnStats())
        elif isinstance(waits, tuple):
            await store.release(replace(turn, waits=waits))
    turn = replace(a_turn(), id="turn-0")
    card = a_card(a_call("call-1"), turn)
    await store.open(card, [])
    sent = (card.record_id, 1, "cg.v1r4.p.c.cmd.tool.x", "{}", NOW - 7, NOW + 10_000)
    await store.dispatch(Dispatch("default", turn.id, "call-1", *sent), [])
    for name, turn_id, expires_at in (("a", "turn-3", NOW + 60), ("b", "turn-4", NOW - 1), ("c", "turn-5", NOW + 60)):
        asked = ApprovalCard(name, turn_id, f"call-{name}", "git", {}, "d", expires_at=expires_at, asked_at=NOW)
        await store.request_approval(asked, [])

    found = await store.workload(NOW)

    assert found == Workload(running=2, waiting=2, interrupted=1, approvals=1, dispatches=1, overdue_s=7.0)
    assert await of_project(store, "other").workload(NOW) == Workload()
