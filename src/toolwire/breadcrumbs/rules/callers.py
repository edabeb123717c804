"""Who asks for records: a person or program with a token, a tool call of a model, or the runtime itself."""

from enum import StrEnum

from msgspec import Struct

RUNTIME_NAME = "toolwire"


class Role(StrEnum):
    """What a caller may do at most. `MODEL` is a tool call, and `RUNTIME` is toolwire itself."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"
    MODEL = "model"
    RUNTIME = "runtime"


class Caller(Struct, frozen=True):
    """One who asks. `turn_id` and `call_id` name the tool call; `origins` the untrusted content that its turn read."""

    name: str
    role: Role
    turn_id: str = ""
    call_id: str = ""
    origins: tuple[str, ...] = ()

    @property
    def author(self) -> str:
        """The name under which records are written. An agent can have the name of a token, and is not its owner."""
        return f"agent:{self.name}" if self.role is Role.MODEL else self.name


RUNTIME = Caller(RUNTIME_NAME, Role.RUNTIME)
