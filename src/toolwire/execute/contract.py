"""The promise of everything that can run a call."""

from typing import Protocol

from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context


class Executor(Protocol):
    """Runs an allowed call where its tool lives."""

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        """Give exactly one result within the allowed time plus a small margin.

        Whatever the tool does is a result. Only the caller's own cancellation passes through.
        """
        ...

    async def close(self) -> None:
        """Let go of what was started. Harmless when called twice."""
        ...
