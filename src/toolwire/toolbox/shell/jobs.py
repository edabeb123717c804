"""Commands that go on while the conversation does. They outlive the turn, not the process."""

import asyncio
import secrets
import time
from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.errors import ToolFailure
from toolwire.execute.egress.outward import way_out
from toolwire.execute.egress.traffic import TrafficLog
from toolwire.execute.watched import Look, watch_command
from toolwire.protocol.context import Context
from toolwire.protocol.operations import MIB, Command, ExecOps, Ran
from toolwire.protocol.outcomes import Code
from toolwire.toolbox.shell.bash import OpensEgress, by_address_rules, last_line

MOST_JOBS = 16
MOST_FINISHED = 64
KEPT_BYTES = MIB
PIECE_BYTES = 16_000
_NO_CALL = Context()


class Job(Struct):
    """One command in the background; `log` says where it goes on the network, `opened` which marked files it read.

    `output` holds the last part of what it wrote, which began at `offset`.
    """

    id: str
    owner: str
    text: str
    began: float
    task: "asyncio.Task[Ran]"
    log: TrafficLog = field(default_factory=TrafficLog)
    opened: Look = list
    output: bytearray = field(default_factory=bytearray)
    offset: int = 0
    stopped: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def state(self) -> str:
        """running, finished, stopped, out_of_time or failed."""
        if not self.task.done():
            return "running"
        if self.stopped or self.task.cancelled():
            return "stopped"
        if self.task.exception() is not None:
            return "failed"
        return "out_of_time" if self.task.result().limit == "wall" else "finished"

    @property
    def ran(self) -> Ran | None:
        over = self.task.done() and not self.task.cancelled() and self.task.exception() is None
        return self.task.result() if over else None

    def hear(self, piece: bytes) -> None:
        self.output += piece
        if len(self.output) > 2 * KEPT_BYTES:
            self.offset += len(self.output) - KEPT_BYTES
            del self.output[:-KEPT_BYTES]
        self.news.set()

    def after(self, position: int) -> tuple[str, int]:
        """What was written from a position on, a bounded piece of it, and the position after it."""
        start = max(position - self.offset, 0)
        piece = bytes(self.output[start : start + PIECE_BYTES])
        return piece.decode("utf-8", "replace"), self.offset + start + len(piece)


class Jobs:
    """All jobs of a process. Each belongs to an agent of a project, and no other agent can see it."""

    def __init__(
        self,
        ops: ExecOps,
        *,
        most: int = MOST_JOBS,
        told: Callable[[Job, str], None] | None = None,
        outward: OpensEgress = way_out,
    ) -> None:
        self._ops = ops
        self._outward = outward
        self._most = most
        self._told = told
        self._jobs: dict[str, Job] = {}

    async def __aenter__(self) -> "Jobs":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(
        self, command: Command, text: str, owner: str, hosts: tuple[str, ...] = (), context: Context = _NO_CALL
    ) -> Job:
        """Begin a command, which may reach these hosts, and do not wait for it.

        What it does after the call that started it is put on record for that call, by its `context`. Raises
        ToolFailure when too many are running.
        """
        if sum(job.state == "running" for job in self._jobs.values()) >= self._most:
            raise ToolFailure(f"{self._most} jobs are running already; stop one first", code=Code.UNAVAILABLE)
        self._forget()
        name = f"job-{secrets.token_hex(4)}"
        log, later = TrafficLog(), replace(context, told=[])
        task = asyncio.get_running_loop().create_task(self._run(command, hosts, name, log, later), name=name)
        job = self._jobs[name] = Job(name, owner, text, time.time(), task, log)
        task.add_done_callback(lambda done: _ended(job, done))
        return job

    def get(self, name: str, owner: str) -> Job:
        """A job by its id. Raises ToolFailure, also for one of another agent."""
        job = self._jobs.get(name)
        if job is None or job.owner != owner:
            mine = ", ".join(job.id for job in self.of(owner)) or "none"
            raise ToolFailure(f"there is no job {name[:40]!r}; there are: {mine}", code=Code.NOT_FOUND)
        return job

    def of(self, owner: str) -> list[Job]:
        return [job for job in self._jobs.values() if job.owner == owner]

    async def wait(self, job: Job, position: int, timeout_s: float) -> None:
        """Wait for output after a position, or the end, or the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while job.state == "running" and job.offset + len(job.output) <= position:
                    job.news.clear()
                    await job.news.wait()
        except TimeoutError:
            return

    async def stop(self, job: Job) -> None:
        """End a job and everything that it started."""
        if not job.task.done():
            job.stopped = True
            job.task.cancel()
            await asyncio.wait((job.task,))

    async def close(self) -> None:
        """Stop whatever still runs."""
        for job in list(self._jobs.values()):
            await self.stop(job)

    async def _run(self, command: Command, hosts: tuple[str, ...], name: str, log: TrafficLog, context: Context) -> Ran:
        try:
            way = by_address_rules(self._outward, context)
            async with watch_command(context, command) as opened, way(command, hosts, audit=log) as ready:
                self._jobs[name].opened = opened
                return await self._ops.run(ready, self._listener(name))
        finally:
            job = self._jobs.get(name)
            if job is not None:
                files = job.opened()
                job.opened = lambda: files
            for place in log.places:
                context.read_from(f"network:{place}")
            context.ran_in("", "", log.take())
            await context.recorder.record_told(context, "job_start")

    def _listener(self, name: str) -> Callable[[str, bytes], None]:
        def listen(_stream: str, piece: bytes) -> None:
            job = self._jobs[name]
            job.hear(piece)
            if self._told is not None:
                self._told(job, last_line(piece))

        return listen

    def _forget(self) -> None:
        over = [name for name, job in self._jobs.items() if job.state != "running"]
        for name in over[: max(len(over) - MOST_FINISHED, 0)]:
            del self._jobs[name]


def _ended(job: Job, task: "asyncio.Task[Ran]") -> None:
    """Wake the waiters; looking at the failure tells asyncio that it will be reported."""
    if not task.cancelled():
        task.exception()
    job.news.set()
