"""The sub-agents of an agent, for the tools that set them to work; made when the first of these tools is used."""

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolwire.agent import Agent
from toolwire.assemble.agent_names import GENERAL, WORKFLOW
from toolwire.assemble.devices import pinned_toolbox
from toolwire.assemble.specs import kept_spec, model_of, model_spec
from toolwire.define.toolbox import Toolbox
from toolwire.errors import ToolFailure
from toolwire.execute.contract import Executor
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.hub.event_hub import EventHub
from toolwire.protocol.agents import ModelSpec
from toolwire.protocol.chat import ChatModel
from toolwire.protocol.tools import Grant
from toolwire.protocol.turns import WORKFLOW_MODEL
from toolwire.toolbox.agents.delegation import SubAgents
from toolwire.toolbox.agents.workers import SubAgentProfile

if TYPE_CHECKING:
    from toolwire.assemble.agents import AgentFactory
    from toolwire.assemble.device_link import DeviceLink


class SubAgentTeam:
    """The sub-agents: the model that answers here, and one for each profile. All have its tools."""

    def __init__(self, made: "AgentFactory") -> None:
        self._made = made
        self._models: dict[ModelSpec, ChatModel] = {}
        self._executor: Executor | None = None

    def open(self, closing: AsyncExitStack) -> SubAgents:
        """All of them, over the store of the project, closed at the end."""
        made = self._made
        granted = partial(made.project.settings.granted_to, grant=made.grant)
        members = [
            SubAgentProfile(name, f"{spec.name}, with the tools of the agent that asks.", granted(name), make)
            for name, spec in self._specs().items()
            for make in [partial(self._agent, spec)]
        ]
        steps = SubAgentProfile(
            WORKFLOW, "The steps of a workflow.", made.grant, partial(self._agent, ModelSpec(WORKFLOW_MODEL))
        )
        directory = None if made.on_devices is None else _DeviceAgents(self, made.on_devices)
        sub_agents = SubAgents(made.store, members, budget=made.spec.budget, directory=directory, workflow=steps)
        closing.push_async_callback(self._close)
        closing.push_async_exit(sub_agents)
        return sub_agents

    def device_agent(self, device: str) -> SubAgentProfile:
        """An agent of the model that answers here, with the tools of one device and no others."""
        made, specs = self._made, self._specs()
        if not specs:
            raise ToolFailure("no agent can be set to work while a recording stands for the model")
        tools = pinned_toolbox(made.project, device, self._made.toolbox)
        granted = made.project.settings.granted_to(device, made.grant)
        make = partial(self._agent, specs[GENERAL], toolbox=tools)
        return SubAgentProfile(device, f"{GENERAL}, with the tools of the device {device}.", granted, make)

    def _specs(self) -> dict[str, ModelSpec]:
        """None while a recording stands for the model: what a sub-agent would say is not on it."""
        own, settings = self._made.spec.model, self._made.project.settings
        if own.replay:
            return {}
        general = own if own.name else model_spec(settings.chosen())
        return {GENERAL: general, **{name: model_spec(settings.of_profile(name)) for name in settings.profiles}}

    def _agent(self, spec: ModelSpec, grant: Grant, toolbox: Toolbox | None = None) -> Agent:
        tools = toolbox or self._made.toolbox
        self._executor = self._executor or self._made.executor() or InProcessExecutor()  # closed with the team
        return self._made.agent(
            self._model(spec),
            tools,
            grant=grant,
            limits=self._made.project.settings.limits(spec.profile),
            executor=self._executor,
            events=EventHub(telemetry=self._made.telemetry),
            max_tokens=spec.max_tokens,
            temperature=spec.temperature,
            spec=kept_spec(replace(self._made.spec, model=spec, result_schema=""), tuple(tools.names)),
        )

    def _model(self, spec: ModelSpec) -> ChatModel:
        if spec not in self._models:
            self._models[spec] = model_of(self._made.project, spec)
        return self._models[spec]

    async def _close(self) -> None:
        for model in self._models.values():
            await model.close()
        if self._executor is not None:
            await self._executor.close()


class _DeviceAgents:
    """The devices of a project as agents that others may set to work."""

    def __init__(self, team: SubAgentTeam, link: "DeviceLink") -> None:
        self.devices = link.views
        self.choose = link.choose
        self.worker = team.device_agent
