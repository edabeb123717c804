"""The names of a project's agents, under which settings, budgets and records know them."""

from toolwire.settings import Settings

AGENT = "cli"
"""The agent that answers at the terminal, as records and `[agents.NAME]` know it."""

GENERAL = "general"
"""The sub-agent that is the model itself, beside one for each profile."""

WORKFLOW = "workflow"
"""The sub-agent that runs the steps of a workflow."""


def agents_of(settings: Settings) -> tuple[str, ...]:
    """The agents of a project, which `[agents.NAME]` can grant something else than the others."""
    return tuple(dict.fromkeys((AGENT, GENERAL, *settings.profiles)))


def accounts_of(settings: Settings) -> tuple[str, ...]:
    """All under whose names a project's calls are counted: its agents, workflows, and the agents of its devices."""
    return tuple(dict.fromkeys((*agents_of(settings), WORKFLOW, *settings.devices)))
