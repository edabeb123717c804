"""The shell, on whatever runs commands: `bash` for what ends soon; `job_tools.py` has what goes on."""

import asyncio
from codecs import getincrementaldecoder
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Protocol, cast

from msgspec.structs import replace

from toolwire.decide.address_rules import AddressRules
from toolwire.decide.git_words import written_settings
from toolwire.decide.shell import read_shell
from toolwire.decide.trying import only_looks
from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.errors import SandboxUnavailable, ToolFailure
from toolwire.execute.egress.caps import Audit
from toolwire.execute.egress.outward import way_out
from toolwire.execute.egress.traffic import TrafficLog
from toolwire.execute.sandbox.git_settings import Setting
from toolwire.execute.watched import watch_command
from toolwire.protocol.context import Context, Trial
from toolwire.protocol.engines import DEFAULT_ENGINE
from toolwire.protocol.operations import LIMITS, LONGEST_WALL_S, Command, ExecOps, Listener, Ran, shell
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.files.granted_paths import without_detours
from toolwire.toolbox.shell.output import BashOutput, bash_output
from toolwire.toolbox.shell.ruled_commands import check_links

LONGEST_COMMAND = 30_000
_REPORT_EVERY_S = 0.5
_SHOWN_AFTER_TIMEOUT = 600
_MOST_LISTED = 3
# The caller must still be there to hear that time is up.
_MARGIN_S, _MARGIN_PART = 2.0, 0.25

BASH = """\
Run a command in bash, in a sandbox with the workspace, this machine's programs, and no network but granted hosts. \
Each command starts afresh: variables, functions and folders entered are gone afterwards, files in the workspace stay. \
Everything that it started ends with it; use job_start for what must go on."""

Text = Annotated[str, Field(min_length=1, max_length=LONGEST_COMMAND)]
Folder = Annotated[str, Field(max_length=4096)]


class OpensEgress(Protocol):
    """Opens an egress proxy to some hosts for a command, and gives the command as it must then be run."""

    def __call__(
        self, command: Command, network: tuple[str, ...], /, *, audit: Audit
    ) -> AbstractAsyncContextManager[Command]: ...


def bash_tool(ops: ExecOps, outward: OpensEgress = way_out, *, engine: str = DEFAULT_ENGINE) -> Tool:
    """The tool that runs shell commands through `ops`; those with granted hosts reach them through `outward`.

    `engine` is the least that confines them. What only reads gets a box without anything to write or to reach.
    """
    confined = engine != "none"

    @tool(
        name="bash",
        description=BASH,
        tier=Tier.RUN,
        effect=Effect.UNSAFE,
        category="exec",
        needs={"shell"},
        sandbox=engine,
        timeout_s=LIMITS["bash"].wall_s,
        max_timeout_s=LONGEST_WALL_S["bash"],
        examples=(
            {"command": "ls -la"},
            {"command": "make test 2>&1 | tail -20", "workdir": "src", "timeout_ms": 120_000},
        ),
    )
    async def bash(
        context: Context,
        command: Text,
        workdir: Folder = ".",
        timeout_ms: Annotated[int | None, Field(ge=1)] = None,  # noqa: ARG001 - the ladder reads it and gives the time
    ) -> BashOutput:
        """Run a command in bash, confined to the workspace.

        Args:
            command: What to run, as one would type it.
            workdir: The folder to run it in, relative to the workspace.
            timeout_ms: How many milliseconds it may take; 30000 unless given, at most 300000.
        """
        if context.trial is not None:
            planned = _command(context, command, workdir)
            return bash_output(await _tried(ops, outward, planned, context, context.trial))
        looks = confined and only_looks(command)
        planned = replace(_command(context, command, workdir), writable=not looks, hides_keys=looks)
        planned = replace(planned, may_set_git=not looks and _only_sets_git(command, planned.workspace))
        hosts = () if looks else granted_hosts(context)
        log = TrafficLog()
        try:
            way = by_address_rules(outward, context)
            async with watch_command(context, planned), way(planned, hosts, audit=log) as ready:
                ran = await ops.run(ready, _progress(context))
        finally:
            context.ran_in("", "", log.take())
        context.ran_in(ran.engine, ran.profile)
        if ran.limit == "wall":
            raise _timed_out(command, ran)
        return bash_output(ran)

    return replace(bash, reading_box=confined, trial_box=confined)


def by_address_rules(outward: OpensEgress, context: Context) -> OpensEgress:
    """The way out less the addresses that a rule denies; where one asks, people were asked about the command."""
    rules = AddressRules.of(context.grant).denying()
    return partial(cast("Callable[..., Any]", outward), refusal=rules.refusal) if rules.rules else outward


async def _tried(ops: ExecOps, outward: OpensEgress, command: Command, context: Context, trial: Trial) -> Ran:
    """Run a command so that it changes nothing, reaches nothing and sees no keys. Says in the trial what it wanted.

    Where hosts are granted, a proxy that leads nowhere hears whom it would have reached.
    """
    planned = replace(command, writable=False, trial=True, hides_keys=True, env={**command.env, **_NO_CACHES})
    hosts = _NOWHERE if granted_hosts(context) else ()
    log = TrafficLog()
    try:
        async with watch_command(context, planned), outward(planned, hosts, audit=log) as ready:
            ran = await ops.run(ready, _progress(context))
    except SandboxUnavailable:
        trial.wanted = ""  # the question is put as if nothing had been tried
        raise
    traffic = log.take()
    trial.wanted = _wanted(ran, tuple(host.place for host in traffic.refused))
    context.ran_in(ran.engine, ran.profile, traffic)
    if ran.limit == "wall" and trial.wanted is None:
        raise _timed_out(command.argv[-1], ran)
    return ran


# Programs that would write beside what they read do without it.
_NO_CACHES = {"GIT_OPTIONAL_LOCKS": "0", "PYTHONDONTWRITEBYTECODE": "1"}
_NOWHERE = ("trial.invalid",)  # a name that never leads anywhere (RFC 6761)


def _wanted(ran: Ran, refused: tuple[str, ...]) -> str | None:
    """What a trial would have needed; None where it had all that it wanted."""
    if ran.changes is None:
        return ""
    if ran.changes:
        return f"It would change {_listed(ran.changes)}."
    if refused:
        return f"It would reach {_listed(refused)}."
    denied = "ermission denied" in ran.stderr.text
    if ran.hidden and (ran.exit_code != 0 or (denied and any(name in ran.stderr.text for name in ran.hidden))):
        return f"Tried with {_listed(ran.hidden)} hidden, it ended with {_ending(ran)}."
    return None


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:_MOST_LISTED])) + (" and more" if len(names) > _MOST_LISTED else "")


def _ending(ran: Ran) -> str:
    return f"signal {ran.signal}" if ran.exit_code is None else f"exit code {ran.exit_code}"


def _only_sets_git(text: str, workspace: str) -> bool:
    """Whether a command does nothing but set settings of git, and only such as start no program."""
    settings = written_settings(read_shell(text))
    top = str(Path(workspace).resolve())
    # Which remotes there are is known when the box closes; here every name of one will do.
    return bool(settings) and all(Setting(key, value, "").is_harmless(top, {value}) for key, value in settings or ())


def granted_hosts(context: Context) -> tuple[str, ...]:
    """The hosts that a command may reach: those of the grant, where it permits the network at all."""
    return context.grant.network if "network" in context.grant.permissions else ()


def shell_command(context: Context, text: str, workdir: str) -> Command:
    """Shell text as a command in the granted workspace. Raises ToolFailure where there is none, or outside of it."""
    if not context.grant.roots:
        raise ToolFailure("no folder is granted, so there is nothing to work in", code=Code.PERMISSION_DENIED)
    workspace, inner = context.grant.roots[0], without_detours(PurePosixPath(workdir or "."))
    if inner is None:
        raise _outside(workdir)
    if inner.is_absolute() and inner.is_relative_to(workspace):
        inner = inner.relative_to(workspace)
    elif inner.is_absolute() and inner.is_relative_to("/workspace"):
        inner = inner.relative_to("/workspace")
    if inner.is_absolute():
        raise _outside(workdir)
    check_links(context, text, str(inner))
    return Command(shell(text), workspace, str(inner), limits=LIMITS["bash"])


def _outside(workdir: str) -> ToolFailure:
    return ToolFailure(f"{workdir!r} is outside of the workspace; give it relative", code=Code.PERMISSION_DENIED)


def _command(context: Context, text: str, workdir: str) -> Command:
    command = shell_command(context, text, workdir)
    wall_s = context.timeout_s - min(_MARGIN_S, context.timeout_s * _MARGIN_PART)
    return replace(command, limits=replace(command.limits, wall_s=wall_s))


def _progress(context: Context) -> Listener:
    """Shows the watcher what the command writes, and its last line as progress now and then."""
    told = 0.0
    clock = asyncio.get_running_loop().time
    decoders = {name: getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def listen(stream: str, piece: bytes) -> None:
        nonlocal told
        context.output(decoders[stream].decode(piece), stream)
        if clock() - told >= _REPORT_EVERY_S and (line := last_line(piece)):
            told = clock()
            context.progress(line)

    return listen


def last_line(piece: bytes) -> str:
    lines = piece[-2000:].decode("utf-8", "replace").rstrip().splitlines()
    return lines[-1][:200] if lines else ""


def _timed_out(command: str, ran: Ran) -> ToolFailure:
    output = bash_output(ran)
    shown = "\n".join(text[-_SHOWN_AFTER_TIMEOUT:] for text in (output["stdout"], output["stderr"]) if text.strip())
    so_far = f" Its output so far ended with:\n{shown}" if shown else " It had written nothing."
    message = (
        f"the command {command[:100]!r} was ended after {ran.elapsed_s:.1f} s, with everything it had started. "
        f"Give it more time with timeout_ms, or start it with job_start.{so_far}"
    )
    return ToolFailure(message, code=Code.TIMEOUT, detail=dict(output))
