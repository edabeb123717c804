"""A command in the real sandbox, with a way out to the hosts of its grant and to nowhere else."""

import asyncio
import os
import ssl
from pathlib import Path

import pytest
import trustme

from tests.egress.network import connector, saying, serving
from tests.sandbox.conftest import ENGINES, needs, report
from toolwire.errors import SandboxUnavailable
from toolwire.execute.egress.caps import TrafficEvent
from toolwire.execute.egress.outward import way_out
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.protocol.operations import Command, Ran, shell

HOSTS = {"good.example": ["127.0.0.1"], "evil.example": ["127.0.0.1"]}


async def run(text: str, workspace: Path, *network: str, engine: str = "bubblewrap") -> tuple[Ran, list[TrafficEvent]]:
    noted: list[TrafficEvent] = []
    command = Command(shell(text), workspace=str(workspace))
    async with asyncio.timeout(30), way_out(command, network, connector=connector(HOSTS), audit=noted.append) as ready:
        return await local_sandbox(floor=engine, default=engine).run(ready), noted


def has_doors(engine: str) -> bool:
    """Whether commands in an engine can have a way out at all."""
    return report(engine).usable and engine != "none" and (engine != "firejail" or os.geteuid() == 0)


def needs_doors(engine: str) -> None:
    """Leave this test out where the engine can give no way out; the run lists at its end what it left out."""
    needs(engine)
    if not has_doors(engine):
        pytest.skip(f"{engine} cannot be given granted hosts on this machine")


BOXES = [engine for engine in ENGINES if engine != "none"]


async def test_commands_that_nothing_confines_get_no_way_to_granted_hosts(tmp_path: Path) -> None:
    async with serving(saying(b"hello from outside\n")) as server:
        with pytest.raises(SandboxUnavailable):
            await run(f"curl -s good.example:{server.port}", tmp_path, f"good.example:{server.port}", engine="none")

    assert server.connections == 0


@pytest.mark.parametrize("engine", BOXES)
@pytest.mark.feature("F125")
async def test_a_command_reaches_a_listed_host_and_nothing_else(tmp_path: Path, engine: str) -> None:
    async with serving(saying(b"hello from outside\n")) as server:
        text = (
            f"curl -s good.example:{server.port}; curl -s evil.example:{server.port}; curl -s 127.0.0.1:{server.port}"
        )
        place = f"good.example:{server.port}"
        if not has_doors(engine):
            with pytest.raises(SandboxUnavailable):
                await run(text, tmp_path, place, engine=engine)
            assert server.connections == 0
        needs_doors(engine)
        ran, noted = await run(text, tmp_path, place, engine=engine)

    lines = ran.stdout.text.splitlines()
    assert lines[0] == "hello from outside"
    assert lines[1].startswith("evil.example")
    assert (len(lines), server.connections) == (2, 1)  # 127.0.0.1 is the box itself
    assert sorted(one.event for one in noted) == ["allowed", "closed", "refused"], "a connection ends when it does"


async def test_a_command_speaks_tls_to_the_host_it_named(tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("good.example").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with serving(saying(b"hello in private"), context) as server:
        url = f"https://good.example:{server.port}/secret"
        ran, noted = await run(f"curl -sS --cacert ca.pem {url}", tmp_path, f"good.example:{server.port}")

    assert (ran.stdout.text, ran.exit_code) == ("hello in private", 0)
    assert "secret" not in repr(noted)


@pytest.mark.parametrize("engine", BOXES)
async def test_T41_a_command_that_goes_around_the_proxy_reaches_nothing(tmp_path: Path, engine: str) -> None:
    needs_doors(engine)
    async with serving(saying(b"hello")) as server:
        place = f"good.example:{server.port}"
        around, _ = await run(
            f"curl -sS --noproxy '*' 127.0.0.1:{server.port}; echo $?", tmp_path, place, engine=engine
        )
        assert server.connections == 0
        control, _ = await run(f"curl -sS {place}; echo $?", tmp_path, place, engine=engine)

    assert around.stdout.text == "7\n"
    assert control.stdout.text == "hello0\n"
    assert control.engine == engine


@pytest.mark.parametrize("engine", BOXES)
async def test_the_profile_of_a_command_does_not_depend_on_where_its_door_lies(tmp_path: Path, engine: str) -> None:
    needs_doors(engine)
    profiles = {(await run("true", tmp_path, "good.example", engine=engine))[0].profile for _ in range(2)}

    assert len(profiles) == 1


async def test_a_grant_without_hosts_leaves_the_command_as_it_is(tmp_path: Path) -> None:
    command = Command(shell("true"), workspace=str(tmp_path))

    async with way_out(command, ()) as ready:
        assert ready is command


async def test_the_way_out_is_closed_and_removed_afterwards(tmp_path: Path) -> None:
    async with asyncio.timeout(5):
        async with way_out(Command(("true",)), ("good.example",)) as ready:
            _, writer = await asyncio.open_unix_connection(ready.door)
            writer.close()
        with pytest.raises(FileNotFoundError):
            await asyncio.open_unix_connection(ready.door)
