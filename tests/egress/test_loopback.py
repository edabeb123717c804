"""A command may talk to servers in its own box, and to no service of this machine."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.egress.network import saying, serving
from tests.egress.test_outward import needs_doors
from tests.sandbox.conftest import ENGINES, needs
from toolwire import Agent, Grant, Tier, ToolResult
from toolwire.decide.loopback import stays_in_box
from toolwire.decide.policy import ruling
from toolwire.decide.shell import read_shell
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.protocol.policy import Verdict
from toolwire.testing import ScriptedModel
from toolwire.toolbox.shell.bash import bash_tool

SERVED = """\
echo hello from the box > index.html
python3 -m http.server 8000 > log 2>&1 &
until curl -sf localhost:8000/index.html; do sleep 0.05; done
curl -s http://127.0.0.1:8000/index.html
curl -s http://0.0.0.0:8000/index.html
"""
GRANT = Grant(Tier.RUN, frozenset({"shell"}), confirmed=frozenset({"*"}))


async def bash(engine: str, folder: Path, command: str, *network: str) -> ToolResult:
    tool = bash_tool(local_sandbox(floor=engine, default=engine), engine=engine)
    permissions = frozenset({"shell", "network"} if network else {"shell"})
    grant = replace(GRANT, roots=(str(folder),), network=network, permissions=permissions)
    async with asyncio.timeout(60), Agent(ScriptedModel(), [tool], grant=grant) as agent:
        return await agent.call("bash", {"command": command})


@pytest.mark.contrast("T106")
@pytest.mark.parametrize("engine", [each for each in ENGINES if each != "none"])
@pytest.mark.parametrize("network", [(), ("good.example",)])
async def test_T106_a_server_in_the_same_box_is_reached_with_and_without_granted_hosts(
    tmp_path: Path, engine: str, network: tuple[str, ...]
) -> None:
    needs_doors(engine) if network else needs(engine)
    result = await bash(engine, tmp_path, SERVED, *network)

    assert result.structured["stdout"] == "hello from the box\n" * 3
    assert not result.untrusted


@pytest.mark.threat("T106")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("granted", [False, True])
async def test_T106_a_service_of_this_machine_is_not_reached(tmp_path: Path, engine: str, granted: bool) -> None:
    """Neither directly, nor by a rule that names it; where nothing confines a command, it is refused."""
    async with serving(saying(b"private\n")) as server:
        port = server.port
        network = (f"localhost:{port}", f"127.0.0.1:{port}") if granted else ()
        command = f"curl -s localhost:{port}; curl -s http://127.0.0.1:{port}/; touch x"
        around = f"curl -s --noproxy x -x 127.0.0.1:3128 http://localhost:{port}/; touch y" if granted else "touch y"
        results = [await bash(engine, tmp_path, text, *network) for text in (command, around)]

    assert server.connections == 0
    assert not any("private" in result.text for result in results)


@pytest.mark.control("T106")
async def test_T106_control_the_service_answers_whoever_is_on_this_machine() -> None:
    async with serving(saying(b"private\n")) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"private" in await reader.read()
        writer.close()


OWN = (
    "curl localhost:8000", "curl -s http://localhost:8000/a?b=c", "curl -sS 'http://127.0.0.1:8000/x'",
    "curl http://[::1]:80/", "curl -X POST -d a=b -H 'a: evil.example' localhost", "curl 0.0.0.0:1 127.0.0.9:2",
    "curl -o out.html localhost:8000/$name", "wget -qO- http://localhost:8000/", "nc -z localhost 8000",
    "nc -l -p 8000", "curl --max-time 5 --url localhost:1",
)  # fmt: skip
OTHERS = (
    "curl x.org", "curl localhost x.org", "curl localhost.x.org", "curl 127.0.0.1.x.org", "curl localhost@x.org",
    "curl http://localhost:80@x.org/", "curl -x x.org:80 localhost", "curl --proxy x.org localhost",
    "curl --connect-to ::x.org: localhost", "curl --resolve localhost:80:1.2.3.4 localhost", "curl -K file localhost",
    "curl 'http://{localhost,x.org}/'", "curl $host", "curl localhost:$port", "curl localhost$rest", "curl",
    "curl --doh-url https://x.org localhost", "curl ftp://localhost/", "curl 10.0.0.1", "curl 127.1.x.org",
    "wget -e http_proxy=x.org localhost", "nc x.org 80", "nc localhost x.org", "nc -x x.org localhost 80",
    "ssh localhost", "curl $opts localhost", "curl localhost; wget x.org", "curl '2130706433.x.org'",
)  # fmt: skip


@pytest.mark.parametrize(("text", "own"), [*((one, True) for one in OWN), *((one, False) for one in OTHERS)])
def test_T106_only_what_plainly_names_the_box_itself_needs_no_network(text: str, own: bool) -> None:
    tool = bash_tool(local_sandbox())
    ruled = ruling(tool, {"command": text}, GRANT)

    assert all(map(stays_in_box, read_shell(text).commands)) == own
    assert (ruled.verdict is not Verdict.DENY) == own
    assert ruling(replace(tool, sandbox="none"), {"command": text}, GRANT).verdict is Verdict.DENY
