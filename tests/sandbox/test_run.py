"""Running a command: what comes back, and when it is over."""

import asyncio
import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from tests.sandbox.conftest import ENGINES, facts, git, names, needs, report
from toolwire.errors import SandboxUnavailable, ToolFailure
from toolwire.execute.sandbox.bubblewrap import Bubblewrap
from toolwire.execute.sandbox.contract import Box, Engine, EngineReport
from toolwire.execute.sandbox.engines import cgroups, engines, local_sandbox
from toolwire.execute.sandbox.examination import examine
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.execute.sandbox.probes import PROBES
from toolwire.protocol.operations import Command, ExecLimits, shell
from toolwire.protocol.outcomes import Code


@pytest.mark.feature("F139")
async def test_a_command_gives_its_output_its_errors_and_its_exit_code(box: Sandbox, workspace: Path) -> None:
    ran = await box.run(Command(shell("echo out; echo err >&2; exit 3"), str(workspace)))

    assert (ran.stdout.text, ran.stderr.text, ran.exit_code) == ("out\n", "err\n", 3)
    assert ran.stdout.sha256 == hashlib.sha256(b"out\n").hexdigest()
    assert (ran.engine, ran.limit, ran.signal) == ("bubblewrap", "", None)


async def test_words_of_a_command_are_never_read_by_a_shell(box: Sandbox, workspace: Path) -> None:
    ran = await box.run(Command(("/bin/echo", "$(id)", "`id`", ";", "a b"), str(workspace)))

    assert ran.stdout.text == "$(id) `id` ; a b\n"


async def test_what_is_given_as_input_is_read_and_otherwise_there_is_none(box: Sandbox, workspace: Path) -> None:
    assert (await box.run(Command(("/bin/cat",), str(workspace), stdin=b"given"))).stdout.head == b"given"
    assert (await box.run(Command(("/bin/cat",), str(workspace)))).stdout.size == 0


async def test_work_stays_in_the_workspace_and_belongs_to_its_owner(box: Sandbox, workspace: Path) -> None:
    (workspace / "in").mkdir()

    await box.run(Command(shell("pwd > where; mkdir made"), str(workspace), cwd="in"))

    assert (workspace / "in" / "where").read_text() == "/workspace/in\n"
    assert facts(workspace / "in" / "made").st_uid == facts(workspace).st_uid
    assert names(workspace) == ["in"]


async def test_variables_are_those_given_and_a_few_of_our_own(box: Sandbox, workspace: Path) -> None:
    ran = await box.run(Command(("/usr/bin/env",), str(workspace), env={"COLOUR": "blue"}))

    names = {line.partition("=")[0] for line in ran.stdout.text.splitlines()}
    assert names - {"PWD"} == {"COLOUR", "HOME", "LANG", "PATH", "SHELL", "TERM", "TMPDIR", "USER"}


async def test_boxes_are_alike_whether_their_base_is_mounted_once_or_for_each(workspace: Path, tmp_path: Path) -> None:
    """Only root can keep one; a machine that cannot gives the same box more slowly."""
    (tmp_path / "lent").mkdir()
    (tmp_path / "lent" / "note").write_text("read me")
    look = "ls -d /* /dev/* /etc/* /dev/pts/*; cat /etc/passwd $0/note; env | sort; id; "
    look += "cut -d' ' -f2 /proc/mounts | grep -v ^/dev/ | sort"
    command = Command((*shell(look), str(tmp_path / "lent")), str(workspace), readable=(str(tmp_path / "lent"),))
    boxes = [Sandbox({"bubblewrap": Bubblewrap(cgroups(), shared_base=shared)}) for shared in (True, False)]

    once, each = [(await one.run(command)).stdout.text for one in boxes]

    assert once == each
    assert "read me" in once


async def test_nothing_of_the_base_can_be_changed(box: Sandbox, workspace: Path) -> None:
    attempts = "touch /x /etc/x /dev/x; echo x >> /etc/hosts; chmod 777 /etc /dev/null; mv /etc/hosts /tmp; rm /bin"
    await box.run(Command(shell(attempts), str(workspace)))

    look = "ls -d /x /etc/x /dev/x; cat /etc/hosts; stat -c %a /etc /dev/null; readlink /bin"
    ran = await box.run(Command(shell(look), str(workspace)))
    assert ran.stdout.text == "127.0.0.1 localhost sandbox\n::1 localhost\n755\n666\nusr/bin\n"


async def test_a_missing_program_and_a_missing_folder_are_the_callers_mistake(box: Sandbox, workspace: Path) -> None:
    with pytest.raises(ToolFailure, match="cannot be run: No such file") as missing:
        await box.run(Command(("/bin/no-such-program",), str(workspace)))
    with pytest.raises(ToolFailure, match="no folder 'nowhere'") as nowhere:
        await box.run(Command(("/bin/true",), str(workspace), cwd="nowhere"))
    assert (missing.value.code, nowhere.value.code) == (Code.NOT_FOUND, Code.INVALID_PARAMS)


async def test_output_comes_while_the_command_runs(box: Sandbox, workspace: Path) -> None:
    """It writes one line and waits for an answer that is given only once the line has been seen."""
    seen = asyncio.Event()
    command = Command(shell("echo first; until test -e go; do sleep 0.01; done; echo second"), str(workspace))

    async with asyncio.timeout(10):
        running = asyncio.create_task(box.run(command, lambda _stream, _piece: seen.set()))
        await seen.wait()
        (workspace / "go").touch()
        ran = await running

    assert ran.stdout.text == "first\nsecond\n"


@pytest.mark.feature("F139")
async def test_a_command_that_runs_out_of_time_is_ended_and_keeps_its_output(box: Sandbox, workspace: Path) -> None:
    ran = await box.run(Command(shell("echo so far; sleep 1000"), str(workspace), limits=ExecLimits(wall_s=2)))

    assert (ran.limit, ran.exit_code, ran.stdout.text) == ("wall", None, "so far\n")


async def test_control_a_command_that_has_time_left_goes_on(box: Sandbox, workspace: Path) -> None:
    endless = shell("echo so far; until test -e go; do sleep 0.05; done; echo late")
    async with asyncio.timeout(60):
        unhurried = asyncio.create_task(box.run(Command(endless, str(workspace), limits=ExecLimits(wall_s=60))))
        ended = await box.run(Command(endless, str(workspace), limits=ExecLimits(wall_s=1)))
        (workspace / "go").touch()
        ran = await unhurried

    assert (ended.limit, ended.stdout.text) == ("wall", "so far\n")
    assert (ran.limit, ran.stdout.text) == ("", "so far\nlate\n")


async def test_long_output_keeps_its_beginning_its_end_and_the_digest_of_all(box: Sandbox, workspace: Path) -> None:
    ran = await box.run(Command(shell("seq 100000"), str(workspace), limits=ExecLimits(output_bytes=2000)))

    whole = "".join(f"{number}\n" for number in range(1, 100_001)).encode()
    assert (ran.stdout.head, ran.stdout.tail) == (whole[:1000], whole[-1000:])
    assert (ran.stdout.size, ran.stdout.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
    assert f"{len(whole) - 2000} of {len(whole)} bytes left out" in ran.stdout.text


@pytest.mark.parametrize(
    ("limit", "text", "limits"),
    [
        ("memory", "perl -e '$x = \"a\" x 400_000_000'", ExecLimits(memory_bytes=64 * 2**20)),
        ("file_size", "exec head -c 2000000 /dev/zero > f", ExecLimits(file_bytes=1_000_000)),
        ("cpu", "while :; do :; done", ExecLimits(wall_s=20, cpu_s=1)),
    ],
)
async def test_a_result_names_the_limit_that_was_hit(
    box: Sandbox, workspace: Path, limit: str, text: str, limits: ExecLimits
) -> None:
    ran = await box.run(Command(shell(text), str(workspace), limits=limits))

    assert ran.limit == limit
    assert (await box.run(Command(("/bin/true",), str(workspace)))).exit_code == 0


async def test_a_canceled_command_is_gone_when_the_caller_goes_on(box: Sandbox, workspace: Path) -> None:
    command = Command(
        shell("echo x > alive; echo started; while :; do echo x >> alive; sleep 0.01; done"), str(workspace)
    )
    started = asyncio.Event()
    running = asyncio.create_task(box.run(command, lambda _stream, _piece: started.set()))
    async with asyncio.timeout(10):
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    size = facts(workspace / "alive").st_size
    await box.run(Command(("/bin/sleep", "0.1"), str(workspace)))
    assert facts(workspace / "alive").st_size == size
    assert box.healthy


async def test_many_commands_run_side_by_side(box: Sandbox, workspace: Path) -> None:
    async with asyncio.timeout(60):
        ran = await asyncio.gather(*(box.run(Command(("/bin/echo", str(n)), str(workspace))) for n in range(12)))

    assert [each.stdout.text for each in ran] == [f"{n}\n" for n in range(12)]
    assert names(workspace) == []


@pytest.mark.feature("F119")
@pytest.mark.parametrize("engine", ENGINES)
async def test_every_engine_runs_a_command_or_says_why_it_cannot(
    boxed_by: Callable[[str], Sandbox], workspace: Path, engine: str
) -> None:
    command = Command(shell("echo out; echo err >&2; echo made > file; exit 3"), str(workspace))

    if not report(engine).usable:
        with pytest.raises(SandboxUnavailable, match=engine) as missing:
            await boxed_by(engine).run(command)
        assert missing.value.code is Code.SANDBOX_UNAVAILABLE
        assert names(workspace) == []
        needs(engine)

    ran = await boxed_by(engine).run(command)
    assert (ran.stdout.text, ran.stderr.text, ran.exit_code, ran.engine) == ("out\n", "err\n", 3, engine)
    assert (workspace / "file").read_text() == "made\n"


async def test_the_same_confinement_has_the_same_profile_and_another_has_another(box: Sandbox, workspace: Path) -> None:
    first = await box.run(Command(("/bin/true",), str(workspace)))
    same = await box.run(Command(("/bin/echo", "other words"), str(workspace)))
    other = await box.run(Command(("/bin/true",), str(workspace), writable=False))

    assert first.profile == same.profile
    assert first.profile != other.profile


class _Pretended:
    """An engine that can be chosen and remembers that it was; it never runs anything."""

    def __init__(self, name: str, *, usable: bool = True) -> None:
        self.name = name
        self.usable = usable
        self.asked = 0
        self.weaker: tuple[str, ...] = ()

    def probe(self) -> EngineReport:
        return EngineReport(self.name, usable=self.usable, reason="" if self.usable else "it is broken")

    def launch(self, command: Command) -> Box:
        self.asked += 1
        raise SandboxUnavailable("only pretended")


@pytest.mark.feature("F119")
@pytest.mark.parametrize(
    ("floor", "wish", "default", "chosen"),
    [
        ("bubblewrap", "", "bubblewrap", "bubblewrap"),
        ("bubblewrap", "none", "bubblewrap", "bubblewrap"),
        ("none", "none", "bubblewrap", "bubblewrap"),
        ("none", "podman", "bubblewrap", "podman"),
        ("podman", "bubblewrap", "bubblewrap", "podman"),
        ("podman", "", "none", "podman"),
        ("firejail", "", "firejail", "firejail"),
        ("none", "", "none", "none"),
        ("none", "bubblewrap", "none", "bubblewrap"),
    ],
)
def test_T70_a_tool_can_ask_for_more_and_never_for_less(floor: str, wish: str, default: str, chosen: str) -> None:
    assert Sandbox({}, floor=floor, default=default).choice(wish) == chosen


async def test_a_broken_engine_is_never_replaced_by_another_one() -> None:
    broken, other = _Pretended("podman", usable=False), _Pretended("none")
    sandbox = Sandbox({"podman": broken, "none": other, "bubblewrap": _Pretended("bubblewrap")})

    with pytest.raises(SandboxUnavailable, match="podman is needed and cannot be used here: it is broken"):
        await sandbox.run(Command(("/bin/true",), engine="podman"))
    with pytest.raises(SandboxUnavailable, match="no sandbox engine 'docker'"):
        await sandbox.run(Command(("/bin/true",), engine="docker"))
    assert (broken.asked, other.asked) == (0, 0)


class _Counted:
    """A real engine, and how often it was examined."""

    def __init__(self, engine: Engine, *, tells: bool) -> None:
        self.name = engine.name
        self.weaker = engine.weaker
        self.tells_at_start = tells
        self.examined = 0
        self._engine = engine

    def probe(self) -> EngineReport:
        self.examined += 1
        return self._engine.probe()

    def launch(self, command: Command) -> Box:
        return self._engine.launch(command)


@pytest.mark.parametrize(("tells", "examined"), [(True, 0), (False, 1)])
async def test_an_engine_that_tells_at_start_is_not_examined_before_a_command(
    workspace: Path, tells: bool, examined: int
) -> None:
    engine = _Counted(engines()["bubblewrap"], tells=tells)
    sandbox = Sandbox({"bubblewrap": engine})

    ran = [await sandbox.run(Command(("/bin/echo", "here"), str(workspace))) for _ in range(2)]

    assert [one.stdout.text for one in ran] == ["here\n", "here\n"]
    assert engine.examined == examined


@pytest.mark.parametrize("program", ["true", "false", "no-such-program"])
async def test_T70_a_box_that_does_not_start_is_examined_then_and_nothing_runs_in_a_weaker_one(
    workspace: Path, program: str
) -> None:
    broken = _Counted(Bubblewrap(cgroups(), program=program), tells=True)
    other = _Pretended("none")
    sandbox = Sandbox({"bubblewrap": broken, "none": other})

    for times in (1, 2):
        with pytest.raises(SandboxUnavailable, match="bubblewrap is needed and cannot be used here: ") as refused:
            await sandbox.run(Command(shell("echo x > ran"), str(workspace)))
        assert refused.value.detail == {"engine": "bubblewrap"}
        assert (broken.examined, other.asked, names(workspace)) == (times, 0, [])


class _Hanging(_Counted):
    """An engine whose launcher never comes to the command; it works again, or not, when it is examined."""

    def __init__(self, program: Path, *, tells: bool, works: bool) -> None:
        super().__init__(Bubblewrap(cgroups(), program=str(program)), tells=tells)
        self._works = works

    def probe(self) -> EngineReport:
        self.examined += 1
        return EngineReport(self.name, usable=self._works or self.examined == (not self.tells_at_start), reason="stuck")


@pytest.fixture
def launcher() -> Iterator[Callable[[str], Path]]:
    """Makes a program with this text, where the user of a box can run it."""
    with TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)

        def make(text: str) -> Path:
            program = Path(folder, "launcher")
            program.write_text(text)
            program.chmod(0o755)
            return program

        yield make


async def test_a_launcher_that_cannot_be_run_is_no_fault_of_the_command(
    workspace: Path, launcher: Callable[[str], Path]
) -> None:
    engine = _Hanging(launcher("#!/no/such/interpreter\n"), tells=True, works=True)

    with pytest.raises(SandboxUnavailable, match="bubblewrap could not confine the command: "):
        await Sandbox({"bubblewrap": engine}).run(Command(("/bin/true",), str(workspace)))
    assert engine.examined == 1


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize(
    ("line", "limits"),
    [("exec sleep 600", ExecLimits(wall_s=0.3)), ("while :; do :; done", ExecLimits(cpu_s=1, wall_s=30))],
)
async def test_a_box_that_hangs_before_the_command_begins_is_no_limit_of_the_command(
    workspace: Path, launcher: Callable[[str], Path], line: str, limits: ExecLimits, works: bool, tells: bool
) -> None:
    engine = _Hanging(launcher(f"#!/bin/sh\n{line}\n"), tells=tells, works=works)
    sandbox = Sandbox({"bubblewrap": engine})
    says = "bubblewrap could not confine the command: it had not begun" if works else "cannot be used here: stuck"

    with pytest.raises(SandboxUnavailable, match=says):
        await sandbox.run(Command(shell("echo x > ran"), str(workspace), limits=limits))
    assert engine.examined == (1 if tells else 2)
    assert (sandbox.healthy, names(workspace)) == (True, [])


async def test_an_examination_waits_for_a_box_that_is_slow_to_start(launcher: Callable[[str], Path]) -> None:
    slow = Bubblewrap(cgroups(), program=str(launcher(f'#!/bin/sh\nsleep 1\nexec {shutil.which("bwrap")} "$@"\n')))
    probes = [replace(probe, limits=replace(probe.limits, wall_s=0.5)) for probe in PROBES if probe.name == "read"]

    findings = [finding async for finding in examine(Sandbox({"bubblewrap": slow}), probes)]

    assert [(finding.probe.name, finding.given) for finding in findings] == [("read", True)]


async def test_a_command_that_had_begun_when_its_time_was_over_has_reached_its_limit(workspace: Path) -> None:
    engine = _Counted(engines()["bubblewrap"], tells=True)

    ran = await Sandbox({"bubblewrap": engine}).run(
        Command(shell("echo x > ran; exec sleep 600"), str(workspace), limits=ExecLimits(wall_s=2))
    )

    assert (ran.limit, ran.exit_code, names(workspace), engine.examined) == ("wall", None, ["ran"], 0)


class _Unclean(_Counted):
    """A real engine that cannot clean up after a command."""

    def launch(self, command: Command) -> Box:
        box = super().launch(command)
        box.undo.insert(0, self._fail)
        return box

    def _fail(self) -> None:
        raise OSError(28, "No space left on device")


async def test_an_error_after_the_command_has_begun_says_nothing_about_the_engine(workspace: Path) -> None:
    engine = _Unclean(engines()["bubblewrap"], tells=True)

    with pytest.raises(OSError, match="No space left"):
        await Sandbox({"bubblewrap": engine}).run(Command(shell("echo x > ran"), str(workspace)))
    assert (engine.examined, names(workspace)) == (0, ["ran"])


async def test_a_command_that_cannot_be_confined_in_an_engine_that_works_gets_its_own_reason(workspace: Path) -> None:
    sandbox = local_sandbox(floor="none", default="none")

    with pytest.raises(SandboxUnavailable, match="the engine none has no network of its own"):
        await sandbox.run(Command(("/bin/true",), str(workspace), door=str(workspace / "door")))
    assert (await sandbox.run(Command(("/bin/true",), str(workspace)))).exit_code == 0


@pytest.mark.parametrize("engine", ENGINES)
async def test_git_does_not_take_stand_ins_for_files_of_the_project(
    boxed_by: Callable[[str], Sandbox], workspace: Path, engine: str
) -> None:
    needs(engine)
    git("init", "-q", str(workspace))
    (workspace / "file").write_text("x")

    ran = await boxed_by(engine).run(Command(shell("git add -A && git status --porcelain"), str(workspace)))

    assert ran.stdout.text == "A  file\n"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (Command(("echo", "a\0b")), "NUL"),
        (Command(()), "must have words"),
        (Command(("echo", "\ud800")), "half a character"),
        (Command(("echo",), env={"A": "\udfff"}), "half a character"),
        (Command(("echo",), env={"A=B": "x"}), "name of an environment variable"),
        (Command(("echo", "x" * 200_000)), "write it to a file first"),
    ],
)
async def test_a_command_that_the_kernel_would_misread_is_the_callers_fault(
    box: Sandbox, command: Command, says: str
) -> None:
    with pytest.raises(ToolFailure, match=says) as refused:
        await box.run(command)

    assert refused.value.code is Code.INVALID_PARAMS


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_limit_of_nothing_is_never_no_limit(
    boxed_by: Callable[[str], Sandbox], workspace: Path, engine: str
) -> None:
    """To some programs 0 means that there is none."""
    needs(engine)
    hungry = 'perl -e \'$x = "a" x 300_000_000; print "DONE\\n"\''
    many = "for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; wait && echo DONE"

    for text, limits in ((hungry, ExecLimits(5, memory_bytes=0)), (many, ExecLimits(5, processes=0))):
        try:
            ran = await boxed_by(engine).run(Command(shell(text), str(workspace), limits=limits))
        except ToolFailure:
            continue
        assert "DONE" not in ran.stdout.text
