"""`AgentSpec → Agent`: every entry point opens its agent here, for a new turn or for one on record.

What the agent's tools hold (a browser, an index, sub-agents) is closed at the end.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolwire.agent import Agent
from toolwire.assemble.agent_names import accounts_of, agents_of
from toolwire.assemble.devices import (
    RefreshTools,
    is_device,
    open_devices,
    pinned_toolbox,
    refreshing,
)
from toolwire.assemble.interaction import Interaction, Unattended
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.resumed_specs import project_again, resumed_spec
from toolwire.assemble.specs import grant_of, kept_spec, learns_formats, model_of, require_needed, spec_of
from toolwire.assemble.tools import built_in_names, tool_dependencies, toolbox_of
from toolwire.define.toolbox import Toolbox
from toolwire.errors import SettingsError
from toolwire.execute.contract import Executor
from toolwire.hub.event_hub import EventHub, Telemetry
from toolwire.hub.resuming import require_still_granted
from toolwire.hub.services import Tell
from toolwire.lazy import lazy_module
from toolwire.protocol.agents import AgentSpec, ModelSpec
from toolwire.protocol.chat import ChatModel
from toolwire.protocol.context import Context
from toolwire.protocol.tools import Grant
from toolwire.protocol.turns import WORKFLOW_MODEL, Turn, TurnKind
from toolwire.record.contract import Store
from toolwire.toolbox.registry import GROUPS

if TYPE_CHECKING:
    from toolwire.assemble import background_turns, bus_link, records, registry, services, sub_agents, webhook
    from toolwire.assemble import telemetry as process_telemetry
    from toolwire.assemble.bus_link import BusLink
    from toolwire.assemble.device_link import DeviceLink
    from toolwire.breadcrumbs import specialists as specialist_agents
    from toolwire.breadcrumbs.service import RecordService
    from toolwire.breadcrumbs.specialists import Specialists
    from toolwire.fleet import dispatcher
    from toolwire.fleet.dispatcher import BusDispatcher
    from toolwire.hub import turn_loop
    from toolwire.plan import workflows
    from toolwire.telemetry.process import ProcessTelemetry
    from toolwire.toolbox.agents.delegation import SubAgents
else:
    # Loaded where they are needed, which is in few projects.
    turn_loop = lazy_module("toolwire.hub.turn_loop")
    workflows = lazy_module("toolwire.plan.workflows")
    webhook = lazy_module("toolwire.assemble.webhook")
    background_turns = lazy_module("toolwire.assemble.background_turns")
    bus_link = lazy_module("toolwire.assemble.bus_link")
    specialist_agents = lazy_module("toolwire.breadcrumbs.specialists")
    records = lazy_module("toolwire.assemble.records")
    registry = lazy_module("toolwire.assemble.registry")
    services = lazy_module("toolwire.assemble.services")
    sub_agents = lazy_module("toolwire.assemble.sub_agents")
    process_telemetry = lazy_module("toolwire.assemble.telemetry")
    dispatcher = lazy_module("toolwire.fleet.dispatcher")

_OF_OTHERS = frozenset(
    name for group in ("teamwork", "orchestration", "nodes", "workflow", "catalogue") for name in GROUPS[group]
)
"""Tools that tell of other agents and their tools, so that all of them have to be known."""


@asynccontextmanager
async def open_agent(
    project: ProjectFolder,
    store: Store,
    user: Interaction,
    spec: AgentSpec,
    *,
    resumes: Turn | None = None,
    only: str = "",
    system: str = "",
    record: str = "",
    intervene: "turn_loop.Intervene | None" = None,
    events: EventHub | None = None,
    link: "BusLink | None" = None,
    leaves_turns: bool = False,
) -> AsyncIterator[Agent]:
    """The agent of a spec, closed at the end; the store stays open.

    Its calls over the bus are sent by the `link` of this process; without one, the agent waits for their results. With
    `leaves_turns` its turns wait for devices that are offline, not the agent. One that `resumes` a turn has no tools
    that the turn had not. For a single call, `only` that built-in tool is made. The file `record` keeps model replies.
    """
    if project.uses_bus():
        await registry.load_offered_tools(project, store)
    async with AsyncExitStack() as closing:
        on_devices = await _devices(project, store, closing, only)
        grant = _grant(project, spec, resumes=resumes is not None)
        model = await _model(project, store, spec.model, record, closing)
        tell = await _notifier(project, closing)
        telemetry = _telemetry(project)
        over_bus = _dispatcher(project, store, link, closing) if project.uses_bus() else None
        held = await closing.enter_async_context(AsyncExitStack())  # what tools open; closed after the agent
        made = AgentFactory(
            project, store, user, spec, grant, held, tell=tell, over_bus=over_bus, on_devices=on_devices,
            telemetry=telemetry, leaves_turns=leaves_turns,
        )  # fmt: skip
        toolbox = made.make_tools(only)
        _know_tools(telemetry, toolbox)
        _require_needed(project, spec, toolbox)
        agent = made.agent(
            model,
            _tools_again(project, resumes, toolbox),
            grant=grant,
            executor=made.executor(),
            system=system,
            limits=project.settings.limits(),
            budget=spec.budget,
            accounts=await _accounts(project, store, spec),
            intervene=intervene,
            news=_refresh_tools(project, on_devices) if spec.model.name and resumes is None else None,
            name=spec.name,
            project=project.name,
            max_tokens=spec.model.max_tokens,
            temperature=spec.model.temperature,
            events=events if telemetry is None else _telling(events, telemetry),
            spec=kept_spec(spec, tuple(toolbox.names)),
            result_schema=json.loads(spec.result_schema) if spec.result_schema else None,
        )
        try:
            yield agent
        finally:
            await agent.runtime.close()


def _telemetry(project: ProjectFolder) -> "ProcessTelemetry | None":
    """What this process tells about its turns. It is looked up where anything asks for it: few projects do."""
    return process_telemetry.telemetry_of(project) if project.has_telemetry else None


def _know_tools(telemetry: "ProcessTelemetry | None", toolbox: Toolbox) -> None:
    if telemetry is not None and telemetry.metrics is not None:
        telemetry.metrics.know_tools(toolbox)


async def _model(
    project: ProjectFolder, store: Store, chosen: ModelSpec, record: str, closing: AsyncExitStack
) -> ChatModel:
    """The model of a spec, closed at the end."""
    tallies = await store.formats() if learns_formats(chosen) else ()
    model = model_of(project, chosen, tallies, record)
    closing.push_async_callback(model.close)
    return model


async def _notifier(project: ProjectFolder, closing: AsyncExitStack) -> Tell | None:
    """What tells the project's webhook of approval requests; None where it has none."""
    if project.settings.approval.webhook is None:
        return None
    return await closing.enter_async_context(webhook.open_webhook(project))


async def _devices(project: ProjectFolder, store: Store, closing: AsyncExitStack, only: str) -> "DeviceLink | None":
    """The devices of the project, where one of its agents may need them."""
    if project.uses_devices and (only not in built_in_names(project) or only in _OF_OTHERS):
        return await open_devices(project, store, closing)
    return None


def _grant(project: ProjectFolder, spec: AgentSpec, *, resumes: bool) -> Grant:
    grant = grant_of(project, spec.granted, resumes=resumes, agent=spec.name)
    # The steps of a workflow say how many calls there are.
    return replace(grant, max_calls=workflows.MOST_CALLS) if spec.model.name == WORKFLOW_MODEL else grant


async def _accounts(project: ProjectFolder, store: Store, spec: AgentSpec) -> tuple[str, ...]:
    """All whose use counts against the budget of a day; specialists are defined by records, not by settings."""
    if spec.budget is None:
        return ()
    return (*accounts_of(project.settings), *await specialist_agents.names_of(store, project.name))


def _refresh_tools(project: ProjectFolder, on_devices: "DeviceLink | None") -> RefreshTools:
    return project.skill_news if on_devices is None else refreshing(project, on_devices, project.skill_news)


def _telling(events: EventHub | None, telemetry: Telemetry) -> EventHub:
    """The events of an agent, which telemetry hears of."""
    hub = events or EventHub()
    hub.telemetry = telemetry
    return hub


def _dispatcher(
    project: ProjectFolder, store: Store, link: "BusLink | None", closing: AsyncExitStack
) -> "BusDispatcher":
    """What sends calls over the bus: by the process's own link, or by one that ends with the agent."""
    stays = link is None
    if link is None:
        link = bus_link.BusLink(project, store)
        closing.push_async_callback(link.close)
    return dispatcher.BusDispatcher(
        store, link, limits=project.settings.limits(), stays=stays, stays_s=dispatcher.STAYS_S, arrivals=link.arrivals,
        watches=link,
    )  # fmt: skip


def _tools_again(project: ProjectFolder, turn: Turn | None, toolbox: Toolbox) -> Toolbox:
    """All tools for a new turn; for one that goes on those that it had, as far as they are still there.

    The turn of a device's agent has the tools of that device.
    """
    if turn is None or turn.spec is None:
        return toolbox
    if is_device(project, turn.agent):
        toolbox = pinned_toolbox(project, turn.agent, toolbox)
    return toolbox.only(turn.spec.tools.names)


def _require_needed(project: ProjectFolder, spec: AgentSpec, toolbox: Toolbox) -> None:
    """Raise SettingsError for a permission that no tool needs. Where one tool was made, all of them are looked at."""
    if not spec.granted.permissions:
        return
    is_needed = frozenset[str]().union(*(tool.needs for tool in toolbox)).issuperset(spec.granted.permissions)
    known = toolbox if is_needed else toolbox_of(project)
    require_needed(spec.granted, project.settings.grant(project.cwd), known)


@asynccontextmanager
async def open_agent_of(
    turn: Turn,
    project: ProjectFolder,
    store: Store,
    flags: Mapping[str, Any],
    *,
    events: EventHub | None = None,
    link: "BusLink | None" = None,
) -> AsyncIterator[Agent]:
    """The agent of a turn on record, made again with no user there: what its record says, less what was taken back.

    Raises SettingsError for a turn that does not say how its agent was made, and `CannotResume` where an approved call
    could not run.
    """
    if turn.spec is None or not (turn.spec.tools.names or turn.spec.name in agents_of(project.settings)):
        raise SettingsError(
            f"turn {turn.id} was begun by a program of its own, or by an older toolwire: it does not say how its agent "
            "was made; resume it there, or with `toolwire ask --resume` and its flags"
        )
    again = project_again(turn, flags, project)
    now = spec_of(again, None if turn.kind is TurnKind.CALL else again.settings.chosen())
    spec = resumed_spec(again, turn, now)
    async with open_agent(
        again, store, Unattended(), spec, resumes=turn, events=events, link=link, leaves_turns=True
    ) as agent:
        await require_still_granted(agent.store, turn, agent.toolbox, agent.grant)
        yield agent


class AgentFactory:
    """What an agent and its sub-agents share. What their tools hold is closed with `held`."""

    def __init__(
        self,
        project: ProjectFolder,
        store: Store,
        user: Interaction,
        spec: AgentSpec,
        grant: Grant,
        held: AsyncExitStack,
        *,
        tell: Tell | None = None,
        over_bus: "BusDispatcher | None" = None,
        on_devices: "DeviceLink | None" = None,
        telemetry: Telemetry | None = None,
        leaves_turns: bool = False,
    ) -> None:
        self.project = project
        self.store = store
        self.spec = spec
        self.grant = grant
        self.on_devices = on_devices
        self.telemetry = telemetry
        self.toolbox = Toolbox()
        self._user = user
        self._held = held
        self._tell = tell
        self._over_bus = over_bus
        self._leaves_turns = leaves_turns
        self._records: RecordService | None = None

    def executor(self) -> Executor | None:
        """What runs the calls of one agent; None where that is this process alone."""
        on_devices = None if self.on_devices is None else self.on_devices.executor(leaves_turns=self._leaves_turns)
        if not self.project.settings.services and self._over_bus is None and on_devices is None:
            return None
        return services.router_of(self.project, self._over_bus, on_devices)

    def make_tools(self, only: str) -> Toolbox:
        """The tools of the project, with all that they hold."""
        given = replace(
            tool_dependencies(self.project, self.store),
            ask=self._user.answer if self._user.present else None,
            closing=self._held,
            nodes=None if self.on_devices is None else self.on_devices.nodes,
            records=self.records,
            specialists=self.specialists,
            sub_agents=self.sub_agents,
            toolbox=lambda: self.toolbox,
        )
        self.toolbox = toolbox_of(self.project, given, only="" if only in _OF_OTHERS else only)
        return self.toolbox

    def sub_agents(self) -> "SubAgents":
        """The agents that tools set to work."""
        return sub_agents.SubAgentTeam(self).open(self._held)

    def specialists(self) -> "Specialists":
        """The agents of the project that records wake."""
        begin = partial(background_turns.begin_specialist, self.project, self.store)
        return specialist_agents.Specialists(self.records(), self.store, begin)

    def records(self) -> "RecordService":
        """The records of the project, opened when the first agent asks."""
        if self._records is None:
            self._records = records.record_service(self.project, self.store)
            self._held.callback(self._records.close)
        return self._records

    async def open_config(self, config_id: str, tool: str, context: Context) -> Mapping[str, Any]:
        """What a configuration among the records gives to a call."""
        return await self.records().open_config(config_id, tool, context)

    def agent(self, model: ChatModel, toolbox: Toolbox, *, grant: Grant, **parts: Any) -> Agent:
        """An agent of this project, as its settings say."""
        settings = self.project.settings
        return Agent(
            model,
            toolbox,
            grant=grant,
            store=self.store,
            approve=self._user.approver,
            suspends=settings.store.lasts,
            tell=self._tell,
            approval_s=settings.approval.expires_s,
            questions=settings.approval.questions,
            secrets=settings.secrets(self.project.environ),
            open_config=self.open_config,
            tier_by_intent=settings.grants.by_intent,
            **parts,
        )
