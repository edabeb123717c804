"""Tools for the one suite of all executors. Run as a program, it serves them at the address that it is given."""

import asyncio
import os
import sys
import time
from typing import Any

from toolwire.define.functions import tool
from toolwire.deliver.secrets import Secret, Secrets
from toolwire.errors import ToolFailure
from toolwire.execute.service_host import ServiceHost
from toolwire.protocol.calls import Image, Text, ToolOutput
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tool
from toolwire.protocol.traffic import ReachedHost, Traffic

SECRETS = Secrets({"KEY": Secret("opensesame", frozenset({"echo", "leak"}), anywhere=True)})


@tool(effect=Effect.PURE)
async def echo(value: Any) -> Any:
    """Give back a value."""
    return value


@tool(effect=Effect.PURE)
def echo_in_thread(value: Any) -> Any:
    """Give back a value."""
    return value


@tool
async def fail(how: str) -> str:
    """Fail in some way."""
    match how:
        case "sentence":
            raise ToolFailure("the shelf is empty", code=Code.NOT_FOUND)
        case "exit":
            sys.exit(3)
        case "cancel":
            raise asyncio.CancelledError
        case "odd":
            return object()  # type: ignore[return-value]
    raise ValueError("no such thing")


@tool(timeout_s=0.3, max_timeout_s=60)
async def wait(timeout_ms: int = 300) -> str:
    """Wait for longer than anybody has time."""
    await asyncio.sleep(600)
    return "never"


@tool(timeout_s=0.3, max_timeout_s=60)
def wait_in_thread(context: Context) -> str:
    """Wait until the call is given up."""
    while not context.canceled():
        time.sleep(0.01)
    return "never"


@tool
async def report(context: Context) -> str:
    """Tell how far it is."""
    for done in range(3):
        context.progress(f"part {done}", done / 3)
        await asyncio.sleep(0)
    return "reported"


@tool
async def write_lines(context: Context) -> str:
    """Write some lines while it works."""
    context.output("one\ntw")
    context.output("o\n")
    await asyncio.sleep(0)
    context.output("careful\n", "stderr")
    context.output("three")
    return "written"


@tool
def describe(context: Context) -> dict[str, Any]:
    """Say what is known about the call."""
    return {
        "key": context.idempotency_key,
        "project": context.project,
        "agent": context.agent,
        "attempt": context.attempt,
        "roots": list(context.grant.roots),
        "thread": context.thread,
        "tainted_by": list(context.tainted_by),
        "approved": context.approved,
    }


@tool
async def read_page(context: Context) -> str:
    """Read something untrusted, in a sandbox."""
    context.ran_in("bubblewrap", "strict")
    context.read_from("https://example.test/page")
    return "a page"


@tool
async def use_files(context: Context, folder: str) -> str:
    """Read, write and touch things, and reach a host."""
    context.read_file(folder, "read.txt", "7", "1:2")
    context.wrote_file(folder, "written.txt")
    context.touched("todos:garden", writes=True)
    context.ran_in("bubblewrap", "strict", Traffic((ReachedHost("example.test:443", 1, 2, 3),)))
    return "used"


@tool
async def read_file_again(context: Context, folder: str) -> str:
    """Read what was written."""
    context.read_file(folder, "written.txt")
    return "read"


@tool
async def list_marks(context: Context) -> list[str]:
    """Name what untrusted turns wrote."""
    return [f"{one.resource} {' '.join(one.origins)}" for one in await context.recorder.marks(context.project)]


@tool
async def try_it(context: Context) -> str:
    """Say in a trial what would have been needed."""
    if context.trial is not None:
        context.trial.wanted = "It needs the network."
    return "tried"


_JOBS: dict[str, tuple[asyncio.Event, asyncio.Task[None]]] = {}


@tool
async def start_job(context: Context, name: str, folder: str) -> str:
    """Begin something that goes on after the call."""
    over = asyncio.Event()

    async def work() -> None:
        await over.wait()
        context.read_from("https://example.test/late")
        context.wrote_file(folder, "late.txt")
        await context.recorder.record_told(context, "start_job")

    _JOBS[name] = (over, asyncio.create_task(work()))
    return "started"


@tool
async def finish_job(name: str) -> str:
    """Let it end, and wait for that."""
    over, task = _JOBS.pop(name)
    over.set()
    await task
    return "finished"


@tool
async def report_much(context: Context) -> str:
    """Report more than anybody reads."""
    for number in range(2_000):
        context.progress(f"{number} " + "x" * 10_000)
        if not number % 100:
            await asyncio.sleep(0)
    return "reported"


@tool
async def show() -> ToolOutput:
    """Give blocks, what a program wrote, and its exit code."""
    return ToolOutput((Text("seen"), Image("aGk=", "image/png")), exit_code=2, stderr="careful")


@tool
async def read_some() -> ToolOutput:
    """Read two of three files."""
    return ToolOutput((Text("two files"),), {"read": 2}, missing="c.txt could not be read")


@tool(timeout_s=60)
def produce(megabytes: int) -> str:
    """Give much."""
    return "0123456789abcdef" * (megabytes << 16)


@tool
async def leak(key: str) -> str:
    """Say a secret, and how long it is."""
    return f"{len(key)}: {key}"


@tool
async def die() -> str:
    """End the process at once, as a crash does."""
    os._exit(9)


@tool(effect=Effect.PURE)
async def die_harmlessly() -> str:
    """The same for a tool without effects."""
    os._exit(9)


TOOLS: tuple[Tool, ...] = (
    echo, echo_in_thread, fail, wait, wait_in_thread, report, describe, read_page, show, produce, leak, die,
    die_harmlessly, use_files, read_file_again, list_marks, try_it, start_job, finish_job, report_much, read_some,
    write_lines,
)  # fmt: skip


async def serve(address: str) -> None:
    async with ServiceHost(TOOLS, reveal=SECRETS.revealed, scrub=SECRETS.scrubbed).listening(address):
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
