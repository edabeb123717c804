"""How a command ends: the one table of exit codes, and which of our exceptions gives which."""

from enum import IntEnum

from toolwire.errors import (
    Conflict,
    DefinitionError,
    Fenced,
    InvalidRecord,
    ModelError,
    NotFound,
    SettingsError,
    StoreError,
    Suspended,
    ToolwireError,
)


class Exit(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    MODEL = 3
    STORE = 4
    NOT_FOUND = 5
    WAITING = 6
    UNEXPECTED = 70
    INTERRUPTED = 130
    READER_GONE = 141


MEANINGS = {
    Exit.DONE: "done",
    Exit.FAILED: "the call or turn did not succeed",
    Exit.USAGE: "wrong usage, settings or tool definition",
    Exit.MODEL: "the model is unavailable or refused the request",
    Exit.STORE: "the store is unavailable",
    Exit.NOT_FOUND: "there is no such turn, call or tool",
    Exit.WAITING: "the turn waits for an approval",
    Exit.UNEXPECTED: "an error of toolwire itself; details are in `errors.log`",
    Exit.INTERRUPTED: "interrupted (Ctrl-C)",
    Exit.READER_GONE: "the reader of the output went away",
}

_BY_ERROR: tuple[tuple[type[ToolwireError], Exit], ...] = (
    (SettingsError, Exit.USAGE),
    (DefinitionError, Exit.USAGE),
    (InvalidRecord, Exit.USAGE),
    (ModelError, Exit.MODEL),
    (NotFound, Exit.NOT_FOUND),
    (Fenced, Exit.FAILED),
    (Conflict, Exit.FAILED),
    (StoreError, Exit.STORE),
    (Suspended, Exit.WAITING),
)


def exit_for(error: ToolwireError) -> Exit:
    """The exit code for one of our own exceptions; the first kind that fits wins."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED)
