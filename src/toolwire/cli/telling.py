"""Names that moved to `toolwire.assemble`, until all commands import them from there."""

from toolwire.assemble.webhook import open_webhook

teller_of = open_webhook

__all__ = ["teller_of"]
