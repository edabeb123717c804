"""What lives long runs on uvloop where it is installed, and on asyncio's loop elsewhere."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bus.servers import NatsServer, running
from tests.postgres_server import PostgresServer
from tests.record.samples import a_turn
from toolwire.bus.nats_connection import NatsServers
from toolwire.bus.nats_jetstream import nats_bus
from toolwire.errors import BusUnavailable
from toolwire.event_loop import new_loop, run_on_new_loop
from toolwire.protocol.bus import BusMessage
from toolwire.record.postgres import PostgresStore

SUBJECT = "cg.v1r4.loops.public.str.agent.someone.progress"
COMMAND = BusMessage("cg.v1r4.loops.public.cmd.tool.notes", b"{}")
PATIENCE_S = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(params=["uvloop", "asyncio"])
def loop_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the loop comes from; without uvloop it cannot be loaded."""
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    return str(request.param)


def test_a_new_loop_is_of_uvloop_where_that_is_installed(loop_of: str) -> None:
    loop = new_loop()
    loop.close()

    assert type(loop).__module__.partition(".")[0] == loop_of


def test_a_store_and_a_bus_work_on_either_loop(
    loop_of: str, broker: NatsServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    """The threads of a store have loops of their own, of the same kind."""

    async def work() -> tuple[str, str, bytes]:
        async with (
            await PostgresStore.on(postgres.url, tmp_path, schema=f"of_{loop_of}") as store,
            nats_bus(NatsServers((broker.url,))) as bus,
            bus.listen(SUBJECT) as heard,
        ):
            await store.begin(a_turn())
            await bus.stream(BusMessage(SUBJECT, b"{}"))
            async with asyncio.timeout(PATIENCE_S):
                message = await anext(heard)
            kept = await store.turn(a_turn().id)
            return type(asyncio.get_running_loop()).__module__.partition(".")[0], kept.state, message.data

    with ThreadPoolExecutor(1) as thread:  # a test may have a loop here
        assert thread.submit(run_on_new_loop, work()).result() == (loop_of, "running", b"{}")


def test_a_broker_that_goes_away_is_noticed_and_left_on_either_loop(loop_of: str, tmp_path: Path) -> None:
    """What is written to a connection that has ended is dropped."""

    async def work() -> str:
        async with nats_bus(NatsServers((server.url,)), confirm_s=0.2) as bus:
            server.kill()
            with pytest.raises(BusUnavailable, match="did not confirm"):
                await bus.publish(COMMAND)
            async with asyncio.timeout(PATIENCE_S):
                while not (health := await bus.health()).last_error:  # noqa: ASYNC110 (health is asked)
                    await asyncio.sleep(0.01)
            with pytest.raises(BusUnavailable):
                await bus.publish(COMMAND)
            return health.last_error

    with running(tmp_path) as server, ThreadPoolExecutor(1) as thread:
        assert thread.submit(run_on_new_loop, work()).result() != ""


def test_what_runs_for_a_moment_does_not_load_uvloop() -> None:
    code = "import sys, toolwire, toolwire.agent, toolwire.event_loop; sys.exit('uvloop' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE_S).returncode == 0
