"""The tools for jobs: start, poll, tail, stop, list."""

import time
from typing import Annotated, TypedDict

from msgspec.structs import replace

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.protocol.context import Context
from toolwire.protocol.engines import DEFAULT_ENGINE
from toolwire.protocol.operations import MIB
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.shell.bash import Folder, Text, granted_hosts, last_line, shell_command
from toolwire.toolbox.shell.jobs import PIECE_BYTES, Job, Jobs

LONGEST_S = 24 * 3600.0
USUAL_S = 3600.0
_FIRST_LOOK_S = 0.3  # long enough to see that a command does not exist


class JobOutput(TypedDict):
    job: Annotated[str, Field(description="The id of the job.")]
    state: Annotated[str, Field(description="running, finished, stopped, out_of_time or failed.")]
    output: Annotated[str, Field(description="What it wrote, stdout and stderr together, from the position asked for.")]
    position: Annotated[int, Field(description="Give this as after to read what follows.")]
    exit_code: Annotated[int | None, Field(description="Its exit code once it has finished.")]
    seconds: Annotated[int, Field(description="How long ago it was started.")]
    problem: Annotated[str, Field(description="Why it failed, if it did.")]
    notes: Annotated[list[str], Field(description="What toolwire protected from it or moved aside, once it has ended.")]


class JobList(TypedDict):
    jobs: Annotated[list[JobOutput], Field(description="All jobs of this agent, without their output.")]


def job_tools(jobs: Jobs, *, engine: str = DEFAULT_ENGINE) -> tuple[Tool, ...]:
    """The tools that start, read, stop and list jobs. `engine` is the least that confines them."""
    return _start_tool(jobs, engine), _poll_tool(jobs), _tail_tool(jobs), _stop_tool(jobs), _list_tool(jobs)


Name = Annotated[str, Field(min_length=1, max_length=40)]


def _start_tool(jobs: Jobs, engine: str) -> Tool:
    @tool(
        name="job_start",
        tier=Tier.RUN,
        effect=Effect.UNSAFE,
        category="exec",
        needs={"shell"},
        sandbox=engine,
        examples=({"command": "make all"}, {"command": "python train.py", "workdir": "model", "seconds": 14_400}),
    )
    async def job_start(
        context: Context,
        command: Text,
        workdir: Folder = ".",
        seconds: Annotated[float, Field(gt=0, le=LONGEST_S)] = USUAL_S,
    ) -> JobOutput:
        """Start a command in the background and get its job id at once. It goes on after the turn has ended.

        Args:
            command: What to run in bash, as one would type it.
            workdir: The folder to run it in, relative to the workspace.
            seconds: How long it may take before it is ended.
        """
        planned = shell_command(context, command, workdir)
        planned = replace(planned, limits=replace(planned.limits, wall_s=seconds, output_bytes=MIB))
        job = jobs.start(planned, command, _owner(context), granted_hosts(context), context)
        await jobs.wait(job, 0, _FIRST_LOOK_S)
        return _shown(job, 0, context)

    return job_start


def _poll_tool(jobs: Jobs) -> Tool:
    @tool(
        name="job_poll",
        tier=Tier.WALK,
        effect=Effect.PURE,
        category="exec",
        needs={"shell"},
        polling=True,
        examples=({"job": "job-1a2b3c4d"}, {"job": "job-1a2b3c4d", "after": 5120, "wait_s": 10}),
    )
    async def job_poll(
        context: Context,
        job: Name,
        after: Annotated[int, Field(ge=0, le=2**53)] = 0,
        wait_s: Annotated[float, Field(ge=0, le=60)] = 0,
    ) -> JobOutput:
        """Read what a job has written after a position, and how it is doing.

        Args:
            job: The id that job_start gave.
            after: The position that the last look at it gave; 0 reads from the beginning.
            wait_s: Seconds to wait for something new.
        """
        found = jobs.get(job, _owner(context))
        await jobs.wait(found, after, min(wait_s, context.timeout_s * 0.9))
        shown = _shown(found, after, context)
        context.progress(f"{found.id} {shown['state']}: {last_line(shown['output'].encode()) or 'nothing new'}")
        return shown

    return job_poll


def _tail_tool(jobs: Jobs) -> Tool:
    @tool(
        name="job_tail",
        tier=Tier.WALK,
        effect=Effect.PURE,
        category="exec",
        needs={"shell"},
        polling=True,
        examples=({"job": "job-1a2b3c4d"}, {"job": "job-1a2b3c4d", "lines": 100}),
    )
    async def job_tail(context: Context, job: Name, lines: Annotated[int, Field(ge=1, le=1000)] = 20) -> JobOutput:
        """Read the last lines that a job has written.

        Args:
            job: The id that job_start gave.
            lines: How many lines to read.
        """
        found = jobs.get(job, _owner(context))
        end = found.offset + len(found.output)
        text = bytes(found.output[-PIECE_BYTES:]).decode("utf-8", "replace")
        return {**_shown(found, end, context), "output": "".join(text.splitlines(keepends=True)[-lines:])}

    return job_tail


def _stop_tool(jobs: Jobs) -> Tool:
    @tool(
        name="job_stop",
        tier=Tier.RUN,
        effect=Effect.IDEMPOTENT,
        category="exec",
        needs={"shell"},
        examples=({"job": "job-1a2b3c4d"},),
    )
    async def job_stop(context: Context, job: Name) -> JobOutput:
        """End a job and everything that it started.

        Args:
            job: The id that job_start gave.
        """
        found = jobs.get(job, _owner(context))
        await jobs.stop(found)
        return _shown(found, found.offset + len(found.output), context)

    return job_stop


def _list_tool(jobs: Jobs) -> Tool:
    @tool(name="job_list", tier=Tier.WALK, effect=Effect.PURE, category="exec", needs={"shell"}, polling=True)
    async def job_list(context: Context) -> JobList:
        """List the jobs that were started, and how each is doing."""
        return {"jobs": [_shown(job, job.offset + len(job.output), context) for job in jobs.of(_owner(context))]}

    return job_list


def _owner(context: Context) -> str:
    return f"{context.project}/{context.agent}"


def _shown(job: Job, after: int, context: Context) -> JobOutput:
    ran = job.ran
    context.ran_in(ran.engine if ran else "", ran.profile if ran else "", job.log.take())
    for place in job.log.places:  # also by what another call has seen and put on record
        context.read_from(f"network:{place}")
    context.told.extend(job.opened())
    text, position = job.after(after)
    failed = job.task.exception() if job.state == "failed" else None
    return {
        "job": job.id,
        "state": job.state,
        "output": text,
        "position": position,
        "exit_code": ran.exit_code if ran is not None else None,
        "seconds": int(time.time() - job.began),
        "problem": str(failed) if failed is not None else "",
        "notes": list(ran.notes) if ran is not None else [],
    }
