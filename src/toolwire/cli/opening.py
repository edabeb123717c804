"""Names that moved to `toolwire.assemble`, until all commands import them from there."""

from toolwire.assemble.grants import AGENT, grant_of, require_needed, resuming_grant
from toolwire.assemble.grants import GrantFlags as Granted
from toolwire.assemble.models import ModelFlags as Asked
from toolwire.assemble.models import choice_for, model_of
from toolwire.assemble.project import ProjectFolder as Place
from toolwire.assemble.stores import require_own_state, retention_of, store_of
from toolwire.assemble.tools import own_tools_of, toolbox_of
from toolwire.cli.here import here

__all__ = [
    "AGENT", "Asked", "Granted", "Place", "choice_for", "grant_of", "here", "model_of", "own_tools_of",
    "require_needed", "require_own_state", "resuming_grant", "retention_of", "store_of", "toolbox_of",
]  # fmt: skip
