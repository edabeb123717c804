"""Hears the doorbells of turns: the process that runs turns looks at once, and not at its next tick."""

import logging
from collections.abc import Callable

from toolwire.bus.contract import Bus
from toolwire.protocol.subjects import ROOT, VERSION
from toolwire.wire.utp.messages import decode_wakeup
from toolwire.wire.utp.violations import Refusal

_log = logging.getLogger(__name__)


def wakeups_of(project: str = "*") -> str:
    """The subjects of all wakeups of a project."""
    return f"{ROOT}.{VERSION}.{project}.*.cmd.agent.*.wakeup"


async def hear_wakeups(bus: Bus, wake: Callable[[str], None], *, durable: str, project: str = "*") -> None:
    """Call `wake` with the id of each turn that is woken ("" where a wakeup names none), until canceled."""
    await hear_woken_turns(bus, lambda _, turn_id: wake(turn_id), durable=durable, project=project)


async def hear_woken_turns(bus: Bus, wake: Callable[[str, str], None], *, durable: str, project: str = "*") -> None:
    """The same with the project and the id of the turn."""
    async with bus.subscribe(wakeups_of(project), durable=durable) as doorbells:
        async for delivered in doorbells:
            wakeup = decode_wakeup(delivered.message)
            if isinstance(wakeup, Refusal):
                _log.warning("a wakeup is refused: %s", wakeup.violations[0].message)
            else:
                named = wakeup.metadata.get("agent_turn_id")
                wake(wakeup.subject.project, named if isinstance(named, str) else "")
            await delivered.ack()
