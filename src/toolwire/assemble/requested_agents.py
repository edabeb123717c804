"""What a request wants of a project: one of its agents, one of its models, some of its tools."""

from msgspec.structs import replace

from toolwire.agent import Agent
from toolwire.assemble.agent_names import AGENT, agents_of
from toolwire.assemble.project import ProjectFolder
from toolwire.define.nearest import nearest
from toolwire.errors import SettingsError
from toolwire.settings import ModelChoice


class UnknownTool(SettingsError):
    """A request names a tool that the settings do not give."""


class UnknownModel(SettingsError):
    """A request names a model that the settings do not name."""


class UnknownAgent(SettingsError):
    """A request names an agent that the project does not have."""


def restrict_tools(agent: Agent, names: tuple[str, ...] | None) -> None:
    """Leave an agent only the named tools. Raises UnknownTool."""
    if names is None or agent.spec is None:
        return
    for name in names:
        if name not in agent.toolbox.names:
            near = nearest(name, agent.toolbox.names)
            advice = f"did you mean {' or '.join(near)}?" if near else "`toolwire tools` lists those that there are"
            raise UnknownTool(f"this project has no tool {name[:80]!r}; {advice}")
    agent.change_tools(agent.toolbox.only(names))
    agent.spec = replace(agent.spec, tools=replace(agent.spec.tools, names=names))


def choose_agent(project: ProjectFolder, wanted: str) -> str:
    """The agent that a request wants, of those that the project has. Raises UnknownAgent."""
    known = agents_of(project.settings)
    if wanted and wanted not in known:
        near = nearest(wanted, known)
        advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
        raise UnknownAgent(f"this project has no agent {wanted[:80]!r}; {advice}")
    return wanted or AGENT


def choose_model(project: ProjectFolder, wanted: str, agent: str) -> ModelChoice:
    """The model that a request wants, of those that the settings name: the chosen one, and one for each profile.

    Without a wish it is that of the agent's profile, if there is one of its name. Raises UnknownModel.
    """
    settings = project.settings
    if not wanted and agent in settings.profiles:
        return settings.of_profile(agent)
    chosen = settings.chosen()
    if wanted in ("", chosen.model):
        return chosen
    for name, profile in settings.profiles.items():
        if wanted in (name, f"{profile.provider}:{profile.model}"):
            return settings.of_profile(name)
    known = (chosen.model, *settings.profiles)
    near = nearest(wanted, known)
    advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(dict.fromkeys(known))}"
    raise UnknownModel(f"the settings of this project name no model {wanted[:80]!r}; {advice}")
