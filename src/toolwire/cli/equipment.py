"""Names that moved to `toolwire.assemble`, until all commands import them from there."""

from toolwire.assemble.agents import GENERAL
from toolwire.assemble.agents import Session as Company
from toolwire.assemble.agents import agent_factory as employing
from toolwire.assemble.agents import open_toolbox as equipped

__all__ = ["GENERAL", "Company", "employing", "equipped"]
