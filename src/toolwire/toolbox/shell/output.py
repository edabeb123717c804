"""What a command has come to, as tools that run one tell it."""

from typing import Annotated, TypedDict

from toolwire.define.fields import Field
from toolwire.protocol.operations import Ran


class BashOutput(TypedDict):
    stdout: Annotated[str, Field(description="What the command wrote; the middle is left out where it is very long.")]
    stderr: Annotated[str, Field(description="Its error messages, in the same way.")]
    exit_code: Annotated[int | None, Field(description="0 if all went well; null if it was ended by a signal.")]
    signal: Annotated[int | None, Field(description="The signal that ended it, if one did.")]
    limit: Annotated[str, Field(description="The limit that ended it, such as memory, cpu, file_size or workspace.")]
    duration_ms: Annotated[int, Field(description="How long it took.")]
    truncated: Annotated[bool, Field(description="Whether something of stdout or stderr is left out.")]
    engine: Annotated[str, Field(description="The sandbox engine that confined it.")]
    profile: Annotated[str, Field(description="Digest of the rules that confined it.")]
    notes: Annotated[list[str], Field(description="What toolwire protected from it or moved aside, if anything.")]


def bash_output(ran: Ran) -> BashOutput:
    return {
        "stdout": ran.stdout.text,
        "stderr": ran.stderr.text,
        "exit_code": ran.exit_code,
        "signal": ran.signal,
        "limit": ran.limit,
        "duration_ms": round(ran.elapsed_s * 1000),
        "truncated": ran.stdout.truncated or ran.stderr.truncated,
        "engine": ran.engine,
        "profile": ran.profile,
        "notes": list(ran.notes),
    }
