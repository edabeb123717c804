"""Files of another machine: over a process, over real SSH, over HTTP; and far ends that misbehave."""

import asyncio
import base64
import errno
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.files import Change, Protected
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Grant
from toolwire.testing import MemoryFiles
from toolwire.toolbox import LocalFiles, coding, remote, write_tool
from toolwire.toolbox.remote_files.client import RemoteFiles
from toolwire.toolbox.remote_files.server import answer
from toolwire.toolbox.remote_files.transports import HttpTransport, ProcessTransport, ssh

Call = Callable[..., Any]


def everyday_work(call: Call, files: Any, root: str) -> None:
    """What an agent does all day, done far away."""
    context = Context("call", "turn", grant=Grant(roots=(root,)))
    tools = {tool.name: tool for tool in remote(files)}
    call(tools["write"], context, path="src/a.py", content="def main():\n    return 1\n")
    call(tools["edit"], context, path="src/a.py", old_text="return 1", new_text="return 2")
    update, add = "*** Update File: src/a.py\n-    return 2\n+    return 3", "*** Add File: b.md\n+hi"
    call(tools["apply_patch"], context, patch=f"*** Begin Patch\n{update}\n{add}\n*** End Patch")
    assert call(tools["read"], context, path="src/a.py")["text"] == "def main():\n    return 3\n"
    assert [match["path"] for match in call(tools["grep"], context, pattern="return")["matches"]] == ["src/a.py"]
    assert call(tools["glob"], context, pattern="*.md")["paths"] == ["b.md"]
    assert call(tools["stat"], context, path="b.md")["size"] == 3
    for path, code in (("../x", Code.INVALID_PARAMS), (".git/config", Code.PERMISSION_DENIED)):
        with pytest.raises(ToolFailure) as raised:
            call(tools["write"], context, path=path, content="x")
        assert raised.value.code is code
    with pytest.raises(ToolFailure, match=r"did you mean b.md\?"):
        call(tools["read"], context, path="b.mdd")


@contextmanager
def over_process(argv: tuple[str, ...]) -> Iterator[RemoteFiles]:
    way = ProcessTransport(argv)
    try:
        yield RemoteFiles(way)
    finally:
        way.close()


@pytest.mark.feature("F062")
def test_the_same_tools_work_over_a_process(call: Call, workspace: Path) -> None:
    with over_process((sys.executable, "-m", "toolwire.toolbox.remote_files.server", str(workspace))) as files:
        everyday_work(call, files, str(workspace))
        (workspace / "big.txt").write_text("".join(f"line {number}\n" for number in range(200_000)))
        read = {tool.name: tool for tool in remote(files)}["read"]
        part = call(read, Context(grant=Grant(roots=(str(workspace),))), path="big.txt", offset=150_000, limit=1)
        assert part["text"] == "line 149999\n"


@pytest.fixture
async def sshd(tmp_path: Path) -> AsyncIterator[tuple[str, ...]]:
    """A real SSH server on a free port of this machine, and the options with which a client gets in."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    identity = tmp_path / "identity"
    key.write_private_key(str(identity))
    identity.chmod(0o600)
    authorized = asyncssh.import_authorized_keys(key.export_public_key().decode())

    ended: list[asyncio.Event] = []

    async def shell(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        ended.append(asyncio.Event())
        program = await asyncio.create_subprocess_shell(
            process.command or "false", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        await process.redirect(stdin=program.stdin, stdout=program.stdout)
        process.exit(await program.wait())
        await process.wait_closed()
        ended[-1].set()

    host_key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.create_server(
        asyncssh.SSHServer, "127.0.0.1", 0, server_host_keys=[host_key], authorized_client_keys=authorized,
        process_factory=shell, encoding=None,
    )  # fmt: skip
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{server.get_port()} {host_key.export_public_key().decode()}")
    yield (
        "-F", "none", "-i", str(identity), "-p", str(server.get_port()), "-o", "IdentitiesOnly=yes",
        "-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes",
    )  # fmt: skip
    async with asyncio.timeout(30):
        for one in ended:
            await one.wait()
        server.close()
        await server.wait_closed()


@pytest.mark.feature("F062")
async def test_the_same_tools_work_over_ssh(call: Call, workspace: Path, sshd: tuple[str, ...]) -> None:
    """A folder whose name a shell would take apart, to show that it does not."""
    folder = workspace / "it's $(touch evil) a; folder"
    folder.mkdir()
    with over_process(ssh("tester@127.0.0.1", str(folder), python=sys.executable, options=sshd)) as files:
        async with asyncio.timeout(60):
            await asyncio.to_thread(everyday_work, call, files, str(folder))
    assert (folder / "b.md").read_text() == "hi\n"
    assert not (workspace / "evil").exists()
    assert not (folder / "evil").exists()


@pytest.mark.feature("F062")
def test_the_same_tools_work_over_http(call: Call, workspace: Path) -> None:
    class RequestMiddleware(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = self.rfile.read(int(self.headers["Content-Length"]))
            body = answer(LocalFiles(), [str(workspace)], message)
            self.send_response(200 if self.path == "/files" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = HTTPServer(("127.0.0.1", 0), RequestMiddleware)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    way, lost = (HttpTransport(f"http://127.0.0.1:{server.server_port}/{path}") for path in ("files", "elsewhere"))
    try:
        everyday_work(call, RemoteFiles(way), str(workspace))
        with pytest.raises(OSError, match="HTTP 404"):
            RemoteFiles(lost).stat(str(workspace), "b.md")
    finally:
        way.close()
        lost.close()
        server.shutdown()
        server.server_close()
    with pytest.raises(OSError, match="cannot be reached"):
        RemoteFiles(HttpTransport(f"http://127.0.0.1:{server.server_port}/files")).stat(str(workspace), "b.md")


def test_a_folder_that_is_not_offered_cannot_be_asked_for(workspace: Path) -> None:
    files = RemoteFiles(lambda message: answer(LocalFiles(), [str(workspace)], message))
    for root in ("/", "/etc", str(workspace.parent), str(workspace) + "/"):
        with pytest.raises(PermissionError):
            files.entries(root, ".", 10)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"{", b"[]", b"null", b'{"do": "stat"}', b'{"do": "evil", "root": "R"}', b'{"do": ["stat"], "root": "R"}',
        b'{"do": "stat", "root": "R", "path": 3}', b'{"do": "stat", "root": ["R"], "path": "a"}',
        b'{"do": "part", "root": "R", "path": "a", "at": "x", "length": 1}',
        b'{"do": "change", "root": "R", "changes": [{"path": "a", "content": "%%%"}], "key": "", "note": ""}',
        b'{"do": "change", "root": "R", "changes": 3}', b"[" * 100_000,
        b'{"do": "entries", "root": "R", "path": ".", "most": 1e400}',
    ],
)  # fmt: skip
def test_a_far_end_answers_nonsense_with_an_error(message: bytes) -> None:
    said = json.loads(answer(MemoryFiles({"a": "x"}, root="R"), ["R"], message))
    assert set(said) == {"error"}


NONSENSE = [
    b"", b"{", b"[]", b"null", b"3", b'{"is": 3}', b'{"is": "x"}', b'{"is": [1]}', b'{"is": {"name": "a"}}',
    b'{"error": 3}', b'{"error": {}}', b'{"is": {"name": "../a", "kind": "file", "size": 1}}',
    b'{"is": {"name": "a", "kind": "evil", "size": 1}}', b'{"is": {"name": "a", "kind": "file", "size": "1"}}',
    b'{"error": {"kind": "SystemExit", "errno": 1, "text": "x"}}', b"[" * 100_000, b'{"is": -5}', b'{"is": null}',
]  # fmt: skip


@pytest.mark.parametrize("said", NONSENSE)
def test_nonsense_from_the_far_end_is_an_error_like_any_other(said: bytes) -> None:
    files = RemoteFiles(lambda _: said)
    with pytest.raises(OSError):
        files.stat("R", "a")
    for attempt in (
        lambda: files.entries("R", ".", 10),
        lambda: files.open("R", "a").read(10),
        lambda: files.note("R", "k"),
    ):
        try:
            attempt()
        except OSError:
            continue


def test_a_file_that_grows_or_lies_about_its_size_is_read_in_bounds() -> None:
    def lying(message: bytes) -> bytes:
        asked = json.loads(message)
        if asked["do"] == "size":
            return b'{"is": 5}'
        return json.dumps({"is": base64.b64encode(b"x" * (asked["length"] + 1)).decode()}).encode()

    with pytest.raises(OSError, match="makes no sense"):
        RemoteFiles(lying).open("R", "a").read()


@pytest.mark.parametrize(
    ("program", "number"),
    [
        ("import sys; sys.exit()", errno.EPIPE),
        ("print('Welcome to this machine, stranger!')", errno.EPROTO),
        ("print('999999999999')", errno.EPROTO),
        ("print('50'); print('short')", errno.EPIPE),
        ("import time; time.sleep(600)", errno.ETIMEDOUT),
    ],
)
def test_a_program_that_does_not_answer_is_ended_and_said(program: str, number: int) -> None:
    way = ProcessTransport((sys.executable, "-c", program), timeout_s=2.0)
    try:
        with pytest.raises(OSError) as raised:
            RemoteFiles(way).stat("R", "a")
        assert raised.value.errno == number or isinstance(raised.value, BrokenPipeError)
    finally:
        way.close()
        way.close()


def test_a_far_end_that_died_is_started_again(workspace: Path) -> None:
    (workspace / "a").write_text("x")
    program = (
        "import pathlib, runpy, sys\n"
        "mark = pathlib.Path(sys.argv[1], 'died')\n"
        "if not mark.exists():\n    mark.touch()\n    sys.exit(1)\n"
        "runpy.run_module('toolwire.toolbox.remote_files.server', run_name='__main__')"
    )
    with over_process((sys.executable, "-c", program, str(workspace))) as files:
        with pytest.raises(OSError):
            files.stat(str(workspace), "a")
        assert files.stat(str(workspace), "a").size == 1


@pytest.mark.parametrize(
    ("carries", "knows", "code"),
    [(True, True, None), (False, True, Code.EXECUTION_FAILED), (True, False, Code.OUTCOME_UNKNOWN)],
)
def test_a_write_without_an_answer_is_looked_up_and_only_then_called_unknown(
    call: Call, carries: bool, knows: bool, code: Code | None
) -> None:
    """The message may have got through although its answer did not."""
    store = MemoryFiles()

    def send(message: bytes) -> bytes:
        operation = json.loads(message)["do"]
        if operation == "note" and not knows:
            raise OSError(errno.EPIPE, "gone")
        if operation != "change":
            return answer(store, ["/workspace"], message)
        if carries:
            answer(store, ["/workspace"], message)
        raise TimeoutError(errno.ETIMEDOUT, "no answer")

    context = Context("call", "turn", grant=Grant(roots=("/workspace",)))
    tool = write_tool(RemoteFiles(send))
    if code is None:
        assert call(tool, context, path="a.txt", content="x")["created"]
    else:
        with pytest.raises(ToolFailure) as raised:
            call(tool, context, path="a.txt", content="x")
        assert raised.value.code is code
    assert ("a.txt" in store.files) is carries


def test_ssh_takes_no_option_for_a_host() -> None:
    for host in ("-oProxyCommand=evil", "", "-v"):
        with pytest.raises(ValueError):
            ssh(host, "/srv")
    assert ssh("me@there", "/srv/my files")[-2:] == (
        "me@there",
        "'python3' '-m' 'toolwire.toolbox.remote_files.server' '/srv/my files'",
    )


def test_what_is_protected_far_away_is_protected_by_name(workspace: Path) -> None:
    files = RemoteFiles(lambda message: answer(LocalFiles(), [str(workspace)], message))
    with pytest.raises(Protected) as raised:
        files.change(str(workspace), [Change(".git/config", b"x")])
    assert raised.value.name == ".git"
    assert not (workspace / ".git").exists()
    assert {tool.name for tool in coding(files)} >= {"read", "write"}
