"""Tools that set other agents to work, as every process of a simulation has them.

Making tools takes long, so these are made once. Which store they mean depends on the process that runs them.
"""

from functools import cache
from typing import Any, cast

from tests.simulation.virtual_loop import PROCESS
from tests.simulation.workload import CALLED, DELEGATING, HELPER
from toolwire import Agent, Grant, Tier
from toolwire.define.toolbox import Toolbox
from toolwire.record.contract import Store
from toolwire.toolbox.agents.delegation import SubAgents
from toolwire.toolbox.agents.orchestration_tools import orchestration_tools
from toolwire.toolbox.agents.workers import SubAgentProfile

GRANT = Grant(tier=Tier.RUN, permissions=frozenset(["session"]), max_calls=1_000_000, wary=False)
"""With so many calls no task is refused for want of them: each gets half of what is left, and the share of one whose
process was killed before it was kept stays reserved."""


class _OwnStore:
    """The store as the process sees it that asks."""

    def __getattr__(self, name: str) -> Any:
        process = PROCESS.get()
        return getattr(process.loop.surroundings.stores[process.name], name)


def _help_out(grant: Grant) -> Agent:
    agent: Agent = PROCESS.get().loop.surroundings.help_out(grant)
    return agent


@cache
def plain_tools() -> Toolbox:
    return Toolbox.of(*CALLED.values())


@cache
def delegating_tools() -> Toolbox:
    helper = SubAgentProfile(HELPER, "does tasks", GRANT, _help_out)
    made = orchestration_tools(SubAgents(cast("Store", _OwnStore()), [helper]), lambda: PROCESS.get().loop.time())
    return Toolbox.of(*CALLED.values(), *(one for one in made if one.name in DELEGATING))
