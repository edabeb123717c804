"""The tools for the shell, through the whole journey of a call, in real boxes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.egress.network import connector, saying, serving
from toolwire.define.conformance import report
from toolwire.define.toolbox import Toolbox
from toolwire.execute.egress.caps import Audit
from toolwire.execute.egress.outward import way_out
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.hub.runtime import Runtime
from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.events import CallProgress, Event
from toolwire.protocol.operations import Command, Listener, Ran
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Grant, Tier
from toolwire.protocol.turns import Turn
from toolwire.record.memory import MemoryStore
from toolwire.toolbox.shell.bash import bash_tool
from toolwire.toolbox.shell.job_tools import job_tools
from toolwire.toolbox.shell.jobs import Job, Jobs


class Desk:
    """A runtime with the shell's tools, and a turn that may use them."""

    def __init__(self, workspace: Path, jobs: Jobs, sandbox: Sandbox) -> None:
        self.runtime = Runtime(Toolbox(bash_tool(sandbox), *job_tools(jobs)), MemoryStore())
        self.grant = Grant(
            tier=Tier.RUN, permissions=frozenset({"shell"}), roots=(str(workspace),), confirmed=frozenset({"*"})
        )
        self.events: list[Event] = []
        self._asked = 0

    async def __call__(self, name: str, turn: str = "t1", agent: str = "agent", **arguments: Any) -> ToolResult:
        self._asked += 1
        call = ToolCall(name, arguments, id=f"c{self._asked}")
        async with asyncio.timeout(30):
            return await self.runtime.execute(call, Turn(turn, agent=agent, grant=self.grant), self.events.append)


@pytest.fixture
async def jobs(box: Sandbox) -> AsyncIterator[Jobs]:
    async with Jobs(box) as opened:
        yield opened


@pytest.fixture
def desk(workspace: Path, jobs: Jobs, box: Sandbox) -> Desk:
    return Desk(workspace, jobs, box)


@pytest.mark.feature("F251", "F139")
async def test_bash_gives_output_errors_and_exit_code_and_names_its_confinement(desk: Desk, workspace: Path) -> None:
    result = await desk("bash", command="cat in.txt; echo warned >&2; mkdir sub; exit 4")

    assert result.status is Status.SUCCESS
    assert result.structured["stderr"].startswith("cat: in.txt: No such file")
    assert result.structured["exit_code"] == 4
    assert result.structured["engine"] == "bubblewrap"
    assert len(result.structured["profile"]) == 16

    below = await desk("bash", command="pwd; echo x | tee made", workdir="sub")
    assert below.structured["stdout"] == "/workspace/sub\nx\n"
    assert (workspace / "sub" / "made").read_text() == "x\n"


@pytest.mark.feature("F251")
async def test_bash_that_runs_out_of_time_says_what_it_wrote_so_far(desk: Desk) -> None:
    result = await desk("bash", command="echo so far; sleep 100", timeout_ms=4000)

    assert (result.status, result.error and result.error.code) == (Status.TIMEOUT, Code.TIMEOUT)
    assert "Its output so far ended with:\nso far" in result.text
    assert result.error is not None
    assert result.error.detail["stdout"] == "so far\n"


@pytest.mark.parametrize("folder", ["..", "/etc", "a/../../b"])
async def test_bash_works_nowhere_but_in_the_workspace(desk: Desk, folder: str) -> None:
    result = await desk("bash", command="pwd", workdir=folder)

    assert result.error is not None
    assert result.error.code is Code.PERMISSION_DENIED


async def test_bash_works_in_a_folder_that_is_named_with_a_detour(desk: Desk, workspace: Path) -> None:
    (workspace / "a").mkdir()
    (workspace / "b").mkdir()

    result = await desk("bash", command="pwd", workdir="a/../b")

    assert result.structured["stdout"] == "/workspace/b\n"


async def test_bash_without_a_granted_folder_runs_nothing(desk: Desk) -> None:
    desk.grant = Grant(tier=Tier.RUN, permissions=frozenset({"shell"}), confirmed=frozenset({"*"}))

    assert "no folder is granted" in (await desk("bash", command="true")).text


async def test_bash_is_refused_without_the_shell_permission_or_the_tier(desk: Desk) -> None:
    desk.grant = Grant(tier=Tier.RUN, roots=desk.grant.roots)
    assert "needs shell" in (await desk("bash", command="true")).text

    desk.grant = Grant(tier=Tier.WALK, permissions=frozenset({"shell"}), roots=desk.grant.roots)
    assert "tier RUN" in (await desk("bash", command="true")).text


async def test_without_an_engine_the_model_reads_sandbox_unavailable_and_nothing_runs(
    workspace: Path, jobs: Jobs
) -> None:
    desk = Desk(workspace, jobs, Sandbox({}))

    result = await desk("bash", command="touch made")

    assert result.error is not None
    assert result.error.code is Code.SANDBOX_UNAVAILABLE
    assert not (workspace / "made").exists()


async def test_bash_reaches_granted_hosts_through_a_door_and_nothing_without_the_permission(
    workspace: Path, box: Sandbox
) -> None:
    opened: list[tuple[str, ...]] = []

    @asynccontextmanager
    async def door(command: Command, hosts: tuple[str, ...], *, audit: Audit) -> AsyncIterator[Command]:
        opened.append(hosts)
        yield command

    runtime = Runtime(Toolbox(bash_tool(box, door)), MemoryStore())
    for number, permissions in enumerate(({"shell"}, {"shell", "network"})):
        grant = Grant(Tier.RUN, frozenset(permissions), (str(workspace),), ("a.example",), confirmed=frozenset({"*"}))
        call = ToolCall("bash", {"command": "make"}, id=f"c{number}")
        await runtime.execute(call, Turn("t", grant=grant))

    assert opened == [(), ("a.example",)]


@pytest.mark.threat("T45")
async def test_T45_the_output_of_a_command_that_reached_a_host_is_untrusted(workspace: Path, box: Sandbox) -> None:
    """A granted host that was not reached, or a refused one, leaves the output as trusted as the workspace."""
    door = partial(way_out, connector=connector({"good.example": ["127.0.0.1"], "evil.example": ["127.0.0.1"]}))
    runtime = Runtime(Toolbox(bash_tool(box, door)), MemoryStore())
    permissions, untrusted = frozenset({"shell", "network"}), {}
    async with serving(saying(b"hello\n")) as server:
        place = f"good.example:{server.port}"
        online = Grant(Tier.RUN, permissions, (str(workspace),), (place,), confirmed=frozenset({"*"}))
        commands = ["touch x", "ls", f"touch y; curl -s http://evil.example:{server.port}", f"touch z; curl -s {place}"]
        for number, command in enumerate(commands):
            result = await runtime.execute(
                ToolCall("bash", {"command": command}, id=f"c{number}"), Turn("t", grant=online)
            )
            untrusted[number] = result.origins if result.untrusted else None

    assert untrusted == {0: None, 1: None, 2: None, 3: (f"network:{place}",)}


@pytest.mark.threat("T45")
async def test_T45_a_command_that_is_ended_after_it_reached_a_host_is_untrusted_too(
    workspace: Path, box: Sandbox
) -> None:
    door = partial(way_out, connector=connector({"good.example": ["127.0.0.1"]}))
    runtime = Runtime(Toolbox(bash_tool(box, door)), MemoryStore())
    async with serving(saying(b"hello\n")) as server:
        place = f"good.example:{server.port}"
        grant = Grant(
            Tier.RUN, frozenset({"shell", "network"}), (str(workspace),), (place,), confirmed=frozenset({"*"})
        )
        arguments = {"command": f"touch x; curl -s {place}; sleep 100", "timeout_ms": 3000}
        result = await runtime.execute(ToolCall("bash", arguments, id="c"), Turn("t", grant=grant))

    assert (result.status, result.untrusted) == (Status.TIMEOUT, True)


async def test_a_job_has_the_same_door_as_bash_for_as_long_as_it_runs(workspace: Path, box: Sandbox) -> None:
    """Also after the turn that started it; and none without the permission."""

    door = partial(way_out, connector=connector({"good.example": ["127.0.0.1"]}))

    async with serving(saying(b"hello from outside\n")) as server, Jobs(box, outward=door) as jobs:
        desk, place = Desk(workspace, jobs, box), f"good.example:{server.port}"
        desk.grant = replace(desk.grant, permissions=frozenset({"shell", "network"}), network=(place,))
        fetching = f"until test -e go; do sleep 0.02; done; curl -s {place}"
        job = (await desk("job_start", command=fetching)).structured["job"]
        (workspace / "go").touch()
        fetched = await desk("job_poll", "t2", job=job, wait_s=10)
        desk.grant = replace(desk.grant, permissions=frozenset({"shell"}))
        job = (await desk("job_start", command="env | grep -c _proxy")).structured["job"]
        without = await desk("job_poll", job=job, wait_s=10)

    assert fetched.structured["output"] == "hello from outside\n"
    assert (fetched.untrusted, without.untrusted) == (True, False)
    assert without.structured["output"] == "0\n"


async def test_output_longer_than_a_model_reads_is_kept_whole(desk: Desk) -> None:
    result = await desk("bash", command="seq 30000")

    assert result.truncated
    assert result.handle is not None


@pytest.mark.feature("F141")
async def test_a_job_goes_on_after_its_turn_and_tells_how_it_is_doing(desk: Desk, workspace: Path) -> None:
    started = await desk("job_start", command="echo one; until test -e go; do sleep 0.02; done; echo two; exit 5")
    job = started.structured["job"]

    first = await desk("job_poll", "t2", job=job, wait_s=5)
    assert (first.structured["state"], first.structured["output"]) == ("running", "one\n")

    (workspace / "go").touch()
    after = first.structured["position"]
    rest = await desk("job_poll", "t3", job=job, after=after, wait_s=10)
    while rest.structured["state"] == "running":
        rest = await desk("job_poll", "t3", job=job, after=after, wait_s=1)

    assert (rest.structured["state"], rest.structured["exit_code"]) == ("finished", 5)
    assert rest.structured["output"] == "two\n"
    last = await desk("job_tail", job=job, lines=1)
    assert (last.structured["output"], last.engine, bool(last.profile)) == ("two\n", "bubblewrap", True)
    progress = [event.message for event in desk.events if isinstance(event, CallProgress)]
    assert f"{job} running: one" in progress


@pytest.mark.feature("F141")
async def test_a_stopped_job_is_gone_with_everything_it_started(desk: Desk, workspace: Path) -> None:
    command = (
        "(while :; do echo x >> alive; sleep 0.01; done) & until test -s alive; do sleep 0.01; done; echo up; wait"
    )
    job = (await desk("job_start", command=command)).structured["job"]
    await desk("job_poll", job=job, wait_s=5)

    stopped = await desk("job_stop", job=job)

    assert stopped.structured["state"] == "stopped"
    size = len((workspace / "alive").read_bytes())
    await desk("bash", command="sleep 0.1")
    assert len((workspace / "alive").read_bytes()) == size
    assert (await desk("job_stop", job=job)).structured["state"] == "stopped"


async def test_a_job_out_of_time_ends_and_keeps_its_output(desk: Desk) -> None:
    job = (await desk("job_start", command="echo kept; sleep 100", seconds=2)).structured["job"]

    seen = await desk("job_poll", job=job, after=5, wait_s=20)

    assert seen.structured["state"] == "out_of_time"
    assert (await desk("job_poll", job=job)).structured["output"] == "kept\n"


@pytest.mark.contrast("T62")
@pytest.mark.threat("T62")
async def test_jobs_of_one_agent_cannot_be_seen_by_another(desk: Desk) -> None:
    job = (await desk("job_start", command="sleep 100")).structured["job"]

    other = await desk("job_tail", agent="stranger", job=job)

    assert other.error is not None
    assert other.error.code is Code.NOT_FOUND
    assert job not in other.text.replace(f"{job!r}", "")
    assert (await desk("job_list", agent="stranger")).structured == {"jobs": []}
    assert [one["job"] for one in (await desk("job_list")).structured["jobs"]] == [job]


class _Endless:
    """Commands that write what they are told to and end when they are stopped."""

    def __init__(self) -> None:
        self.say: Listener | None = None

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        self.say = listener
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_job_that_writes_for_hours_keeps_only_the_last_part_and_reports_each_line() -> None:
    endless = _Endless()
    told: list[str] = []
    async with Jobs(endless, told=lambda _job, line: told.append(line)) as jobs:
        job = jobs.start(Command(("x",)), "x", "me")
        await asyncio.sleep(0)
        assert endless.say is not None
        for number in range(60):
            endless.say("stdout", b"%05d\n" % number + b"." * 100_000)

        assert len(job.output) <= 2 * 2**20
        text, position = job.after(0)
        assert position - len(text) == job.offset
        assert job.offset + len(job.output) == 60 * 100_006
        assert len(told) == 60
    assert job.state == "stopped"


@pytest.mark.contrast("T69")
@pytest.mark.threat("T69")
async def test_no_more_jobs_run_than_allowed() -> None:
    async with Jobs(_Endless(), most=2) as jobs:
        started: list[Job] = [jobs.start(Command(("x",)), "x", "me") for _ in range(2)]
        with pytest.raises(Exception, match="2 jobs are running already"):
            jobs.start(Command(("x",)), "x", "me")
        await jobs.stop(started[0])
        jobs.start(Command(("x",)), "x", "me")


def test_the_tools_are_well_defined() -> None:
    sandbox = local_sandbox()
    for tool in (bash_tool(sandbox), *job_tools(Jobs(sandbox))):
        assert [finding for finding in report(tool) if finding.level == "error"] == []
