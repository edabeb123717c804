"""Our exceptions. A broken promise is raised; what a model, tool or client did wrong is a value instead.

ToolwireError
├── DefinitionError      a tool cannot be built from what was given
├── SettingsError        a settings file, variable or flag is wrong
├── ModelError           a model could not be asked, or did not answer
│   ├── ModelUnavailable     not reachable, overloaded, or out of retries
│   └── ModelRefused         the provider refused the request (key, name, content)
├── Suspended            a turn waits for people's word and can be resumed when they have spoken
├── BudgetSpent          an agent has used up what it may use in a day
├── StoreError           the store cannot keep its promise
│   ├── StoreUnavailable     disk full, locked, unreadable, made by a newer version
│   ├── NotKept              no turn, call or artifact with that id
│   └── Fenced               another process owns this turn now; stop all side effects
└── ToolFailure          raised by tool code to fail with a chosen code and sentence
    └── SandboxUnavailable   the sandbox that a command must run in is missing or does not hold
"""

from typing import Any

from toolwire.protocol.outcomes import Code


class ToolwireError(Exception):
    """Everything that this package raises on purpose. The text says what to do next."""


class DefinitionError(ToolwireError):
    """A tool cannot be built from what was given."""


class SettingsError(ToolwireError):
    """A settings file, variable or flag is wrong."""


class ModelError(ToolwireError):
    """A model could not be asked, or did not answer."""


class ModelUnavailable(ModelError):
    """The model is not reachable, overloaded, or out of retries. Trying later may help."""


class ModelRefused(ModelError):
    """The provider refused the request: wrong key, unknown model, bad request. Trying again will not help."""


class Suspended(ToolwireError):
    """A turn waits for people's word. `approvals` are the questions; resume the turn once they are answered."""

    def __init__(self, turn_id: str, approvals: tuple[str, ...], sentence: str = "") -> None:
        asked = ", ".join(approvals)
        super().__init__(sentence or f"turn {turn_id!r} waits for an answer to {asked}; resume it once that is given")
        self.turn_id = turn_id
        self.approvals = approvals

    def saying(self, sentence: str) -> "Suspended":
        """The same in the words of a door."""
        return Suspended(self.turn_id, self.approvals, sentence)


class BudgetSpent(ToolwireError):
    """An agent has used up what it may use in a day. Raise its budget, or wait until tomorrow."""


class StoreError(ToolwireError):
    """The store cannot keep its promise."""


class StoreUnavailable(StoreError):
    """The store cannot be written or read now: disk full, locked, unreadable, or made by a newer version."""


class NotKept(StoreError):
    """There is no turn, call or artifact with that id."""


class Fenced(StoreError):
    """Another process owns this turn now. Whoever sees this must stop all side effects."""


class ToolFailure(ToolwireError):
    """Raised inside a tool to fail with a code, a sentence the model can act on, and detail for the record.

    A tool that ran a program says how that ended, too. `given` is an output that is not what was promised.
    """

    def __init__(
        self,
        message: str,
        *,
        code: Code = Code.EXECUTION_FAILED,
        detail: Any = None,
        exit_code: int | None = None,
        stderr: str = "",
        given: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail
        self.exit_code = exit_code
        self.stderr = stderr
        self.given = given


class SandboxUnavailable(ToolFailure):
    """The sandbox that a command must run in is missing or does not hold. Nothing was run; nothing weaker is tried."""

    def __init__(self, message: str, *, detail: Any = None) -> None:
        super().__init__(message, code=Code.SANDBOX_UNAVAILABLE, detail=detail)
