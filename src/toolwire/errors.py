"""Our exceptions. A broken promise is raised; what a model, tool or client did wrong is a value instead.

ToolwireError
├── DefinitionError      a tool cannot be built from what was given
├── SettingsError        a settings file, variable or flag is wrong
├── ModelError           a model could not be asked, or did not answer
│   ├── ModelUnavailable     not reachable, overloaded, or out of retries
│   └── ModelRefused         the provider refused the request (key, name, content)
├── Suspended            a turn waits, for an approval or something else, and can be resumed when that has come
├── CannotResume         a turn cannot go on here as it is; it stays as it was
├── BudgetSpent          an agent has used up what it may use in a day
├── StoreError           the store cannot keep its promise
│   ├── StoreUnavailable     disk full, locked, unreadable, made by a newer version
│   ├── NotFound              no turn, call or artifact with that id
│   ├── Conflict             what is kept already stands in the way of what should be kept
│   │   └── VersionConflict      another version of a record is the current one
│   └── Fenced               another process owns this turn or call now; stop all side effects
│       └── CallHeld             another claim on the call still lasts; wait for its result
├── InvalidRecord        a record, selector, lifetime or schedule cannot be used as it was asked for
├── NotPermitted         a caller may not do that with a record
├── BusError             a message could not be sent or received
│   ├── BusUnavailable       the broker cannot be reached, or did not confirm in time; the message may have been kept
│   └── MessageTooLarge      the bus does not carry messages of this size
└── ToolFailure          raised by tool code to fail with a chosen code and sentence
    └── SandboxUnavailable   the sandbox that a command must run in is missing or does not hold
"""

from typing import Any

from toolwire.protocol.outcomes import Code
from toolwire.protocol.waits import ForApproval, Wait


class ToolwireError(Exception):
    """Everything that this package raises on purpose. The text says what to do next."""


class DefinitionError(ToolwireError):
    """A tool cannot be built from what was given."""


class SettingsError(ToolwireError):
    """A settings file, variable or flag is wrong."""


class ModelError(ToolwireError):
    """A model could not be asked, or did not answer."""


class ModelUnavailable(ModelError):
    """The model is not reachable, overloaded, or out of retries. Trying later may help.

    `status` is the provider's HTTP status and `retry_after_s` how long it asks to wait, where it said so.
    """

    def __init__(self, message: str, *, status: int | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class ModelRefused(ModelError):
    """The provider refused the request: wrong key, unknown model, bad request. Trying again will not help."""


class Suspended(ToolwireError):
    """A turn waits and can be resumed once something that it waits for has come. `approvals` are pending questions."""

    def __init__(self, turn_id: str, waits: tuple[Wait, ...], sentence: str = "") -> None:
        listed = " or ".join(map(str, waits))
        super().__init__(sentence or f"turn {turn_id!r} waits for {listed}; resume it once that has come")
        self.turn_id = turn_id
        self.waits = waits

    @property
    def approvals(self) -> tuple[str, ...]:
        return tuple(wait.approval_id for wait in self.waits if isinstance(wait, ForApproval))

    def saying(self, sentence: str) -> "Suspended":
        """The same in the words of an entry point."""
        return Suspended(self.turn_id, self.waits, sentence)


class CannotResume(ToolwireError):
    """A call that waits in a turn lacks its tool here, or would run another one. Nothing was run; the turn waits on."""

    def __init__(self, turn_id: str, tool: str, approval_id: str, reason: str) -> None:
        super().__init__(
            f"turn {turn_id} cannot be resumed here: {tool!r} waits in it, and {reason}. Nothing was run, and approval "
            f"{approval_id} stays as it is. Resume it with the tools that it began with, or cancel it"
        )
        self.turn_id = turn_id
        self.tool = tool
        self.approval_id = approval_id
        self.reason = reason


class BudgetSpent(ToolwireError):
    """An agent has used up what it may use in a day. Raise its budget, or wait until tomorrow."""


class StoreError(ToolwireError):
    """The store cannot keep its promise."""


class StoreUnavailable(StoreError):
    """The store cannot be written or read now: disk full, locked, unreadable, or made by a newer version."""


class NotFound(StoreError):
    """There is no turn, call or artifact with that id."""


class Conflict(StoreError):
    """What is kept already stands in the way: the same id with other content, or too many. Nothing was changed."""


class KeySpent(Conflict):
    """The record that was created under an idempotency key is gone. Another one needs another key."""


class VersionConflict(Conflict):
    """Another version of a record is the current one than the one that was to be changed. Read it, and try again."""


class Fenced(StoreError):
    """Another process owns this turn or call now. Stop all side effects."""


class CallHeld(Fenced):
    """Another claim on this call still lasts: `until` a date, or for as long as its owner is alive.

    Nothing was changed. Wait for the result of the holder, or for the end of its lease.
    """

    def __init__(self, sentence: str, owner: str = "", until: float | None = None) -> None:
        super().__init__(sentence)
        self.owner = owner
        self.until = until


class InvalidRecord(ToolwireError):
    """A record, or a part of one such as its selector or lifetime, cannot be used as it was asked for."""


class NotPermitted(ToolwireError):
    """A caller may not do that with a record: its role, the record's author or its reserved type forbid it."""


class BusError(ToolwireError):
    """A message could not be sent or received."""


class BusUnavailable(BusError):
    """The broker cannot be reached, or did not confirm in time. Whether it keeps the message is not known.

    Sending it again with the same id does no harm.
    """


class BrokerNotReady(BusUnavailable):
    """The broker answers, and something has to be done there first, which the message says."""


class MessageTooLarge(BusError):
    """The bus does not carry messages of this size. What is that large belongs into the store."""


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
