"""The agent of a turn: made from settings and flags for a new one, and from the record for one that goes on."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from toolwire.agent import Agent
from toolwire.assemble.agents import GENERAL, Interaction, Session, Unattended, agent_factory, open_toolbox
from toolwire.assemble.grants import AGENT, GrantFlags, grant_of, require_needed
from toolwire.assemble.models import ModelFlags, choice_for, model_of
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.specs import granted_again, model_again, model_spec, project_again, spec_of, tools_again
from toolwire.assemble.tools import toolbox_of
from toolwire.assemble.webhook import open_webhook
from toolwire.define.toolbox import Toolbox
from toolwire.errors import ModelRefused, SettingsError
from toolwire.hub.event_hub import EventHub
from toolwire.hub.resuming import require_still_granted
from toolwire.hub.turn_loop import Intervene
from toolwire.protocol.agents import AgentSpec
from toolwire.protocol.chat import Reply, Request
from toolwire.protocol.turns import NO_MODEL, Turn, TurnKind
from toolwire.record.contract import Store
from toolwire.settings import ModelChoice


class NoModel:
    """Stands where a model would be, in work that needs none."""

    name = NO_MODEL

    async def ask(self, request: Request, on_delta: Any = None) -> Reply:  # noqa: ARG002 -- the contract's arguments
        raise ModelRefused("this command asks no model")

    async def close(self) -> None:
        """Nothing to let go of."""


@asynccontextmanager
async def open_agent(
    project: ProjectFolder,
    store: Store,
    user: Interaction,
    choice: ModelChoice,
    granted: GrantFlags,
    model_flags: ModelFlags,
    *,
    resumes: AgentSpec | None = None,
    system: str = "",
    intervene: Intervene | None = None,
    events: EventHub | None = None,
) -> AsyncIterator[Agent]:
    """An agent made from settings and flags, closed at the end; the store stays open.

    One that `resumes` a turn has no tools that the turn had not.
    """
    known = toolbox_of(project) if granted.allow else Toolbox()
    grant = grant_of(project, granted, known)
    model = model_of(project, choice, model_flags, await store.formats() if choice.tools.coach else ())
    async with open_webhook(project) as tell:
        session = Session(store, user, grant, tell, model_flags)
        async with open_toolbox(project, session) as toolbox:
            agent = agent_factory(project, session)(
                model,
                tools_again(resumes, toolbox),
                system=system,
                grant=grant,
                limits=project.settings.limits(),
                budget=project.settings.day(),
                accounts=(GENERAL, *project.settings.profiles),
                intervene=intervene,
                news=project.skills.news if resumes is None else None,
                name=AGENT,
                project=project.name,
                max_tokens=choice.max_tokens,
                temperature=choice.temperature,
                events=events,
                spec=spec_of(project, toolbox, granted, model_spec(project, choice, model_flags)),
            )
            try:
                yield agent
            finally:
                await model.close()
                await agent.runtime.close()


@asynccontextmanager
async def open_caller(
    project: ProjectFolder,
    store: Store,
    user: Interaction,
    granted: GrantFlags,
    *,
    resumes: AgentSpec | None = None,
    only: str = "",
    events: EventHub | None = None,
) -> AsyncIterator[Agent]:
    """The same without a model, for single calls; of the tools `only` the named one is made."""
    grant = grant_of(project, granted)
    async with open_webhook(project) as tell:
        session = Session(store, user, grant, tell)
        async with open_toolbox(project, session, only=only) as toolbox:
            is_needed = frozenset[str]().union(*(tool.needs for tool in toolbox)).issuperset(granted.allow)
            # Another tool than the called one may need what was allowed; only then all of them are made.
            known = toolbox if is_needed else toolbox_of(project)
            require_needed(granted, project.settings.grant(project.cwd), known)
            agent = agent_factory(project, session)(
                NoModel(),
                tools_again(resumes, toolbox),
                grant=grant,
                limits=project.settings.limits(),
                budget=project.settings.day(),
                accounts=(GENERAL, *project.settings.profiles),
                name=AGENT,
                project=project.name,
                events=events,
                spec=spec_of(project, toolbox, granted),
            )
            try:
                yield agent
            finally:
                await agent.runtime.close()


@asynccontextmanager
async def open_agent_of(
    turn: Turn, project: ProjectFolder, store: Store, flags: Mapping[str, Any], *, events: EventHub | None = None
) -> AsyncIterator[Agent]:
    """The agent of a turn on record, made again with no user there: what its record says, less what was taken back.

    Raises SettingsError for a turn that does not say how its agent was made, and `CannotResume` where an approved call
    could not run.
    """
    spec = turn.spec
    if spec is None or not (spec.tools.names or spec.name == AGENT):
        raise SettingsError(
            f"turn {turn.id} was begun by a program of its own, or by an older toolwire: it does not say how its agent "
            "was made; resume it there, or with `toolwire ask --resume` and its flags"
        )
    again, granted = project_again(spec, flags, project), granted_again(spec, GrantFlags(resumes=True))
    async with _opened(turn, spec, again, store, granted, events) as agent:
        await require_still_granted(agent.store, turn, agent.toolbox, agent.grant)
        yield agent


def _opened(
    turn: Turn, spec: AgentSpec, project: ProjectFolder, store: Store, granted: GrantFlags, events: EventHub | None
) -> AbstractAsyncContextManager[Agent]:
    user = Unattended()
    if turn.kind is TurnKind.CALL:
        return open_caller(project, store, user, granted, resumes=spec, events=events)
    choice, model_flags = choice_for(project, turn.model), model_again(spec, ModelFlags())
    return open_agent(project, store, user, choice, granted, model_flags, resumes=spec, events=events)
