"""The agents of a project. What their tools hold (a browser, an index, other agents) is closed at the end."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from toolwire.agent import Agent
from toolwire.assemble.models import ModelFlags, choice_for, model_of
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.tools import tool_dependencies, toolbox_of
from toolwire.define.toolbox import Toolbox
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.hub.services import Approve, Tell
from toolwire.lazy import lazy_module
from toolwire.protocol.chat import ChatModel
from toolwire.protocol.tools import Grant
from toolwire.protocol.values import dataclass
from toolwire.record.contract import Store
from toolwire.settings import ModelChoice
from toolwire.toolbox.registry import GROUPS

if TYPE_CHECKING:
    from toolwire.toolbox.agents import delegation, workers
    from toolwire.toolbox.agents.delegation import Crew
else:
    delegation = lazy_module("toolwire.toolbox.agents.delegation")
    workers = lazy_module("toolwire.toolbox.agents.workers")

GENERAL = "general"
"""The sub-agent that is the model itself, beside one for each profile."""


class Interaction(Protocol):
    """How the user is reached while an agent works."""

    @property
    def present(self) -> bool:
        """Whether the user can be asked a question."""
        ...

    @property
    def approver(self) -> Approve | None:
        """What approves calls; None where turns wait until an approval comes from somewhere else."""
        ...

    async def answer(self, prompt: str, choices: Sequence[str]) -> str:
        """The user's answer to a question of the model's. Raises ToolFailure."""
        ...


class Unattended:
    """No user is there: calls that need approval wait for it, and the model's questions find no answer."""

    present = False
    approver: Approve | None = None

    async def answer(self, prompt: str, choices: Sequence[str]) -> str:
        raise NotImplementedError(f"nothing can answer {prompt[:40]!r} {choices!r}")


@dataclass(frozen=True, slots=True)
class Session:
    """What all agents of one command share: the store, the user, the grant, and how the model is reached."""

    store: Store
    user: Interaction
    grant: Grant
    tell: Tell | None = None
    model: ModelFlags = ModelFlags()


@asynccontextmanager
async def open_toolbox(project: ProjectFolder, session: Session, *, only: str = "") -> AsyncIterator[Toolbox]:
    """The tools of a project with all that they hold, closed at the end. `only` names the one that is called."""
    user = session.user
    async with AsyncExitStack() as closing:
        team = _Team(project, session, closing)
        usual = tool_dependencies(project, session.store)
        given = replace(usual, ask=user.answer if user.present else None, crew=team.crew, closing=closing)
        team.toolbox = toolbox_of(project, given, only="" if only in GROUPS["teamwork"] else only)
        yield team.toolbox


def agent_factory(project: ProjectFolder, session: Session) -> partial[Agent]:
    """What makes agents for this session as the settings say; a model, tools and a grant are still to be given."""
    settings = project.settings
    return partial(
        Agent,
        store=session.store,
        approve=session.user.approver,
        suspends=settings.store.lasts,
        tell=session.tell,
        approval_s=settings.approval.expires_s,
        questions=settings.approval.questions,
        secrets=settings.secrets(project.environ),
        tier_by_intent=settings.grants.by_intent,
    )


class _Team:
    """The sub-agents: the model that answers here, and one for each profile. All have its tools."""

    def __init__(self, project: ProjectFolder, session: Session, closing: AsyncExitStack) -> None:
        self._project = project
        self._session = session
        self._closing = closing
        self._models: dict[str, ChatModel] = {}
        self._executor = InProcessExecutor()
        self.toolbox = Toolbox()

    def crew(self) -> "Crew":
        """All of them, over the store of the project."""
        granted = partial(self._project.settings.granted_to, grant=self._session.grant)
        members = [
            workers.Worker(name, f"{choice.model}, with the tools of whoever asks.", granted(name), make)
            for name, choice in self._choices().items()
            for make in [partial(self._agent, choice)]
        ]
        crew = delegation.Crew(self._session.store, members, budget=self._project.settings.day())
        self._closing.push_async_callback(self._close)
        self._closing.push_async_exit(crew)
        return crew

    def _choices(self) -> dict[str, ModelChoice]:
        """None while a recording stands for the model: what a sub-agent would say is not on it."""
        if self._session.model.replay:
            return {}
        settings = self._project.settings
        named = {
            name: choice_for(self._project, f"{profile.provider}:{profile.model}")
            for name, profile in settings.profiles.items()
        }
        return {GENERAL: settings.chosen(), **named}

    def _agent(self, choice: ModelChoice, grant: Grant) -> Agent:
        return agent_factory(self._project, self._session)(
            self._model(choice),
            self.toolbox,
            grant=grant,
            limits=self._project.settings.limits(choice.profile),
            executor=self._executor,
            max_tokens=choice.max_tokens,
            temperature=choice.temperature,
        )

    def _model(self, choice: ModelChoice) -> ChatModel:
        if choice.model not in self._models:
            is_own = choice == self._project.settings.chosen()
            flags = replace(self._session.model, record=None) if is_own else ModelFlags()
            self._models[choice.model] = model_of(self._project, choice, flags)
        return self._models[choice.model]

    async def _close(self) -> None:
        for model in self._models.values():
            await model.close()
        await self._executor.close()
