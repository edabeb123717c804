"""Names that moved to `toolwire.assemble`, until all commands import them from there."""

from toolwire.assemble.state_ownership import STORE_FILE

__all__ = ["STORE_FILE"]
