"""`toolwire up`: the whole system on one machine, with a real broker."""

import asyncio
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.stage import LIMIT_S, Stage
from toolwire.assemble.buses import user_key
from toolwire.assemble.supervisor import ChildProgram, Supervisor
from toolwire.bus.nats_config import HEALTH_PORT_OFFSET
from toolwire.bus.nats_connection import NatsServers
from toolwire.bus.nats_jetstream import nats_bus

SETTINGS = '[tools]\nmodules = ["shed:tools"]\n[services.shed]\nvia = "bus"\ntools = ["where"]\n'
MODULE = '''
import os
from toolwire import tool

@tool(effect="pure")
def where() -> str:
    """Which process runs this."""
    return f"process {os.getpid()}"

tools = [where]
'''
PID = re.compile(r"(\S.*?) +started(?: again)? \(pid (\d+)\)")


class System:
    """What `toolwire up` runs, as far as it has said so."""

    def __init__(self, stage: Stage, *words: str) -> None:
        self.stage = stage
        self.process = stage.start("up", "--stream-mb", "8", *words)
        self.environ: dict[str, str] = {}
        self.said: list[str] = []

    def read_until(self, text: str) -> None:
        """Until a line of standard error has this text."""
        assert self.process.stderr is not None
        while line := self.process.stderr.readline().decode():
            self.said.append(line)
            if text in line:
                return
        raise AssertionError("".join(self.said))

    def read_address(self) -> None:
        assert self.process.stdout is not None
        words = self.process.stdout.readline().decode().split()
        assert words[0] == "export"
        self.environ = dict(word.split("=", 1) for word in words[1:])

    @property
    def pids(self) -> dict[str, int]:
        """The newest process of each name."""
        return {found[1][9:]: int(found[2]) for line in self.said if (found := PID.match(line))}

    def where(self, *words: str) -> str:
        return self.stage.run("call", "where", *words, stdin=None, **self.environ).out.strip()


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with started(tmp_path) as system:
        yield system


@contextmanager
def started(folder: Path, *words: str) -> Iterator[System]:
    stage = Stage(folder)
    stage.settings(SETTINGS)
    stage.module("shed", MODULE)
    system = System(stage, *words)
    try:
        system.read_until("Everything is started")
        system.read_address()
        yield system
    finally:
        if system.process.poll() is None:
            system.process.send_signal(signal.SIGTERM)
        stage.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False


def await_end(pids: dict[str, int]) -> None:
    end = time.monotonic() + LIMIT_S
    while left := {name: pid for name, pid in pids.items() if is_alive(pid)}:
        assert time.monotonic() < end, left
        time.sleep(0.02)


def test_calls_run_in_a_worker_which_is_started_again_and_all_of_it_stops(system: System) -> None:
    first = system.pids["worker shed"]
    assert system.where() == f"process {first}"
    os.kill(first, signal.SIGKILL)
    os.kill(system.pids["broker"], signal.SIGKILL)
    system.read_until("worker shed    started again")
    assert system.where() == f"process {system.pids['worker shed']}"
    refused = system.stage.run("up")
    assert (refused.code, "runs here already" in refused.err) == (2, True)

    system.process.send_signal(signal.SIGTERM)
    assert system.process.wait(LIMIT_S) == 0
    await_end(system.pids)


async def test_workers_find_the_streams_that_they_may_not_make_however_late_the_runner_is(system: System) -> None:
    key = user_key(system.stage.folder / ".toolwire/nats/project-default-worker.nk", "the key")
    async with nats_bus(NatsServers((system.environ["TOOLWIRE_BUS__URL"],), key=key)) as bus:
        found = await bus.broker_state()
    assert len(found.streams) == 2


def test_commands_in_another_terminal_find_the_state_folder_and_hear_of_the_project(tmp_path: Path) -> None:
    with started(tmp_path, "--home", "elsewhere", "--project", "acme") as system:
        assert "another terminal, with --project acme:" in system.said[-1]
        assert system.where("--project", "acme") == f"process {system.pids['worker shed']}"
    assert not (tmp_path / ".toolwire").exists()


def test_nothing_outlives_a_system_that_is_killed(system: System) -> None:
    assert set(system.pids) == {"broker", "run", "worker shed"}
    system.process.kill()
    await_end(system.pids)


@pytest.mark.parametrize(
    ("settings", "words", "sentence"),
    [
        ('[store]\nkind = "memory"\n', (), "store.kind = memory is not shared"),
        ("", ("--port", "{taken}"), "choose another by --port"),
        ("", ("--port", "{below}"), "choose another by --port"),
    ],
)
def test_what_cannot_work_is_said_at_once(tmp_path: Path, settings: str, words: tuple[str, ...], sentence: str) -> None:
    stage = Stage(tmp_path)
    stage.settings(settings)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = stage.run("up", *(word.format(taken=port, below=port - HEALTH_PORT_OFFSET) for word in words))
    assert ran.code == 2
    assert sentence in ran.err


def test_an_interrupt_while_it_starts_ends_it(tmp_path: Path) -> None:
    process = Stage(tmp_path).start("up")
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    assert "broker" in line
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert "broker         ended" in rest.decode()


async def test_the_pause_before_a_program_starts_again_grows() -> None:
    said: list[str] = []
    often = asyncio.Event()

    def tell(name: str, line: str) -> None:
        said.append(line)
        if line.count("starts again in 0.04"):
            often.set()

    async with asyncio.timeout(LIMIT_S), Supervisor(tell, first_pause_s=0.01) as children:
        await children.keep(ChildProgram("sad", ["sh", "-c", "printf 'bye\\n%09999d' 7; exit 3"], {}))
        await often.wait()
    pauses = [line for line in said if "again in" in line]
    assert pauses == [f"ended with 3; starts again in {pause} s" for pause in ("0.01", "0.02", "0.04")]
    assert said.count("bye") == 3
    assert max(map(len, said)) == 4_000


@pytest.mark.parametrize(
    ("settings", "words", "sentence"),
    [
        ("", ("--port", "-5"), "--port"),
        ("", ("--stream-mb", "999999999"), "--stream-mb"),
        ("", ("--serve",), "set serve.upstream or serve.model"),
        ("", ("--project", "a b"), "--project: the name of a project that uses a bus must be"),
        ('[services."a b"]\nvia = "bus"\ntools = ["echo"]\n', (), "services.a b: the name of a service"),
    ],
)
def test_what_no_process_could_run_with_is_refused_at_the_start(
    tmp_path: Path, settings: str, words: tuple[str, ...], sentence: str
) -> None:
    stage = Stage(tmp_path)
    stage.settings(settings)
    ran = stage.run("up", *words)

    assert ran.code == 2, ran.err
    assert sentence in ran.err
