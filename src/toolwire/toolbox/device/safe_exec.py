"""The tool that runs one of the programs that the settings list, without a shell."""

from typing import Annotated

from msgspec.structs import replace

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.errors import ToolFailure
from toolwire.execute.watched import watch_command
from toolwire.protocol.context import Context
from toolwire.protocol.devices import DeviceAccess
from toolwire.protocol.engines import DEFAULT_ENGINE
from toolwire.protocol.operations import LIMITS, Command, ExecOps
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.shell.output import BashOutput, bash_output

MOST_ARGUMENTS = 64
_MARGIN_PART = 0.75


def safe_exec_tool(access: DeviceAccess, ops: ExecOps, *, engine: str = DEFAULT_ENGINE) -> Tool:
    """The tool that runs a program of the settings' list through `ops`, where it can write nothing."""
    listed = ", ".join(sorted(access.commands)) or "none"

    @tool(
        name="safe_exec",
        description=f"Run one of these programs with arguments, without a shell: {listed}.",
        tier=Tier.RUN,
        effect=Effect.UNSAFE,
        category="exec",
        needs={"shell"},
        sandbox=engine,
        platforms={"linux"},
        examples=({"command": "uptime"}, {"command": "df", "args": ["-h"]}),
    )
    async def safe_exec(
        context: Context,
        command: Annotated[str, Field(min_length=1, max_length=255)],
        args: Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=MOST_ARGUMENTS)] = [],  # noqa: B006 - never changed
    ) -> BashOutput:
        """Run one of the programs that this machine's settings list, without a shell.

        Args:
            command: The name of the program, without a path.
            args: Its arguments; none is read by a shell.
        """
        planned = _command(access, context, command, args)
        async with watch_command(context, planned):
            ran = await ops.run(planned)
        context.ran_in(ran.engine, ran.profile)
        if ran.limit == "wall":
            raise ToolFailure(f"{command} was ended after {ran.elapsed_s:.1f} s", code=Code.TIMEOUT)
        return bash_output(ran)

    return safe_exec


def _command(access: DeviceAccess, context: Context, command: str, args: list[str]) -> Command:
    if command not in access.commands:
        listed = ", ".join(sorted(access.commands)) or "none"
        raise ToolFailure(
            f"{command!r} is not among the programs that device.commands lists: {listed}", code=Code.PERMISSION_DENIED
        )
    if wrong := next((word for word in args if "\0" in word), None):
        raise ToolFailure(f"the argument {wrong!r} contains a null character", code=Code.INVALID_PARAMS)
    if not context.grant.roots:
        raise ToolFailure("no folder is granted, so there is nothing to work in", code=Code.PERMISSION_DENIED)
    limits = replace(LIMITS["bash"], wall_s=context.timeout_s * _MARGIN_PART)
    return Command(
        (command, *args), context.grant.roots[0], writable=False, hides_keys=True, limits=limits,
    )  # fmt: skip
