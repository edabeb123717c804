"""What the tools of a place hold while a command runs: a browser, an index, other agents; all closed at its end."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from toolwire.agent import Agent
from toolwire.cli.opening import Asked, Place, choice_for, model_of, toolbox_of, workplace_of
from toolwire.cli.person import Person
from toolwire.define.toolbox import Toolbox
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.hub.services import Tell
from toolwire.protocol.chat import ChatModel
from toolwire.protocol.tools import Grant
from toolwire.protocol.values import dataclass
from toolwire.record.contract import Store
from toolwire.settings import ModelChoice
from toolwire.toolbox.registry import GROUPS

GENERAL = "general"


@dataclass(frozen=True, slots=True)
class Company:
    """Who and what a command works with: its store, the person, what was granted, and how its model is reached."""

    store: Store
    person: Person
    grant: Grant
    tell: Tell | None = None
    asked: Asked = Asked()


@asynccontextmanager
async def equipped(place: Place, company: Company, *, only: str = "") -> AsyncIterator[Toolbox]:
    """The tools of a place with all that they hold, closed at the end. `only` names the one that is called."""
    person = company.person
    async with AsyncExitStack() as closing:
        team = _Team(place, company, closing)
        usual = workplace_of(place, company.store)
        ask = person.answer if person.present else None
        given = replace(usual, ask=ask, crew=team.crew, closing=closing)
        team.toolbox = toolbox_of(place, given, only="" if only in GROUPS["teamwork"] else only)
        yield team.toolbox


def employing(place: Place, company: Company) -> partial[Agent]:
    """What makes agents for this company as the settings say; a model, tools and a grant are still to be given."""
    settings = place.settings
    return partial(
        Agent,
        store=company.store,
        approve=company.person.approver,
        suspends=settings.store.lasts,
        tell=company.tell,
        approval_s=settings.approval.expires_s,
        questions=settings.approval.questions,
        secrets=settings.secrets(place.environ),
        tier_by_intent=settings.grants.by_intent,
    )


class _Team:
    """The agents that can be set to work: the model that answers here, and one for each profile. All have its tools."""

    def __init__(self, place: Place, company: Company, closing: AsyncExitStack) -> None:
        self._place = place
        self._company = company
        self._closing = closing
        self._models: dict[str, ChatModel] = {}
        self._executor = InProcessExecutor()
        self.toolbox = Toolbox()

    def crew(self) -> Any:
        """All of them, over the store of the place."""
        # Loaded when the group is named: most commands set nobody to work.
        delegation: Any = import_module("toolwire.toolbox.delegation")
        granted = partial(self._place.settings.granted_to, grant=self._company.grant)
        workers = [
            delegation.Worker(name, f"{choice.model}, with the tools of whoever asks.", granted(name), make)
            for name, choice in self._choices().items()
            for make in [partial(self._agent, choice)]
        ]
        crew = delegation.Crew(self._company.store, workers, budget=self._place.settings.day())
        self._closing.push_async_callback(self._close)
        self._closing.push_async_exit(crew)
        return crew

    def _choices(self) -> dict[str, ModelChoice]:
        """Nobody while a recording speaks for the model: what a sub-agent would say is not on it."""
        if self._company.asked.replay:
            return {}
        settings = self._place.settings
        named = {
            name: choice_for(self._place, f"{profile.provider}:{profile.model}")
            for name, profile in settings.profiles.items()
        }
        return {GENERAL: settings.chosen(), **named}

    def _agent(self, choice: ModelChoice, grant: Grant) -> Agent:
        return employing(self._place, self._company)(
            self._model(choice),
            self.toolbox,
            grant=grant,
            limits=self._place.settings.limits(choice.profile),
            executor=self._executor,
            max_tokens=choice.max_tokens,
            temperature=choice.temperature,
        )

    def _model(self, choice: ModelChoice) -> ChatModel:
        if choice.model not in self._models:
            asked = replace(self._company.asked, record=None) if choice == self._place.settings.chosen() else Asked()
            self._models[choice.model] = model_of(self._place, choice, asked)
        return self._models[choice.model]

    async def _close(self) -> None:
        for model in self._models.values():
            await model.close()
        await self._executor.close()
