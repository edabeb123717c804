"""What is taken back while a turn waits does not count when it goes on, whatever store kept it."""

from typing import Any

import pytest
from msgspec.structs import replace

from toolwire import Agent, Approval, Context, Grant, Tier, Toolbox, tool
from toolwire.errors import Suspended
from toolwire.protocol.outcomes import Code
from toolwire.protocol.policy import Autonomy, Rule
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel, call

GRANT = Grant(
    tier=Tier.RUN,
    permissions=frozenset({"doors", "windows"}),
    roots=("/work", "/data"),
    network=("good.test", "other.test"),
    confirmed=frozenset({"look"}),
    max_calls=10,
)
ASKING = replace(GRANT, rules=(Rule.parse("ask unlock"),))


class House:
    """A tool that needs a tier and a permission, and notes under which grant it ran."""

    def __init__(self) -> None:
        self.grants: list[Grant] = []

    def toolbox(self) -> Toolbox:
        @tool(tier=Tier.RUN, needs=["doors"])
        def unlock(context: Context) -> str:
            """Unlock the door."""
            self.grants.append(context.grant)
            return "it is open"

        return Toolbox.of(unlock)

    def agent(self, store: Store, grant: Grant, *script: Any) -> Agent:
        return Agent(ScriptedModel(*script), self.toolbox(), store=store, grant=grant, suspends=True)


async def approved(house: House, store: Store, *, single: bool) -> str:
    """The turn of a call that waits and was approved."""
    agent = house.agent(store, ASKING, call("unlock"))
    with pytest.raises(Suspended) as waits:
        await (agent.call("unlock", {}) if single else agent.ask("Open"))
    await store.answer(waits.value.approvals[0], Approval(granted=True))
    return waits.value.turn_id


async def result_after(house: House, store: Store, now: Grant, *, single: bool) -> Any:
    turn_id = await approved(house, store, single=single)
    agent = house.agent(store, now, "Done.")
    if single:
        return await agent.resume_call(turn_id)
    answer = await agent.resume(turn_id)
    return next(one for message in answer.turn.messages for one in getattr(message, "results", ()))


@pytest.mark.parametrize("single", [False, True], ids=["resume", "resume_call"])
@pytest.mark.parametrize(
    "now",
    [
        replace(ASKING, tier=Tier.WALK),
        replace(ASKING, permissions=frozenset({"windows"})),
        replace(ASKING, autonomy=Autonomy.READONLY),
        Grant(),
    ],
    ids=["tier", "permission", "autonomy", "all"],
)
async def test_T79_a_call_whose_right_was_taken_back_does_not_run(store: Store, now: Grant, single: bool) -> None:
    house = House()
    result = await result_after(house, store, now, single=single)
    assert (house.grants, result.ok, result.error.code) == ([], False, Code.PERMISSION_DENIED)


@pytest.mark.parametrize("single", [False, True], ids=["resume", "resume_call"])
async def test_T79_control_a_call_whose_right_still_stands_runs(store: Store, single: bool) -> None:
    house = House()
    assert (await result_after(house, store, ASKING, single=single)).ok
    assert house.grants == [ASKING]


@pytest.mark.parametrize("single", [False, True], ids=["resume", "resume_call"])
async def test_T79_a_resumed_turn_has_what_both_grants_allow_and_never_more(store: Store, single: bool) -> None:
    house = House()
    now = replace(
        ASKING,
        permissions=frozenset({"doors", "cellar"}),
        roots=("/work/src", "/data", "/new"),
        network=("good.test", "new.test", "!bad.test"),
        confirmed=frozenset({"*"}),
        max_calls=5,
    )
    assert (await result_after(house, store, now, single=single)).ok
    [grant] = house.grants
    assert grant.permissions == {"doors"}
    assert grant.roots == ("/data",)  # beneath a narrower folder a relative path would mean another file
    assert grant.network == ("good.test", "!bad.test")
    assert grant.confirmed == {"look"}
    assert grant.max_calls == 5
