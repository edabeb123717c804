"""One suite for every executor: tools behave alike in this process and in another one, reached over a socket."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.execute import served_tools
from tests.execute.served_tools import SECRETS
from toolwire import Agent, MemoryStore, Toolbox
from toolwire.deliver.secrets import NO_SECRETS, Secret, Secrets
from toolwire.execute.contract import AbandonsWork, Executor
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.execute.service import ServiceExecutor, tools_of
from toolwire.protocol.calls import Allowed, Image, Text, ToolCall, ToolResult
from toolwire.protocol.context import CallInfo, Context, Recorder, Trial
from toolwire.protocol.events import CallFinished, CallProgress, Event, OutputDelta
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import BusService, Edge, Grant, McpServer, Service, Target, Tool
from toolwire.testing import ScriptedModel, call

ROOT = Path(__file__).parent.parent.parent


@asynccontextmanager
async def serving(address: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process with the tools of the suite."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.execute.served_tools", address,
        cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"listening\n"
    try:
        yield process
    finally:
        process.stdin.close()
        await process.wait()


class Bench:
    """An executor with the tools that it can run."""

    def __init__(self, executor: Executor, tools: tuple[Tool, ...]) -> None:
        self.executor = executor
        self.tools = {tool.name: tool for tool in tools}

    def allowed(self, name: str, timeout_s: float | None = None, **arguments: Any) -> Allowed:
        tool = self.tools[name]
        return Allowed(ToolCall(name, arguments, "call_1"), tool, arguments, timeout_s or tool.timeout_s)

    async def run(self, name: str, context: Context | None = None, **arguments: Any) -> ToolResult:
        return await self.executor.execute(self.allowed(name, **arguments), context or Context("call_1", "turn_1"))

    def agent(self, *script: Any, secrets: Secrets = NO_SECRETS) -> Agent:
        tools, model = list(self.tools.values()), ScriptedModel(*script)
        return Agent(model, tools, store=MemoryStore(), executor=self.executor, secrets=secrets)


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One other process for all tests that do not kill it."""
    address = str(tmp_path_factory.mktemp("service") / "s")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.execute.served_tools", address],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        yield address


@pytest.fixture(params=["in process", "service", "router to a service"])
async def bench(request: pytest.FixtureRequest, shared_service: str) -> AsyncIterator[Bench]:
    if request.param == "in process":
        yield Bench(executor := InProcessExecutor(), served_tools.TOOLS)
        await executor.close()
        return
    service = ServiceExecutor()
    router = Router(InProcessExecutor(), service=service)
    yield Bench(service if request.param == "service" else router, await tools_of(shared_service))
    await router.close()


@pytest.mark.parametrize("name", ["echo", "echo_in_thread"])
@pytest.mark.parametrize(
    "value", ["words", "", 7, 2.5, True, None, ["a", 1], {"a": {"b": [None]}}, "half \ud800 pair", "é" * 1000, 2**70]
)
async def test_a_value_comes_back_as_it_was(bench: Bench, name: str, value: Any) -> None:
    here = await Bench(InProcessExecutor(), served_tools.TOOLS).run(name, value=value)
    result = await bench.run(name, value=value)

    assert (result.status, result.content, result.structured) == (here.status, here.content, here.structured)
    assert (result.call_id, result.name) == ("call_1", name)


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("sentence", Code.NOT_FOUND, "the shelf is empty"),
        ("exit", Code.EXECUTION_FAILED, "tried to end the process (exit code 3)"),
        ("cancel", Code.EXECUTION_FAILED, "canceled itself"),
        ("odd", Code.EXECUTION_FAILED, "no JSON form"),
        ("error", Code.EXECUTION_FAILED, "ValueError: no such thing"),
    ],
)
async def test_whatever_a_tool_does_is_a_result(bench: Bench, how: str, code: Code, words: str) -> None:
    result = await bench.run("fail", how=how)

    assert result.error is not None
    assert result.error.code is code
    assert words in result.text
    assert (await bench.run("echo", value="on")).text == "on", "the executor goes on"


@pytest.mark.parametrize("name", ["wait", "wait_in_thread"])
async def test_a_call_ends_with_its_time(bench: Bench, name: str) -> None:
    result = await asyncio.wait_for(bench.run(name), 5)

    assert result.status is Status.TIMEOUT
    assert "did not finish within 0.3 s" in result.text


@pytest.mark.parametrize("name", ["wait", "wait_in_thread"])
async def test_a_cancellation_passes_through_and_stops_the_work(bench: Bench, name: str) -> None:
    begun = asyncio.Event()
    context = Context("call_1", "turn_1", begins=lambda turn, one: begun.set())
    task = asyncio.create_task(bench.executor.execute(bench.allowed(name, timeout_s=60.0), context))
    async with asyncio.timeout(5):
        loop = asyncio.get_running_loop()
        while not begun.is_set():  # a thread may set it
            await loop.run_in_executor(None, int)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(bench.executor, AbandonsWork)
        left = bench.executor.leftover(context.idempotency_key)
        if left is not None:
            await asyncio.wrap_future(left)

    assert bench.executor.leftover(context.idempotency_key) is None


async def test_progress_arrives_in_order_before_the_result(bench: Bench) -> None:
    events: list[Event] = []
    await bench.agent(call("report"), "Done.").ask("Report", on_event=events.append)

    told = [(event.message, event.fraction) for event in events if isinstance(event, CallProgress)]
    assert told == [("part 0", 0.0), ("part 1", 1 / 3), ("part 2", 2 / 3)]


@pytest.mark.feature("F142")
async def test_output_arrives_while_the_tool_still_runs_and_before_the_result(bench: Bench) -> None:
    events: list[Event] = []
    await bench.agent(call("write_lines"), "Done.").ask("Write", on_event=events.append)

    told = [event for event in events if isinstance(event, (OutputDelta, CallFinished))]
    pieces = [(event.text, event.stream, event.offset) for event in told if isinstance(event, OutputDelta)]
    assert isinstance(told[-1], CallFinished)
    assert "".join(text for text, stream, _ in pieces if stream == "stdout") == "one\ntwo\nthree"
    assert "".join(text for text, stream, _ in pieces if stream == "stderr") == "careful\n"
    assert [offset for _, _, offset in pieces] == [
        sum(len(text) for text, _, _ in pieces[:place]) for place in range(len(pieces))
    ]


async def test_a_tool_knows_the_same_about_its_call(bench: Bench) -> None:
    context = Context(
        "call_1", "turn_1", "garden", "ann", Grant(roots=("/srv/x",)), attempt=2, thread="t",
        tainted_by=("tool:web",), approved=True,
    )  # fmt: skip
    result = await bench.run("describe", context)

    assert result.structured == {
        "key": "turn_1/call_1", "project": "garden", "agent": "ann", "attempt": 2, "roots": ["/srv/x"],
        "thread": "t", "tainted_by": ["tool:web"], "approved": True,
    }  # fmt: skip


async def test_a_result_keeps_its_sandbox_and_where_it_was_read(bench: Bench) -> None:
    result = await bench.agent().call("read_page", {})

    assert (result.engine, result.profile) == ("bubblewrap", "strict")
    assert result.untrusted
    assert result.origins == ("https://example.test/page",)


async def test_blocks_exit_code_and_standard_error_come_back(bench: Bench) -> None:
    result = await bench.run("show")

    assert result.content == (Text("seen"), Image("aGk=", "image/png"))
    assert (result.exit_code, result.stderr) == (2, "careful")


async def test_a_tool_that_did_a_part_of_its_work_says_so_and_the_model_reads_both(bench: Bench) -> None:
    events: list[Event] = []
    agent = bench.agent(call("read_some"), "Two of three.")
    answer = await agent.ask("Read", on_event=events.append)

    [result] = [event.result for event in events if isinstance(event, CallFinished)]
    assert (result.status, result.ok, result.is_failure, result.error) == (Status.PARTIAL, False, False, None)
    assert result.text == "two files\nc.txt could not be read"
    assert result.structured == {"read": 2}
    assert answer.text == "Two of three."
    [card] = await agent.store.calls()
    assert card.result == result


async def test_a_hundred_megabytes_come_back_whole(bench: Bench) -> None:
    result = await bench.run("produce", megabytes=100)

    assert len(result.text) == 100 << 20
    assert result.text.endswith("0123456789abcdef")


async def test_a_trial_says_what_it_would_have_needed(bench: Bench) -> None:
    result = await bench.run("echo", Context("call_1", "turn_1", trial=(trial := Trial())), value="tried")

    assert (result.text, trial.wanted) == ("tried", None)


async def test_a_trial_that_was_not_enough_says_so(bench: Bench) -> None:
    await bench.run("try_it", Context("call_1", "turn_1", trial=(trial := Trial())))

    assert trial.wanted == "It needs the network."


async def test_what_a_tool_read_wrote_and_reached_is_on_record(bench: Bench, tmp_path: Path) -> None:
    agent = bench.agent()
    used = await agent.call("use_files", {"folder": str(tmp_path)})
    marked = {mark.resource: mark.origins for mark in await agent.store.untrusted("default")}
    [row] = [row for row in await agent.store.audit_log() if row.event == "network"]

    assert (used.engine, used.profile, used.untrusted) == ("bubblewrap", "strict", True)
    assert marked == {f"file:{tmp_path}/written.txt": used.origins, "todos:garden": used.origins}
    assert row.detail["reached"] == [{"host": "example.test:443", "connections": 1, "up": 2, "down": 3}]
    assert row.tool == "use_files"


async def test_a_tool_knows_what_untrusted_turns_wrote(bench: Bench, tmp_path: Path) -> None:
    agent = bench.agent()
    before = await agent.call("list_marks", {})
    used = await agent.call("use_files", {"folder": str(tmp_path)})
    after = await agent.call("list_marks", {})
    again = await agent.call("read_file_again", {"folder": str(tmp_path)})

    origins = " ".join(used.origins)
    assert before.structured == []
    assert sorted(after.structured) == [f"file:{tmp_path}/written.txt {origins}", f"todos:garden {origins}"]
    assert again.untrusted, "it has read what an untrusted turn wrote"


async def test_what_a_tool_tells_after_its_call_is_on_record(bench: Bench, tmp_path: Path) -> None:
    agent = bench.agent()
    await agent.call("start_job", {"name": str(tmp_path), "folder": str(tmp_path)})
    before = await agent.store.untrusted("default")
    await agent.call("finish_job", {"name": str(tmp_path)})

    [mark] = await agent.store.untrusted("default")
    assert list(before) == []
    assert (mark.resource, mark.origins) == (f"file:{tmp_path}/late.txt", ("https://example.test/late",))


async def test_what_a_tool_tells_when_its_caller_is_gone_waits_for_the_next_one(
    shared_service: str, tmp_path: Path
) -> None:
    """The record is where the agent is: the next call of the same agent in the same folders puts it there."""
    tools, store = await tools_of(shared_service), MemoryStore()
    grant = Grant(roots=(str(tmp_path),))

    async def called(tool: str, agent: str = "agent", **arguments: Any) -> None:
        executor = ServiceExecutor()
        one = Agent(ScriptedModel(), list(tools), store=store, executor=executor, grant=grant, name=agent)
        await one.call(tool, arguments)
        await executor.close()

    await called("start_job", name=str(tmp_path), folder=str(tmp_path))
    await called("finish_job", name=str(tmp_path))
    await called("echo", "another", value=1)
    nothing = await store.untrusted("default")
    await called("echo", value=1)

    [mark] = await store.untrusted("default")
    assert list(nothing) == []
    assert (mark.resource, mark.origins) == (f"file:{tmp_path}/late.txt", ("https://example.test/late",))


def test_every_field_of_a_context_is_data_that_travels_or_an_operation() -> None:
    operations = {"report", "write", "canceled", "told", "recorder", "trial", "begins", "reveal"}
    stays = {"config", "ends_turn"}  # keys, for tools of this process alone; and what only a dispatcher is told

    assert {*Context.__struct_fields__} - operations - stays == {*CallInfo.__struct_fields__} - {"is_trial"}


def test_every_operation_of_a_context_is_in_this_suite() -> None:
    """One that is added must work from another process, too."""
    tools = Path(served_tools.__file__).read_text(encoding="utf-8")
    methods = {name for name, value in vars(Context).items() if callable(value) and not name.startswith("_")}
    recorded = {name for name in vars(Recorder) if not name.startswith("_")}

    assert methods - {"of"} == {"progress", "output", "ran_in", "read_file", "wrote_file", "touched", "read_from"}
    assert [name for name in methods - {"of"} if f"context.{name}(" not in tools] == []
    assert [name for name in recorded if f"context.recorder.{name}(" not in tools] == []


async def test_secrets_are_put_in_place_where_the_tool_lives_and_never_come_back(bench: Bench) -> None:
    result = await bench.agent(secrets=SECRETS).call("leak", {"key": "{{secret:KEY}}"})

    assert result.text.startswith("10: ")
    assert "opensesame" not in result.text


async def test_a_secret_that_is_not_for_the_tool_is_refused(bench: Bench) -> None:
    result = await bench.agent(secrets=SECRETS).call("echo_in_thread", {"value": "{{secret:KEY}}"})

    assert result.error is not None
    assert result.error.code is Code.PERMISSION_DENIED
    assert "may not have the secret 'KEY'" in result.text


async def test_a_service_reveals_a_secret_that_this_process_does_not_have(tmp_path: Path) -> None:
    async with serving(address := str(tmp_path / "s")):
        bench = Bench(ServiceExecutor(), await tools_of(address))
        other = Secrets({"OTHER": Secret("elsewhere", frozenset({"leak"}))})
        result = await bench.agent(secrets=other).call("leak", {"key": "{{secret:KEY}}"})

    assert result.text.startswith("10: ")
    assert "opensesame" not in result.text


async def test_a_password_that_the_model_wrote_reaches_a_service_and_no_record(tmp_path: Path) -> None:
    async with serving(address := str(tmp_path / "s")):
        agent = Bench(ServiceExecutor(), await tools_of(address)).agent()
        result = await agent.call("leak", {"key": "https://ann:tiger77@example.test"})

    assert result.text.startswith(f"{len('https://ann:tiger77@example.test')}: ")
    [card] = await agent.store.calls()
    assert "tiger77" not in str(card)


@pytest.mark.parametrize(("name", "code"), [("die", Code.OUTCOME_UNKNOWN), ("die_harmlessly", Code.UNAVAILABLE)])
async def test_a_service_that_dies_over_a_call_is_a_result(tmp_path: Path, name: str, code: Code) -> None:
    async with serving(address := str(tmp_path / "s")) as process:
        bench = Bench(ServiceExecutor(), await tools_of(address))
        sent = asyncio.Event()
        context = Context("call_1", "turn_1", begins=lambda turn, one: sent.set())
        waiting = asyncio.create_task(bench.run("wait", context, timeout_s=60.0))
        await sent.wait()
        result = await bench.run(name)
        other = await waiting
        await process.wait()
        after = await bench.run("echo", value="on")

    assert result.error is not None
    assert result.error.code is code
    assert other.error is not None
    assert other.error.code is Code.OUTCOME_UNKNOWN, "every call that was on its way is told as it is"
    assert after.error is not None
    assert after.error.code is Code.UNAVAILABLE
    assert "was not started" in after.text


async def test_a_call_of_another_version_or_tool_is_not_started(tmp_path: Path) -> None:
    async with serving(address := str(tmp_path / "s")):
        tools = await tools_of(address)
        old = replace(tools[0], version="0")
        missing = replace(tools[0], name="missing")
        bench = Bench(ServiceExecutor(), (old, missing))
        results = [await bench.run("echo", value=1), await bench.run("missing", value=1)]

    assert [result.error and result.error.code for result in results] == [Code.UNAVAILABLE] * 2
    assert "has version 1 here, not 0" in results[0].text
    assert "no tool named 'missing' here" in results[1].text


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (Edge("shed"), "of the kind Edge"),
        (Service("/nowhere"), "of the kind Service"),
        (McpServer("files"), "of the kind McpServer"),
        (BusService("cg.v1r4.acme.public.cmd.tool.echo"), "of the kind BusService"),
        (None, "without a target"),
    ],
)
async def test_a_target_without_an_executor_is_a_result(target: Target | None, kind: str) -> None:
    tool = replace(served_tools.echo, target=target)
    agent = Agent(ScriptedModel(), [tool], executor=Router(InProcessExecutor()))

    result = await agent.call("echo", {"value": 1})

    assert result.error is not None
    assert result.error.code is Code.UNAVAILABLE
    assert f"'echo' was not started: this process cannot run tools {kind}" in result.text


class Named:
    """An executor that says its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        return ToolResult(allowed.call.id, self.name, Status.SUCCESS)

    async def close(self) -> None:
        self.name = "closed"


@pytest.mark.parametrize(
    ("target", "name"),
    [(Service("/s"), "service"), (Edge("shed"), "edge"), (McpServer("files"), "mcp"), (BusService("s"), "bus")],
)
async def test_a_call_goes_to_the_executor_of_its_target(target: Target, name: str) -> None:
    service, edge, mcp, bus = Named("service"), Named("edge"), Named("mcp"), Named("bus")
    router = Router(InProcessExecutor(), service=service, edge=edge, mcp=mcp, bus=bus)

    result = await Bench(router, (replace(served_tools.echo, target=target),)).run("echo", value=1)
    await router.close()

    assert result.name == name
    assert {service.name, edge.name, mcp.name, bus.name} == {"closed"}


async def test_a_tool_that_has_travelled_is_offered_and_judged_like_the_one_that_stayed(tmp_path: Path) -> None:
    async with serving(address := str(tmp_path / "s")):
        travelled = await tools_of(address)

    for far, near in zip(travelled, served_tools.TOOLS, strict=True):
        assert replace(far, target=None) == replace(near, target=None)
        assert far.target == Service(address)
    box: Callable[..., Any] = Toolbox.of(*travelled).get
    assert box("echo") == travelled[0]
