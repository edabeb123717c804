"""Turns that no user begins: those of schedules, and those of specialist agents that a record has woken.

They run as any turn does, under the grant that the project gives at that time, less what their author could not do.
What is begun is kept first, so that any process takes it up; the same work begun twice is one turn.
"""

import json

from msgspec.structs import replace

from toolwire.agent import Agent
from toolwire.assemble.agent_names import AGENT, GENERAL
from toolwire.assemble.agents import open_agent
from toolwire.assemble.interaction import Unattended
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.requested_agents import choose_agent, choose_model, restrict_tools
from toolwire.assemble.specs import spec_of
from toolwire.breadcrumbs.rules.schedule_definitions import AskAgent, CallTool
from toolwire.breadcrumbs.scheduler import ScheduledWork
from toolwire.breadcrumbs.specialists import SpecialistWork
from toolwire.decide.policy import narrow_grant
from toolwire.disclose.offer import visible_tools
from toolwire.errors import InvalidRecord, NotFound, NotPermitted, StoreError
from toolwire.models.workflow import workflow_limits
from toolwire.plan.workflow_reading import BadWorkflow, read_workflow
from toolwire.protocol.agents import ModelSpec
from toolwire.protocol.breadcrumbs import Record
from toolwire.protocol.budgets import least
from toolwire.protocol.tools import Grant
from toolwire.protocol.turns import WORKFLOW_MODEL
from toolwire.record.contract import Store
from toolwire.toolbox.agents.delegation import ask_before_effects
from toolwire.wire.codecs.stored import read_grant


async def begin_scheduled(project: ProjectFolder, store: Store, work: ScheduledWork) -> None:
    """Keep the turn of a schedule's firing. Raises ToolwireError where it cannot begin."""
    if await _is_kept(store, work.turn_id):
        return
    match work.action:
        case AskAgent(question, wanted, thread):
            name = choose_agent(project, wanted)
            spec = spec_of(project, choose_model(project, "", name), agent=name)
        case CallTool(tool, arguments):
            spec = replace(spec_of(project, agent=AGENT), model=ModelSpec(WORKFLOW_MODEL))
            question = json.dumps({"steps": [{"id": "call", "tool": tool, "input": arguments}]}, ensure_ascii=False)
            thread = ""
    async with open_agent(project, store, Unattended(), spec) as agent:
        if work.grant is not None:
            agent.grant = narrow_grant(_read_grant(work), agent.grant)
            # As itself: under another name it would have that one's configurations and private records.
            agent.name = work.record.created_by.removeprefix("agent:")
            agent.grant = narrow_grant(agent.grant, project.settings.granted_to(agent.name, agent.grant))
        if spec.model.name == WORKFLOW_MODEL:
            _hold_to_steps(agent, question)
        await _begin(agent, question, thread, work.turn_id, work.record.origins)


async def begin_specialist(project: ProjectFolder, store: Store, work: SpecialistWork) -> None:
    """Keep the turn of a specialist. Raises ToolwireError where it cannot begin.

    It may do what the project, its definition and the turn that asked for it allow, never more than any of them.
    """
    if await _is_kept(store, work.turn_id):
        return
    definition = work.definition
    spec = spec_of(project, choose_model(project, definition.model, GENERAL), agent=GENERAL)
    async with open_agent(project, store, Unattended(), spec, system=definition.prompt) as agent:
        restrict_tools(agent, definition.tools)
        agent.grant = await _narrowed(project, store, work, agent.grant)
        agent.name = definition.name
        agent.limits = replace(agent.limits, deadline_s=least(agent.limits.deadline_s, work.deadline_s))
        await _begin(agent, work.question, "", work.turn_id, work.origins)


async def _narrowed(project: ProjectFolder, store: Store, work: SpecialistWork, grant: Grant) -> Grant:
    definition = work.definition
    grant = narrow_grant(grant, project.settings.granted_to(definition.name, grant))
    for turn_id in work.asked_in:
        grant = narrow_grant(await _grant_of_asker(store, turn_id, work.request), grant)
    permissions = grant.permissions if definition.permissions is None else grant.permissions & definition.permissions
    return replace(
        grant,
        tier=grant.tier if definition.tier is None else min(grant.tier, definition.tier),
        permissions=permissions,
        max_calls=least(grant.max_calls, definition.max_calls) or grant.max_calls,
    )


async def _grant_of_asker(store: Store, turn_id: str, request: Record) -> Grant:
    """What a turn that wrote a record may do. Raises NotPermitted."""
    try:
        return (await store.turn(turn_id)).opening.grant
    except NotFound:
        raise NotPermitted(
            f"turn {turn_id}, which wrote record {request.id}, is not on record any more; "
            "what an agent may do for it is not known"
        ) from None


def _read_grant(work: ScheduledWork) -> Grant:
    try:
        return read_grant(work.grant or {})
    except (KeyError, TypeError, ValueError):
        raise InvalidRecord(
            f"the grant of schedule {work.record.id} cannot be read; create the schedule again"
        ) from None


def _hold_to_steps(agent: Agent, question: str) -> None:
    """Check that the call may be made before it is kept, and give its turn the limits of a workflow."""
    usable = [tool.name for tool in visible_tools(agent.toolbox, agent.grant)]
    try:
        agent.limits = workflow_limits(read_workflow(json.loads(question), usable), agent.limits)
    except BadWorkflow as wrong:
        raise InvalidRecord(f"the call of the schedule cannot be made: {wrong}") from None


async def _begin(agent: Agent, question: str, thread: str, turn_id: str, origins: tuple[str, ...]) -> None:
    if origins:  # what it is asked rests on untrusted content: people are asked before anything goes out
        agent.grant = replace(agent.grant, rules=(*agent.grant.rules, ask_before_effects(agent.toolbox)))
    try:
        await agent.begin(question, thread=thread, turn_id=turn_id)
    except StoreError:
        if not await _is_kept(agent.store, turn_id):  # else another process began the same turn at the same moment
            raise


async def _is_kept(store: Store, turn_id: str) -> bool:
    try:
        await store.turn(turn_id)
    except NotFound:
        return False
    return True
