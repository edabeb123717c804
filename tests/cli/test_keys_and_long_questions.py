"""The key of a model's API by the name of its variable, and questions that a model cannot read as a whole."""

import json
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.cli.stage import Stage, Terminal
from toolwire.cli.entry.exits import Exit

MODEL = ("--model", "openai-compatible:scripted")


@contextmanager
def locked(key: str) -> Iterator[str]:
    """The address of a server that answers only with the right key."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            known = self.headers.get("Authorization") == f"Bearer {key}"
            message = {"role": "assistant", "content": "Welcome."}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = json.dumps({"choices": [choice]} if known else {"error": {"message": "no"}}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.mark.parametrize(("words", "stdin"), [(["ask", "Hi"], b""), (["chat"], b"Hi\n")])
def test_a_key_is_given_by_the_name_of_its_variable(stage: Stage, words: list[str], stdin: bytes) -> None:
    with locked("secret-123") as url:
        ran = stage.run(*words, *MODEL, "--base-url", url, "--key-env", "MINE", stdin=stdin, MINE="secret-123")
    assert (ran.code, ran.out) == (Exit.DONE, "Welcome.\n")
    assert "secret-123" not in ran.err


def test_a_server_that_wants_a_key_leads_to_the_flag_and_the_turn_keeps_it(stage: Stage) -> None:
    with locked("secret-123") as url:
        without = stage.run("ask", "Hi", *MODEL, "--base-url", url)
        wrong = stage.run("ask", "Hi", *MODEL, "--base-url", url, "--key-env", "MINE", MINE="other")
        resumed = stage.run(*shlex.split(wrong.err.partition("go on with: ")[2])[1:], MINE="secret-123")
    assert without.code == wrong.code == Exit.MODEL
    assert "wants a key and none was given: name the variable that holds it with --key-env NAME" in without.err
    assert "check MINE" in wrong.err
    assert (resumed.code, resumed.out) == (Exit.DONE, "Welcome.\n")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("MISSING", "--key-env MISSING: this variable is not set, or empty"),
        ("sk-abc-123", "--key-env takes the name of an environment variable"),
        ("", "--key-env takes the name of an environment variable"),
    ],
)
def test_a_wrong_name_is_told_and_a_key_is_not_repeated(stage: Stage, given: str, sentence: str) -> None:
    ran = stage.run("ask", "Hi", *MODEL, "--base-url", "http://127.0.0.1:9/v1", "--key-env", given)
    assert (ran.code, sentence in ran.err, "sk-abc" in ran.err) == (Exit.USAGE, True, False)


@pytest.mark.parametrize(
    ("words", "stdin"),
    [(["ask", "why " * 25_000], b""), (["ask", "summarize"], b"a line\n" * 1_000), (["ask", "-"], b"words " * 90_000)],
)
def test_a_question_longer_than_the_embedded_model_reads_is_refused(
    stage: Stage, words: list[str], stdin: bytes
) -> None:
    ran = stage.run(*words, stdin=stdin)
    assert (ran.code, ran.out) == (Exit.MODEL, "")
    assert "local:smollm2 reads at most 2,000; shorten it, or ask another model" in ran.err
    assert len(ran.err) < 1_000
    assert stage.run("status", "--json").json["newest"] == []


def test_a_chat_goes_on_after_such_a_question(stage: Stage) -> None:
    with Terminal(stage, "chat") as terminal:
        terminal.wait_for("› ")
        terminal.type(f"\x1b[200~{'why ' * 600}\x1b[201~\n")
        terminal.wait_for("reads at most 2,000")
        terminal.wait_for("› ")
        terminal.type("\x04")
        assert terminal.end() == Exit.DONE
