"""Whether a turn on record can be resumed here without losing what people have approved.

An approval is for one tool as it was. An agent that lacks that tool, or has another version of it, must not take the
turn over: the call would end as not found or refused, for good, and the approval would be spent.
"""

from collections.abc import Iterator

from toolwire.decide.ladder import works_in_folders
from toolwire.decide.policy import grant_of_resumed
from toolwire.define.toolbox import Toolbox
from toolwire.disclose.offer import covers
from toolwire.errors import CannotResume
from toolwire.protocol.agents import AgentSpec
from toolwire.protocol.approvals import ApprovalCard, ApprovalState
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Grant
from toolwire.protocol.turns import Turn
from toolwire.record.contract import Store

_MOST_LOOKED_AT = 1_000
_OTHER_FOLDERS = "not all folders that it was approved for are granted now: in others its paths mean other files"
_COUNTS = (ApprovalState.OPEN, ApprovalState.GRANTED)


async def approved_calls(store: Store, turn_id: str) -> list[tuple[CallCard, ApprovalCard]]:
    """The calls of a turn that have no result yet, with the approvals that are pending or given for them."""
    asked = await store.approvals(turn_id=turn_id, limit=_MOST_LOOKED_AT)
    approvals = {card.call_id: card for card in asked if card.state in _COUNTS}
    if not approvals:
        return []
    cards = await store.calls(turn_id=turn_id, limit=_MOST_LOOKED_AT)
    return [(card, approvals[card.call.id]) for card in cards if card.result is None and card.call.id in approvals]


async def require_same_tools(store: Store, turn: Turn, toolbox: Toolbox, now: AgentSpec | None) -> None:
    """Raise `CannotResume` where a call that people were asked about lacks its tool here, or would run another one."""
    for card, approval in await approved_calls(store, turn.id):
        for wrong in _differences(card, turn, toolbox, now):
            raise CannotResume(turn.id, card.call.name, approval.id, wrong)


def _differences(card: CallCard, turn: Turn, toolbox: Toolbox, now: AgentSpec | None) -> Iterator[str]:
    tool = toolbox.get(card.call.name)
    if tool is None:
        yield "there is no such tool now"
    elif card.tool_version not in ("", tool.version):
        yield f"it has version {tool.version} now, and the approval is for version {card.tool_version}"
    elif tool.skill and turn.spec is not None and now is not None:
        before, after = ({one.name: one.digest for one in spec.tools.skills} for spec in (turn.spec, now))
        if before.get(tool.skill, "") != after.get(tool.skill, ""):
            yield f"the files of skill {tool.skill!r} have changed since the approval was requested"


async def require_still_granted(store: Store, turn: Turn, toolbox: Toolbox, now: Grant) -> None:
    """Raise `CannotResume` where a call that people were asked about could not run for want of a grant or a tool."""
    left = grant_of_resumed(turn.grant, now)
    for card, approval in await approved_calls(store, turn.id):
        if missing := lacks(toolbox, card.call, turn.grant, left):
            raise CannotResume(turn.id, card.call.name, approval.id, missing)


def lacks(toolbox: Toolbox, call: ToolCall, had: Grant, left: Grant) -> str:
    """What a call lacks that could run under the grant that its turn had; empty where that is nothing."""
    tool = toolbox.get(call.name)
    if tool is None:
        return "there is no such tool now"
    if not covers(had, tool):
        return ""
    if covers(left, tool):
        moved = left.roots != had.roots and works_in_folders(tool, call.arguments)
        return _OTHER_FOLDERS if moved else ""
    needs = [f"tier {tool.tier.name.lower()}"] if tool.tier > left.tier else []
    return f"it needs {' and '.join([*needs, *sorted(tool.needs - left.permissions)])}, which is not granted any more"
