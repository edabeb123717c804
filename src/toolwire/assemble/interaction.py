"""How the user of an agent is reached while it works."""

from collections.abc import Sequence
from typing import Protocol

from toolwire.errors import ToolFailure
from toolwire.hub.services import Approve
from toolwire.protocol.outcomes import Code


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

    async def answer(self, prompt: str, choices: Sequence[str]) -> str:  # noqa: ARG002 -- the protocol's arguments
        raise ToolFailure("no user is present to answer this; go on without an answer", code=Code.UNAVAILABLE)
