"""A real box without a network, whose only way out is the bridge to the proxy's socket."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from tests.egress.network import connector, saying, serving
from toolwire.execute.egress.caps import TrafficEvent
from toolwire.execute.egress.proxy import BRIDGE, BRIDGE_PORT, EgressProxy, proxy_environment

HOSTS = {"good.example": ["127.0.0.1"], "evil.example": ["127.0.0.1"]}

FETCH = """
import os, sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())
except urllib.error.HTTPError as no:
    print(no.code, no.read().decode())
"""

PROBES = """
import socket, sys
port = int(sys.argv[1])
def tcp(): socket.create_connection(("127.0.0.1", port), 2)
def outside(): socket.create_connection(("93.184.216.34", 80), 2)
def udp(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("93.184.216.34", 53))
def icmp(): socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).sendto(b"x" * 8, ("93.184.216.34", 0))
def dns(): socket.getaddrinfo("example.org", 80)
def vsock(): socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, port))
def abstract(): socket.socket(socket.AF_UNIX).connect("\\0toolwire-probe")
for probe in (tcp, outside, udp, icmp, dns, vsock, abstract):
    try:
        probe()
        print(probe.__name__, "OPEN")
    except OSError:
        print(probe.__name__, "closed")
"""


async def run(*command: str) -> str:
    async with asyncio.timeout(30):
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=proxy_environment()
        )
        said, _ = await process.communicate()
    return said.decode()


def boxed(path: str, *command: str) -> tuple[str, ...]:
    """A box with a network namespace of its own: loopback, and no route to anywhere."""
    box = ("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    return *box, sys.executable, "-I", str(BRIDGE), path, str(BRIDGE_PORT), *command


@pytest.fixture
def socket_path(tmp_path: Path) -> str:
    return str(tmp_path / "door")


async def test_a_program_in_a_box_reaches_a_listed_host_and_no_other(socket_path: str) -> None:
    noted: list[TrafficEvent] = []
    async with serving(saying(b"hello from outside")) as server:
        network = [f"good.example:{server.port}"]
        async with EgressProxy(socket_path, network, connector=connector(HOSTS), audit=noted.append):
            fetch = (sys.executable, "-I", "-c", FETCH)
            good = await run(*boxed(socket_path, *fetch, f"http://good.example:{server.port}/"))
            evil = await run(*boxed(socket_path, *fetch, f"http://evil.example:{server.port}/"))

    assert good == "hello from outside\n"
    assert evil.startswith("403 evil.example")
    assert [one.event for one in noted] == ["allowed", "closed", "refused"]


async def test_T41_a_program_that_ignores_the_proxy_finds_no_other_way(socket_path: str) -> None:
    async with serving(saying(b"hello")) as server, EgressProxy(socket_path, ["good.example"]):
        listener = await asyncio.start_unix_server(lambda _, writer: writer.close(), "\0toolwire-probe")
        probes = (sys.executable, "-I", "-c", PROBES, str(server.port))
        inside = await run(*boxed(socket_path, *probes))
        assert server.connections == 0
        outside = await run(*probes)
        listener.close()

    assert inside.splitlines() == [
        f"{probe} closed" for probe in ("tcp", "outside", "udp", "icmp", "dns", "vsock", "abstract")
    ]
    assert {"tcp OPEN", "abstract OPEN"} <= set(outside.splitlines()), "the control: without the box they work"


async def test_the_bridge_leaves_the_exit_code_and_the_output_to_the_command(socket_path: str) -> None:
    async with asyncio.timeout(30), EgressProxy(socket_path, []):
        process = await asyncio.create_subprocess_exec(
            *boxed(socket_path, "/bin/sh", "-c", "echo out; exit 7"), stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()

    assert (said, process.returncode) == (b"out\n", 7)


ECHO = """
import socket, sys
plugs = [socket.create_connection(("127.0.0.1", 3128)) for _ in range(int(sys.argv[1]))]
for number, plug in enumerate(plugs):
    plug.sendall(b"%d:" % number + b"x" * 100_000)
    plug.shutdown(socket.SHUT_WR)
for number, plug in enumerate(plugs):
    said = b""
    while piece := plug.recv(65536):
        said += piece
    assert said == b"%d:" % number + b"x" * 100_000, (number, len(said))
print("all came back")
"""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says everything back once it has heard it all, so that both directions fill up and half of it is closed."""
    writer.write(await reader.read())
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("connections", [1, 5, 100])
async def test_bytes_cross_the_bridge_whole_and_in_order(socket_path: str, connections: int) -> None:
    """A hundred are more than it carries at once: the rest wait their turn."""
    server = await asyncio.start_unix_server(echo, socket_path, limit=2**20)
    said = await run(*boxed(socket_path, sys.executable, "-I", "-c", ECHO, str(connections)))
    server.close()

    assert said == "all came back\n"


async def test_the_bridge_goes_when_its_command_does(socket_path: str) -> None:
    """Even where no box ends it: the port is free again, and the bridge's end of a connection is closed."""
    gone = asyncio.Event()

    async def waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        await reader.read()
        writer.close()
        gone.set()

    server = await asyncio.start_unix_server(waiting, socket_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    text = f"import socket; plug = socket.create_connection(('127.0.0.1', {port})); print(plug.recv(4))"
    said = await run(sys.executable, "-I", str(BRIDGE), socket_path, port, sys.executable, "-c", text)
    async with asyncio.timeout(5):
        await gone.wait()
    server.close()

    assert said == "b'here'\n"
