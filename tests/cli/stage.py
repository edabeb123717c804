"""A stage for the real `toolwire` command: a folder of its own, a scripted model behind HTTP, and its exit codes."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests import forked

LIMIT_S = 60
MODEL = "openai-compatible:scripted"


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON value; anything else there is an error."""
        return json.loads(self.out)


@dataclass(slots=True)
class Stage:
    """A folder in which commands run, with an environment that knows nothing of this machine.

    The folder is trusted, so that tests of other things can use any setting.
    """

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    started: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def run(self, *words: str, stdin: bytes | None = None, **environ: str) -> Ran:
        with forked.start(self.command(*words), cwd=self.folder, env=self._environ(environ)) as process:
            try:
                out, err = process.communicate(stdin or b"", timeout=LIMIT_S)
            except BaseException:
                process.kill()
                raise
        return Ran(process.returncode, out.decode(), err.decode())

    def start(
        self, *words: str, stdin: int = subprocess.DEVNULL, anew: bool = False, **environ: str
    ) -> "subprocess.Popen[bytes]":
        """Start a command and leave it running, in an interpreter of its own where it is to be started `anew`."""
        given = self._environ(environ)
        process = forked.start(self.command(*words), cwd=self.folder, env=given, stdin=stdin, anew=anew)
        self.started.append(process)
        return process

    def close(self) -> None:
        """End what is still running."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=LIMIT_S)

    def command(self, *words: str) -> list[str]:
        return [forked.COMMAND, *words]

    def settings(self, text: str) -> None:
        (self.folder / "toolwire.toml").write_text(text, encoding="utf-8")

    def module(self, name: str, text: str) -> None:
        (self.folder / f"{name}.py").write_text(text, encoding="utf-8")

    def _environ(self, more: dict[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        own = {"HOME": str(self.folder), "PYTHONUTF8": "1", "TOOLWIRE_TRUST": str(self.folder)}
        return {**kept, **own, **self.environ, **more}


@dataclass(slots=True)
class Script:
    """What the model says, one entry for each request: text, a list of (tool, arguments) pairs, or a status.

    After a status the server asks for a pause of `pause_s`, if there is one.

    A request is counted in `arrived`; one with a gate is answered when that opens.
    """

    lines: list[Any]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    gates: dict[int, threading.Event] = field(default_factory=dict)
    pause_s: str = ""
    held_back: int = 0
    """After so many pieces, a streamed answer waits until `go_on` is set."""
    go_on: threading.Event = field(default_factory=threading.Event)

    def wait_for_request(self, process: "subprocess.Popen[bytes]") -> None:
        """Until the process has sent its next request; one that does not is shown with what it said."""
        if not self.arrived.acquire(timeout=LIMIT_S):
            process.kill()
            raise AssertionError(f"no request came: {process.communicate(timeout=LIMIT_S)}")

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--model", MODEL, "--base-url", self.url)


@contextmanager
def scripted(*lines: Any) -> Iterator[Script]:
    """A real HTTP server that speaks the OpenAI chat API and says these lines."""
    script = Script(list(lines))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script.requests.append(body)
            script.headers.append({name.lower(): value for name, value in self.headers.items()})
            number = len(script.requests)
            script.arrived.release()
            if gate := script.gates.get(number):
                gate.wait(LIMIT_S)
            line = script.lines[number - 1] if number <= len(script.lines) else "The script is over."
            try:
                self._answer(line, streamed=bool(body.get("stream")))
            except OSError:
                return

        def _answer(self, line: Any, *, streamed: bool) -> None:
            if isinstance(line, int):
                self._send(line, "application/json", b'{"error": {"message": "as the script says"}}')
            elif streamed:
                chunks = [b"data: " + json.dumps(c).encode() + b"\n\n" for c in _chunks(line)] + [b"data: [DONE]\n\n"]
                at_once = script.held_back or len(chunks)
                self._send(200, "text/event-stream", b"".join(chunks[:at_once]), b"".join(chunks[at_once:]))
            else:
                self._send(200, "application/json", json.dumps(_whole(line)).encode())

        def _send(self, status: int, kind: str, body: bytes, later: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body) + len(later)))
            if script.pause_s and status != 200:
                self.send_header("Retry-After", script.pause_s)
            self.end_headers()
            self.wfile.write(body)
            if later:
                script.go_on.wait(LIMIT_S)
                self.wfile.write(later)

        def log_message(self, *args: Any) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    script.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        for gate in (*script.gates.values(), script.go_on):
            gate.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def _calls(line: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {
            "index": place,
            "id": f"call_{place}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for place, (name, arguments) in enumerate(line)
    ]


_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def _chunks(line: Any) -> list[dict[str, Any]]:
    deltas = [{"tool_calls": _calls(line)}] if isinstance(line, list) else [{"content": part} for part in _parts(line)]
    reason = "tool_calls" if isinstance(line, list) else "stop"
    pieces: list[dict[str, Any]] = [{"delta": delta, "finish_reason": None, "index": 0} for delta in deltas]
    pieces.append({"delta": {}, "finish_reason": reason, "index": 0})
    said = [{"id": "x", "object": "chat.completion.chunk", "model": "scripted", "choices": [piece]} for piece in pieces]
    return [*said, {"id": "x", "object": "chat.completion.chunk", "model": "scripted", "choices": [], "usage": _USAGE}]


def _parts(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)]


def _whole(line: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None if isinstance(line, list) else line}
    if isinstance(line, list):
        message["tool_calls"] = _calls(line)
    reason = "tool_calls" if isinstance(line, list) else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"id": "x", "object": "chat.completion", "model": "scripted", "choices": [choice], "usage": _USAGE}


class Terminal:
    """A command at a real pseudo-terminal of 80 columns: type to it, and wait for what it shows.

    Its standard output can go to the file `out` instead.
    """

    def __init__(
        self, stage: Stage, *words: str, columns: int = 80, out: Path | None = None, typed: str = "", **environ: str
    ) -> None:
        """What was `typed` is there before the command begins."""
        self.seen = ""
        self._read = 0
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.type(typed)
        shown = slave if out is None else os.open(out, os.O_WRONLY | os.O_CREAT)
        self.process = forked.start(
            stage.command(*words),
            cwd=stage.folder,
            env=stage._environ({"TERM": "xterm-256color", **environ}),
            stdin=slave,
            stdout=shown,
            stderr=slave,
            at_terminal=True,
        )
        for handle in {slave, shown}:
            os.close(handle)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_S)
        os.close(self._master)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, words: str) -> str:
        """Everything shown so far, once these words come after what was waited for before."""
        while (found := self.seen.find(words, self._read)) < 0:
            if not self._more():
                raise AssertionError(f"{words!r} was not shown; this was: {self.seen[self._read :]!r}")
        self._read = found + len(words)
        return self.seen

    def interrupt(self, words: str) -> str:
        """Press Ctrl-C at a prompt until these words are shown."""
        return self.press("\x03", words)

    def press(self, key: str, words: str) -> str:
        """Press a key that sends a signal, at a prompt, until these words are shown.

        The line editor does not notice one that comes after it has shown the prompt and before it waits for keys, as a
        busy machine lets happen; a user presses again.
        """
        for _ in range(LIMIT_S):
            self.type(key)
            while self.seen.find(words, self._read) < 0 and select.select([self._master], [], [], 1)[0]:
                if not self._more():
                    break
            if self.seen.find(words, self._read) >= 0:
                break
        return self.wait_for(words)

    def end(self) -> int:
        """Show the rest, and give the exit code."""
        while self._more():
            pass
        return self.process.wait(LIMIT_S)

    def _more(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], LIMIT_S)
        try:
            data = os.read(self._master, 65_536) if ready else b""
        except OSError:  # Linux says EIO when the last process at the terminal is gone
            data = b""
        self.seen += data.decode("utf-8", "replace")
        return bool(data)
