"""Services that are not there, not ours, or die; and callers that are not welcome, send nonsense, or never read."""

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from tests.execute import served_tools
from toolwire import ToolResult, tool
from toolwire.execute.channel import LARGE_BYTES, SocketChannel
from toolwire.execute.service import ServiceExecutor, ServiceUnavailable, connect, tools_of
from toolwire.execute.service_host import ServiceHost
from toolwire.protocol.calls import Allowed, ToolCall
from toolwire.protocol.context import CallInfo, Context
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Service, Tool
from toolwire.wire.codecs.travelling import MOST_BYTES, PROTOCOL, write_allowed, write_hello

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def frame(body: bytes) -> bytes:
    return struct.pack(">Q", len(body)) + body


HELLO = frame(json.dumps({"kind": "hello", "protocol": PROTOCOL}).encode())


@asynccontextmanager
async def serving_bytes(address: str, *answers: bytes) -> AsyncIterator[None]:
    """A server that answers each message with some bytes, and then closes."""

    async def answer_it(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            (length,) = struct.unpack(">Q", await reader.readexactly(8))
            await reader.readexactly(length)
            writer.write(answer)
            await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(answer_it, address):
        yield


async def run(address: str, one: Tool, executor: ServiceExecutor | None = None) -> tuple[ToolResult, list[str]]:
    """The result of a call, and what was noted as begun."""
    begun: list[str] = []
    executor = executor or ServiceExecutor()
    context = Context("call_1", "turn_1", begins=lambda turn, call: begun.append(call))
    allowed = Allowed(ToolCall(one.name, {}, "call_1"), replace(one, target=Service(address)), {}, 0.3)
    try:
        return await executor.execute(allowed, context), begun
    finally:
        await executor.close()


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([], "closed the connection without a hello"),
        ([b""], "closed the connection without a hello"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "is not a toolwire service"),
        ([b"\xff" * 16], "is not a toolwire service"),
        ([frame(b"[]")], "is not a toolwire service"),
        ([frame(b"{")], "is not a toolwire service"),
        ([frame(b"{}")], "in place of a hello"),
        ([frame(b'{"kind": "hello"}')], "in place of a hello"),
        ([frame(b'{"kind": "hello", "protocol": 7}')], "version 7 of the protocol, and this side version 1"),
        ([frame(b'{"kind": "refused", "message": "closed today"}')], "refused: closed today"),
        ([frame(b" " * 70_000)], "is not a toolwire service"),
    ],
)
async def test_a_service_that_does_not_say_hello_has_begun_nothing(
    tmp_path: Path, answers: list[bytes], words: str
) -> None:
    async with serving_bytes(address := str(tmp_path / "s"), *answers):
        result, begun = await run(address, served_tools.wait)

    assert result.error is not None
    assert result.error.code is Code.UNAVAILABLE
    assert "'wait' was not started: " in result.text
    assert words in result.text
    assert begun == []


async def test_a_service_that_is_silent_has_begun_nothing(tmp_path: Path) -> None:
    over = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    address = str(tmp_path / "s")
    async with await asyncio.start_unix_server(wait, address):
        result, begun = await run(address, served_tools.wait, ServiceExecutor(hello_s=0.05))
        over.set()

    assert "'wait' was not started: what listens at" in result.text
    assert "does not answer" in result.text
    assert begun == []


async def test_an_address_without_a_service_has_begun_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for address in (str(tmp_path / "missing"), str(tmp_path / "file"), "/" + "x" * 200):
        result, begun = await run(address, served_tools.wait)

        assert result.error is not None
        assert result.error.code is Code.UNAVAILABLE
        assert f"'wait' was not started: the service at {address} cannot be reached" in result.text
        assert begun == []


@pytest.mark.parametrize("answer", [b"", b"\xff" * 16, frame(b"[]"), frame(b'{"kind": "x"}'), frame(b'{"kind"')])
@pytest.mark.parametrize(
    ("one", "code"), [(served_tools.wait, Code.OUTCOME_UNKNOWN), (served_tools.die_harmlessly, Code.UNAVAILABLE)]
)
async def test_a_service_that_answers_a_call_with_nonsense_leaves_its_outcome_unknown(
    tmp_path: Path, answer: bytes, one: Tool, code: Code
) -> None:
    async with serving_bytes(address := str(tmp_path / "s"), HELLO, answer):
        result, begun = await run(address, one)

    assert result.error is not None
    assert result.error.code is code
    assert begun == ["call_1"]


async def test_a_service_that_does_not_answer_a_call_is_a_timeout(tmp_path: Path) -> None:
    silent = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        await silent.wait()
        writer.close()

    address = str(tmp_path / "s")
    executor = ServiceExecutor(margin_s=0.1)
    one = replace(served_tools.wait, target=Service(address))
    async with await asyncio.start_unix_server(wait, address):
        allowed = Allowed(ToolCall("wait", {}, "call_1"), one, {}, 0.1)
        result = await executor.execute(allowed, Context("call_1", "turn_1"))
        left = executor.leftover("turn_1/call_1")
        silent.set()
        assert left is not None, "what the call touches is not free while nobody knows whether it is at work"
        await asyncio.wait_for(asyncio.wrap_future(left), 5)
    await executor.close()

    assert result.status is Status.TIMEOUT


# Callers that are not welcome


@pytest.mark.parametrize("token", ["", "wrong", "opensesam", "opensesame ", "ö\ud800"])
async def test_T171_a_caller_without_the_token_is_refused(tmp_path: Path, token: str) -> None:
    address = str(tmp_path / "s")
    async with ServiceHost([served_tools.echo], token="opensesame").listening(address):
        with pytest.raises(ServiceUnavailable, match="the token is missing or wrong"):
            await tools_of(address, token)
        result, begun = await run(address, served_tools.echo, ServiceExecutor({address: token}))

        assert "was not started" in result.text
        assert "opensesame" not in result.text
        assert begun == []


async def test_T171_control_a_caller_with_the_token_is_served(tmp_path: Path) -> None:
    address, ran = str(tmp_path / "s"), []

    @tool
    async def note() -> str:
        """Note."""
        ran.append("noted")
        return "noted"

    async with ServiceHost([note], token="opensesame").listening(address):
        [far] = await tools_of(address, "opensesame")
        result, _ = await run(address, far, ServiceExecutor({address: "opensesame"}))

    assert (result.text, ran) == ("noted", ["noted"])


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (frame(b'{"kind": "hello", "protocol": 7}'), "version 7 of the protocol, and this side version 1"),
        (frame(b'{"kind": "tools"}'), "in place of a hello"),
        (struct.pack(">Q", MOST_BYTES + 1), ""),
        (struct.pack(">Q", 1 << 17), ""),
        (b"GET / HTTP/1.1\r\n\r\n", ""),
        (frame(b"\xff\xfe"), ""),
        (HELLO + frame(b'{"kind": "nonsense"}'), "no requests of the kind 'nonsense'"),
        (HELLO + frame(b'{"kind": "call"}'), "it is not a call"),
        (HELLO + frame(b'{"kind": "call", "call": 7}'), "it is not a call"),
        (HELLO + struct.pack(">Q", MOST_BYTES + 1), ""),
    ],
)
async def test_a_caller_that_sends_nonsense_is_told_so_and_harms_no_other(
    tmp_path: Path, sent: bytes, words: str
) -> None:
    address = str(tmp_path / "s")
    async with ServiceHost([served_tools.echo]).listening(address), asyncio.timeout(5):
        reader, writer = await asyncio.open_unix_connection(address)
        writer.write(sent)
        answer = await reader.read()
        writer.close()

        assert words in answer.decode("utf-8", "replace")
        assert [one.name for one in await tools_of(address)] == ["echo"]


def _as_other_user(program: str, *words: str) -> "subprocess.Popen[bytes]":
    """Run a program as a user that is neither this one nor root, where this process may do that."""
    become = "import os, socket, struct, sys\nif os.geteuid() == 0: os.setuid(60_001)\n"
    return subprocess.Popen([sys.executable, "-S", "-c", become + program, *words], stdout=subprocess.PIPE)


async def test_T171_a_socket_of_another_user_gets_no_call() -> None:
    """Anybody can put a socket into a shared folder; the kernel says whose it is."""
    program = (
        "server = socket.socket(socket.AF_UNIX)\n"
        "server.bind(chr(0) + sys.argv[1])\n"
        "server.listen()\n"
        "print('listening', flush=True)\n"
        "one, _ = server.accept()\n"
        "print(one.recv(100), flush=True)\n"
    )
    name = f"toolwire-test-{os.getpid()}"
    with _as_other_user(program, name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        if os.geteuid() == 0:
            with pytest.raises(ServiceUnavailable, match="belongs to another user \\(60001\\)"):
                await connect(f"\0{name}")
            received = await asyncio.to_thread(process.stdout.readline)
            assert received == b"b''\n", "nothing was sent, no token either"
        else:
            process.kill()


async def test_T171_a_caller_of_another_user_is_refused() -> None:
    program = (
        "one = socket.socket(socket.AF_UNIX)\n"
        "one.connect(sys.argv[1])\n"
        "body = sys.argv[2].encode()\n"
        "one.sendall(struct.pack('>Q', len(body)) + body)\n"
        "print(one.recv(1000), flush=True)\n"
    )
    with TemporaryDirectory() as folder:
        address = f"{folder}/s"
        async with ServiceHost([served_tools.echo]).listening(address):
            os.chmod(folder, 0o755)  # noqa: PTH101 - as a careless user would
            os.chmod(address, 0o666)  # noqa: PTH101
            with _as_other_user(program, address, json.dumps(write_hello())) as process:
                assert process.stdout is not None
                answer = await asyncio.to_thread(process.stdout.readline)

    assert (b"user 60001 may not use this service" in answer) == (os.geteuid() == 0)


# Callers that never read


async def test_a_caller_that_never_reads_its_result_is_let_go(tmp_path: Path) -> None:
    address, begun = str(tmp_path / "s"), asyncio.Event()

    @tool
    async def produce() -> str:
        """Give much."""
        begun.set()
        return "x" * (20 << 20)

    async with asyncio.timeout(10):
        async with ServiceHost([produce], stall_s=0.2, drain_s=60).listening(address):
            reader, writer = await asyncio.open_unix_connection(address, limit=1)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            channel = SocketChannel(reader, writer)
            await channel.send(write_hello())
            allowed = Allowed(ToolCall("produce", {}, "c"), produce, {}, 60.0)
            await channel.send(write_allowed(allowed, CallInfo("c", "t")))
            await begun.wait()
        channel.abort()  # at the end of the block all connections of the host have ended


async def test_progress_that_is_not_read_is_dropped() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    channel = SocketChannel(reader, writer)
    for _ in range(2_000):
        channel.offer({"kind": "progress", "message": "x" * 10_000})
    waiting = writer.transport.get_write_buffer_size()
    channel.abort()
    theirs.close()

    assert 0 < waiting < 2 * LARGE_BYTES


# The host's own end


async def test_two_services_cannot_listen_at_one_address(tmp_path: Path) -> None:
    address = str(tmp_path / "s")
    async with ServiceHost([served_tools.echo]).listening(address):
        with pytest.raises(OSError, match="another service listens there"):
            async with ServiceHost([served_tools.wait]).listening(address):
                raise AssertionError("must not listen")
        assert [one.name for one in await tools_of(address)] == ["echo"]


async def test_the_socket_of_a_dead_service_is_taken_over_and_a_file_is_not(tmp_path: Path) -> None:
    address = str(tmp_path / "s")
    program = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
    dead = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", program, address)
    assert await dead.wait() == 0
    async with ServiceHost([served_tools.echo]).listening(address):
        assert [one.name for one in await tools_of(address)] == ["echo"]
    (tmp_path / "file").write_text("precious")
    with pytest.raises(OSError, match="something else than a socket"):
        async with ServiceHost([served_tools.echo]).listening(str(tmp_path / "file")):
            raise AssertionError("must not listen")

    assert (tmp_path / "file").read_text() == "precious"
    assert not (tmp_path / "s").exists()


async def test_a_service_that_ends_lets_running_calls_finish_and_cancels_what_does_not(tmp_path: Path) -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), []

    @tool
    async def work() -> str:
        """Work."""
        begun.set()
        try:
            await may_end.wait()
        except asyncio.CancelledError:
            ended.append("canceled")
            raise
        ended.append("finished")
        return "done"

    async def during(drain_s: float, lets_it: bool) -> ToolResult:
        address = str(tmp_path / "s")
        begun.clear()
        may_end.clear()
        async with ServiceHost([work], drain_s=drain_s).listening(address):
            running = asyncio.create_task(run(address, work))
            await begun.wait()
            if lets_it:
                asyncio.get_running_loop().call_soon(may_end.set)
        return (await running)[0]

    finished = await during(30.0, lets_it=True)
    cut = await during(0.0, lets_it=False)

    assert finished.text == "done"
    assert ended == ["finished", "canceled"]
    assert cut.error is not None
    assert cut.error.code is Code.OUTCOME_UNKNOWN
