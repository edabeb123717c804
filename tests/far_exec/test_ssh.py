"""Commands on another machine, over a real SSH server."""

import asyncio
import inspect
from pathlib import Path

import asyncssh
import pytest

from tests.far_exec.conftest import Server
from tests.named_pipes import hearing
from toolwire import Agent
from toolwire.errors import ToolFailure
from toolwire.execute.far_exec import FarExec
from toolwire.protocol.operations import Command, ExecLimits, shell
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Grant, Tier
from toolwire.testing import ScriptedModel
from toolwire.toolbox.shell.bash import bash_tool


def command(workspace: Path, text: str, **more: object) -> Command:
    return Command(shell(text), str(workspace), **more)  # type: ignore[arg-type]


# A box cannot reach a pipe that was there before it.
WAIT_FOR_PIPE = "echo up; until test -p alive; do sleep 0.01; done"


@pytest.mark.feature("F062")
async def test_the_shell_tool_runs_on_another_machine_without_a_word_changed(far: FarExec, workspace: Path) -> None:
    grant = Grant(tier=Tier.RUN, permissions=frozenset({"shell"}), roots=(str(workspace),), confirmed=frozenset({"*"}))
    async with asyncio.timeout(60), Agent(ScriptedModel(), [bash_tool(far)], grant=grant) as agent:
        result = await agent.call("bash", {"command": "echo hello > there.txt; echo done; exit 3"})

    assert result.structured["stdout"] == "done\n"
    assert result.structured["exit_code"] == 3
    assert result.structured["engine"] == "bubblewrap"
    assert (workspace / "there.txt").read_text() == "hello\n"


async def test_words_input_environment_and_both_streams_cross_unharmed(far: FarExec, workspace: Path) -> None:
    nasty = 'it\'s $(touch evil) \\ \n "quoted" ü'
    program = 'printf %s "$1"; printf %s "$NASTY" >&2; cat'
    ran = await far.run(
        Command(
            ("/bin/bash", "-c", program, "x", nasty), str(workspace), stdin=b"\x00\xff", env={"NASTY": nasty},
        )
    )  # fmt: skip

    assert ran.stdout.head + ran.stdout.tail == nasty.encode() + b"\x00\xff"
    assert ran.stderr.text == nasty
    assert not (workspace / "evil").exists()


async def test_whoever_watches_sees_output_as_it_comes(far: FarExec, workspace: Path) -> None:
    seen: list[tuple[str, bytes]] = []
    heard = asyncio.Event()

    def listen(stream: str, piece: bytes) -> None:
        seen.append((stream, piece))
        heard.set()

    running = asyncio.ensure_future(far.run(command(workspace, "echo now; read -t 20 x < fifo"), listen))
    async with asyncio.timeout(20):
        await heard.wait()
        await running

    assert seen[0] == ("stdout", b"now\n")


async def test_a_long_output_keeps_its_ends_its_size_and_its_digest(far: FarExec, workspace: Path) -> None:
    limits = ExecLimits(30, output_bytes=1000)
    ran = await far.run(command(workspace, "seq 200000", limits=limits))

    assert ran.stdout.truncated
    assert ran.stdout.size == len("".join(f"{n}\n" for n in range(1, 200_001)))
    assert ran.stdout.text.startswith("1\n2\n")
    assert ran.stdout.text.endswith("\n200000\n")


async def test_a_command_whose_time_is_up_is_ended_there(far: FarExec, workspace: Path) -> None:
    up = asyncio.Event()
    text = f"{WAIT_FOR_PIPE}; exec 9> alive; sleep 50 & wait"
    running = asyncio.ensure_future(far.run(command(workspace, text, limits=ExecLimits(2.0)), lambda *_: up.set()))
    async with asyncio.timeout(20):
        await up.wait()
    async with asyncio.timeout(20), hearing(workspace / "alive") as alive:
        assert (await running).limit == "wall"
        assert await alive.read() == b"", "the pipe ends when nothing of it is left"


async def test_a_canceled_command_is_ended_there_with_all_that_it_started(far: FarExec, workspace: Path) -> None:
    up = asyncio.Event()
    text = f"{WAIT_FOR_PIPE}; (setsid bash -c 'exec 9> alive; echo begun >&9; sleep 50' &); sleep 50"
    running = asyncio.ensure_future(far.run(command(workspace, text), lambda *_: up.set()))
    async with asyncio.timeout(20):
        await up.wait()
    async with asyncio.timeout(20), hearing(workspace / "alive") as alive:
        assert await alive.readline() == b"begun\n"
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert await alive.read() == b""


async def test_several_commands_run_at_once(far: FarExec, workspace: Path) -> None:
    async with asyncio.timeout(60):
        rans = await asyncio.gather(*(far.run(command(workspace, f"echo {n}")) for n in range(4)))

    assert [ran.stdout.text for ran in rans] == ["0\n", "1\n", "2\n", "3\n"]


async def test_a_folder_that_is_not_offered_is_refused(far: FarExec, tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match="not offered") as refused:
        await far.run(command(tmp_path, "echo no"))
    assert refused.value.code is Code.PERMISSION_DENIED


async def test_what_belongs_to_this_machine_is_not_promised_of_another(far: FarExec, workspace: Path) -> None:
    with pytest.raises(ToolFailure, match="neither the folders nor the way out"):
        await far.run(command(workspace, "true", door="/run/door"))


async def test_a_machine_that_is_not_known_is_not_spoken_to(server: Server, workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "none"
    other.write_text("", encoding="ascii")
    with pytest.raises(ToolFailure, match="cannot be reached by SSH") as refused:
        async with server.exec(str(workspace), known_hosts=str(other)):
            pass
    assert refused.value.code is Code.UNAVAILABLE


async def test_a_stranger_is_not_let_in(server: Server, workspace: Path, tmp_path: Path) -> None:
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(tmp_path / "other"))
    with pytest.raises(ToolFailure, match="cannot be reached by SSH"):
        async with server.exec(str(workspace), client_keys=[str(tmp_path / "other")]):
            pass


async def test_nobody_there_is_said_in_a_sentence(workspace: Path, server: Server) -> None:
    with pytest.raises(ToolFailure, match="cannot be reached by SSH"):
        async with server.exec(str(workspace), port=1):
            pass


async def test_a_far_end_that_is_not_there_leaves_the_outcome_unknown(server: Server, workspace: Path) -> None:
    async with server.exec(str(workspace), python="/bin/false") as ops:
        with pytest.raises(ToolFailure, match="went away") as lost:
            await ops.run(command(workspace, "true"))
    assert lost.value.code is Code.OUTCOME_UNKNOWN


def test_every_error_of_the_library_is_one_that_is_translated() -> None:
    errors = {
        name: one
        for name, one in inspect.getmembers(asyncssh, inspect.isclass)
        if issubclass(one, Exception) and one.__module__.startswith("asyncssh.")
    }
    of_servers_and_terminals = "BreakReceived SignalReceived SoftEOFReceived TerminalSizeChanged".split()
    never_asked_for = "ChannelListenError PasswordChangeRequired ProcessError TimeoutError".split()

    left = {name for name, one in errors.items() if not issubclass(one, (asyncssh.Error, OSError, ValueError))}
    assert left <= {*of_servers_and_terminals, *never_asked_for}
